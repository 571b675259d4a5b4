"""A sweep in a cell: executed by papermill, inside a plan, by itself, and again."""

import json
from types import SimpleNamespace

import nbformat
import pandas as pd
import papermill
import pytest
from bs4 import BeautifulSoup
from conftest import docemb

from docemb_lib import records
from docemb_lib.base.errors import Stopped
from docemb_lib.sweeps.kernels import RUN_OF_SWEEP
from docemb_lib.sweeps.plan import resolve_sweep
from docemb_lib.widgets import sweep_table
from docemb_lib.widgets.sweep_table import RunTable, sweep

PARAMETERS = "profile = 'small'\nseed = 0\nstructural_loss = 'cosine'"
# A run of notebook 03, which sweeps over seeds of its own notebook before it ends.
OF_ITSELF = """
from docemb_lib import begin, sweep
run = begin("03_structural", globals())
with open(run.workspace.root / "begun.txt", "a") as file:
    file.write(f"{seed} ")
frame = sweep("03", [{"seed": number} for number in range(3)], profile=profile, workers=2)
print(dict(zip(frame["seed"], frame["status"])))
run.finish({"mean": seed, "validation_loss_after": 0.25})
"""


def tables_of(path):
    """The tables of a sweep in an executed notebook, each as a frame of texts."""
    frames = []
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", []):
            page = BeautifulSoup(output.get("data", {}).get("text/html", ""), "html.parser")
            for table in page.find_all("table", class_="docemb-sweep"):
                heads, *rows = table.find_all("tr")
                names = [cell.get_text() for cell in heads.find_all("th")]
                texts = [[cell.get_text() for cell in row.find_all("td")] for row in rows]
                frames.append(pd.DataFrame(texts, columns=names))
    return frames


@pytest.fixture
def swept_by_itself(workspace, write_notebook, monkeypatch):
    # A process to fork from would cost each worker more than its few kernels.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    write_notebook("03_structural", PARAMETERS, OF_ITSELF)
    done = docemb("run", "03", "-p", "seed=0", "--profile", "small")
    assert done.returncode == 0, done.stderr
    return workspace


@pytest.mark.slow
def test_a_run_that_sweeps_over_its_notebook_ends_and_begins_no_run_twice(swept_by_itself):
    begun = (swept_by_itself.root / "begun.txt").read_text().split()
    assert sorted(begun) == ["0", "1", "2"]
    frame = records.frame("03_structural", workspace=swept_by_itself)
    assert sorted(frame["seed"]) == [0, 1, 2]
    folder = swept_by_itself.outputs / "notebooks" / "03_structural"
    (own,) = folder.glob("*seed0.ipynb")
    (table,) = tables_of(own)
    assert table["state"].tolist() == ["runs elsewhere", "done", "done"]
    assert table["loss"].tolist() == ["", "0.250", "0.250"]
    (other,) = folder.glob("*seed1.ipynb")
    assert "'missing'" in other.read_text()
    assert not list(folder.glob("comparison-*"))


def executed(workspace, name, text):
    """A small notebook as papermill executes it."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [nbformat.v4.new_code_cell(text)]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    source = workspace.root / f"{name}.ipynb"
    nbformat.write(notebook, source)
    out = workspace.root / f"{name}-executed.ipynb"
    papermill.execute_notebook(str(source), str(out), cwd=str(workspace.root), progress_bar=False)
    return out


@pytest.mark.slow
def test_a_cell_sweeps_over_paragraph_vectors_and_picks_up_what_is_recorded(workspace):
    text = """
