"""Cells at work: the curve of a training and its stop, and a sweep and its button."""

import re

import pytest
from conftest import make_workspace, replace_notebook

from docemb_lib import records
from docemb_lib.workspace import Workspace

pytestmark = pytest.mark.slow
PARAMETERS = "profile = 'small'\nseed = 0\nstructural_loss = 'cosine'"
# The first training would take longer than the test needs to stop it.
TRAIN = """
import time
from docemb_lib import begin
from docemb_lib.training.trainer import Bar
run = begin("03_structural", globals())
partial = run.workspace.outputs.glob("artefacts/student/*.partial/checkpoints/checkpoint-*")
seconds = 0.0 if list(partial) else 2.0
go_on = Bar.on_step_end

def slow(self, *arguments, **options):
    go_on(self, *arguments, **options)
    time.sleep(seconds)

Bar.on_step_end = slow
try:
    train, validation = run.history()
finally:
    Bar.on_step_end = go_on
print("updates", train["step"].tolist())
"""
SEEDS = (11, 12, 13)
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
LINE = r"stopped after (\d+) of (\d+) updates; run the cell again to go on"
CURVE = ".jp-OutputArea-output img"


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A workspace without runs, of which JupyterLab gets a copy."""
    folder = tmp_path_factory.mktemp("workspaces") / "empty"
    make_workspace(folder)
    small = folder / "params" / "small.yaml"
    few = small.read_text().replace("{log_every: 1, val", "{log_every: 1, epochs: 60, val")
    small.write_text(few)
    return folder, None


@pytest.fixture
def training(lab, open_notebook):
    """A notebook whose cell trains, with the curve below it."""
    replace_notebook(lab.root, "training", PARAMETERS, TRAIN)
    opened = open_notebook("training")
    opened.page.evaluate(RUN_ALL)
    opened.page.locator(CURVE).wait_for(timeout=WAIT)
    return opened


def test_a_training_draws_its_curve_and_goes_on_after_a_stop(training):
    page = training.page
    for theme in ("Dark", "Light"):
        training.use_theme(f"JupyterLab {theme}")
        training.screenshot(f"training-{theme.lower()}")
    assert training.too_wide() == []
    page.locator('[data-jp-item-name="interrupt"]').first.click()
    line = page.get_by_text(re.compile(LINE))
    line.wait_for(timeout=WAIT)
    updates, of = map(int, re.search(LINE, line.inner_text()).groups())
    assert 0 < updates < of
    assert training.count(CURVE) == 1  # its last state
    training.screenshot("training-stopped")
    assert page.get_by_text("Traceback").count() == 0
    page.evaluate(RUN_ALL)
    text = f"updates [{', '.join(map(str, range(1, of + 1)))}]"
    page.get_by_text(text).wait_for(timeout=WAIT)
    assert training.count(CURVE) == 1


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
