"""A cell at work: the curve of a training and its stop."""

import re

import pytest
from conftest import make_workspace, replace_notebook

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
RUN_ALL = "() => void window.jupyterapp.commands.execute('notebook:run-all-cells')"  # no waiting
WAIT = 300_000  # milliseconds
LINE = r"stopped after (\d+) of (\d+) updates; run the cell again to go on"


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
    opened.page.locator(".docemb-curve circle").first.wait_for(timeout=WAIT)
    return opened


def test_a_training_draws_its_curve_and_goes_on_after_a_stop(training):
    page = training.page
    page.locator(".docemb-curve").get_by_text("tokens a second").wait_for(timeout=WAIT)
    for theme in ("Dark", "Light"):
        training.use_theme(f"JupyterLab {theme}")
        training.screenshot(f"training-{theme.lower()}")
    assert training.too_wide() == []
    page.locator('[data-jp-item-name="interrupt"]').first.click()
    line = page.get_by_text(re.compile(LINE))
    line.wait_for(timeout=WAIT)
    updates, of = map(int, re.search(LINE, line.inner_text()).groups())
    assert 0 < updates < of
    assert training.count(".docemb-curve") == 1  # its last state
    training.screenshot("training-stopped")
    assert page.get_by_text("Traceback").count() == 0
    page.evaluate(RUN_ALL)
    text = f"updates [{', '.join(map(str, range(1, of + 1)))}]"
    page.get_by_text(text).wait_for(timeout=WAIT)
    assert training.count(".docemb-curve") == 0
