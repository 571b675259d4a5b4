"""The execution of one planned run: papermill executes its notebook under a lock.

`docemb run` and the workers of a sweep both execute runs here, so they share finished work.
`is_done` recognises a finished run by its record, its student and its executed copy. Other files of
a killed run are written over.
"""

import io
import json
import re
import threading
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import Timeout

from docemb_lib.base.errors import InputError, as_line
from docemb_lib.base.progress import is_bar
from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.settings.profile import Profile
from docemb_lib.sweeps.kernels import NAME, ended_once, kernel_options, socket_folder
from docemb_lib.workspace import Workspace, fingerprint_of, locked, write_text

# How a run has ended; elsewhere: it is executed by another process at this time.
Status = Literal["built", "reused", "failed", "elsewhere"]
SHOWN = 3  # changes that are named as the reason of a repetition
Report = Callable[[str], None]  # receives a line of progress


@dataclass(frozen=True, eq=False)
class Planned:
    """One run of a plan or a grid, resolved."""

    key: RunKey
    parameters: dict[str, object]  # for papermill
    source: Path  # the notebook in `notebooks/`
    executed: Path  # the executed copy
    # Of a page that compares runs: the fingerprints of all runs that it has to show.
    compared: tuple[str, ...] = ()

    @property
    def notebook(self) -> str:
        return self.key.notebook

    @property
    def profile(self) -> Profile:
        return self.key.profile

    @property
    def label(self) -> str:
        return self.key.label

    @property
    def fingerprint(self) -> str:
        return self.key.fingerprint

    def record(self, workspace: Workspace) -> records.Record | None:
        """The record of the run, if it has succeeded."""
        return records.find_done(workspace, self.notebook, self.fingerprint)

    @property
    def working(self) -> Path:
        """The copy during the execution; that of a killed run is written over."""
        return self.executed.with_name(f".{self.executed.stem}.running.ipynb")

    @property
    def failed(self) -> Path:
        """The copy of a failed run, executed up to its error."""
        return self.executed.with_suffix(".failed.ipynb")

    @property
    def stamp(self) -> dict[str, object]:
        """The run and the code that an executed copy is made from, for the copy's metadata.

        The prose of the notebook does not count.
        """
        stamp: dict[str, object] = {"run": self.fingerprint, "code": code_of(self.source)}
        if self.compared:
            stamp["compared"] = list(self.compared)
        return stamp


Runs = Sequence[Planned]


def code_of(notebook: Path) -> str:
    """A hash of the code cells of a notebook, with their tags."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = [
        ["".join(cell["source"]), cell["metadata"].get("tags", [])]
        for cell in cells
        if cell["cell_type"] == "code"
    ]
    return fingerprint_of({"cells": code})


def records_of(runs: Runs, workspace: Workspace) -> list[records.Record]:
    """The records of those of the runs that have succeeded."""
    done = [run.record(workspace) for run in runs]
    return [record for record in done if record is not None]


class RunError(RuntimeError):
    """A notebook failed, in one line; the record of its run has the traceback."""


class UnwantedError(RuntimeError):
    """A run was stopped because its result is no longer wanted.

    This is no failure, and nothing is recorded.
    """


def is_done(run: Planned, workspace: Workspace) -> bool:
    """Whether the run has its record, its student, and its executed copy.

    The copy must be readable and made from the code of the notebook as it is now.
    """
    return reason_to_execute(run, workspace) is None


def reason_to_execute(run: Planned, workspace: Workspace) -> str | None:
    """Why a run is to be executed: "" for one that never was, None for one that is done."""
    try:
        record = run.record(workspace)
    except InputError:  # an input is missing, which the check of the run reports
        return ""
    try:
        copy = json.loads(run.executed.read_text(encoding="utf-8"))
        stamp = copy["metadata"]["docemb"]
        made_from = stamp["run"]
    except (OSError, ValueError, LookupError, TypeError):
        return "" if record is None else "its executed notebook is missing or damaged"
    if made_from != run.fingerprint:
        earlier = records.find(workspace, run.notebook, made_from)
        changes = ["its inputs have changed"] if earlier is None else earlier.changes(run.key)
        more = f", and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
        return ", ".join(changes[:SHOWN]) + more
    if record is None:
        return "its record is missing or damaged"
    if stamp != run.stamp:
        same_code = stamp.get("code") == run.stamp["code"]
        return "it compares other runs" if same_code else "the notebook's code has changed"
    if record.student and not (workspace.root / record.student).is_dir():
        return "its student is missing"
    return None


def repetitions(missing: Runs, workspace: Workspace) -> list[str]:
    """Why runs that were finished before are executed again, a line for each reason."""
    notebooks: dict[str, list[str]] = defaultdict(list)
    for run in missing:
        reason = reason_to_execute(run, workspace)
        if reason:
            notebooks[reason].append(run.notebook)
    lines = []
    for reason, names in notebooks.items():
        counts = [f"{name} ({count})" for name, count in Counter(names).items()]
        lines.append(f"again   {', '.join(counts)}: {reason}")
    return lines


def execute_run(
    run: Planned,
    workspace: Workspace,
    *,
    report: Report = lambda line: None,
    unwanted: Callable[[], bool] | None = None,
    wait: bool = True,
) -> bool:
    """Execute the run unless it is done, also by another process meanwhile.

    Returns whether this call has executed it. Raises RunError if the notebook failed, and
    InputError if it raised that; both are recorded. The kernel may write a checkpoint before
    UnwantedError or KeyboardInterrupt is raised.

    Args:
        report: receives the last state of the notebook's progress bars.
        unwanted: polled every second in a thread; once it is true, the run is stopped with
            UnwantedError.
        wait: for a process that executes the run at this time; if not, filelock.Timeout is raised.
    """
    with locked(run.executed, wait=wait):
        if is_done(run, workspace):
            return False
        with socket_folder() as sockets, ended_once(unwanted, sockets) as ended:
            _execute(run, workspace, report, kernel_options(sockets), ended)
        return True


def record_failure(run: Planned, workspace: Workspace, reason: str, trace: str) -> str:
    """Record why a run failed, unless it once succeeded or is being executed.

    Returns a line that names the run.
    """
    with suppress(Timeout), locked(run.executed, wait=False):
        return _fail(run, workspace, reason, trace)
    return _one_line(run, reason)


def _one_line(run: Planned, reason: str) -> str:
    return as_line(f"{run.notebook} ({run.label}): {' '.join(reason.split())}")


def _fail(run: Planned, workspace: Workspace, reason: str, trace: str) -> str:
    """`record_failure` while this process holds the run's lock."""
    message = _one_line(run, reason)
    if run.working.is_file():
        run.working.replace(run.failed)
    if run.record(workspace) is None:
        failed = records.Record.of(run.key, status="failed", error=message, traceback=trace)
        records.save(workspace, failed)
    return f"{message} (see {workspace.relative(run.failed)})" if run.failed.is_file() else message


