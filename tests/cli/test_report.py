"""Pages of executed notebooks: formulas as MathML, and nothing that a browser must load."""

import base64
import io
import re
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from conftest import docemb

from docemb_lib.cli.pages import page_of, small_copy
from docemb_lib.cli.report import collapsed_runs, conclusion_of
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.records import COLLAPSE_MEND, find_done
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.sweeps.execution import execute_run
from docemb_lib.sweeps.plan import resolve_plan, runs_of


@pytest.mark.parametrize(
    ("text", "visible", "formulas"),
    [
        ("the loss $L_S$ of $y$", "the loss <math", 2),
        ("so\n\n$$L = \\frac1B\n\\sum_i \\lambda_i$$", "<mfrac><mn>1</mn><mi>B</mi></mfrac>", 1),
        ("$\\texttt{max\\_len}$", "max_len", 1),
        ("for $5\n\nor $6 or $7", "or $6 or $7", 0),
    ],
)
def test_formulas_of_a_page_are_mathml(text, visible, formulas):
    page = page_of(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)]), "A page")
    body = page[page.index("<body") :]
    assert visible in body
    assert body.count("<math") == formulas
    assert "<script src=" not in page
    assert "<title>A page</title>" in page


KERNEL = {"name": "python3", "display_name": "Python 3"}


def executed(*outputs):
    cell = nbformat.v4.new_code_cell("1", outputs=[*outputs], metadata={"papermill": {}})
    kernel = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    metadata = {**kernel, "widgets": {"state": {}}, "papermill": {"input_path": "/home/me"}}
    return nbformat.v4.new_notebook(cells=[cell], metadata=metadata)


def test_a_small_copy_has_no_widgets_progress_and_times():
    def stream(name, text):
        return nbformat.v4.new_output("stream", name=name, text=text)

    bar = " 50% 1/2 documents [00:01<00:01]"
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "Box()"}
    outputs = [
        stream("stderr", "a warning"),
        stream("stdout", f"{bar}\n"),
        stream("stdout", f"{bar}\r{bar}\nloss 0.5\n"),
        nbformat.v4.new_output("display_data", widget),
        nbformat.v4.new_output("display_data", {"text/html": "<p>a table</p>"}),
    ]
    copy = small_copy(executed(*outputs))
    shown = [output.get("text") or output.data["text/html"] for output in copy.cells[0].outputs]
    assert shown == ["loss 0.5\n", "<p>a table</p>"]
    assert "papermill" not in nbformat.writes(copy)
    assert set(copy.metadata) == {"kernelspec", "language_info"}


def test_the_figures_of_a_small_copy_are_a_third_as_large_and_look_alike():
    figure, ax = plt.subplots()
    for phase in range(5):
        ax.plot(np.sin(np.linspace(phase, phase + 6, 200)))
    written = io.BytesIO()
    figure.savefig(written)
    plt.close(figure)
    png = base64.b64encode(written.getvalue()).decode()
    output = nbformat.v4.new_output("display_data", {"image/png": png})
    small = small_copy(executed(output)).cells[0].outputs[0].data["image/png"]
    assert len(small) < len(png) / 3
    before, after = (
        plt.imread(io.BytesIO(base64.b64decode(image)))[..., :3] for image in (png, small)
    )
    differences = np.abs(before - after)
    assert differences.mean() < 0.002
    assert np.quantile(differences, 0.999) < 0.1


def test_published_copies_compare_the_runs_of_a_notebook(
    workspace_root, workspace, write_notebook, caplog
):
    text = (
        "from docemb_lib.runs.run import begin\n"
        "run = begin('05_weighting', globals())\n"
        "run.finish({'mean': lam})\n"
        "from docemb_lib import records\n"
        "print(len(records.frame('05_weighting')), 'runs in', run.workspace.root / 'outputs')"
    )
    for name in ("00_one_page", "08_own_documents"):
        write_notebook(name, "seed = 0", "print('executed')")
    write_notebook("05_weighting", "profile = 'tiny'\nseed = 0\nlam = 0.1", text)
    plan = "[{runs: [{lam: 0.2}, {lam: 0.8}], notebook: 05_weighting}, {notebook: 01_corpus}]"
    small = (workspace_root / "params" / "small.yaml").read_text()
    mine = small[: small.index("plan:")].replace("name: small", "name: mine") + f"plan: {plan}"
    (workspace_root / "params" / "mine.yaml").write_text(mine)
    steps = resolve_plan(Profile.load("mine"), "mine", workspace, only="05")
    for run in runs_of(steps):
        execute_run(run, workspace)
    done = docemb("report", "--profile", "mine", "--notebooks", "-o", "copies")
    assert done.returncode == 0, done.stderr
    copies = sorted(path.stem for path in (workspace_root / "copies").iterdir())
    assert copies == ["00_one_page", "05_weighting", "08_own_documents"]
    said = [
        conclusion_of(nbformat.read(workspace_root / "copies" / f"{name}.ipynb", as_version=4))
        for name in copies
    ]
    assert said == ["executed", "2 runs in outputs", "executed"]


def test_the_index_names_runs_of_one_label_by_what_differs(
    workspace_root, workspace, write_notebook
):
    text = "from docemb_lib.runs.run import begin\nbegin('03_structural', globals()).finish({})"
    write_notebook("03_structural", "profile = 'tiny'\nseed = 0\ndocuments = 1", text)
    plan = "[{runs: [{documents: 20}, {documents: 24}], notebook: 03_structural}]"
    small = (workspace_root / "params" / "small.yaml").read_text()
    mine = small[: small.index("plan:")].replace("name: small", "name: mine") + f"plan: {plan}"
    (workspace_root / "params" / "mine.yaml").write_text(mine)
    for run in runs_of(resolve_plan(Profile.load("mine"), "mine", workspace)):
        execute_run(run, workspace)
    done = docemb("report", "--profile", "mine", "-o", "pages")
    assert done.returncode == 0, done.stderr
    index = (workspace_root / "pages" / "index.html").read_text(encoding="utf-8")
    links = re.findall(r'<a href="[^"]+">([^<]+)</a>', index.partition("All runs: ")[2])
    assert links == ["cosine", "cosine (documents 24)"]


def test_the_runs_whose_students_have_collapsed_are_named_with_what_to_change(workspace):
    planned = []
    for lam, spread, collapsed in ((0.2, 0.003, 1), (0.8, 0.4, 0)):
        run = Run(RunKey.of("05_weighting", Profile.load("small"), lam=lam), workspace)
        run.finish({"spread": spread, "spread_before": 0.2, "collapsed": collapsed})
        record = find_done(workspace, run.notebook, run.fingerprint)
        planned.append(SimpleNamespace(record=lambda _, record=record: record))
    (line,) = collapsed_runs(planned, workspace)
    assert line.startswith("05_weighting")
    assert "λ=0.2" in line
    assert line.endswith(COLLAPSE_MEND)


def test_a_run_whose_executed_notebook_is_missing_is_named(workspace_root, caplog):
    run = Run(RunKey("01_corpus", Profile.load("small")))
    run.finish({})
    done = docemb("report", "--profile", "small")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"left out: 01_corpus ({run.label}): the executed notebook is missing" in caplog.text
