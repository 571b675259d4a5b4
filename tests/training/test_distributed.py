"""Several processes and passes give the gradients, statistics and weights of one process."""

import socket
from functools import partial

import pytest
import torch

from docemb_lib.training.batches import Collate


@pytest.mark.parametrize("budget", [1, 90, 100_000])
@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("more", [False, True])
def test_passes_and_processes_give_the_gradients_of_the_plain_loop(
    distil, budget, processes, more, monkeypatch
):
    """Six batches of four, in double precision. The processes run one after the other."""
    documents = distil.make_documents(24, 1, more=more)
    rows = list(range(24))
    plain = distil.make_objective(dropout=0.0, more=more).double().train()
    for start in range(0, 24, 4):
        batch, targets = documents.pack([rows[start : start + 4]])
        (plain(batch, **targets._asdict()).loss / 6).backward()
    objectives = [
        distil.make_objective(dropout=0.0, more=more).double().train() for _ in range(processes)
    ]
    updates = [
        Collate(documents, 4, budget, rank=rank, processes=processes)(rows)
        for rank in range(processes)
    ]
    assert len({len(parts) for parts in updates}) == 1
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: processes)
    for parts in zip(*updates, strict=True):
        gather = partial(give_all, exchange(objectives, parts))
        monkeypatch.setattr("torch.distributed.all_gather", gather)
        for objective, part in zip(objectives, parts, strict=True):
            output = objective(part.batch, **part.targets._asdict(), run_groups=part.run_groups)
            (output.loss * part.share).backward()
    for name, parameter in plain.named_parameters():
        if parameter.requires_grad:
            total = sum(dict(objective.named_parameters())[name].grad for objective in objectives)
            # A key's bias has no gradient but rounding: softmax does not see it.
            assert (total - parameter.grad).norm() <= 1e-10 * parameter.grad.norm() + 1e-15, name
    for objective in objectives:
        torch.testing.assert_close(
            dict(objective.named_buffers()), dict(plain.named_buffers()), rtol=1e-10, atol=1e-12
        )


def give_all(by_width, received, sent):
    """Stands for `all_gather`, with what all processes send of views of the same width."""
    for place, tensor in zip(received, by_width[sent.shape[-1]], strict=True):
        place.copy_(tensor)


@torch.no_grad()
def exchange(objectives, parts):
    """What the processes would send each other, by the width of the views.

    Each sends its projected views, padded to the number of batches of the fullest process.
    """
    by_width = {}
    for place, teaching in enumerate(objectives[0].teachings):
        if not list(teaching.loss.buffers()):
            continue
        sent = []
        for objective, part in zip(objectives, parts, strict=True):
            teaching = objective.teachings[place]
            teacher = part.targets.teachers[teaching.name].double()
            views = torch.stack(teaching.views(objective.student(part.batch), teacher))
            groups = views.view(2, -1, 4, views.shape[-1]).transpose(0, 1)  # (n, 2, 4, P)
            sent.append(groups if part.share else groups[:0])
        most = max(map(len, sent))
        padded = [
            torch.cat([views, views.new_zeros(most - len(views), *views.shape[1:])])
            for views in sent
        ]
        by_width[sent[0].shape[-1]] = padded
    return by_width


@pytest.mark.slow
def test_two_processes_end_where_one_does(distil, server, tmp_path):
    """Eleven batches in updates of five: the last one leaves a process without a batch.

    `tests/cli/test_main.py` has torchrun start them.
    """
    settings = {"dropout": 0.0, "n": 46, "accumulation": 5, "batch_tokens": 150, "more": True}
    trained, history = distil.train(tmp_path / "one", **settings)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    given = port, tmp_path / "two", settings, tmp_path / "two.pt"
    processes = [
        server.Process(target=distil.train_as_one_of_two, args=(rank, *given), daemon=True)
        for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=300)
    assert [process.exitcode for process in processes] == [0, 0]
    weights, histories = torch.load(tmp_path / "two.pt")
    torch.testing.assert_close(weights, trained.state_dict(), rtol=1e-4, atol=1e-5)
    compared = ("loss", *distil.WIDTHS, "norm", "spread", "cca", "grad_norm")
    for rows, alone in zip(histories, history, strict=True):
        for row, expected in zip(rows, alone, strict=True):
            for name in {*compared} & set(expected):
                # Fitted on 12 documents for 12 features, `cca` magnifies the rounding of weights,
                # if any are trained.
                least = 0.05 if name == "cca" and row["step"] else 1e-6
                assert row[name] == pytest.approx(expected[name], rel=1e-4, abs=least), name
