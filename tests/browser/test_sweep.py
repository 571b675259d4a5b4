"""A sweep that a cell of a notebook has begun, and its button."""

import pytest
from conftest import make_workspace, replace_notebook

from docemb_lib import records
from docemb_lib.workspace import Workspace

pytestmark = pytest.mark.slow
SEEDS = (11, 12, 13)
PARAMETERS = "profile = 'small'\nseed = 0\nstructural_loss = 'cosine'"
# The first run ends at once. The others would take longer than the test waits.
RUN = """
import time
from docemb_lib import begin
run = begin("03_structural", globals())
if seed > 11:
    time.sleep(600)
run.finish({"mean": 0.5, "validation_loss_after": 0.25})
"""
SWEEP = f"""
import os
from docemb_lib import sweep
os.environ["CUDA_VISIBLE_DEVICES"] = "0"  # kernels are started: a process to fork from costs more
sweep("03", [{{"seed": seed}} for seed in {SEEDS}], profile="small", workers=1)
"""
RUN_ALL = "() => void window.jupyterapp.commands.execute('notebook:run-all-cells')"  # no waiting
WAIT = 300_000  # milliseconds


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A workspace without runs, of which JupyterLab gets a copy."""
    folder = tmp_path_factory.mktemp("workspaces") / "empty"
    make_workspace(folder)
    return folder, None


@pytest.fixture
def sweeping(lab, open_notebook):
    """A notebook whose sweep has finished its first run and is busy with the second."""
    replace_notebook(lab.root, "03_structural", PARAMETERS, RUN)
    replace_notebook(lab.root, "sweeping", "", SWEEP)
    opened = open_notebook("sweeping")
    opened.page.evaluate(RUN_ALL)
    table = opened.page.locator("table.docemb-sweep")
    table.get_by_text("done", exact=True).wait_for(timeout=WAIT)
    table.get_by_text("running", exact=True).wait_for(timeout=WAIT)
    return opened


def test_the_button_stops_a_sweep_and_what_is_recorded_stays(lab, sweeping):
    sweeping.page.locator("button.docemb-stop").click()
    line = sweeping.page.get_by_text("stopped the sweep; run the cell again to go on")
    line.wait_for(timeout=WAIT)
    states = sweeping.page.locator("table.docemb-sweep td:nth-child(2)").all_inner_texts()
    assert states == ["done", "missing", "missing"]
    assert sweeping.count("button.docemb-stop") == 0
    frame = records.frame("03_structural", workspace=Workspace(lab.root))
    assert frame[frame["seed"].isin(SEEDS)]["seed"].tolist() == [11]
