"""Worker processes that end when the process that started them ends or is killed.

Workers have a fixed hash seed: gensim starts an inference from the hash of the text, and a running
process (a Jupyter kernel) cannot change its own hash seed. A worker ends within a second after its
parent, even if the parent was killed.
"""

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, TypeVar

from docemb_lib.base.private import keep_grown_workers

if TYPE_CHECKING:
    from joblib.externals.loky import ProcessPoolExecutor

# Each worker has one BLAS thread, because the processes are the parallelism.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
SIGNALS = (signal.SIGINT, signal.SIGTERM)
IDLE_SECONDS = 60.0  # an idle worker then ends and frees its memory; the next task starts another

Result = TypeVar("Result")


class WorkerPool:
    """Processes that run functions, started at the first task and ended by `stop`.

    A function must be importable by its name.
    """

    def __init__(self) -> None:
        self._executor: ProcessPoolExecutor | None = None
        self.size = 0  # processes; 0 before the first task and after `stop`

    def map(
        self, function: Callable[..., Result], arguments: Iterable[Any], *, jobs: int
    ) -> Iterator[Result]:
        """Yield the results of a function for each tuple of arguments, in order.

        `jobs` results are computed at a time, and one tuple per process is read ahead. Any
        exception, and an interrupt, ends all processes.
        """
        pending: deque[Future[Result]] = deque()
        try:
            for args in arguments:
                # A larger pool that runs already computes no more than `jobs` at a time.
                if len(pending) == (jobs if jobs < self.size else 2 * jobs):
                    yield pending.popleft().result()
                pending.append(self._started(jobs).submit(function, *args))
            while pending:
                yield pending.popleft().result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes, running tasks included."""
        if self._executor is not None:
            self._executor.shutdown(kill_workers=True)
        self._executor = None
        self.size = 0

    def _started(self, jobs: int) -> "ProcessPoolExecutor":
        """The executor of at least `jobs` processes, which replaces a smaller one."""
        if self._executor is None or self.size < jobs:
            # Jupyter kernels import this module at their start, so loky is imported late.
            from joblib.externals.loky import ProcessPoolExecutor

            self.stop()
            self.size = jobs
            with uninterrupted():
                self._executor = ProcessPoolExecutor(
                    jobs,
                    timeout=IDLE_SECONDS,
                    env=ENVIRONMENT,
                    initializer=_start_worker,
                    initargs=(os.getpid(),),
                )
                self._executor.submit(os.getpid)  # starts all processes
        return self._executor


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put off Ctrl-C and SIGTERM to the end of the block, also for the processes that it starts.

    A terminal sends Ctrl-C to all processes, and those would print their tracebacks. A cluster that
    is interrupted while it starts cannot be closed.
    """
    if threading.current_thread() is not threading.main_thread():  # gets no signals
        yield
        return
    put_off: list[int] = []
    handlers = {}
    for number in SIGNALS:
        handlers[number] = signal.signal(number, lambda number, frame: put_off.append(number))
    # New processes inherit what is blocked. The tracker of multiprocessing's resources must run
    # before: the thread that starts it unblocks both signals for itself.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    except Exception:
        if not put_off:  # a process that starts may have been ended, too
            raise
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if put_off:
        signal.raise_signal(put_off[0])


def end_with_parent(parent: int) -> None:
    """From now on, end this process at once when its parent is gone."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.25)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _start_worker(parent: int) -> None:
    end_with_parent(parent)  # a single task may last hours
    keep_grown_workers()
