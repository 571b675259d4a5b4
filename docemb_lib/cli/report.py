"""The report of a plan: its final table, with words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import nbformat
import pandas as pd

from docemb_lib.evaluation.scoreboard import MAIN_METRICS, last_round, over_tasks, with_interval
from docemb_lib.runs import records
from docemb_lib.runs.execution import NOTEBOOK
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.models import Model
from docemb_lib.runs.run import Run
from docemb_lib.runs.scores import Final
from docemb_lib.runs.store import link, relative
from docemb_lib.settings.labels import typeset
from docemb_lib.settings.notebooks import EVALUATION, SIMDE
from docemb_lib.thesis.comparison import short_labels
from docemb_lib.thesis.findings import WITHOUT_CONTEXTUAL

STUDENT = "student "  # how the names of students begin
TERMS = (  # of the final table
    "fitted on: where the words and directions of a model are from (task: its texts, without "
    "labels); centred: minus the mean embedding of these texts; plain sum: of both losses, "
    "without λ."
)


class Report(NamedTuple):
    """What `docemb run` says at its end."""

    board: pd.DataFrame | None  # models × tasks; None if no run opens the test splits
    summary: str  # what was found and what to take; "" without a board
    paths: list[tuple[str, str]]  # names and paths of the results


def report(planned: Sequence[Run]) -> Report:
    """The report of a plan's runs, from the final evaluations or, without any, those of SimDE.

    The students of these evaluations get their links again.
    """
    final = _final_records(planned)
    paths = [("runs", "outputs/runs")]
    students = [link_student(run, record) for run, record in final.items()]
    paths += [("student", student) for student in students if student]
    if not final:
        return Report(None, "", paths)
    run, last = [*final.items()][-1]
    # Lines of a plan may have other profiles; evaluations of one setting are comparable.
    comparable = [record for record in final.values() if record.setting == last.setting]
    keys = {record.label: of_record for of_record, record in final.items() if record in comparable}
    names = {label: typeset(STUDENT + name) for label, name in short_labels(keys).items()}
    shown = {**names, last.label: "this student"}
    evaluations = []
    for record in comparable:
        recorded = Final.of_record(record, record.label)
        evaluations.append(typeset_models(recorded, shown))
    evaluation = evaluations[-1]
    evaluation = evaluation._replace(student=evaluation.adapted or evaluation.student)
    model, reason = evaluation.choice()
    how = _command_for(evaluation.model(model), students[-1], run)
    which = f"This student: {names.get(last.label, typeset(last.label)).removeprefix(STUDENT)}."
    take = f"Take {model}: {reason}{how}."
    said = " ".join(conclusion_of(run).split())
    added = [each for each in re.split(r"(?<=\.) ", said) if each.startswith(WITHOUT_CONTEXTUAL)]
    sentences = [which, evaluation.standing(), *added, take, evaluation.without_labels]
    summary = "\n".join(filter(None, sentences))
    return Report(_board(evaluations), summary, paths)


def conclusion_of(run: Run) -> str:
    """What the cells tagged `conclusion` of the executed notebook have printed."""
    cells = nbformat.read(run.folder / NOTEBOOK, as_version=4).cells
    concluding = [cell for cell in cells if "conclusion" in cell.metadata.get("tags", ())]
    return "".join(output.get("text", "") for cell in concluding for output in cell.outputs).strip()


def typeset_models(evaluation: Final, names: Mapping[str, str]) -> Final:
    """The evaluation with models as figures print them, or with these names, by label."""
    printed = {label: typeset(label) for label in evaluation.models["model"]}
    return evaluation.called({**printed, **names})


def _done(planned: Sequence[Run]) -> dict[Run, records.Record]:
    """The runs that are done, with their records."""
    recorded = {run: run.record for run in planned if run.is_done}
    return {run: record for run, record in recorded.items() if record is not None}


def _final_records(planned: Sequence[Run]) -> dict[Run, records.Record]:
    """The final evaluations or, without any, those of SimDE."""
    done = _done(planned)
    final: dict[Run, records.Record] = {}
    for notebook in (EVALUATION, SIMDE):
        final = final or {run: done[run] for run in done if run.notebook == notebook.name}
    return final


def collapsed_runs(planned: Sequence[Run]) -> list[str]:
    """A line for each run whose student has collapsed, with what to change."""
    lines = []
    for record in _done(planned).values():
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


def _command_for(model: Model, student: str | None, run: Run) -> str:
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


def link_student(run: Run, record: records.Record) -> str | None:
    """Link `outputs/students/<name of the run>` to its student again.

    Returns the link, None without a student.
    """
    folder = record.student_folder
    return None if folder is None else relative(link("students", run.slug, folder))


def paths_of(run: Run) -> list[tuple[str, str]]:
    """Names and paths of what a run that is done has left."""
    paths = [("run", relative(run.folder)), ("executed notebook", relative(run.folder / NOTEBOOK))]
    student = run.record and link_student(run, run.record)
    return [*paths, ("student", student)] if student else paths
