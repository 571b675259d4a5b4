"""Training on pairs: what the Trainer is made to do, against a plain loop; killed and resumed, bit for bit."""

from __future__ import annotations

import importlib.util
import json
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
from torch.nn import functional as F
from transformers import get_cosine_schedule_with_warmup

from docemb_lib.errors import InputError
from docemb_lib.losses.pairs import NO_LABEL
from docemb_lib.training.batches import Updates
from docemb_lib.training.checkpoints import MARKER
from docemb_lib.training.simde import validate_pairs

PROGRAM = Path(__file__).parent / "on_pairs.py"
UPDATES = 12  # 45 of 50 documents have two sentences: 11 batches of 4, two a step, two epochs

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def on_pairs():
    specification = importlib.util.spec_from_file_location("on_pairs", PROGRAM)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def losses_by_hand(objective, documents, rows, epoch):
    """Contrast and MLM of a batch in one pass: cosines pair by pair, scores for all tokens."""
    (part,) = documents.pack(rows, epoch=epoch, budget=10**6).parts
    order = np.argsort(part.places).tolist()
    embeddings = objective.student(part.texts)[order]
    first, second = embeddings[: len(rows)], embeddings[len(rows) :]
    losses = []
    for i, h in enumerate(first):
        similar = torch.stack([F.cosine_similarity(h, other, dim=0) for other in second]) / 0.05
        losses.append(similar.logsumexp(0) - similar[i])
    contrast = torch.stack(losses).mean()
    head, words = objective.head, objective.student.model.embeddings.word_embeddings.weight
    hidden = objective.student.hidden(part.masked)
    scores = head.norm(F.gelu(head.dense(hidden))) @ words.T + head.bias
    guessed = part.labels != NO_LABEL
    return contrast, -scores.log_softmax(1)[guessed, part.labels[guessed]].mean()


@pytest.mark.parametrize("taught", [False, True])
@pytest.mark.parametrize("pairs", ["halves", "dropout"])
def test_the_trainer_does_what_a_plain_loop_does(tmp_path, on_pairs, taught, pairs, monkeypatch):
    """AdamW without decay on biases and LayerNorm, warm-up, cosine to zero, clipping and accumulation, by hand; the
    trainer has several passes for each batch, the loop one."""
    monkeypatch.setattr("docemb_lib.training.simde._dropouts", lambda student: [True])
    settings = on_pairs.SETTINGS
    trained, history = on_pairs.train(tmp_path, dropout=0.0, taught=taught, pairs=pairs)

    by_hand = on_pairs.make_objective(dropout=0.0, taught=taught)
    decayed, free = [], []
    for name, parameter in by_hand.named_parameters():
        if parameter.requires_grad:
            (free if name.endswith("bias") or "norm" in name.lower() else decayed).append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": free, "weight_decay": 0.0}],
        lr=settings.learning_rate,
    )
    schedule = get_cosine_schedule_with_warmup(optimizer, math.ceil(0.1 * UPDATES), UPDATES)
    documents, teachers = on_pairs.make_documents(50, 1, pairs=pairs)
    assert len(documents) == 45
    logged = []
    for epoch in range(settings.epochs):
        order = Updates(documents.lengths, batch_size=4, accumulation=2, order="shuffled", seed=5)
        order.set_epoch(epoch)
        for update in order:
            batches = [update[start : start + 4] for start in range(0, len(update), 4)]
            for rows in batches:
                contrast, mlm = losses_by_hand(by_hand, documents, rows, epoch)
                loss = contrast + 0.1 * mlm
                if taught:
                    batch, known = teachers.pack([documents.rows[rows].tolist()])
                    loss = by_hand.distillation(batch, **known._asdict()).loss + 0.5 * loss
                (loss / len(batches)).backward()
                logged.append((contrast.item(), mlm.item(), loss.item(), len(batches)))
            torch.nn.utils.clip_grad_norm_([p for p in by_hand.parameters() if p.grad is not None], 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    ours, theirs = trained.state_dict(), by_hand.state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-3, atol=2e-5, msg=lambda m, n=name: f"{n}: {m}")
    assert len(history.train) == UPDATES
    for part, name in enumerate(("contrast", "mlm", "loss")):
        first = history.train[0][name]
        assert first == pytest.approx((logged[0][part] + logged[1][part]) / 2, rel=1e-5)
    assert ("structural" in history.train[0]) == taught


