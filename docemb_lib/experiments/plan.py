"""Executing a profile's plan: each run a notebook through papermill, finished runs recognised before anything loads."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from docemb_lib.errors import InputError
from docemb_lib.experiments import records
from docemb_lib.experiments.labels import label_of, slug_of
from docemb_lib.experiments.run import fingerprint_of_run, run_parameters, setting_of
from docemb_lib.profile import NOTEBOOKS, TRAINING, Profile
from docemb_lib.workspace import Workspace, locked, write_text

logger = logging.getLogger(__name__)

KERNEL = "python3"
GRACE = 120.0  # seconds that a kernel has for its checkpoint


@dataclass(frozen=True, eq=False)
class Planned:
    """One run of the plan, resolved."""

    notebook: str
    profile: Profile  # with this run's parameters
    parameters: dict[str, Any]  # as papermill is given them
    label: str
    fingerprint: str
    source: Path  # the notebook in `notebooks/`
    executed: Path  # its executed copy

    @property
    def weight(self) -> float:
        """A rough share of the plan's time: starting a kernel counts as much as training on 150 documents."""
        trains = self.notebook in TRAINING
        return 1 + (self.profile.parameters.documents / 150 if trains else 0) + 3 * (self.notebook[:2] == "06")


class Watcher(Protocol):
    """Who is told how the plan goes: the command line's progress lines, or nobody."""

    def begins(self, run: Planned, number: int, total: int, remaining_s: float | None) -> None: ...

    def step(self, line: str) -> None: ...

    def ends(self, run: Planned, seconds: float, *, built: bool) -> None: ...


