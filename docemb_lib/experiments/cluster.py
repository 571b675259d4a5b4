"""Where a sweep is executed: worker processes of this machine, or a running Dask cluster.

On this machine there is a worker for each GPU. Without a GPU there is one for each core with 4 GB of memory, since
single runs side by side use cores better than one run with many threads. The workers share the cores evenly. Dask loads
this module in each worker process (`dask_setup`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import docemb_lib
from docemb_lib.errors import InputError
from docemb_lib.hardware import ENVIRONMENT, free_memory
from docemb_lib.workspace import Workspace, installed_versions

MEMORY = 4 * 2**30  # bytes for a run without a GPU: torch, a small student, its teachers
TIMEOUT = 10  # seconds for a scheduler to answer
ATTEMPTS = 3  # after so many killed workers a run has failed
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "LOKY_MAX_CPU_COUNT")


class Expected(NamedTuple):
    """What must be the same for every worker of a sweep."""

    signature: dict[str, str]
    root: Path  # of the workspace


@contextmanager
def local_workers(count: int) -> Iterator[tuple[Any, None]]:
    """A Dask client of `count` new worker processes, which end with this block and with this process.

    The second value is None: these workers have what this process has.
    """
    import dask
    from distributed import Client, Nanny, Scheduler, SpecCluster

    options = {
        "nthreads": 1,
        "memory_limit": 0,  # a run's memory is that of the kernel, which Dask does not see
        "preload": [__name__],
        "dashboard": False,
        "silence_logs": logging.CRITICAL,
    }
    environments = enumerate(_environments(count))
    workers = {number: {"cls": Nanny, "options": {**options, "env": added}} for number, added in environments}
    address = {"host": "127.0.0.1", "port": 0, "dashboard": _has_bokeh(), "dashboard_address": "127.0.0.1:0"}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": ATTEMPTS - 1}),
        SpecCluster(
            workers=workers, scheduler={"cls": Scheduler, "options": address}, silence_logs=logging.CRITICAL
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client, None


@contextmanager
def workers_of(scheduler: str, workspace: Workspace) -> Iterator[tuple[Any, Expected]]:
    """A Dask client of a running cluster, and what its workers must have.

    scheduler: its address, tcp://host:port, or its scheduler file. Raises InputError if it does not answer, or if a
    present worker is unfit for the workspace.
    """
    from distributed import Client

    expected = expected_of(workspace)
    is_file = "://" not in scheduler and not scheduler.rpartition(":")[2].isdigit()
    if is_file and not Path(scheduler).is_file():
        raise InputError(f"scheduler {scheduler}: no such file; give a scheduler file or an address, tcp://host:port")
    where = {"scheduler_file": scheduler} if is_file else {"address": scheduler}
    try:
        client = Client(**where, timeout=TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"scheduler {scheduler}: no answer within {TIMEOUT} s ({type(error).__name__}); is it running, and can it "
            "be reached from here?"
        ) from None
    with client:
        for worker, reason in client.run(unfit, expected, on_error="return").items():
            if isinstance(reason, Exception):
                raise InputError(f"scheduler {scheduler}: worker {worker} cannot load docemb ({reason})")
            if reason is not None:
                raise InputError(f"scheduler {scheduler}: worker {worker} {reason}")
        yield client, expected


def dashboard_of(client: Any) -> str | None:
    """The address of the dashboard of a client's scheduler; None where it has none."""
    try:
        return client.dashboard_link if client.cluster is None or _has_bokeh() else None
    except KeyError:
        return None


def default_workers(runs: int) -> int:
    """How many workers this machine has room for; no more than there are runs."""
    from dask.system import CPU_COUNT

    room = len(_gpus()) or min(CPU_COUNT, free_memory("cpu") // MEMORY)
    return max(1, min(runs, room))


@cache
def signature() -> dict[str, str]:
    """Versions and a hash of docemb's source, as this process found them at its first call."""
    source, root = hashlib.sha256(), Path(docemb_lib.__file__).parent
    for path in sorted(root.rglob("*.py")):
        source.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return {**installed_versions(), "docemb": docemb_lib.__version__, "docemb's source": source.hexdigest()[:16]}


def expected_of(workspace: Workspace) -> Expected:
    """What the workers of a sweep in `workspace` must have, as this process has it."""
    return Expected(signature(), workspace.root)


def unfit(expected: Expected, dask_worker: Any) -> str | None:
    """Why this process, a worker, must not execute runs of a sweep; None if it may. Dask names the second argument."""
    if (threads := dask_worker.state.nthreads) != 1:
        return f"has {threads} threads and would execute as many notebooks in one process; start it with --nthreads 1"
    if not (expected.root / "notebooks").is_dir():
        return f"does not see {expected.root / 'notebooks'}; workers need a file system that they share with the sweep"
    here = signature()
    for name in sorted({*here, *expected.signature}):
        found, wanted = here.get(name, "missing"), expected.signature.get(name, "missing")
        if found != wanted:
            return f"has {name} {found}, the sweep has {wanted}; install the same there and start the workers anew"
    return None


def dask_setup(worker: Any) -> None:
    """Called by Dask in a new worker process. Ctrl-C in a terminal reaches all processes, and the sweep handles it."""
    signal.signal(signal.SIGINT, lambda *_: None)


def _has_bokeh() -> bool:
    """Whether bokeh is installed, with which Dask draws its dashboard; docemb itself does not need it."""
    return importlib.util.find_spec("bokeh") is not None


def _environments(count: int) -> list[dict[str, str]]:
    """What each worker adds to the environment of its kernels: their share of the cores, and one GPU.

    Variables that the user has set keep their values. All are given, because Dask sets some of them to 1 by default.
    """
    from dask.system import CPU_COUNT

    wanted = {**dict.fromkeys(THREADS, str(max(1, CPU_COUNT // count))), **ENVIRONMENT}
    shared = {name: os.environ.get(name, value) for name, value in wanted.items()}
    gpus = _gpus()
    return [{**shared, **({"CUDA_VISIBLE_DEVICES": gpus[n % len(gpus)]} if gpus else {})} for n in range(count)]


def _gpus() -> list[str]:
    """The visible GPUs, named as in CUDA_VISIBLE_DEVICES."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return visible.split(",")[:count] if visible else [str(number) for number in range(count)]
