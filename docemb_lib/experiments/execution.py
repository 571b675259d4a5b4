"""One planned run: its notebook executed through papermill under a lock, its executed copy, its failure.

`docemb run` and the workers of a sweep both come here, so that a run means the same to them and they share the work.
A run is done when its record and its executed copy are there; whatever else a killed one leaves is written over.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from docemb_lib.errors import InputError
from docemb_lib.experiments import records
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.progress import is_bar
from docemb_lib.settings.profile import FINAL, TRAINING, Profile
from docemb_lib.workspace import Workspace, locked, write_text

KERNEL = "python3"
CLIENT = "docemb_lib.experiments.kernel.LookingClient"
ORPHAN = "docemb_lib.experiments.kernel"
GRACE = 120.0  # seconds that a kernel has for its checkpoint
LONGEST_SOCKET = 103  # bytes of a socket's path that every system takes: macOS no more, Linux 107
SOCKET = "/docemb-12345678/kernel-ipc-10"  # as long as any below the folder of temporary files


@dataclass(frozen=True, eq=False)
class Planned:
    """One run of a plan or a grid, resolved."""

    notebook: str
    profile: Profile  # with this run's parameters
    parameters: dict[str, Any]  # as papermill is given them
    label: str
    fingerprint: str
    source: Path  # the notebook in `notebooks/`
    executed: Path  # its executed copy

    @property
    def working(self) -> Path:
        """Its copy while it is executed; that of a killed run is written over."""
        return self.executed.with_name(f".{self.executed.stem}.running.ipynb")

    @property
    def failed(self) -> Path:
        """Its copy as far as it came, where it failed."""
        return self.executed.with_suffix(".failed.ipynb")

    @property
    def weight(self) -> float:
        """A rough share of the plan's time: starting a kernel counts as much as training on 150 documents."""
        trains = self.notebook in TRAINING
        return 1 + (self.profile.parameters.documents / 150 if trains else 0) + 3 * (self.notebook in FINAL)


class RunError(RuntimeError):
    """A notebook failed; the message is one line, `traceback` the notebook's own."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.traceback = traceback


class UnwantedError(RuntimeError):
    """A run was stopped because nobody waits for it any more: no failure, and nothing is recorded."""


def is_done(run: Planned, workspace: Workspace) -> bool:
    """Whether the run has its record, and an executed copy of the notebook as it is now."""
    record = records.find(workspace, run.notebook, run.fingerprint)
    if record is None or record.status != "done" or not run.executed.is_file():
        return False
    executed = json.loads(run.executed.read_text(encoding="utf-8"))
    return executed["metadata"].get("docemb") == _stamp(run)


def execute_run(
    run: Planned,
    workspace: Workspace,
    *,
    tell: Callable[[str], None],
    wait: bool = True,
    unwanted: Callable[[], bool] | None = None,
) -> None:
    """Execute the run unless it is done.

    tell: is given the last state of the notebook's progress bars.
    wait: for another process that has the run in hand; otherwise filelock.Timeout is raised.
    unwanted: for threads, which get no signals: asked now and then, and once it is true the kernel may write a
        checkpoint and is ended (UnwantedError). In the main thread SIGTERM does the same (KeyboardInterrupt).
    Raises RunError, or InputError where the notebook did; either is recorded.
    """
    with locked(run.executed) if wait else _locked_at_once(run.executed):
        if is_done(run, workspace):
            return
        with tempfile.TemporaryDirectory(prefix="docemb-", dir=_short_folder()) as sockets:
            stopping = _ended_on_sigterm(sockets) if unwanted is None else _ended_once(unwanted, sockets)
            with stopping as stopped:
                _execute(run, workspace, tell, sockets, stopped)


def record_failure(run: Planned, workspace: Workspace, reason: str, trace: str) -> str:
    """Record why a run failed, unless it once succeeded or another process has it in hand, and keep its notebook.

    Returns the reason as one line that names the run.
    """
    try:
        with _locked_at_once(run.executed):
            return _fail(run, workspace, reason, trace)
    except Timeout:
        return _named(run, reason)


def _named(run: Planned, reason: str) -> str:
    return f"{run.notebook} ({run.label}): {' '.join(reason.split())}"


def _fail(run: Planned, workspace: Workspace, reason: str, trace: str) -> str:
    """`record_failure` where the run's lock is held."""
    message = _named(run, reason)
    if run.working.is_file():
        run.working.replace(run.failed)
    earlier = records.find(workspace, run.notebook, run.fingerprint)
    if earlier is None or earlier.status != "done":
        key = RunKey(run.notebook, run.profile)
        record = records.Record(
            notebook=run.notebook,
            label=run.label,
            fingerprint=run.fingerprint,
            setting=key.setting,
            profile=run.profile.name,
            parameters=key.parameters,
            status="failed",
            error=message,
            traceback=trace,
        )
        records.save(workspace, record)
    return f"{message} (see {workspace.shown(run.failed)})" if run.failed.is_file() else message


