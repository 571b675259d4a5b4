"""Worker processes and temporary folders, of which nothing stays when the process that made them is killed.

Workers have a fixed hash seed: gensim starts an inference from the hash of the text, and a running process (a Jupyter
kernel) cannot change its own hash seed. A worker ends within a second after its parent, even if that was killed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock

from docemb_lib.private import keep_grown_workers

if TYPE_CHECKING:
    from joblib.externals.loky import ProcessPoolExecutor

# One BLAS thread each: the processes are the parallelism.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
IDLE_SECONDS = 60.0  # an idle worker then ends and frees its memory; the next task starts another

Result = TypeVar("Result")
_parent: int | None = None  # process id of this worker's parent; None outside of workers


class WorkerPool:
    """Processes that run functions, started at the first task, ended by `stop` or with this object.

    A function must be importable by its name.
    """

    def __init__(self) -> None:
        self._executor: ProcessPoolExecutor | None = None
        self.size = 0  # processes; 0 before the first task and after `stop`

    def map(
        self, function: Callable[..., Result], arguments: Iterable[tuple[Any, ...]], *, jobs: int
    ) -> Iterator[tuple[int, Result]]:
        """Run a function on each tuple of arguments, `jobs` at a time.

        Yields (position in `arguments`, result) in the order of completion; reads one tuple per process ahead. Any
        exception, and an interrupt, ends all processes.
        """
        pending: dict[Future[Result], int] = {}
        with self._stopped_on_error():
            for position, args in enumerate(arguments):
                if len(pending) == (jobs if jobs < self.size else 2 * jobs):
                    yield from _pop_finished(pending)
                pending[self._submit(jobs, function, args)] = position
            while pending:
                yield from _pop_finished(pending)

    def run(self, function: Callable[..., Result], *args: Any, meanwhile: Callable[[], object]) -> Result:
        """Run a function once, calling `meanwhile` twice a second. An interrupt ends the processes."""
        with self._stopped_on_error():
            future = self._submit(1, function, args)
            while not future.done():
                wait([future], timeout=0.5)
                meanwhile()
            return future.result()

    def stop(self) -> None:
        """End all processes, running tasks included."""
        if self._executor is not None:
            self._executor.shutdown(kill_workers=True)
        self._executor, self.size = None, 0

    def _submit(self, jobs: int, function: Callable[..., Result], args: tuple[Any, ...]) -> Future[Result]:
        if self._executor is None or self.size < jobs:
            from joblib.externals.loky import ProcessPoolExecutor  # here: kernels import this module at their start

            self.stop()
            self.size = jobs
            start = {"initializer": _start_worker, "initargs": (os.getpid(),)}
            self._executor = ProcessPoolExecutor(jobs, timeout=IDLE_SECONDS, env=ENVIRONMENT, **start)
        future: Future[Result] = self._executor.submit(function, *args)
        return future

    @contextmanager
    def _stopped_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.stop()
            raise


class TemporaryFolder(tempfile.TemporaryDirectory[str]):
    """A folder among the temporary files (or in `parent`), removed with this object, or after a kill by the next one.

    The operating system frees the lock beside a folder when its process ends, however that ends.
    """

    def __init__(self, parent: str | None = None) -> None:
        parent = parent or tempfile.gettempdir()
        for lock in Path(parent).glob("docemb-*.lock"):
            with suppress(OSError), FileLock(lock, timeout=0):
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)
        self.name = ""
        while not os.path.isdir(self.name):  # another process may sweep the folder before it is locked
            super().__init__(prefix="docemb-", dir=parent)
            self._lock = FileLock(f"{self.name}.lock")
            self._lock.acquire()

    def cleanup(self) -> None:
        super().cleanup()
        self._lock.release()
        Path(self._lock.lock_file).unlink(missing_ok=True)


def end_with_parent(parent: int, folder: str | None = None) -> None:
    """From now on, end this process at once when its parent is gone, and remove a folder."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.25)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def end_if_orphaned() -> None:
    """End this process at once if it is a worker without its parent."""
    if _parent is not None and os.getppid() != _parent:
        os._exit(1)


def _pop_finished(pending: dict[Future[Result], int]) -> Iterator[tuple[int, Result]]:
    """Wait for at least one task, then remove all finished ones from `pending` and yield them."""
    for future in wait(pending, return_when=FIRST_COMPLETED).done:
        yield pending.pop(future), future.result()


def _start_worker(parent: int) -> None:
    global _parent
    _parent = parent
    end_with_parent(parent)  # a single task may last hours
    keep_grown_workers()
