"""The workers of a sweep: Dask processes of this machine or of a running cluster.

On this machine a sweep has a worker process for each GPU; without a GPU one for each core with 4 GB
of memory, since single runs side by side use cores better than one run with many threads. Dask
loads this module in each of them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from docemb_lib.base.errors import InputError
from docemb_lib.base.hardware import ENVIRONMENT, PRECISION, asked_precision, free_memory
from docemb_lib.base.worker_pool import SIGNALS, uninterrupted
from docemb_lib.runs.store import installed_versions

if TYPE_CHECKING:
    from distributed import Client, Worker

logger = logging.getLogger(__name__)

MEMORY = 4 * 2**30  # bytes for a run without a GPU: torch, a small student, its teachers
LOOPBACK = "127.0.0.1"
TIMEOUT = 10  # seconds for a scheduler to answer
ATTEMPTS = 3  # after so many killed workers a run has failed
THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
)


@contextmanager
def local_workers(count: int) -> Iterator[Client]:
    """A Dask client of `count` new processes, which end with the block.

    A Dask process executes what its peers send. These processes listen on the loopback only and use
    TLS with a key of their own, so that neither other machines nor other users of this machine can
    connect.
    """
    import dask
    from distributed import Client, LocalCluster
    from distributed.security import Security

    settings = {
        "distributed.scheduler.allowed-failures": ATTEMPTS - 1,
        # A run whose worker died waits at the scheduler. At a busy worker, the death of that
        # worker would count as well.
        "distributed.scheduler.worker-saturation": 1.0,
        # Dask watches its threads a hundred times a second and its event loops fifty times, which
        # takes eight hundredths of a core from the runs.
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "1s",
    }
    with dask.config.set(settings), ExitStack() as stack:
        with uninterrupted():
            workers = LocalCluster(
                n_workers=count,
                threads_per_worker=1,
                memory_limit=0,  # a run's memory is that of the kernel, which Dask does not see
                host=LOOPBACK,
                security=Security.temporary(),
                dashboard_address=f"{LOOPBACK}:0",
                silence_logs=logging.CRITICAL,
                preload=[__name__],
                env=_environment(count),
            )
            stack.enter_context(workers)
            client = stack.enter_context(Client(workers))
        yield client


@contextmanager
def workers_of(scheduler: str) -> Iterator[Client]:
    """A Dask client of a running cluster, named by its address or scheduler file.

    Raises InputError where no scheduler answers, and warns of a cluster that anyone may use.
    """
    from distributed import Client

    try:
        address = scheduler
        if Path(scheduler).suffix == ".json":
            address = json.loads(Path(scheduler).read_bytes())["address"]
        # In a thread of its own, because a notebook that calls `sweep` has an event loop here.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, _answer(address)).result()
        client = Client(address, timeout=TIMEOUT, set_as_default=False)
    except Exception as error:  # of any kind, where something else than a scheduler answers
        problem = f"it does not answer ({shorten(f'{type(error).__name__}: {error}', 200)})"
        mend = "check that a Dask scheduler runs there with the same TLS files, and can be reached"
        raise InputError(f"scheduler {scheduler}: {problem}; {mend}") from None
    with client:
        if not client.scheduler.address.startswith(("tls://", "wss://")):
            problem = "anyone who can reach it can execute code as you"
            mend = "docs/sweeps.md says how to close it with TLS"
            logger.warning(
                "scheduler %s: it does not check who sends work: %s; %s", scheduler, problem, mend
            )
        yield client


async def _answer(address: str) -> None:
    """Ask for the identity of a scheduler, which no other service gives.

    `Client` would wait for ever where another service answers. Raises an error of any kind.
    """
    from distributed.core import rpc
    from distributed.security import Security

    async with rpc(address, connection_args=Security().get_connection_args("client")) as scheduler:
        await asyncio.wait_for(scheduler.identity(), TIMEOUT)


def default_workers(runs: int) -> int:
    """How many workers this machine has room for; no more than there are runs."""
    from dask.system import CPU_COUNT

    return max(1, min(runs, len(_gpus()) or min(CPU_COUNT, free_memory("cpu") // MEMORY)))


def signature() -> dict[str, str]:
    """What must be the same in a sweep and its workers: versions, and the precision asked for."""
    return {**installed_versions(), PRECISION: asked_precision()}


def unfit(expected: Mapping[str, str], root: Path, dask_worker: Worker) -> str | None:
    """Why this process, a worker, must not execute runs of a sweep; None if it may.

    Args:
        expected: the `signature` of the sweep.
        root: the working folder of the sweep.
        dask_worker: the worker, which Dask fills in.
    """
    threads = dask_worker.state.nthreads
    if threads != 1:
        problem = f"has {threads} threads and would execute as many notebooks in one process"
        return f"{problem}; start it with --nthreads 1"
    if not (root / "notebooks").is_dir():
        mend = "workers need a file system that they share with the sweep"
        return f"does not see {root / 'notebooks'}; {mend}"
    differing = sorted(signature().items() - expected.items())
    if differing:
        name, here = differing[0]
        mend = "make them the same there and start the workers anew"
        return f"has {name} {here}, the sweep has {expected.get(name)}; {mend}"
    return None


def dask_setup(worker: Worker) -> None:
    """Set up a new worker process, in which Dask calls this: its signals and its GPU."""
    # Ctrl-C in a terminal reaches all processes, and the sweep alone handles it.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus[worker.name % len(gpus)]


def _environment(count: int) -> dict[str, str]:
    """Variables for the kernels of each of `count` workers: a share of the cores, and all GPUs.

    Variables that the user has set keep their values. All are given, because Dask sets some of them
    to 1 by default.
    """
    from dask.system import CPU_COUNT

    # torch takes MKL_NUM_THREADS before the OMP_NUM_THREADS that a user has set.
    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, CPU_COUNT // count)))
    defaults = {
        **dict.fromkeys(THREADS, threads),
        **ENVIRONMENT,
        "CUDA_VISIBLE_DEVICES": ",".join(_gpus()),
    }
    return {**defaults, **os.environ}


def _gpus() -> list[str]:
    """The visible GPUs, named as in CUDA_VISIBLE_DEVICES."""
    import torch

    count = torch.cuda.device_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(count)]
    return names[:count]