def _execute(
    run: Planned, workspace: Workspace, tell: Callable[[str], None], sockets: str, stopped: Callable[[], bool]
) -> None:
    import papermill

    stamp = _stamp(run)  # of the notebook that is executed, whatever becomes of it meanwhile
    tell("starting the notebook")
    try:
        papermill.execute_notebook(
            str(run.source),
            str(run.working),
            parameters=run.parameters,
            kernel_name=KERNEL,
            cwd=str(run.source.parent),
            progress_bar=False,
            stdout_file=_Lines(lambda line: tell(line) if is_bar(line) else None),
            stderr_file=_Lines(tell),
            **_kernel_options(sockets),
        )
    except BaseException as error:
        if stopped() or not isinstance(error, Exception):
            run.working.unlink(missing_ok=True)  # what the notebook has built stays, its copy is made anew
            if stopped():
                raise UnwantedError(_named(run, "was stopped")) from None
            raise
        reason, trace = _explained(error)
        message = _fail(run, workspace, reason, trace)
        if getattr(error, "ename", "") == InputError.__name__:
            raise InputError(reason) from None
        raise RunError(message, trace) from None
    record = records.find(workspace, run.notebook, run.fingerprint)
    if record is None or record.status != "done":
        reason = (
            "ended without its record: were the profile or the corpus changed meanwhile, or does the kernel "
            f"{KERNEL} belong to another environment?"
        )
        raise RunError(_fail(run, workspace, reason, ""), "")
    _tidy(run.working, stamp)
    run.failed.unlink(missing_ok=True)
    run.working.replace(run.executed)


def _tidy(file: Path, stamp: dict[str, str]) -> None:
    """Of each progress bar keep the last state, and note what the copy was made from.

    Not while it is executed, as nbclient can: outputs that are renewed later must stay where they are.
    """
    import nbformat
    from nbconvert.preprocessors.coalescestreams import CoalesceStreamsPreprocessor

    executed, _ = CoalesceStreamsPreprocessor().preprocess(nbformat.read(file, as_version=4), {})
    executed.metadata["docemb"] = stamp
    write_text(file, nbformat.writes(executed) + "\n")


def _explained(error: Exception) -> tuple[str, str]:
    """Why an execution failed: in a line, and the traceback where there is one to read."""
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    if isinstance(error, DeadKernelError):
        return f"its kernel died ({error}); out of memory?", ""
    if not isinstance(error, PapermillExecutionError):
        return f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    if error.ename == InputError.__name__:
        return str(error.evalue), ""
    return f"{error.ename}: {error.evalue}", re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))


def _locked_at_once(target: Path) -> AbstractContextManager[Any]:
    """The lock of `workspace.locked`, or filelock.Timeout where another process has it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(target.with_name(f".{target.name}.lock")).acquire(timeout=0.1)


def _stamp(run: Planned) -> dict[str, str]:
    """What an executed copy was made from: the run, and the notebook's source."""
    return {"run": run.fingerprint, "source": hashlib.sha256(run.source.read_bytes()).hexdigest()}


# ---- the kernel


def _kernel_options(sockets: str) -> dict[str, Any]:
    """What papermill hands on to the kernel's manager and the kernel.

    Kernels that start at the same time race for TCP ports; each gets sockets in a folder of its own.
    """
    from traitlets.config import Config

    ended_with_us = f"__import__('{ORPHAN}', fromlist=['']).end_with_parent({os.getpid()}, {sockets!r})"
    manager = {"transport": "ipc", "connection_file": f"{sockets}/kernel.json", "client_factory": CLIENT}
    return {
        "config": Config(KernelManager=manager),
        "extra_arguments": [
            "--IPKernelApp.log_level=50",  # its warnings are for those who serve kernels
            f"--IPKernelApp.exec_lines={ended_with_us}",
        ],
    }


def _short_folder() -> str:
    """The folder of temporary files, or /tmp where its name leaves no room for a socket's."""
    folder = tempfile.gettempdir()
    return folder if len(os.fsencode(folder + SOCKET)) <= LONGEST_SOCKET else "/tmp"


@contextmanager
def _ended_on_sigterm(sockets: str) -> Iterator[Callable[[], bool]]:
    """SIGTERM goes to the kernel first, which may be training and then writes a checkpoint; afterwards it ends us."""

    def pass_on(signum: int, frame: Any) -> None:
        _end_kernel(sockets)
        raise KeyboardInterrupt

    earlier = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield lambda: False
    finally:
        signal.signal(signal.SIGTERM, earlier)


@contextmanager
def _ended_once(unwanted: Callable[[], bool], sockets: str) -> Iterator[Callable[[], bool]]:
    """Ends the kernel once `unwanted` is true, asked every second. Yields whether that has happened.

    It goes on ending until the block is left: there may be no kernel yet.
    """
    over, ended = threading.Event(), threading.Event()

    def watch() -> None:
        while not over.wait(1.0):
            if ended.is_set() or unwanted():
                ended.set()
                _end_kernel(sockets)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield ended.is_set
    finally:
        over.set()


def _end_kernel(sockets: str) -> None:
    """SIGTERM to the kernel with that folder of sockets, then to the processes it started."""
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if sockets in " ".join(child.cmdline()):
                workers = child.children(recursive=True)
                _terminate([child], timeout=GRACE)
                _terminate(workers, timeout=1.0)


def _terminate(processes: Sequence[psutil.Process], *, timeout: float) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in psutil.wait_procs(processes, timeout=timeout)[1]:
        with suppress(psutil.NoSuchProcess):
            process.kill()


class _Lines:
    """A file for papermill to write a notebook's streams to, which hands on the last line of what comes at once."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def write(self, text: str) -> int:
        shown = [part.strip() for part in re.split(r"[\r\n]+", text) if part.strip()]
        if shown:
            self.tell(shown[-1])
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""
