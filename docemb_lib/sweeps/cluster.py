"""The workers of a sweep: their processes, the check of those of a running cluster, and how many
there should be.

On this machine a sweep has a worker process for each GPU; without a GPU one for each core with 4 GB
of memory, since single runs side by side use cores better than one run with many threads. Dask
loads this module in each of them.
"""

import asyncio
import hashlib
import json
import logging
import os
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from textwrap import shorten
from typing import Any

from docemb_lib.base.errors import InputError
from docemb_lib.base.hardware import ENVIRONMENT, PRECISION, asked_precision, free_memory
from docemb_lib.settings.profile import PACKAGE
from docemb_lib.workspace import installed_versions

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
def local_workers(count: int) -> Iterator[Any]:
    """A Dask client of `count` new processes, which end with this block.

    A Dask process executes what its peers send. These processes listen on the loopback only and use
    TLS with a key of their own, so that neither other machines nor other users of this machine can
    connect.
    """
    import dask
    from distributed import Client, LocalCluster
    from distributed.security import Security

    # Saturation 1: a run whose worker died waits at the scheduler. At a busy worker, that death
    # would count as well.
    settings = {
        "distributed.scheduler.allowed-failures": ATTEMPTS - 1,
        "distributed.scheduler.worker-saturation": 1.0,
    }
    # memory_limit: a run's memory is that of the kernel, which Dask does not see
    options: dict[str, Any] = {
        "n_workers": count,
        "threads_per_worker": 1,
        "memory_limit": 0,
        "preload": [__name__],
    }
    private = {
        "host": LOOPBACK,
        "security": Security.temporary(),
        "dashboard_address": f"{LOOPBACK}:0",
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            **options, **private, env=_environment(count), silence_logs=logging.CRITICAL
        ) as workers,
        Client(workers) as client,
    ):
        yield client


@contextmanager
def workers_of(scheduler: str) -> Iterator[Any]:
    """A Dask client of a running cluster (address or scheduler file). Raises InputError."""
    from distributed import Client

    try:
        in_file = Path(scheduler).suffix == ".json"
        address = json.loads(Path(scheduler).read_bytes())["address"] if in_file else scheduler
        with ThreadPoolExecutor(
            1
        ) as thread:  # a notebook that calls `sweep` has an event loop in this one
            thread.submit(asyncio.run, _answer(address)).result()
        client = Client(address, timeout=TIMEOUT, set_as_default=False)
    except Exception as error:  # of any kind, where something else than a scheduler answers
        problem = f"it does not answer ({shorten(f'{type(error).__name__}: {error}', 200)})"
        mend = "check that a Dask scheduler runs there with the same TLS files, and can be reached"
        raise InputError(f"scheduler {scheduler}: {problem}; {mend}") from None
    with client:
        if not client.scheduler.address.startswith(("tls://", "wss://")):
            open_to = "anyone who can reach it can execute code as you; docs/sweeps.md says how to close it with TLS"
            logger.warning("scheduler %s: it does not check who sends work: %s", scheduler, open_to)
        yield client


async def _answer(address: str) -> None:
    """Ask for the identity of a scheduler: `Client` waits forever where another service answers."""
    from distributed.core import rpc
    from distributed.security import Security

    async with rpc(address, connection_args=Security().get_connection_args("client")) as scheduler:
        await asyncio.wait_for(scheduler.identity(), TIMEOUT)


def default_workers(runs: int) -> int:
    """How many workers this machine has room for; no more than there are runs."""
    from dask.system import CPU_COUNT

    return max(1, min(runs, len(_gpus()) or min(CPU_COUNT, free_memory("cpu") // MEMORY)))


@cache
def signature() -> dict[str, str]:
    """Versions, docemb's source as a hash, and the precision that is asked for.

    They are those that this process found at its first call.
    """
    source = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        source.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes() + b"\0")
    found = {**installed_versions(), PRECISION: asked_precision()}
    return {**found, "docemb's source": source.hexdigest()[:16]}


def unfit(expected: Mapping[str, str], root: Path, dask_worker: Any) -> str | None:
    """Why this process, a worker, must not execute runs of a sweep; None if it may. Dask fills in
    `dask_worker`.

    expected: the `signature` of the sweep; root: of its workspace.
    """
    if (threads := dask_worker.state.nthreads) != 1:
        return f"has {threads} threads and would execute as many notebooks in one process; start it with --nthreads 1"
    if not (root / "notebooks").is_dir():
        return f"does not see {root / 'notebooks'}; workers need a file system that they share with the sweep"
    here = signature()
    for name in sorted({*here, *expected}):
        found, wanted = here.get(name, "missing"), expected.get(name, "missing")
        if found != wanted:
            return f"has {name} {found}, the sweep has {wanted}; make them the same there and start the workers anew"
    return None


def dask_setup(worker: Any) -> None:
    """Called by Dask in each new process of a worker; assigns one of the GPUs to the worker's
    kernels.
    """
    signal.signal(
        signal.SIGINT, lambda *_: None
    )  # Ctrl-C in a terminal reaches all processes; the sweep handles it
    gpus = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus[worker.name % len(gpus)]


def _environment(count: int) -> dict[str, str]:
    """What each of `count` workers adds to the environment of its kernels: their share of the
    cores, and all GPUs.

    Variables that the user has set keep their values. All are given, because Dask sets some of them
    to 1 by default.
    """
    from dask.system import CPU_COUNT

    wanted = {**dict.fromkeys(THREADS, str(max(1, CPU_COUNT // count))), **ENVIRONMENT}
    wanted["CUDA_VISIBLE_DEVICES"] = ",".join(_gpus())
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def _gpus() -> list[str]:
    """The visible GPUs, named as in CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible == "":
        return []
    import torch

    numbers = [str(number) for number in range(torch.cuda.device_count())]
    return visible.split(",")[: len(numbers)] if visible else numbers
