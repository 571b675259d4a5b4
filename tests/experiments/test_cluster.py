"""Workers: as many as there is room for, each with its share of cores and one GPU; a cluster of others is checked."""

from __future__ import annotations

import pytest

from docemb_lib.errors import InputError
from docemb_lib.experiments import cluster
from docemb_lib.experiments.cluster import default_workers, differs, signature, workers_of

GB = 2**30


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
    monkeypatch.setattr("docemb_lib.hardware.free_memory", lambda device: memory)
    monkeypatch.setattr(cluster, "_gpus", lambda: [str(number) for number in range(gpus)])
    assert default_workers(runs) == workers


def test_workers_share_out_cores_and_gpus(monkeypatch):
    monkeypatch.setattr("dask.system.CPU_COUNT", 16)
    monkeypatch.setattr(cluster, "_gpus", lambda: ["2", "5"])
    environments = cluster._environments(3)
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in environments] == ["2", "5", "2"]
    assert {environment["OMP_NUM_THREADS"] for environment in environments} == {"5"}
    monkeypatch.setattr(cluster, "_gpus", list)
    assert all("CUDA_VISIBLE_DEVICES" not in environment for environment in cluster._environments(32))
    assert cluster._environments(32)[0]["OMP_NUM_THREADS"] == "1"


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
        workers_of("tcp://127.0.0.1:9"),
    ):
        pass


def test_workers_of_another_version_are_told_apart():
    ours = signature()
    assert differs(dict(ours)) is None
    assert differs({**ours, "torch": "1.0"}) == (
        f"has torch 1.0, here it is {ours['torch']}; install the same there and start the workers anew"
    )
    assert str(differs({**ours, "docemb's source": "0"})).startswith("has docemb's source 0, here it is ")
    assert "has gensim missing" in str(differs({name: value for name, value in ours.items() if name != "gensim"}))