class RunError(RuntimeError):
    """A notebook failed; the message is one line, `traceback` the notebook's own."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.traceback = traceback


def resolve_plan(
    profile: Profile, name: str, workspace: Workspace, *, first: str | None = None, only: str | None = None
) -> list[Planned]:
    """The runs of the plan, from notebook `first` on, or of notebook `only`; everything cheap about them is checked.

    name: the profile as the notebooks are told it. Raises InputError before anything is executed.
    """
    runs = [run for run in profile.plan if _wanted(run.notebook, first, only)]
    if not runs:
        asked = f"--only {only}" if only else f"--from {first}" if first else "an empty plan"
        known = ", ".join(dict.fromkeys(run.notebook for run in profile.plan)) or "none: add lines to `plan`"
        raise InputError(f"profile {profile.name}: {asked} leaves no run; the plan's notebooks are {known}")
    planned = []
    for run in runs:
        resolved = profile.for_notebook(run.notebook, **run.parameters)
        source = workspace.root / "notebooks" / f"{run.notebook}.ipynb"
        if not source.is_file():
            raise InputError(f"{source}: no such notebook; regenerate it with `jupytext --sync notebooks/*.py`")
        planned.append(
            Planned(
                notebook=run.notebook,
                profile=resolved,
                parameters={"profile": name, **run_parameters(run.notebook, resolved)},
                label=label_of(run.notebook, resolved.parameters),
                fingerprint=fingerprint_of_run(run.notebook, resolved),
                source=source,
                executed=workspace.outputs / "notebooks" / run.notebook / f"{slug_of(run.notebook, resolved)}.ipynb",
            )
        )
    return planned


def execute(planned: Sequence[Planned], workspace: Workspace, watcher: Watcher) -> None:
    """Execute what is not there yet, in order. Raises RunError at the first notebook that fails."""
    missing = [run for run in planned if not is_done(run, workspace)]
    if missing:
        from docemb_lib.experiments.check import check
        from docemb_lib.experiments.stages import Stages

        for run in missing:
            check(Stages(run.profile, workspace), run.notebook)
    spent, done_weight = 0.0, 0.0
    for number, run in enumerate(planned, 1):
        if run not in missing:
            watcher.begins(run, number, len(planned), None)
            watcher.ends(run, 0.0, built=False)
            continue
        left = sum(other.weight for other in missing) - done_weight
        watcher.begins(run, number, len(planned), spent / done_weight * left if done_weight else None)
        start = time.perf_counter()
        with locked(run.executed):
            if not is_done(run, workspace):  # another `docemb run` may have been faster
                _execute_one(run, workspace, watcher)
        seconds = time.perf_counter() - start
        spent, done_weight = spent + seconds, done_weight + run.weight
        watcher.ends(run, seconds, built=True)


def is_done(run: Planned, workspace: Workspace) -> bool:
    """Whether the run has its record, and an executed copy of the notebook as it is now."""
    record = records.find(workspace, run.notebook, run.fingerprint)
    if record is None or record.status != "done" or not run.executed.is_file():
        return False
    executed = json.loads(run.executed.read_text(encoding="utf-8"))
    return executed["metadata"].get("docemb") == _stamp(run)


def _execute_one(run: Planned, workspace: Workspace, watcher: Watcher) -> None:
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    working = run.executed.with_name(f".{run.executed.stem}.running.ipynb")  # of a killed run: written over
    try:
        with _terminated_together():
            papermill.execute_notebook(
                str(run.source),
                str(working),
                parameters=run.parameters,
                kernel_name=KERNEL,
                cwd=str(run.source.parent),
                progress_bar=False,
                coalesce_streams=True,  # of a progress bar, the saved copy keeps the last state
                extra_arguments=["--IPKernelApp.log_level=50"],  # its warnings are for those who serve kernels
                stderr_file=_Lines(watcher.step),
            )
    except PapermillExecutionError as error:
        failed = run.executed.with_suffix(".failed.ipynb")
        working.replace(failed)
        if error.ename == InputError.__name__:
            raise InputError(str(error.evalue)) from None
        traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
        raise _failure(run, workspace, f"{error.ename}: {error.evalue}", traceback, seen=failed) from None
    except DeadKernelError as error:
        working.unlink(missing_ok=True)
        raise _failure(run, workspace, f"its kernel died ({error}); out of memory?", "") from None
    except BaseException:
        working.unlink(missing_ok=True)  # interrupted: what the notebook built stays, its copy is made anew
        raise
    record = records.find(workspace, run.notebook, run.fingerprint)
    if record is None or record.status != "done":
        raise RunError(
            f"{run.notebook} ({run.label}) ended without its record: were the profile or the corpus changed "
            "meanwhile, or does the kernel python3 belong to another environment?",
            "",
        )
    executed = json.loads(working.read_text(encoding="utf-8"))
    executed["metadata"]["docemb"] = _stamp(run)
    write_text(run.executed, json.dumps(executed, indent=1, ensure_ascii=False) + "\n")
    working.unlink()
    run.executed.with_suffix(".failed.ipynb").unlink(missing_ok=True)


@contextmanager
def _terminated_together() -> Iterator[None]:
    """SIGTERM goes to the kernel first, which may be training and then writes a checkpoint; afterwards it ends us."""

    def pass_on(signum: int, frame: Any) -> None:
        us = psutil.Process()
        kernels, all_below = us.children(), us.children(recursive=True)
        _terminate(kernels, timeout=GRACE)
        _terminate([process for process in all_below if process not in kernels], timeout=1.0)  # their workers
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's alone
        yield
        return
    earlier = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


def _terminate(processes: Sequence[psutil.Process], *, timeout: float) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    psutil.wait_procs(processes, timeout=timeout)


def _failure(run: Planned, workspace: Workspace, reason: str, traceback: str, seen: Path | None = None) -> RunError:
    """Record a failure, unless the run once succeeded, and return it as an error to raise."""
    message = f"{run.notebook} ({run.label}): {' '.join(reason.split())}"
    earlier = records.find(workspace, run.notebook, run.fingerprint)
    if earlier is None or earlier.status != "done":
        record = records.Record(
            notebook=run.notebook,
            label=run.label,
            fingerprint=run.fingerprint,
            setting=setting_of(run.profile),
            profile=run.profile.name,
            parameters=run_parameters(run.notebook, run.profile),
            status="failed",
            error=message,
            traceback=traceback,
        )
        records.save(workspace, record)
    return RunError(message + (f" (see {workspace.shown(seen)})" if seen else ""), traceback)


def _stamp(run: Planned) -> dict[str, str]:
    """What an executed copy was made from: the run, and the notebook's source."""
    return {"run": run.fingerprint, "source": hashlib.sha256(run.source.read_bytes()).hexdigest()}


def _wanted(notebook: str, first: str | None, only: str | None) -> bool:
    for asked in (first, only):
        if asked is not None and not any(name.startswith(asked) for name in NOTEBOOKS):
            raise InputError(f"no notebook begins with {asked!r}; there are {', '.join(NOTEBOOKS)}")
    if only is not None:
        return notebook.startswith(only)
    return first is None or notebook >= first


class _Lines:
    """A file for papermill to write a notebook's stderr to, which hands on the last state of each progress bar."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def write(self, text: str) -> int:
        for line in self._last_lines(text):
            self.tell(line)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    @staticmethod
    def _last_lines(text: str) -> Iterator[str]:
        stripped = [part.strip() for part in re.split(r"[\r\n]+", text)]
        shown = [part for part in stripped if part]
        return iter(shown[-1:])
