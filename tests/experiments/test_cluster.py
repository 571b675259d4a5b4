"""Workers: as many as there is room for, each with its share of cores and one GPU; a cluster of others is checked."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from docemb_lib.errors import InputError
from docemb_lib.experiments import cluster
from docemb_lib.experiments.cluster import default_workers, expected_of, unfit, workers_of
from docemb_lib.workspace import Workspace

GB = 2**30
SOURCE = "docemb's source"


@pytest.mark.parametrize(
    ("runs", "cores", "memory", "gpus", "workers"),
    [
        (45, 2, 20 * GB, 0, 2),
        (45, 16, 20 * GB, 0, 5),
        (3, 16, 200 * GB, 0, 3),
        (45, 16, 1 * GB, 0, 1),
        (45, 16, 20 * GB, 8, 8),
        (2, 16, 20 * GB, 8, 2),
    ],
)
def test_there_are_as_many_workers_as_gpus_or_else_cores_and_memory_have_room_for(
    monkeypatch, runs, cores, memory, gpus, workers
):
    monkeypatch.setattr("dask.system.CPU_COUNT", cores)
    monkeypatch.setattr(cluster, "free_memory", lambda device: memory)
    monkeypatch.setattr(cluster, "_gpus", lambda: [str(number) for number in range(gpus)])
    assert default_workers(runs) == workers


def test_workers_share_out_cores_and_gpus(monkeypatch):
    monkeypatch.setattr("dask.system.CPU_COUNT", 16)
    monkeypatch.setattr(cluster, "_gpus", lambda: ["2", "5"])
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    environments = cluster._environments(3)
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in environments] == ["2", "5", "2"]
    assert {environment["OMP_NUM_THREADS"] for environment in environments} == {"5"}
    monkeypatch.setattr(cluster, "_gpus", list)
    assert all("CUDA_VISIBLE_DEVICES" not in environment for environment in cluster._environments(32))
    assert cluster._environments(32)[0]["OMP_NUM_THREADS"] == "1"


def test_what_the_user_has_set_in_the_environment_stays(monkeypatch):
    monkeypatch.setattr("dask.system.CPU_COUNT", 16)
    monkeypatch.setattr(cluster, "_gpus", list)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOMP_SPINCOUNT")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert [cluster._environments(2)[0][name] for name in names] == ["8", "8", "10000"]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert [cluster._environments(1)[0][name] for name in names] == ["3", "16", "7"]


def test_only_visible_gpus_are_given_out(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-1a")
    assert cluster._gpus() == ["3", "GPU-1a"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert cluster._gpus() == ["0", "1"]


def test_a_scheduler_that_does_not_answer_is_one_line(monkeypatch):
    monkeypatch.setattr(cluster, "TIMEOUT", 0.5)
    with (
        pytest.raises(InputError, match=r"^scheduler tcp://127\.0\.0\.1:9: no answer within 0\.5 s .*$"),
        workers_of("tcp://127.0.0.1:9", Workspace()),
    ):
        pass


@pytest.mark.parametrize(
    ("threads", "root", "changes", "said"),
    [
        (1, None, {}, None),
        (1, None, {"torch": "1.0"}, "has torch {torch}, the sweep has 1.0; install the same there and start the workers anew"),
        (1, None, {SOURCE: "0"}, f"has {SOURCE} {{{SOURCE}}}, the sweep has 0; install the same there and start the workers anew"),
        (1, None, {"numba": "1"}, "has numba missing, the sweep has 1; install the same there and start the workers anew"),
        (2, None, {}, "has 2 threads and would execute as many notebooks in one process; start it with --nthreads 1"),
        (1, "/elsewhere", {}, "does not see /elsewhere/notebooks; workers need a file system that they share with the sweep"),
    ],
)  # fmt: skip
def test_an_unfit_worker_is_refused(workspace_root, threads, root, changes, said):
    expected = expected_of(Workspace())
    here = expected.signature
    expected = expected._replace(signature={**here, **changes}, root=Path(root) if root else expected.root)
    worker = SimpleNamespace(state=SimpleNamespace(nthreads=threads))
    assert unfit(expected, worker) == (None if said is None else said.format_map(here))


@pytest.mark.parametrize(
    ("services", "address"), [({"dashboard": "http://there:8787/status"}, "http://there:8787/status"), ({}, None)]
)
def test_a_schedulers_dashboard_is_named_where_it_has_one(services, address):
    class Client:
        cluster = None
        dashboard_link = property(lambda self: services["dashboard"])

    assert cluster.dashboard_of(Client()) == address
