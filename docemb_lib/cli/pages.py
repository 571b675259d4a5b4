"""The executed notebooks of a profile: as pages with an index, and as small copies to publish."""

from __future__ import annotations

import base64
import io
import logging
import re
from collections import deque
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import nbformat

from docemb_lib.base.errors import InputError
from docemb_lib.base.progress import is_bar, progress
from docemb_lib.cli.latex import latex_tables
from docemb_lib.cli.report import (
    TERMS,
    conclusion_of,
    final_evaluations,
    report,
    sentences_of,
)
from docemb_lib.settings.labels import typeset
from docemb_lib.settings.notebooks import FREE, REGISTRY
from docemb_lib.settings.profile import Profile
from docemb_lib.sweeps.execution import Planned, execute_free, execute_run, is_done
from docemb_lib.sweeps.plan import profile_argument, resolve_plan
from docemb_lib.sweeps.sweep import comparison_page
from docemb_lib.thesis.comparison import distinct_labels
from docemb_lib.thesis.findings import WITHOUT_CONTEXTUAL
from docemb_lib.workspace import Workspace, write_bytes, write_text

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
WIDGET = "application/vnd.jupyter.widget-view+json"
INJECTED = "injected-parameters"  # papermill's tag of the cell with the parameters of a run
# Names of the figures that stand for a chapter in the index; the first that its run has is taken.
PICTURES = ("runs", "differences", "lengths")


class Chapter(NamedTuple):
    """A notebook of which runs are done."""

    page: Planned  # compares all the runs; the run itself where there is one
    runs: list[Planned]


def done_chapters(profile: str, workspace: Workspace) -> list[Chapter]:
    """The notebooks of a profile, in the order of the chapters, with the runs that are done.

    They are those of the plan, those on request included. Raises InputError if no run is done.
    """
    loaded = Profile.load(profile)
    chapters = []
    without: list[str] = []
    for notebook in REGISTRY:
        steps = resolve_plan(loaded, profile_argument(profile), workspace, only=notebook)
        done: list[Planned] = []
        latest: list[Planned] = []  # of the last step
        for step in steps:
            runs = step.runs
            latest = [run for run in runs if is_done(run, workspace)] or latest
            done += [run for run in latest if run not in done]
            lost = [run for run in runs if run not in done and run.record(workspace) is not None]
            without += [f"{run.notebook} ({run.label})" for run in lost]
        if done:
            # The page shows the first of these runs in detail.
            first_latest = [*dict.fromkeys([*latest, *done])]
            page = comparison_page(first_latest) if len(done) > 1 else done[0]
            chapters.append(Chapter(page, done))
    if without:
        problem = "the executed notebook is missing, damaged or of an earlier code"
        names = ", ".join(without)
        logger.warning("left out: %s: %s; `docemb run` executes it again", names, problem)
    if not chapters:
        problem = f"no run of profile {loaded.name} is done; `docemb run` makes them"
        raise InputError(f"report: {problem}")
    return chapters


def executed_notebook(run: Planned) -> NotebookNode:
    """The executed copy of a run that is done, with the prose that its notebook has now."""
    return _with_prose(run.executed, run.source)


def _with_prose(executed: Path, source: Path) -> NotebookNode:
    """An executed copy with the prose of its notebook, whose code is that of the copy."""
    notebook = nbformat.read(executed, as_version=4)
    code = deque(cell for cell in notebook.cells if cell.cell_type == "code")
    notebook.cells = []
    for cell in nbformat.read(source, as_version=4).cells:
        notebook.cells.append(code.popleft() if cell.cell_type == "code" else cell)
        while code and INJECTED in code[0].metadata.get("tags", ()):
            notebook.cells.append(code.popleft())
    return notebook


def write_pages(profile: str, out: Path | None = None) -> Path:
    """Write a page for each executed notebook of a profile, and an index.

    The index has the final table, and for each chapter a picture and what the cells tagged
    `conclusion` have printed about all its runs: where a notebook has several, it is executed again
    to compare them. The pages need no network. They are written to `out`, or to `outputs/report/`.
    Returns the index. Raises InputError if no run is done.
    """
    workspace = Workspace()
    chapters = done_chapters(profile, workspace)
    name = Profile.load(profile).name
    folder = out or workspace.outputs / "report" / name
    board, summary, _ = report([run for each in chapters for run in each.runs], workspace)
    title = f"docemb, profile {name}"
    blocks = [f"<h1>{escape(title)}</h1>"]
    blocks += [f"<p>{escape(line)}</p>" for line in summary.splitlines()]
    if board is not None:
        board = board.rename_axis(None)
        blocks.append(board.to_html(border=0, float_format="{:.3f}".format, na_rep=""))
        blocks.append(f"<p>{TERMS}</p>")
    for chapter in progress(chapters, desc="pages", unit="notebooks"):
        blocks += _write_chapter(chapter, folder, workspace)
    index = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("\n\n".join(blocks))])
    write_text(folder / "index.html", page_of(index, title))
    return folder / "index.html"


def write_latex(profile: str, file: Path) -> None:
    """Write the tables of the final evaluations of a profile, see `latex_tables`.

    Raises InputError if no run that opens the test splits is done.
    """
    workspace = Workspace()
    chapters = done_chapters(profile, workspace)
    runs = [run for each in chapters for run in each.runs]
    evaluations, names = final_evaluations(runs, workspace)
    if not evaluations:
        problem = f"no final evaluation of profile {profile} is done; `docemb run` makes it"
        raise InputError(f"--latex: {problem}")
    write_text(file, latex_tables(evaluations, names))


