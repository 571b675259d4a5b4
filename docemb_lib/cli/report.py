"""The report of a plan: its final table with words, and its executed notebooks as pages."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.base.progress import progress
from docemb_lib.evaluation.scoreboard import MAIN_METRICS, last_round, over_tasks, with_interval
from docemb_lib.runs import records
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.models import Model
from docemb_lib.runs.scores import Final
from docemb_lib.settings.notebooks import EVALUATION, SIMDE
from docemb_lib.settings.profile import Profile
from docemb_lib.sweeps.execution import Planned, Runs, is_done, records_of
from docemb_lib.sweeps.plan import chosen_runs, profile_argument, resolve_plan
from docemb_lib.workspace import Workspace, write_text

if TYPE_CHECKING:
    from nbformat import NotebookNode

logger = logging.getLogger(__name__)

TEX = r"((?:[^$\n]|\n(?!\s*\n))+)"  # within one paragraph
# A formula in a paragraph of its own, or between words; a price is none.
FORMULA = re.compile(rf"\$\${TEX}\$\$|\${TEX}\$(?!\d)")
LOADED = re.compile(r"<script[^>]* src=.*?</script>", re.DOTALL)
# Notebook pages are light. Where the reader's browser is dark, colours are inverted, and pictures
# inverted back.
DARK = """<style>@media screen and (prefers-color-scheme: dark) {
html, img { background: #fff }
html { filter: invert(0.9) hue-rotate(180deg) }
img { filter: invert(1) hue-rotate(180deg) }
}</style>"""


class Report(NamedTuple):
    """What `docemb run` says at its end."""

    board: pd.DataFrame | None  # models × tasks; None if no run opens the test splits
    summary: str  # what was found and what to take; "" without a board
    paths: list[tuple[str, str]]  # names and paths of the results


def report(planned: Runs, workspace: Workspace) -> Report:
    """The report of a plan's runs, from the final evaluations or, without any, those of SimDE.

    The students of these evaluations get their links again.
    """
    done = records_of(planned, workspace)
    runs = {run.fingerprint: run for run in planned}
    final: list[records.Record] = []
    for notebook in (EVALUATION, SIMDE):
        final = final or [record for record in done if record.notebook == notebook.name]
    paths = [("executed notebooks", "outputs/notebooks"), ("figures", "outputs/figures")]
    students = [link_student(runs[record.fingerprint], record, workspace) for record in final]
    paths += [("student", student) for student in students if student]
    if not final:
        return Report(None, "", paths)
    last = final[-1]
    # Lines of a plan may have other profiles; evaluations of one setting are comparable.
    evaluations = [
        Final.of_record(workspace, record, last.label).called(last.label)
        for record in final
        if record.setting == last.setting
    ]
    evaluation = evaluations[-1]
    evaluation = evaluation._replace(student=evaluation.adapted or evaluation.student)
    choice = evaluation.choice()
    how = _command_for(evaluation.model(choice.model), students[-1], runs[last.fingerprint])
    summary = f"{evaluation.standing()}\nTake {choice.model}: {choice.reason}{how}."
    return Report(_board(evaluations), summary, paths)


def collapsed_runs(planned: Runs, workspace: Workspace) -> list[str]:
    """A line for each run whose student has collapsed, with what to change."""
    lines = []
    for record in records_of(planned, workspace):
        note = records.collapse_note(record.metrics)
        if note:
            lines.append(f"{record.notebook}  {record.label}: {note}")
    return lines


def _board(evaluations: Sequence[Final]) -> pd.DataFrame:
    """Models × tasks, those with the highest mean over all tasks first, then those without one."""
    intervals = _of_all_models([each.intervals for each in evaluations], "task", "metric")
    models = _of_all_models([each.models for each in evaluations])
    main = intervals[intervals["metric"].isin(MAIN_METRICS)]
    board = main.pivot_table(index="model", columns="task", values="value", sort=False)
    board = board.rename_axis(columns=None)
    means = over_tasks(intervals)[["value", "low", "high"]]
    means = means.sort_values("value", ascending=False, kind="stable")
    without_mean = board.index.difference(means.index, sort=False)
    board = board.loc[[*means.index, *without_mean]]
    texts = {model: with_interval(*row) for model, *row in means.itertuples()}
    board["mean"] = [texts.get(model, "") for model in board.index]
    board["fitted on"] = models["fitted on"].reindex(board.index)
    return board


def _of_all_models(tables: Sequence[pd.DataFrame], *by: str) -> pd.DataFrame:
    """The last rounds of a table of several evaluations, which share models: each model once."""
    rows = pd.concat([last_round(table) for table in tables])
    return rows.drop_duplicates(["model", *by]).set_index("model")


def _command_for(model: Model, student: str | None, run: Planned) -> str:
    """The end of the last sentence: how the model is used or made, if a command does it."""
    if model.form != Form.ADAPTED:
        return ""
    if model.kind == Kind.UNTRAINED:
        encoder = run.profile.student.model
        command = f"`docemb adapt {encoder} CORPUS -o OUT` makes it for your documents"
        return f"; {command}, without training"
    if model.kind != Kind.STUDENT:
        return ""
    if run.profile.corpus.source == "local":
        return f"; `docemb embed {student} INPUT -o embeddings.parquet` embeds documents with it"
    return f"; `docemb adapt {student} CORPUS -o OUT` fits it to your documents"


def link_student(run: Planned, record: records.Record, workspace: Workspace) -> str | None:
    """Link `outputs/students/<name of the run>` to its student again.

    Returns the link, None without a student.
    """
    folder = record.student and (workspace.root / record.student).resolve()
    if not folder or not folder.is_dir():
        return None
    return workspace.relative(workspace.link("students", run.executed.stem, folder))


def paths_of(run: Planned, record: records.Record, workspace: Workspace) -> list[tuple[str, str]]:
    """Names and paths of what one run has left."""
    paths = [("executed notebook", workspace.relative(run.executed))]
    if record.figures:
        paths.append(("figures", str(Path(record.figures[0]).parent)))
    student = link_student(run, record, workspace)
    return [*paths, ("student", student)] if student else paths


def executed_notebook(run: Planned) -> NotebookNode:
    """The executed copy of a run that is done, with the prose that its notebook has now."""
    import nbformat

    notebook = nbformat.read(run.source, as_version=4)
    executed = nbformat.read(run.executed, as_version=4)
    code = (cell for cell in executed.cells if cell.cell_type == "code")
    cells = []
    for cell in notebook.cells:
        is_code = cell.cell_type == "code"
        cells.append(next(code) if is_code else cell)
        if is_code and "parameters" in cell.metadata.get("tags", ()):
            cells.append(next(code))  # those of the run, which papermill has put below
    if run.chosen:
        cells.insert(1, nbformat.v4.new_markdown_cell(run.chosen))
    executed.cells = cells
    return executed


def conclusion_of(notebook: NotebookNode) -> str:
    """What the cells tagged `conclusion` of an executed notebook have printed."""
    concluding = [cell for cell in notebook.cells if "conclusion" in cell.metadata.get("tags", ())]
    return "".join(output.get("text", "") for cell in concluding for output in cell.outputs).strip()


def write_pages(profile: str, out: Path | None = None) -> Path:
    """Write a page for each executed notebook of a profile's plan, and an index.

    The index has the final table, and what the cells tagged `conclusion` have printed. The pages
    need no network. They are written to `out`, or to `outputs/report/`. Returns the index. Raises
    InputError if no run is done.
    """
    import nbformat

    workspace = Workspace()
    loaded = Profile.load(profile)
    steps = resolve_plan(loaded, profile_argument(profile), workspace)
    planned = chosen_runs(steps)
    done = [run for run in planned if is_done(run, workspace)]
    without = [run for run in planned if run not in done and run.record(workspace) is not None]
    if without:
        names = ", ".join(f"{run.notebook} ({run.label})" for run in without)
        problem = "the executed notebook is missing, damaged or of an earlier text"
        logger.warning("left out: %s: %s; `docemb run` executes it again", names, problem)
    if not done:
        raise InputError(
            f"report: no run of profile {loaded.name} is done; `docemb run` makes them"
        )
    folder = out or workspace.outputs / "report" / loaded.name
    board, summary, _ = report(done, workspace)
    blocks = [f"<h1>docemb, profile {escape(loaded.name)}</h1>"]
    blocks += [f"<p>{escape(line)}</p>" for line in summary.splitlines()]
    if board is not None:
        board = board.rename_axis(None)
        blocks.append(board.to_html(border=0, float_format="{:.3f}".format, na_rep=""))
    for run in progress(done, desc="pages", unit="notebooks"):
        name = f"{run.notebook}/{run.executed.stem}.html"
        notebook = executed_notebook(run)
        write_text(folder / name, page_of(notebook))
        title = escape(f"{run.notebook}: {run.label}")
        blocks.append(f'<p><a href="{escape(name)}">{title}</a></p>')
        blocks.append(f"<p>{escape(' '.join(conclusion_of(notebook).split()))}</p>")
    index = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("\n\n".join(blocks))])
    write_text(folder / "index.html", page_of(index))
    return folder / "index.html"


def page_of(notebook: NotebookNode) -> str:
    """A notebook, as nbformat reads it, as a page that loads nothing; formulas become MathML."""
    from latex2mathml.converter import convert
    from nbconvert import HTMLExporter

    def mathml(formula: re.Match[str]) -> str:
        block, inline = formula.groups()
        # Names have an escaped underscore, whose backslash the converter would show.
        latex = (block or inline).replace(r"\_", "_")
        return convert(latex, display="block" if block else "inline")

    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = FORMULA.sub(mathml, cell.source)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    return LOADED.sub("", page).replace("</head>", f"{DARK}</head>", 1)
