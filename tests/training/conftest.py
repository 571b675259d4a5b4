"""Two small trainings, here and in processes to be killed, and a plain loop to compare with."""

import importlib
import itertools
import math
import multiprocessing
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
import torch
from transformers import get_cosine_schedule_with_warmup

from docemb_lib.training import trainer
from docemb_lib.training.batches import Updates

sys.path.append(str(Path(__file__).parent))  # behind `tests`, whose conftest is imported by name


@pytest.fixture(scope="session")
def distil() -> ModuleType:
    return importlib.import_module("distil")


@pytest.fixture(scope="session")
def on_pairs() -> ModuleType:
    return importlib.import_module("on_pairs")


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def steps(monkeypatch, distil) -> list[int]:
    """The updates that trainings of this process compute, as they end."""
    seen = []
    monkeypatch.setattr(trainer.Flow, "on_step_end", trainer.Flow.on_step_end)  # undone at the end
    distil.after_updates(seen.append)
    return seen


@pytest.fixture(scope="session")
def server():
    """Starts processes; imports once what they share, which takes seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["docemb_lib.training.pairs"])
    return context


@pytest.fixture(scope="session")
def interrupt(distil, server):
    """Runs a training in another process, and sends it `signal` within update `at` + 1.

    Returns the status of the process.
    """

    def run(name: str, folder: Path, settings: dict, *, at: int, signal: int) -> int:
        here, there = server.Pipe()
        given = (importlib.import_module(name).train, folder, settings, there)
        process = server.Process(target=distil.announce_updates, args=given)
        process.start()
        there.close()
        with suppress(EOFError, ConnectionError):
            while True:
                here.send(None)
                if here.recv() == at:
                    os.kill(process.pid, signal)
        process.join(timeout=60)
        assert process.exitcode == -signal  # rather than at its end
        return process.exitcode

    return run


@pytest.fixture(scope="session")
def assert_same_run():
    """Two trainings ended in the same bits: weights, and histories but for times."""

    def untimed(history) -> list[dict]:
        return [
            {name: row[name] for name in row if "second" not in name and "runtime" not in name}
            for row in itertools.chain(*history)
        ]

    def check(expected, actual) -> None:
        weights, history = expected
        torch.testing.assert_close(actual[0].state_dict(), weights.state_dict(), rtol=0, atol=0)
        assert untimed(actual[1]) == untimed(history)

    return check


@pytest.fixture(scope="session")
def plain_loop():
    """AdamW without decay on biases and LayerNorm, warm-up, cosine to zero, and clipping, by hand.

    `loss_of` gives the loss of the rows of a batch in an epoch.
    """

    def loop(model, documents: int, settings, loss_of) -> None:
        groups = [
            {"params": [], "weight_decay": settings.weight_decay},
            {"params": [], "weight_decay": 0.0},
        ]
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                groups[name.endswith("bias") or "norm" in name.lower()]["params"].append(parameter)
        optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate)
        size = settings.batch_size
        updates = settings.epochs * math.ceil(documents // size / settings.accumulation)
        schedule = get_cosine_schedule_with_warmup(optimizer, math.ceil(0.1 * updates), updates)
        for epoch in range(settings.epochs):
            for update in Updates(documents, settings, seed=5, epoch=lambda e=epoch: e):
                batches = [update[start : start + size] for start in range(0, len(update), size)]
                for rows in batches:
                    model.train()
                    (loss_of(rows, epoch) / len(batches)).backward()
                torch.nn.utils.clip_grad_norm_(
                    [p for p in model.parameters() if p.grad is not None], 1.0
                )
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()

    return loop