def _write_chapter(chapter: Chapter, folder: Path, workspace: Workspace) -> list[str]:
    """Write the pages of a notebook and its picture; return its part of the index, in HTML."""
    page, runs = chapter
    execute_run(page, workspace)
    links = []
    each = dict.fromkeys([page, *runs])
    names = distinct_labels((typeset(run.label), run.key) for run in each)
    for run, name in zip(each, names, strict=True):
        notebook = executed_notebook(run)
        heading = notebook.cells[0].source.partition("\n")[0].strip("# ")
        file = f"{run.notebook}/{run.executed.stem}.html"
        write_text(folder / file, page_of(notebook, f"{heading}: {name}", back="../index.html"))
        links.append(f'<a href="{escape(file)}">{escape(heading if run is page else name)}</a>')
        if run is page:
            sentences = sentences_of(conclusion_of(notebook))
    # The standing of the run in detail, what the contextual teacher adds, and the other runs.
    shown = [each for each in sentences[1:] if each.startswith(("Of ", WITHOUT_CONTEXTUAL))]
    blocks = [f"<h2>{links[0]}</h2>", f"<p>{escape(' '.join([sentences[0], *shown]))}</p>"]
    if len(runs) > 1:
        this = f"The student or model of this conclusion is {escape(names[0])}."
        blocks.append(f"<p>{this} All runs: {'; '.join(links[1:])}</p>")
    record = page.record(workspace)
    figures = {} if record is None else {Path(path).stem: path for path in record.figures}
    chosen = [figures[stem] for stem in PICTURES if stem in figures] or [*figures.values()][-1:]
    if chosen and (workspace.root / chosen[0]).is_file():
        picture = f"{page.notebook}/{Path(chosen[0]).name}"
        write_bytes(folder / picture, (workspace.root / chosen[0]).read_bytes())
        blocks.append(f'<p><img src="{escape(picture)}" alt="" style="max-width: 100%"></p>')
    return blocks


def page_of(notebook: NotebookNode, title: str, *, back: str = "") -> str:
    """A notebook, as nbformat reads it, as a page that loads nothing; formulas become MathML.

    back: the page that a link on top leads to; "": there is none.
    """
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
    page, _ = HTMLExporter().from_notebook_node(notebook, {"metadata": {"name": title}})
    page = LOADED.sub("", page).replace("</head>", f"{DARK}</head>", 1)
    link = f'<p><a href="{escape(back)}">All notebooks</a></p>' if back else ""
    return re.sub(r"<body[^>]*>", lambda body: body[0] + link, page, count=1)


def publish_copies(profile: str, folder: Path) -> list[Path]:
    """Write one small executed copy of each notebook, which GitHub and others show as it is.

    The copy of a notebook compares its runs that are done. Notebooks that make no run are executed
    for it. Raises InputError if no run is done.
    """
    workspace = Workspace()
    pages = {each.page.notebook: each.page for each in done_chapters(profile, workspace)}
    written = []
    for name in progress([*FREE, *pages], desc="copies", unit="notebooks"):
        if name in FREE:
            notebook = _executed_free(name, workspace)
        else:
            execute_run(pages[name], workspace)
            notebook = executed_notebook(pages[name])
        text = nbformat.writes(small_copy(notebook)) + "\n"
        written.append(folder / f"{name}.ipynb")
        write_text(written[-1], text.replace(f"{workspace.root}/", ""))
    return written


def _executed_free(name: str, workspace: Workspace) -> NotebookNode:
    """The executed copy of a notebook that makes no run; it is executed unless it is there."""
    source = workspace.root / "notebooks" / f"{name}.ipynb"
    executed = workspace.outputs / "notebooks" / name / "executed.ipynb"
    execute_free(source, executed)
    return _with_prose(executed, source)


def small_copy(notebook: NotebookNode) -> NotebookNode:
    """An executed notebook without times, progress and widgets, and with small figures."""
    kept = {key: notebook.metadata[key] for key in ("kernelspec", "language_info")}
    cells = []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = {"tags": tags} if tags else {}
        if cell.cell_type == "code":
            cell.outputs = list(_shown(cell.outputs))
        cells.append(cell)
    return nbformat.v4.new_notebook(cells=cells, metadata=kept)


def _shown(outputs: list[NotebookNode]) -> Iterator[NotebookNode]:
    """What a reader without a kernel sees of outputs."""
    for output in outputs:
        data = output.get("data", {})
        if output.get("name") == "stderr" or WIDGET in data:
            continue
        if output.output_type == "stream":
            lines = re.split(r"(?<=[\r\n])", output.text)
            output.text = "".join(line for line in lines if not is_bar(line.rstrip()))
            if not output.text.strip():
                continue
        if "image/png" in data:
            data["image/png"] = _with_palette(data["image/png"])
        if output.output_type in ("display_data", "execute_result"):
            output.metadata = {}
        yield output


def _with_palette(png: str) -> str:
    """A figure, as base64, with a palette of 256 colours: a fifth of its bytes."""
    from PIL import Image

    figure = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGBA")
    white = Image.new("RGBA", figure.size, "white")
    flat = Image.alpha_composite(white, figure).convert("RGB")
    written = io.BytesIO()
    flat.quantize(256, dither=Image.Dither.NONE).save(written, "PNG", optimize=True)
    return base64.b64encode(written.getvalue()).decode()
