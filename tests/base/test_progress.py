"""What a kernel shows when a person presses its stop button, and of bad input."""

import pytest
from jupyter_client.manager import start_new_kernel

BUILD = """
from pathlib import Path
from docemb_lib.runs.store import cached, kept_beside
def build(folder):
    print("at work", flush=True)
    time.sleep(60)
with kept_beside(Path(%r)):
    cached(%r, {}, build)
"""


@pytest.fixture(scope="module")
def stopped():
    """A function that stops a cell at work, and returns the lines that the notebook shows."""
    manager, client = start_new_kernel()
    begin = "import time; from docemb_lib.base.progress import log_to_notebook; log_to_notebook()"
    client.execute_interactive(begin, timeout=60)

    def stop(code):
        lines = []

        def show(message):
            content = message["content"]
            if message["msg_type"] == "stream":
                manager.interrupt_kernel()
            if message["msg_type"] == "error":
                lines.extend(content["traceback"])

        client.execute_interactive(code, output_hook=show, timeout=60)
        return lines

    yield stop
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.mark.parametrize(
    ("kind", "name"), [("task-statistics", "task statistics"), ("embeddings/0123", "embeddings")]
)
def test_a_stopped_build_is_one_line_that_says_what_it_was(stopped, tmp_path, kind, name):
    line = f"stopped while building {name}; run the cell again to go on"
    assert stopped(BUILD % (str(tmp_path / "m"), kind)) == [line]


def test_any_other_stopped_cell_is_one_line(stopped):
    waits = "print('at work', flush=True); time.sleep(60)"
    assert stopped(waits) == ["stopped; run the cell again to go on"]


def test_an_input_error_is_one_line(stopped):
    refuses = "from docemb_lib.base.errors import InputError; raise InputError('lam: too much')"
    assert stopped(refuses) == ["InputError: lam: too much"]


def test_other_errors_keep_their_tracebacks(stopped):
    assert len(stopped("1 / 0")) > 1
