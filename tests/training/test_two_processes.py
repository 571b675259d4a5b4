"""Two processes, as torchrun starts them, which `tests/cli/test_main.py` does."""

import socket
from types import SimpleNamespace

import pytest
import torch


@pytest.fixture
def train_in_two(distil, server):
    """Trains in two processes, and returns what the first one has at the end."""

    def run(folder, settings, *, dies_at=-1):
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        folder.mkdir(exist_ok=True)
        processes = []
        for rank in (0, 1):
            given = (rank, port, folder, settings, dies_at)
            processes.append(server.Process(target=distil.train_as_one_of_two, args=given))
            processes[-1].start()
        for process in processes:
            process.join(timeout=120)
        assert [process.exitcode for process in processes] == [0 if dies_at < 0 else -9] * 2
        if dies_at < 0:
            weights, history = torch.load(folder / "trained-0.pt")
            return SimpleNamespace(state_dict=lambda: weights), history
        return None

    return run


@pytest.mark.slow
def test_two_processes_train_as_one_with_updates_twice_as_large_and_resume_after_a_kill(
    tmp_path, distil, train_in_two, assert_same_run
):
    """Ten batches of four: each process has five. SoftCCA keeps running statistics."""
    small = {"n": 43, "batch_tokens": 150, "save_every": 2}
    settings = {**small, "dropout": 0.0, "statistics": False}
    one, (_, expected) = distil.train(tmp_path / "one", **settings, accumulation=4)
    two, (_, validation) = train_in_two(tmp_path / "two", settings)
    torch.testing.assert_close(two.state_dict(), one.state_dict(), rtol=1e-4, atol=1e-5)
    for row, of_one in zip(validation, expected, strict=True):
        assert row["loss"] == pytest.approx(of_one["loss"], rel=1e-4)

    unbroken = train_in_two(tmp_path / "unbroken", small)
    train_in_two(tmp_path / "killed", small, dies_at=4)
    assert_same_run(unbroken, train_in_two(tmp_path / "killed", small))
