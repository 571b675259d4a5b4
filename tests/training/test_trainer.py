"""Training: what the Trainer is made to do, against a plain loop; killed and resumed, bit for bit."""

from __future__ import annotations

import json
import logging
import math
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import get_cosine_schedule_with_warmup

from docemb_lib.errors import InputError
from docemb_lib.training import precision_of, remove_checkpoints, train_objective, validate
from docemb_lib.training.batches import Collate, Updates
from docemb_lib.training.checkpoints import LOG, MARKER
from docemb_lib.training.documents import Bank
from docemb_lib.training.run import _compiles, count_updates

PROGRAM = Path(__file__).parent / "distil.py"
UPDATES = 12  # 50 documents in 12 batches of 4, two a step, two epochs


pytestmark = pytest.mark.usefixtures("one_thread")


def logged(folder):
    """The first line of a training's log, and the updates that have a row of losses."""
    head, *rows = map(json.loads, (folder / "checkpoints" / LOG).read_text(encoding="utf-8").splitlines())
    return head, [row["step"] for row in rows if "learning_rate" in row]


def run(model, documents, rows, bank=None):
    batch, known = documents.pack([rows], bank)
    return model(batch, **known._asdict())


@pytest.mark.parametrize("more", [False, True])
def test_the_trainer_does_what_a_plain_loop_does(tmp_path, distil, more):
    """AdamW without decay on biases and LayerNorm, warm-up, cosine to zero, clipping and accumulation, by hand."""
    settings = distil.SETTINGS
    trained, _ = distil.distil(tmp_path, dropout=0.0, more=more)

    by_hand = distil.make_objective(dropout=0.0, more=more)
    decayed, free = [], []
    for name, parameter in by_hand.named_parameters():
        if parameter.requires_grad:
            (free if name.endswith("bias") or "LayerNorm" in name else decayed).append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": free, "weight_decay": 0.0}],
        lr=settings.learning_rate,
    )
    schedule = get_cosine_schedule_with_warmup(optimizer, math.ceil(0.1 * UPDATES), UPDATES)
    documents = distil.make_documents(50, 1, more=more)
    bank = Bank(documents, by_hand, batch_size=4, seed=5) if more else None
    for epoch in range(settings.epochs):
        order = Updates(documents.lengths, batch_size=4, accumulation=2, order="shuffled", seed=5)
        order.set_epoch(epoch)
        for update in order:
            for rows in (update[:4], update[4:]):
                by_hand.train()
                (run(by_hand, documents, rows, bank).loss / 2).backward()
            torch.nn.utils.clip_grad_norm_([p for p in by_hand.parameters() if p.grad is not None], 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    ours, theirs = trained.state_dict(), by_hand.state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


def test_the_number_of_updates_is_the_thesis(distil):
    from docemb_lib.settings import Training

    assert count_updates(15_000, Training()) == 2500
    assert count_updates(1_000_000, Training(accumulation=10)) == 16_667  # 16,666 and one for the batches left over
    assert count_updates(50, distil.SETTINGS) == UPDATES


@pytest.mark.parametrize(("seed", "more"), [(0, "false"), (1, "true")])
def test_a_run_killed_anywhere_and_resumed_ends_in_the_same_bits(tmp_path, seed, more):
    unbroken, settings = tmp_path / "unbroken.safetensors", f'{{"more": {more}}}'
    subprocess.run(
        [sys.executable, PROGRAM, tmp_path / "a", unbroken, settings], check=True, capture_output=True, timeout=300
    )

    folder, resumed = tmp_path / "b", tmp_path / "resumed.safetensors"
    at = random.Random(seed).randrange(3, UPDATES)
    killed = subprocess.Popen(
        [sys.executable, PROGRAM, folder, resumed, settings],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert killed.stdout is not None
    for line in killed.stdout:
        if line.strip() == str(at):
            killed.send_signal(signal.SIGKILL)
            break
    killed.wait(timeout=60)
    assert not resumed.exists()
    assert list((folder / "checkpoints").glob(f"*/{MARKER}"))
    again = subprocess.run(
        [sys.executable, PROGRAM, folder, resumed, settings], check=True, capture_output=True, text=True, timeout=300
    )
    steps = [int(line) for line in again.stdout.split()]
    assert steps == list(range(steps[0], UPDATES + 1))
    assert 1 < steps[0] <= at + 1  # it went on, rather than starting anew
    histories = [path.with_suffix(".json").read_text() for path in (unbroken, resumed)]
    assert histories[0] == histories[1]
    assert logged(folder) == logged(tmp_path / "a")
    expected, found = load_file(unbroken), load_file(resumed)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), f"killed after update {at}: {name} differs"


@pytest.mark.parametrize("more", [False, True])
def test_history_has_a_row_per_update_and_validation_from_first_to_last(tmp_path, distil, more):
    _, history = distil.distil(tmp_path, more=more)
    assert [row["step"] for row in history.train] == list(range(1, UPDATES + 1))
    steps = [row["step"] for row in history.validation]
    assert (steps[0], steps[-1]) == (0, UPDATES)
    assert steps == sorted(set(steps))  # none twice
    teachers = {"structural", "contextual", *(("far", "topics") if more else ())}
    for rows in history:
        assert all(("far" in row) == more for row in rows)
        assert {"step", "loss", "norm", "spread", *teachers} <= set(rows[0])
    assert {"grad_norm", "learning_rate", "cca"} <= set(history.train[0])
    assert logged(tmp_path) == ({"title": "student", "updates": UPDATES}, list(range(1, UPDATES + 1)))
    remove_checkpoints(tmp_path)
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("budget", [1, 100, 100_000])
@pytest.mark.parametrize(("n", "parts"), [(9, [4, 5]), (11, [4, 4, 3]), (3, [3])])
@pytest.mark.parametrize("more", [False, True])
def test_validation_means_are_those_of_a_loop_and_leave_the_objective_as_it_was(budget, n, parts, more, distil):
    objective = distil.make_objective(more=more).train()
    before = {name: tensor.clone() for name, tensor in objective.state_dict().items()}
    documents = distil.make_documents(n, 2, more=more)
    bank = Bank(distil.make_documents(50, 1, more=True), objective, batch_size=4, seed=5) if more else None
    means = validate(objective, documents, batch_size=4, bank=bank, budget=budget)

    objective.eval()
    rows, embeddings = [], []
    for start, size in zip(np.cumsum([0, *parts]).tolist(), parts, strict=False):  # a last lone one joins a batch
        with torch.no_grad():
            output = run(objective, documents, list(range(start, start + size)), bank)
        rows.append({"loss": output.loss.item() * size} | {name: p.item() * size for name, p in output.parts.items()})
        embeddings.append(output.embeddings.double().numpy())
    for name in rows[0]:
        assert means[name] == pytest.approx(sum(row[name] for row in rows) / n, rel=1e-6)
    assert len(rows[0]) == (5 if more else 3)
    y = np.concatenate(embeddings)
    unit = y / np.linalg.norm(y, axis=1, keepdims=True)
    distances = [1 - unit[i] @ unit[j] for i in range(n) for j in range(n) if i != j]
    assert means["spread"] == pytest.approx(np.mean(distances), abs=1e-6)
    assert means["norm"] == pytest.approx(np.linalg.norm(y, axis=1).mean(), rel=1e-6)
    for name, tensor in objective.state_dict().items():
        assert torch.equal(tensor, before[name]), f"validation changed {name}"


def test_too_few_documents_for_a_batch_are_refused(tmp_path, distil):
    with pytest.raises(InputError, match="documents: 3 training documents do not fill one batch"):
        train_objective(
            distil.make_objective(),
            distil.make_documents(3, 1),
            distil.make_documents(4, 2),
            settings=distil.SETTINGS,
            seed=0,
            folder=tmp_path,
        )


@pytest.mark.parametrize("budget", [1, 90, 100_000])
@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("more", [False, True])
def test_passes_and_processes_give_the_gradients_of_the_plain_loop(distil, budget, processes, more, monkeypatch):
    """Six batches of four with accumulation, in double precision; the processes one after the other."""
    documents, rows = distil.make_documents(24, 1, more=more), list(range(24))

    plain = distil.make_objective(dropout=0.0, more=more).double().train()
    bank = Bank(documents, plain, batch_size=4, seed=5) if more else None
    for start in range(0, 24, 4):
        (run(plain, documents, rows[start : start + 4], bank).loss / 6).backward()

    ours = [distil.make_objective(dropout=0.0, more=more).double().train() for _ in range(processes)]
    collates = [
        Collate(documents, batch_size=4, budget=budget, bank=bank, rank=rank, processes=processes)
        for rank in range(processes)
    ]
    updates = [collate(rows) for collate in collates]
    assert len({len(parts) for parts in updates}) == 1
    for parts in zip(*updates, strict=True):
        sent = exchange(ours, parts)
        monkeypatch.setattr("torch.distributed.get_world_size", lambda: processes)
        monkeypatch.setattr(
            "torch.distributed.all_gather",
            lambda received, mine, sent=sent: [r.copy_(s) for r, s in zip(received, sent[mine.shape[-1]], strict=True)],
        )
        for objective, part in zip(ours, parts, strict=True):
            (objective(part.batch, **part.known._asdict(), peers=part.peers).loss * part.share).backward()
    for name, parameter in plain.named_parameters():
        if parameter.requires_grad:
            total = sum(dict(objective.named_parameters())[name].grad for objective in ours)
            # A key's bias has no gradient but rounding: softmax does not see it.
            assert (total - parameter.grad).norm() <= 1e-10 * parameter.grad.norm() + 1e-15, name
    for objective in ours:
        for name, buffer in plain.named_buffers():
            torch.testing.assert_close(dict(objective.named_buffers())[name], buffer, rtol=1e-10, atol=1e-12)


def exchange(objectives, parts):
    """What the processes would send each other, by the width of the views: each its projected views, in rows as many
    as the fullest process has batches."""
    by_width = {}
    for place, teaching in enumerate(objectives[0].teachings):
        if not teaching.keeps_statistics:
            continue
        sent = [own_views(objective, place, part) for objective, part in zip(objectives, parts, strict=True)]
        most = max(len(views) for views in sent)
        shape = next(views.shape[1:] for views in sent if len(views))
        by_width[shape[-1]] = [torch.cat([views, views.new_zeros(most - len(views), *shape)]) for views in sent]
    return by_width


@torch.no_grad()
def own_views(objective, place, part):
    """(n, 2, 4, P) for the n batches that a process holds."""
    teaching = objective.teachings[place]
    views = teaching.views(objective.student(part.batch), part.known.teachers[teaching.name].double())
    groups = torch.stack(views).view(2, -1, 4, views[0].shape[1]).transpose(0, 1)
    return groups if part.share else groups[:0]


def test_two_processes_end_where_one_does(distil, tmp_path):
    """Eleven batches in updates of five: the last update leaves one of the processes without a batch. Four teachers."""
    settings = {"dropout": 0.0, "n": 46, "accumulation": 5, "batch_tokens": 150, "more": True}
    trained, history = distil.distil(tmp_path / "one", **settings)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(PROGRAM)]
    weights = tmp_path / "two.safetensors"
    done = subprocess.run(
        [*command, str(tmp_path / "two"), str(weights), json.dumps(settings)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for name, tensor in load_file(weights).items():
        torch.testing.assert_close(
            tensor, trained.state_dict()[name], rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
        )
    rows = json.loads(weights.with_suffix(".json").read_text())
    compared = ("loss", *distil.WIDTHS, "norm", "spread", "grad_norm")
    for mine, alone in zip(rows, [*history.train, *history.validation], strict=True):
        for name in compared:
            if name in alone:
                assert mine[name] == pytest.approx(alone[name], rel=1e-4, abs=1e-6), name


def test_more_negatives_than_documents_are_refused_before_anything_is_trained(distil, tmp_path):
    with pytest.raises(InputError, match="negatives: 5 asked for, but beside a batch of 4 only"):
        distil.distil(tmp_path, n=8, more=True)
    assert not list(tmp_path.iterdir())


def test_fewer_batches_than_processes_are_refused(distil, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.TrainingArguments.world_size", 4)
    with pytest.raises(InputError, match="an update of 2 batches leaves some of 4 processes idle"):
        distil.distil(tmp_path)


def test_a_checkpoint_of_another_run_is_refused_and_a_torn_one_skipped(distil, tmp_path, caplog):
    distil.distil(tmp_path)
    with pytest.raises(InputError, match="from a run with other settings, documents or versions"):
        distil.distil(tmp_path, learning_rate=2e-3)
    with pytest.raises(InputError, match="from a run with other settings, documents or versions"):
        distil.distil(tmp_path, n=49)
    last = tmp_path / "checkpoints" / "checkpoint-12"
    (last / "optimizer.pt").write_bytes(b"torn")
    with caplog.at_level(logging.WARNING):
        _, history = distil.distil(tmp_path, save_every=100, log_every=5)  # these may differ, and then hold
    assert [row["step"] for row in history.train if row["step"] > 10] == [12]
    assert "checkpoint-12 is torn" in caplog.text
    marker = json.loads((last / MARKER).read_text())
    (last / MARKER).write_text(json.dumps({**marker, "processes": 3}))
    with pytest.raises(InputError, match="from a run of 3 processes, this one has 1; start as many"):
        distil.distil(tmp_path)


def test_a_loss_that_is_not_finite_names_its_documents(distil, tmp_path, monkeypatch):
    documents = distil.make_documents(50, 1)
    documents.ids = [f"page-{row}" for row in range(50)]
    documents.teachers["structural"][7] = np.nan  # after the check at construction
    monkeypatch.setattr(distil, "make_documents", lambda n, _, more: documents)
    with pytest.raises(FloatingPointError, match=r"the loss is not finite, with documents .*page-7"):
        distil.distil(tmp_path)


def test_a_gradient_that_is_not_finite_stops_too(distil, tmp_path, monkeypatch):
    class Root(torch.autograd.Function):  # the square root of zero: a finite value without a finite slope
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad * math.inf

    make = distil.make_objective

    def steep(dropout, more):
        objective = make(dropout)
        objective.teachings[1].student_projection.register_forward_hook(lambda *args: Root.apply(args[2]))
        return objective

    monkeypatch.setattr(distil, "make_objective", steep)
    with pytest.raises(FloatingPointError, match="update 1: the gradient is not finite"):
        distil.distil(tmp_path)


def test_told_to_stop_it_saves_first_and_goes_on_to_the_same_bits(tmp_path):
    unbroken = tmp_path / "unbroken.safetensors"
    settings = json.dumps({"save_every": 100, "log_every": 5})
    subprocess.run(
        [sys.executable, PROGRAM, tmp_path / "a", unbroken, settings], check=True, capture_output=True, timeout=300
    )

    folder, resumed = tmp_path / "b", tmp_path / "resumed.safetensors"
    command = [sys.executable, PROGRAM, folder, resumed, settings]
    stopped = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert stopped.stdout is not None
    for line in stopped.stdout:
        if line.strip() == "4":
            stopped.send_signal(signal.SIGTERM)
            break
    stopped.stdout.read()
    assert stopped.wait(timeout=60) == -signal.SIGTERM  # the signal's usual end
    assert not resumed.exists()
    steps = [int(path.parent.name.split("-")[1]) for path in (folder / "checkpoints").glob(f"*/{MARKER}")]
    assert len(steps) == 1
    assert 4 <= steps[0] < UPDATES
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert unbroken.with_suffix(".json").read_text() == resumed.with_suffix(".json").read_text()
    expected, found = load_file(unbroken), load_file(resumed)
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), name


def test_rows_are_means_since_the_row_before(distil, tmp_path):
    _, every = distil.distil(tmp_path / "a", dropout=0.0)
    _, some = distil.distil(tmp_path / "b", dropout=0.0, log_every=5)
    assert [row["step"] for row in some.train] == [1, 5, 10, 12]
    for name in ("loss", "structural", "contextual", "norm"):
        mean = np.mean([row[name] for row in every.train[5:10]])
        assert some.train[2][name] == pytest.approx(mean, rel=1e-6), name
    speeds = ("documents_per_second", "tokens_per_second", "share_of_peak")
    assert all(row[name] > 0 for row in some.train for name in speeds)


def test_precision_fits_the_device(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for fast, expected in ((True, ("bf16", "bf16")), (False, ("fp32", "fp16"))):
        monkeypatch.setattr("docemb_lib.training.memory.fast_bf16", lambda _, fast=fast: fast)
        assert (precision_of(None, cpu), precision_of(None, gpu)) == expected
    assert precision_of("fp32", gpu) == "fp32"
    with pytest.raises(InputError, match="fp16 needs a GPU"):
        precision_of("fp16", cpu)
    with pytest.raises(InputError, match="this GPU has no bf16"):
        precision_of("bf16", gpu)


def test_a_compiler_that_fails_is_said_and_done_without(distil, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("Cannot find a working triton installation\nwith a long explanation")

    student = distil.make_objective().student
    monkeypatch.setattr("docemb_lib.student.longformer._compile", broken)
    with caplog.at_level(logging.WARNING):
        assert not _compiles(student, None)
    assert "without torch.compile: Cannot find a working triton installation" in caplog.text
