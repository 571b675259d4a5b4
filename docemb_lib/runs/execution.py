"""A run is a folder, complete by one rename: how it is recognised, executed and published.

`outputs/runs/<notebook>/<slug>/` holds

- `run.json`, the record: parameters, metrics and the key, a hash of all that the results depend on,
- the tables and figures of the run,
- `notebook.ipynb`, the executed notebook.

It is written in the sibling `<slug>.partial` under a file lock. A run is done if its folder is
there and the key in it is the run's own. So a changed setting, file or cell makes a run again, and
whatever was killed is simply not done: its expensive parts are artefacts of the store, which the
next execution finds or takes up. A run that failed leaves its record, its traceback and its
notebook up to the error in `<slug>.failed`, and is tried again.

A notebook that a person executes publishes its folder itself, without an executed notebook.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import traceback
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docemb_lib.base.errors import InputError, as_line
from docemb_lib.base.files import fingerprint_of
from docemb_lib.runs import records
from docemb_lib.runs.identity import RunIdentity
from docemb_lib.runs.records import EXECUTED, FAILED
from docemb_lib.runs.store import PARTIAL, locked, outputs, publish, relative
from docemb_lib.settings.files import find_root

if TYPE_CHECKING:
    from docemb_lib.runs.kernels import Report

logger = logging.getLogger(__name__)
NOTEBOOK = "notebook.ipynb"
CELL = re.compile(r"^# %%(.*)$", re.MULTILINE)  # in a .py file
MAGIC = re.compile(r"^# (?=%[^%]|!)", re.MULTILINE)  # jupytext puts it before magic commands
CONFLICT = re.compile(r'(^|"|\\n)(<<<<<<<|>>>>>>>) ', re.MULTILINE)  # a line that git leaves
VALUE = re.compile(r"^(\w+)\s*=.*", re.MULTILINE)  # of a parameter, with its comment
BY_HAND = ".by-hand"


class RunError(RuntimeError):
    """A notebook failed, in one line; the record of its run has the traceback."""


class RunFolder(RunIdentity):
    """A run and its folder."""

    # The keys of other runs that the notebook of this one must show beside it.
    beside: tuple[str, ...] = ()

    @property
    def source(self) -> Path:
        """The notebook in `notebooks/`."""
        return find_root() / "notebooks" / f"{self.notebook}.ipynb"

    @cached_property  # files may change while the run lasts
    def key(self) -> str:
        """A hash of all that the results depend on. It is computed without loading models.

        The prose of the notebook does not count. Raises InputError for a damaged notebook, and
        where files of the profile are missing.
        """
        determined_by = {
            "notebook": self.notebook,
            "code": code_of(self.source),
            "parameters": self.counted,
            "setting": self.setting,
        }
        return fingerprint_of(determined_by)

    @property
    def folder(self) -> Path:
        """The folder that the run is published as."""
        return outputs() / "runs" / self.notebook / self.slug

    @property
    def record(self) -> records.Record | None:
        """The record of the run, if it is done."""
        found = records.read(self.folder)
        return found if found is not None and found.key == self.key else None

    @property
    def is_done(self) -> bool:
        """Whether the run has been executed with these results, and shows the runs `beside` it.

        A run of which an input is missing is not done; its check names the input.
        """
        with suppress(InputError):
            record = self.record if (self.folder / NOTEBOOK).is_file() else None
            return record is not None and {*self.beside} <= {record.key, *record.shown}
        return False

    @property
    def partial(self) -> Path:
        """The folder that the run fills before it is published."""
        return self.folder.with_name(self.folder.name + PARTIAL)

    @property
    def failed(self) -> Path:
        """The folder of the last execution, if it failed."""
        return self.folder.with_name(self.folder.name + FAILED)


def execute(run: RunFolder, *, report: Report = lambda line: None, wait: bool = True) -> bool:
    """Execute the run in a new kernel unless it is done, also by another process meanwhile.

    Returns whether this call has executed it. Raises RunError if the notebook failed, and
    InputError if it raised that; both are recorded.

    Args:
        report: receives the last state of the notebook's progress bars.
        wait: for a process that executes the run at this time; if not, filelock.Timeout is raised.
    """
    from docemb_lib.runs.kernels import execute_notebook  # with Jupyter, which takes time

    with locked(run.folder, wait=wait):
        if run.is_done:
            return False
        key = run.key  # now: files may change while the run lasts
        shutil.rmtree(run.partial, ignore_errors=True)
        run.partial.mkdir()
        try:
            os.environ[EXECUTED] = str(run.partial)  # kernels inherit it
            parameters = {"profile": run.profile.source, **run.parameters}
            execute_notebook(run.source, run.partial / NOTEBOOK, parameters, report)
            _check_record(run, key)
        except Exception as error:
            raise _failure(run, error) from None
        except BaseException:  # an interrupt is no failure; artefacts stay for the next execution
            shutil.rmtree(run.partial, ignore_errors=True)
            raise
        finally:
            del os.environ[EXECUTED]
        publish(run.partial, run.folder)
        shutil.rmtree(run.failed, ignore_errors=True)
        return True


def publish_by_hand(run: RunFolder, partial: Path) -> None:
    """Publish what a run has left that a person has executed, unless the run is done."""
    with locked(run.folder):
        if not run.is_done:
            publish(partial, run.folder)
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(run.failed, ignore_errors=True)


def record_of(run: RunFolder, **result: Any) -> records.Record:
    """The record of a run; `result` are the fields from `status` on."""
    return records.Record(
        run.notebook,
        run.label,
        run.key,
        run.setting,
        run.profile.name,
        run.parameters,
        sources=run.sources,
        inputs=run.inputs,
        **result,
    )


def record_failure(run: RunFolder, reason: str, trace: str = "") -> str:
    """Record why a run failed, in its folder of failures, and return a line that names the run."""
    line = as_line(f"{run.notebook} ({run.label}): {' '.join(reason.split())}")
    run.partial.mkdir(parents=True, exist_ok=True)
    failed = record_of(run, status="failed", error=line, traceback=trace)
    failed.write(run.partial, {})
    publish(run.partial, run.failed)
    notebook = run.failed / NOTEBOOK
    return f"{line} (see {relative(notebook)})" if notebook.is_file() else line


def _failure(run: RunFolder, error: Exception) -> Exception:
    """Record a failed execution; returns the exception that says so in one line."""
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    kind: type[Exception] = RunError
    trace = "".join(traceback.format_exception(error))
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, RunError):
        reason = str(error)
    elif isinstance(error, DeadKernelError):
        mend = "if the memory was full, end other programs, and give the same command again"
        reason = f"its kernel died ({error}); {mend}"
    elif isinstance(error, PapermillExecutionError):
        colours = r"\x1b\[[0-9;]*m"
        trace = re.sub(colours, "", "\n".join(error.traceback))
        reason = f"{error.ename}: {error.evalue}"
        if error.ename == InputError.__name__:
            kind = InputError
            reason = str(error.evalue)
    return kind(record_failure(run, reason, trace))


def _check_record(run: RunFolder, key: str) -> None:
    """Raise RunError unless the notebook has left the record of the run with this key."""
    from docemb_lib.runs.kernels import NAME

    record = records.read(run.partial)
    if record is None or record.key != key:
        ended = "it ended without its record; leave profile and corpus unchanged meanwhile"
        raise RunError(f"{ended}, and check that the kernel {NAME} belongs to this environment")


def code_of(notebook: Path) -> str:
    """A hash of the code cells of a notebook, with their tags.

    Of the parameters only the names count, because every run is given their values. Raises
    InputError for a notebook that cannot be executed with parameters.
    """
    if not notebook.is_file():
        mend = "make it again with `docemb init` or `jupytext --sync *.py`"
        raise InputError(f"{notebook}: there is no such notebook; {mend}")
    state = notebook.stat()
    return _code_of(notebook, state.st_size, state.st_mtime_ns)


@cache  # it is said once
def compare_pair(notebook: Path) -> None:
    """Warn where the code of a notebook is not that of the .py file beside it."""
    pair = notebook.with_suffix(".py")
    if not pair.is_file():
        return
    content = json.loads(notebook.read_text(encoding="utf-8"))
    code = [
        "".join(cell["source"]).strip() for cell in content["cells"] if cell["cell_type"] == "code"
    ]
    _, *parts = CELL.split(MAGIC.sub("", pair.read_text(encoding="utf-8")))
    typed = zip(parts[::2], parts[1::2], strict=True)
    if code != [text.strip() for kind, text in typed if not kind.startswith(" [")]:
        message = "%s is executed, and its code is not that of %s: `jupytext --sync %s`"
        logger.warning(f"{message} there updates the older one", notebook, *[pair.name] * 2)


@lru_cache  # a plan asks for each of its runs
def _code_of(notebook: Path, size: int, time: int) -> str:
    """The hash of a notebook's code. size, time: of the file, so that a changed one is read again.

    Raises InputError.
    """
    mend = f"restore it, or give `jupytext --to ipynb {notebook.stem}.py` there"
    text = notebook.read_text(encoding="utf-8", errors="replace")
    if CONFLICT.search(text):
        problem = "git has left conflict markers (<<<<<<<) in it"
        raise InputError(f"{notebook}: {problem}; {mend}")
    code = []
    number = 0
    try:
        content = json.loads(text)
        for cell in content["cells"]:
            if cell["cell_type"] == "code":
                tags = cell["metadata"].get("tags", [])
                source = "".join(cell["source"])
                if "parameters" in tags:
                    number += 1
                    source = VALUE.sub(r"\1", source)
                code.append([source, tags])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        problem = f"this is no notebook ({type(error).__name__}: {error})"
        raise InputError(f"{notebook}: {problem}; {mend}") from None
    if number != 1:
        problem = f"{number} cells have the tag `parameters`, and one must have it"
        raise InputError(f"{notebook}: {problem}; {mend}")
    return fingerprint_of({"cells": code})
