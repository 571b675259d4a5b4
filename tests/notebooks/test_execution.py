"""The whole way on a small profile, as users go it: the command and papermill."""

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from conftest import AS_A_USER, DOCEMB, docemb, replace_notebook, succeed

from docemb_lib.runs import records
from docemb_lib.settings.notebooks import REGISTRY

pytestmark = pytest.mark.slow


def call(command, cwd):
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=AS_A_USER,
        text=True,
        timeout=600,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


@pytest.fixture(scope="module")
def root(whole_run, tmp_path_factory) -> Path:
    return Path(
        shutil.copytree(whole_run[0], tmp_path_factory.mktemp("whole") / "workspace", symlinks=True)
    )


@pytest.fixture(scope="module")
def finished(whole_run):
    return whole_run[1]


@pytest.fixture
def inside(root, finished, monkeypatch):
    monkeypatch.chdir(root)


def test_a_plan_ends_with_table_sentence_and_paths(root, finished):
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("7 runs, 0 of them already there\n")
    for said in (
        "S+PV masked, this student, is in the mean ",
        "│ start ",
        "│ SBERT-64 ",
        "│ SBERT-chunks ",
        "│ PV, 16d ",
        "│ LSA ",
        "package",
        "see-also-pairs",
        "halves",
        "see-also-retrieval",
        "In the mean over 4 tasks, this student (.",
    ):
        assert said in finished.stdout
    found, scores = map(finished.stdout.index, ("this student, is in the mean", "Test scores"))
    assert found < scores < finished.stdout.index("Take ")
    assert "DBOW" not in finished.stdout[scores:]  # it taught nothing
    assert "\nruns:               outputs/runs\n" in finished.stdout
    (student,) = [
        line.split(":")[1].strip()
        for line in finished.stdout.splitlines()
        if line.startswith("student:")
    ]
    assert (root / student / "model.safetensors").is_file()


def test_a_second_run_finds_everything_and_ends_with_the_same_table(root, finished):
    again = call(
        [*DOCEMB, "run", "--profile", "small"], root
    )  # a process sets the width of its tables at its start
    assert (
        again.stdout[again.stdout.index("Test scores") :]
        == finished.stdout[finished.stdout.index("Test scores") :]
    )
    assert again.stdout.startswith("7 runs, 7 of them already there\n")


def executed_of(root: Path, notebook: str) -> nbformat.NotebookNode:
    (executed,) = (root / "outputs" / "runs" / notebook).glob("*/notebook.ipynb")
    return nbformat.read(executed, as_version=4)


def test_recorded_students_stand_beside_chapter_5_of_the_thesis(root, finished):
    command = [sys.executable, "-m", "papermill", "10_chapter_5.ipynb", root / "10.ipynb"]
    done = call([*command, "-p", "profile", "small"], root / "notebooks")
    assert done.returncode == 0, done.stderr
    pages = [
        output["data"]["text/html"]
        for output in outputs_of(nbformat.read(root / "10.ipynb", 4))
        if "data" in output and "text/html" in output["data"]
    ]
    assert any("normalised mean" in page and "cosine" in page for page in pages)


def outputs_of(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def figures_of(root: Path, notebook: str) -> list[Path]:
    return list((root / "outputs" / "runs" / notebook).glob("*/*.png"))


@pytest.mark.parametrize("name", REGISTRY)
def test_a_notebook_was_executed_to_its_end_without_errors_and_left_figures(root, finished, name):
    notebook = executed_of(root, name)
    assert all(
        cell.execution_count for cell in notebook.cells if cell.cell_type == "code" and cell.source
    )
    assert not [output for output in outputs_of(notebook) if output.output_type == "error"]
    assert not [
        o["text"] for o in outputs_of(notebook) if o.get("name") == "stderr"
    ]  # Jupyter shows it in red
    assert not [
        o for o in outputs_of(notebook) if ">NaN<" in o.get("data", {}).get("text/html", "")
    ]
    assert figures_of(root, name)
    assert all(figure.with_suffix(".svg").is_file() for figure in figures_of(root, name))


def test_an_executed_notebook_begins_with_its_configuration(root, finished):
    first, *_ = outputs_of(executed_of(root, "04_projections"))
    assert "settings, beside those in the thesis" in first["data"]["text/plain"]


def test_results_come_as_table_and_csv(inside):
    assert "evaluation" in docemb("results").stdout  # perhaps folded
    assert len(pd.read_csv(io.StringIO(docemb("results", "--csv").stdout))) == 7


def test_the_evaluation_says_how_sure_its_scores_are(root, inside):
    text = nbformat.writes(executed_of(root, "06_evaluation"))
    assert all(words in text for words in ("mean over tasks", "not shown to differ from"))
    figures = {path.stem for path in figures_of(root, "06_evaluation")}
    assert figures == {"precision", "paired-test", "differences", "by-length"}
    (record,) = records.all_records("06_evaluation")
    assert not [name for name in record.metrics if name.endswith(("ndcg", "hit_rate_10"))]
    said = record.table("comparison")
    fixed = {"SBERT over chunks", "SBERT truncated", "student before distillation"}
    assert fixed | {"TF-IDF", "BM25", "LSA"} < set(said[said["model"] == record.label]["reference"])
    few = pd.read_csv(next((root / "outputs" / "runs").glob("07_simde/*/few-shot-package.csv")))
    assert {*few["model"]} == {"SimDE", "start", "SBERT-64"}


def test_a_student_is_evaluated_beside_its_references_and_on_a_chosen_task(inside):
    student = next(Path("outputs/students").glob("small-*-30-docs-*"))
    done = succeed("evaluate", student, "--profile", "small")
    for model in (student.name, "SBERT over chunks", "DM, 8d", "TF-IDF"):
        assert model in done.stdout
    assert f"In the mean over 4 tasks, {student.name} (" in done.stdout
    chosen = docemb("evaluate", student, "--profile", "small", "--task", "halves", "--json")
    assert {row["task"] for row in json.loads(chosen.stdout)["scores"]} == {"halves"}


def test_papermill_writes_a_run_to_a_pipe_and_leaves_the_committed_notebook_alone(root, inside):
    made = "from docemb_lib import begin\nbegin('05_weighting', globals()).finish({'mean': lam})"
    replace_notebook(root, "05_weighting", "profile = 'tiny'\nseed = 0\nlam = 0.1", made)
    notebooks = root / "notebooks"
    before = (notebooks / "05_weighting.ipynb").read_bytes()
    papermill = "papermill 05_weighting.ipynb -p lam 0.7 -p profile small --no-progress-bar"
    pipe = f"set -o pipefail; {sys.executable} -m {papermill} | cat > run.ipynb"
    piped = call(["bash", "-c", pipe], notebooks)
    assert piped.returncode == 0, piped.stderr
    assert "unknown" not in piped.stderr.lower()
    assert nbformat.read(notebooks / "run.ipynb", as_version=4).cells
    assert (notebooks / "05_weighting.ipynb").read_bytes() == before
    assert sorted(records.frame("05_weighting")["lam"]) == [0.5, 0.7]