from docemb_lib import sweep
grid = [{"dm": True}, {"dm": False}]
frame = sweep("02_paragraph_vector", grid, profile="small", workers=1)
print(frame[["dm", "validation"]].to_json())
"""
    first = executed(workspace, "first", text)
    (table,) = tables_of(first)
    assert table["run"].tolist() == ["DM, 8, lowercase, 2", "DBOW, 8, lowercase, 2"]
    assert table["state"].tolist() == ["done", "done"]
    frame = records.frame("02_paragraph_vector", workspace=workspace).set_index("dm")
    for dm, mean in zip((True, False), table["validation"].astype(float), strict=True):
        assert mean == pytest.approx(frame.loc[dm, "validation"], abs=5e-4)
    second = executed(workspace, "second", text)
    (table,) = tables_of(second)
    assert table["state"].tolist() == ["there already", "there already"]
    printed = [
        cell.outputs[-1]["text"]
        for path in (first, second)
        for cell in nbformat.read(path, as_version=4).cells
    ]
    assert printed[0] == printed[1]
    assert json.loads(printed[0])["dm"] == {"0": True, "1": False}


@pytest.fixture
def workers_are_forbidden(monkeypatch):
    def start(count):
        pytest.fail("workers were started")

    monkeypatch.setattr("docemb_lib.sweeps.cluster.local_workers", start)


def test_in_a_run_of_a_sweep_a_sweep_executes_nothing_and_has_a_row_for_each_run(
    workspace, workers_are_forbidden, monkeypatch
):
    monkeypatch.setenv(RUN_OF_SWEEP, "1")
    frame = sweep("03", [{"structural_loss": "mse"}, {}], profile="small")
    assert frame["structural_loss"].tolist() == ["mse", "cosine"]
    assert frame["status"].tolist() == ["missing", "missing"]
    assert frame["validation"].isna().all()


def test_an_interrupted_sweep_says_in_one_line_how_to_go_on(workspace, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_table, "execute_plan", interrupted)
    with pytest.raises(Stopped) as caught:
        sweep("03", [{}], profile="small")
    assert str(caught.value) == "stopped the sweep; give the same command again to go on"


@pytest.fixture
def shown(monkeypatch):
    """The outputs below a cell, by their order; each is replaced by its updates."""
    outputs = []

    def display(content, **_):
        place = len(outputs)
        outputs.append(content)
        return SimpleNamespace(update=lambda new, **_: outputs.__setitem__(place, new))

    monkeypatch.setattr(sweep_table, "display", display)
    return outputs


@pytest.fixture
def planned(workspace):
    grid = [{"structural_loss": "mse"}, {"structural_loss": "cosine"}]
    (step,) = resolve_sweep("03", grid, workspace, profile="small", parameters={})
    return step.runs


def test_the_table_follows_a_run_from_waiting_to_its_end(workspace, planned, shown):
    table = RunTable(workspace)
    table.begin(planned, planned)
    assert table.rows()["state"].tolist() == ["waiting", "waiting"]
    table.start(planned[0])
    assert table.rows()["state"].tolist() == ["running", "waiting"]
    table.end(planned[0], "failed", 2.0, "no luck")
    table.close()
    assert table.rows()["state"].tolist() == ["failed", "missing"]
    assert "no luck" in shown[-1].data


def test_a_running_run_shows_loss_update_and_time_left_of_its_training(
    workspace, planned, shown, monkeypatch
):
    titles = [f"student only-structural;{loss};24 docs" for loss in ("MSE", "cosine")]
    trainings = pd.DataFrame({"training": titles, "loss": [0.5, 0.75]})
    trainings = trainings.assign(profile="small", update=["1 of 4", "3 of 4"])
    trainings["time left"] = ["00:03", "00:01"]
    monkeypatch.setattr(sweep_table, "trainings_on_disk", lambda _: trainings)
    table = RunTable(workspace)
    table.begin(planned, planned)
    for run in planned:
        table.start(run)
    rows = table.rows()
    assert rows["loss"].tolist() == [0.5, 0.75]
    assert rows["update"].tolist() == ["1 of 4", "3 of 4"]
    assert rows["time left"].tolist() == ["00:03", "00:01"]


@pytest.mark.parametrize(("cell", "count"), [("a cell", 2), (None, 1)])
def test_only_a_person_gets_a_button_and_only_while_runs_are_missing(
    workspace, planned, shown, monkeypatch, cell, count
):
    monkeypatch.setattr(sweep_table, "live_cell", lambda: cell)
    monkeypatch.setattr(sweep_table, "kernel_id", lambda: "abc")
    RunTable(workspace).begin(planned, [])
    assert len(shown) == 1
    table = RunTable(workspace)
    table.begin(planned, planned)
    assert len(shown) == 1 + count
    if cell:
        assert "api/kernels/abc/interrupt" in shown[1]["application/javascript"]
        table.close()
        assert "application/javascript" not in shown[1]