def _execute(
    run: Planned,
    workspace: Workspace,
    report: Report,
    options: Mapping[str, Any],
    stopped: threading.Event,
) -> None:
    """`execute_run` while this process holds the run's lock; options: see `kernel_options`."""
    report("starting the notebook")
    try:
        stamp = run.stamp  # before the execution, during which the notebook may be edited
        _papermill(run.source, run.working, run.parameters, report, options)
    except BaseException as error:
        if stopped.is_set() or not isinstance(error, Exception):
            # Artefacts stay; the next execution writes a new copy.
            run.working.unlink(missing_ok=True)
            if stopped.is_set():
                raise UnwantedError(_one_line(run, "was stopped")) from None
            raise
        reason, trace = _explained(error)
        kind = InputError if getattr(error, "ename", "") == InputError.__name__ else RunError
        raise kind(_fail(run, workspace, reason, trace)) from None
    if run.record(workspace) is None:
        ended = "it ended without its record; leave profile and corpus unchanged meanwhile"
        reason = f"{ended}, and check that the kernel {NAME} belongs to this environment"
        raise RunError(_fail(run, workspace, reason, ""))
    _publish_copy(run.working, run.executed, stamp)
    run.failed.unlink(missing_ok=True)


def _papermill(
    source: Path,
    working: Path,
    parameters: Mapping[str, object],
    report: Report,
    options: Mapping[str, Any],
) -> None:
    """Execute a notebook into a working copy; `options` are of `kernel_options`."""
    import papermill

    papermill.execute_notebook(
        str(source),
        str(working),
        parameters,
        cwd=str(source.parent),
        progress_bar=False,
        stdout_file=_LastLine(lambda line: report(line) if is_bar(line) else None),
        stderr_file=_LastLine(report),
        **options,
    )


def _publish_copy(working: Path, executed: Path, stamp: Mapping[str, object]) -> None:
    """Make a working copy the executed one."""
    import nbformat
    from nbconvert.preprocessors.coalescestreams import CoalesceStreamsPreprocessor

    # Keep the last state of each progress bar. nbclient can coalesce streams during the execution,
    # but then outputs that are updated later lose their place.
    copy = nbformat.read(working, as_version=4)
    notebook, _ = CoalesceStreamsPreprocessor().preprocess(copy, {})
    notebook.metadata["docemb"] = stamp
    write_text(working, nbformat.writes(notebook) + "\n")
    working.replace(executed)


def _explained(error: Exception) -> tuple[str, str]:
    """Why an execution failed, in one line, and the traceback, "" where it adds nothing."""
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    if isinstance(error, DeadKernelError):
        mend = "if the memory was full, end other programs, and give the same command again"
        return f"its kernel died ({error}); {mend}", ""
    if not isinstance(error, PapermillExecutionError):
        return f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    if error.ename == InputError.__name__:
        return str(error.evalue), ""
    colours = r"\x1b\[[0-9;]*m"
    trace = re.sub(colours, "", "\n".join(error.traceback))
    return f"{error.ename}: {error.evalue}", trace


class _LastLine(io.TextIOBase):
    """A file for a notebook's stream, which reports the last line of each write."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def write(self, text: str) -> int:
        *_, last = re.split(r"[\r\n]+", text.strip())
        if last:
            self.report(last.strip())
        return len(text)