@pytest.mark.parametrize(
    ("seed", "settings"), [(0, {}), (1, {"taught": True}), (2, {"pairs": "dropout", "mlm": False})]
)
def test_a_run_killed_anywhere_and_resumed_ends_in_the_same_bits(tmp_path, seed, settings):
    unbroken, given = tmp_path / "unbroken.safetensors", json.dumps(settings)
    command = [sys.executable, PROGRAM]
    subprocess.run([*command, tmp_path / "a", unbroken, given], check=True, capture_output=True, timeout=300)
    folder, resumed = tmp_path / "b", tmp_path / "resumed.safetensors"
    at = random.Random(seed).randrange(3, UPDATES)
    killed = subprocess.Popen(
        [*command, folder, resumed, given], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert killed.stdout is not None
    for line in killed.stdout:
        if line.strip() == str(at):
            killed.send_signal(signal.SIGKILL)
            break
    killed.wait(timeout=60)
    assert not resumed.exists()
    assert list((folder / "checkpoints").glob(f"*/{MARKER}"))
    again = subprocess.run([*command, folder, resumed, given], check=True, capture_output=True, text=True, timeout=300)
    steps = [int(line) for line in again.stdout.split()]
    assert steps == list(range(steps[0], UPDATES + 1))
    assert 1 < steps[0] <= at + 1  # it went on, rather than starting anew
    histories = [path.with_suffix(".json").read_text() for path in (unbroken, resumed)]
    assert histories[0] == histories[1]
    expected, found = load_file(unbroken), load_file(resumed)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), f"killed after update {at}: {name} differs"


@pytest.mark.parametrize("budget", [1, 60, 10**6])
def test_validation_means_are_those_of_a_loop_and_leave_the_objective_as_it_was(on_pairs, budget):
    objective = on_pairs.make_objective().train()
    before = {name: tensor.clone() for name, tensor in objective.state_dict().items()}
    documents, _ = on_pairs.make_documents(10, 2)  # nine: the last one joins the second batch
    means = validate_pairs(objective, documents, batch_size=4, dtype=None, budget=budget)
    assert objective.training
    objective.eval()
    with torch.no_grad():
        parts = [losses_by_hand(objective, documents, rows, 0) for rows in (range(4), range(4, 9))]
        batch = documents.pack(range(9), epoch=0, budget=10**6)
        y = objective.student(batch.parts[0].texts)[batch.order][:9].double()
    contrast, mlm = (4 * np.array(parts[0]) + 5 * np.array(parts[1])) / 9
    assert means["contrast"] == pytest.approx(contrast, rel=1e-5)
    assert means["mlm"] == pytest.approx(mlm, rel=1e-5)
    assert means["loss"] == pytest.approx(contrast + 0.1 * mlm, rel=1e-5)
    assert means["norm"] == pytest.approx(y.norm(dim=1).mean().item(), rel=1e-6)
    distances = [1 - F.cosine_similarity(y[i], y[j], dim=0).item() for i in range(9) for j in range(9) if i != j]
    assert means["spread"] == pytest.approx(np.mean(distances), abs=1e-6)
    for name, tensor in objective.state_dict().items():
        assert torch.equal(tensor, before[name]), f"validation changed {name}"


def test_a_student_learns_to_find_the_other_half(tmp_path, on_pairs):
    _, history = on_pairs.train(tmp_path, dropout=0.0, epochs=15, learning_rate=3e-3)
    assert history.train[-1]["contrast"] < history.train[0]["contrast"] / 2
    steps = [row["step"] for row in history.validation]
    assert (steps[0], steps[-1], len(steps)) == (0, 15 * 6, 3)


def test_what_cannot_be_trained_on_is_refused_before_anything_starts(tmp_path, on_pairs, monkeypatch):
    with pytest.raises(InputError, match="dropout makes no pairs of a student without dropout"):
        on_pairs.train(tmp_path, dropout=0.0, pairs="dropout")
    with pytest.raises(InputError, match="documents: 3 training documents do not fill one batch"):
        on_pairs.train(tmp_path, n=3)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="SimDE trains in one process"):
        on_pairs.train(tmp_path)
    assert not list(tmp_path.iterdir())


def test_distillation_is_of_the_same_student(on_pairs):
    objective, other = on_pairs.make_objective(taught=True), on_pairs.make_objective()
    assert objective.student is objective.distillation.student
    assert not [name for name in objective.state_dict() if name.startswith("own_student")]
    with pytest.raises(InputError, match="distillation: of another student"):
        type(objective)(other.student, contrast=objective.contrast, distillation=objective.distillation)
    with pytest.raises(InputError, match="mlm_weight must be a number from 0 upwards"):
        type(objective)(other.student, contrast=objective.contrast, mlm_weight=-0.1)
