"""The kernels of executed notebooks.

Each kernel is a new process with IPC sockets in a folder of its own, because kernels that start at
the same time race for TCP ports. It ends with the process that started it. Where papermill is
interrupted, as by Ctrl-C, it interrupts the kernel, whose training then writes a checkpoint.
"""

import ast
import io
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from queue import Empty
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from nbformat import NotebookNode
from traitlets.config import Config

from docemb_lib.base import worker_pool
from docemb_lib.base.progress import is_bar

NAME = "python3"
GRACE = 120.0  # seconds that a kernel has for its checkpoint
POLL = 1.0  # seconds after which a silent socket is polled again
# The paths of sockets may have 103 bytes, and other temporary folders can be longer than that.
SOCKETS = "/tmp"
FOLDERS = "docemb-kernel-"  # how the names of the folders of sockets begin

Report = Callable[[str], None]  # receives a line of progress


class PollingChannel(AsyncZMQSocketChannel):
    """A channel that polls its socket every second.

    In an event loop, pyzmq waits for an edge-triggered notification of a message and sometimes
    misses it; then the kernel has answered and papermill waits for ever. Polling the socket again
    finds the message.
    """

    async def get_msg(  # type: ignore[override]
        self, timeout: float | None = None
    ) -> dict[str, Any]:
        """Return the next message; raise `Empty` after `timeout` seconds (None: never)."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                return await super().get_msg(min(POLL, left))
            except Empty:
                if time.monotonic() >= end:
                    raise


class PollingClient(AsyncKernelClient):
    """A client whose channels poll their sockets."""

    shell_channel_class = PollingChannel
    iopub_channel_class = PollingChannel
    control_channel_class = PollingChannel


def execute_notebook(
    source: Path, copy: Path, parameters: Mapping[str, object], report: Report
) -> None:
    """Execute a notebook by papermill into a copy, in which each progress bar has its last state.

    report: receives the last line of the notebook's bars and of its stderr. Raises the errors of
    papermill.
    """
    import papermill

    report("starting the notebook")
    # The kernel does not ask `os.getppid()` for its parent, which may be gone already.
    module = f"__import__('{worker_pool.__name__}', fromlist=[''])"
    first_line = f"{module}.end_with_parent({os.getpid()})"
    with TemporaryDirectory(prefix=FOLDERS, dir=SOCKETS) as sockets:
        manager = {
            "transport": "ipc",
            "connection_file": f"{sockets}/kernel.json",
            "client_factory": f"{__name__}.{PollingClient.__name__}",
            # The manager sends SIGTERM after half of this time.
            "shutdown_wait_time": 2 * GRACE,
        }
        papermill.execute_notebook(
            str(source),
            str(copy),
            parameters,
            cwd=str(source.parent),
            progress_bar=False,
            stdout_file=_LastLine(lambda line: report(line) if is_bar(line) else None),
            stderr_file=_LastLine(report),
            kernel_name=NAME,
            config=Config(KernelManager=manager),
            extra_arguments=[
                "--IPKernelApp.log_level=50",  # hides warnings that concern servers of kernels
                f"--IPKernelApp.exec_lines={first_line}",
            ],
        )
    _edit_for_readers(copy)


def _edit_for_readers(copy: Path) -> None:
    """Edit an executed copy: bars have their last state, and the answer stands below the title.

    nbclient can keep the last states during the execution, but then outputs that are updated later
    lose their place.
    """
    from nbconvert.preprocessors.coalescestreams import CoalesceStreamsPreprocessor

    executed = nbformat.read(copy, as_version=4)
    notebook, _ = CoalesceStreamsPreprocessor().preprocess(executed, {})
    _set_parameters(notebook)
    _put_answer_first(notebook)
    nbformat.write(notebook, copy)


def tagged(notebook: NotebookNode, *tags: str) -> list[NotebookNode]:
    """The cells of a notebook that have one of the tags."""
    return [cell for cell in notebook.cells if {*tags} & {*cell.metadata.get("tags", ())}]


def printed(cells: Iterable[NotebookNode]) -> str:
    """What cells have printed."""
    return "".join(output.get("text", "") for cell in cells for output in cell.outputs).strip()


def _set_parameters(notebook: NotebookNode) -> None:
    """Write the injected values into the cell of parameters, and drop the cell that has them."""
    (cell,) = tagged(notebook, "parameters")
    for injected in tagged(notebook, "injected-parameters"):
        given = _assigned(injected.source)
        lines = cell.source.splitlines()
        for name, value in _assigned(cell.source).items():
            if name in given:
                row = value.lineno - 1
                comment = lines[row].encode()[value.end_col_offset :].decode()  # counted in bytes
                lines[row] = f"{name} = {ast.unparse(given[name])}{comment}"
        cell.source = "\n".join(lines)
        notebook.cells.remove(injected)


def _assigned(source: str) -> dict[str, ast.expr]:
    """The values that lines of code assign to names."""
    statements = (each for each in ast.parse(source).body if isinstance(each, ast.Assign))
    return {ast.unparse(each.targets[0]): each.value for each in statements}


def _put_answer_first(notebook: NotebookNode) -> None:
    """Show below the title what the cell tagged `found` has printed, with the cell `picture`.

    The caption of the picture is the first paragraph of the cell that follows it.
    """
    text = printed(tagged(notebook, "found"))
    if not text:
        return
    answer = nbformat.v4.new_markdown_cell(f"**What was found**\n\n{text}")
    for cell, below in pairwise(notebook.cells):
        is_picture = "picture" in cell.metadata.get("tags", ())
        for output in cell.outputs if is_picture else ():
            if "image/png" in output.get("data", {}):
                caption = below.source.partition("\n\n")[0]
                answer.source += f"\n\n![what was found](attachment:found.png)\n\n{caption}"
                answer.attachments = {"found.png": {"image/png": output.data["image/png"]}}
    notebook.cells.insert(1, answer)


class _LastLine(io.TextIOBase):
    """A file for a notebook's stream, which reports the last line of each write."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def write(self, text: str) -> int:
        *_, last = re.split(r"[\r\n]+", text.strip())
        if last:
            self.report(last.strip())
        return len(text)
