"""Training: what the Trainer is made to do, against a plain loop; killed and resumed, bit for bit."""

from __future__ import annotations

import importlib.util
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
from docemb_lib.student.packing import PackedBatch
from docemb_lib.training import validate
from docemb_lib.training.batches import Shuffled, collate
from docemb_lib.training.trainer import WHOLE, count_updates, last_whole_checkpoint

PROGRAM = Path(__file__).parent / "distil.py"
specification = importlib.util.spec_from_file_location("distil", PROGRAM)
assert specification is not None
assert specification.loader is not None
distil = importlib.util.module_from_spec(specification)
specification.loader.exec_module(distil)

UPDATES = 12  # 50 documents in 12 batches of 4, two a step, two epochs


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(model, batch):
    packed = PackedBatch(**{name: batch[name] for name in PackedBatch._fields})
    return model(
        packed,
        structural=batch["structural"],
        contextual=batch["contextual"],
        n_structural_tokens=batch["n_structural_tokens"],
    )


def test_the_trainer_does_what_a_plain_loop_does(tmp_path):
    """AdamW without decay on biases and LayerNorm, warm-up, cosine to zero, clipping and accumulation, by hand."""
    settings = distil.SETTINGS
    trained, _ = distil.distil(tmp_path, dropout=0.0)

    by_hand = distil.make_objective(dropout=0.0)
    decayed, free = [], []
    for name, parameter in by_hand.named_parameters():
        if parameter.requires_grad:
            (free if name.endswith("bias") or "LayerNorm" in name else decayed).append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": free, "weight_decay": 0.0}],
        lr=settings.learning_rate,
    )
    schedule = get_cosine_schedule_with_warmup(optimizer, math.ceil(0.1 * UPDATES), UPDATES)
    documents = distil.make_documents(50, 1)
    for epoch in range(settings.epochs):
        sampler = Shuffled(len(documents), 5)
        sampler.set_epoch(epoch)
        order = list(sampler)[:48]
        batches = [order[start : start + 4] for start in range(0, 48, 4)]
        for start in range(0, 12, 2):
            for rows in batches[start : start + 2]:
                by_hand.train()
                (run(by_hand, collate([documents[row] for row in rows])).loss / 2).backward()
            torch.nn.utils.clip_grad_norm_([p for p in by_hand.parameters() if p.grad is not None], 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    ours, theirs = trained.state_dict(), by_hand.state_dict()
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


def test_the_number_of_updates_is_the_thesis():
    from docemb_lib.settings import Training

    assert count_updates(15_000, Training()) == 2500
    assert count_updates(1_000_000, Training(accumulation=10)) == 16_667  # 16,666 and one for the batches left over
    assert count_updates(50, distil.SETTINGS) == UPDATES


@pytest.mark.parametrize("seed", range(2))
def test_a_run_killed_anywhere_and_resumed_ends_in_the_same_bits(tmp_path, seed):
    unbroken = tmp_path / "unbroken.safetensors"
    subprocess.run([sys.executable, PROGRAM, tmp_path / "a", unbroken], check=True, capture_output=True, timeout=300)

    folder, resumed = tmp_path / "b", tmp_path / "resumed.safetensors"
    at = random.Random(seed).randrange(3, UPDATES)
    killed = subprocess.Popen(
        [sys.executable, PROGRAM, folder, resumed], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert killed.stdout is not None
    for line in killed.stdout:
        if line.strip() == str(at):
            killed.send_signal(signal.SIGKILL)
            break
    killed.wait(timeout=60)
    assert not resumed.exists()
    assert last_whole_checkpoint(folder / "checkpoints") is not None
    again = subprocess.run(
        [sys.executable, PROGRAM, folder, resumed], check=True, capture_output=True, text=True, timeout=300
    )
    steps = [int(line) for line in again.stdout.split()]
    assert steps == list(range(steps[0], UPDATES + 1))
    assert 1 < steps[0] <= at + 1  # it went on, rather than starting anew
    histories = [path.with_suffix(".json").read_text() for path in (unbroken, resumed)]
    assert histories[0] == histories[1]
    expected, found = load_file(unbroken), load_file(resumed)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(tensor, found[name]), f"killed after update {at}: {name} differs"


def test_a_checkpoint_without_its_marker_does_not_count(tmp_path):
    for step in (2, 4, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    for step in (2, 4):
        (tmp_path / f"checkpoint-{step}" / WHOLE).touch()
    assert last_whole_checkpoint(tmp_path) == str(tmp_path / "checkpoint-4")
    assert last_whole_checkpoint(tmp_path / "none") is None


def test_history_has_a_row_per_update_and_validation_from_first_to_last(tmp_path):
    _, history = distil.distil(tmp_path)
    assert [row["step"] for row in history.train] == list(range(1, UPDATES + 1))
    steps = [row["step"] for row in history.validation]
    assert (steps[0], steps[-1]) == (0, UPDATES)
    assert steps == sorted(set(steps))  # none twice
    assert {"loss", "structural", "contextual", "norm", "spread"} <= set(history.validation[0])
    assert {"loss", "structural", "contextual", "grad_norm", "learning_rate"} <= set(history.train[0])
    assert (tmp_path / "checkpoints").exists()
    distil.trainer.remove_checkpoints(tmp_path)
    assert not (tmp_path / "checkpoints").exists()


def test_validation_means_are_those_of_a_loop_and_leave_the_objective_as_it_was():
    objective = distil.make_objective().train()
    before = {name: tensor.clone() for name, tensor in objective.state_dict().items()}
    documents = distil.make_documents(9, 2)
    means = validate(objective, documents, batch_size=4, bf16=False)

    objective.eval()
    parts, embeddings = [], []
    for rows in (range(4), range(4, 9)):  # the ninth document joins the second batch
        with torch.no_grad():
            output = run(objective, collate([documents[row] for row in rows]))
        parts.append((output.loss.item(), output.structural.item(), output.contextual.item(), len(rows)))
        embeddings.append(output.embeddings.double().numpy())
    for place, part in enumerate(("loss", "structural", "contextual")):
        assert means[part] == pytest.approx(sum(row[place] * row[3] for row in parts) / 9, rel=1e-6)
    y = np.concatenate(embeddings)
    unit = y / np.linalg.norm(y, axis=1, keepdims=True)
    distances = [1 - unit[i] @ unit[j] for i in range(9) for j in range(9) if i != j]
    assert means["spread"] == pytest.approx(np.mean(distances), abs=1e-6)
    assert means["norm"] == pytest.approx(np.linalg.norm(y, axis=1).mean(), rel=1e-6)
    for name, tensor in objective.state_dict().items():
        assert torch.equal(tensor, before[name]), f"validation changed {name}"


def test_too_few_documents_for_a_batch_are_refused(tmp_path):
    with pytest.raises(InputError, match="documents: 3 training documents do not fill one batch"):
        distil.trainer.train_objective(
            distil.make_objective(),
            distil.make_documents(3, 1),
            distil.make_documents(4, 2),
            settings=distil.SETTINGS,
            seed=0,
            folder=tmp_path,
        )
