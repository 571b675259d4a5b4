"""Classification heads trained as one against a loop that trains each with torch's own modules, in one process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from docemb_lib.bench.harness import Report, Row, interleaved, ratio_row
from docemb_lib.evaluation.heads import initial_head, one_thread, train_heads
from docemb_lib.progress import progress
from docemb_lib.settings import HeadSettings

HEADS = 20  # four folds of five seeds
EXAMPLES, CLASSES = 1000, 3  # the thesis' smallest round
WIDTHS = (384, 768)  # dimensions of the embeddings: MiniLM's, and those of base models
RATIO, DIFFERENCE = 10, 1e-5  # budgets


def bench_heads(*, quick: bool = False, repeats: int | None = None) -> Report:
    """Heads a second of both sides, and whether they end in the same weights.

    repeats: of each timing; None: 3. quick: one epoch, to see that all parts run.
    """
    repeats = repeats or (1 if quick else 3)
    settings = HeadSettings(epochs=1 if quick else 10)
    rows: list[Row] = []
    for width in progress(WIDTHS, desc="bench", unit="parts"):
        features, labels = random_examples(width)
        rows += [*speed(features, labels, settings, repeats), difference(features, labels, settings)]
    notes = [
        "both loops draw their batches by torch.randperm and an index; a DataLoader would cost them more",
        "the tuned loop has torch's fused AdamW and one thread",
    ]
    notes += ["quick: one epoch; the numbers mean little"] if quick else []
    about = {"heads": HEADS, "examples": EXAMPLES, "classes": CLASSES, "repeats": repeats}
    return Report("heads", "loop", about | settings.model_dump(), rows, notes)


def random_examples(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of length about 1, (EXAMPLES, width), and their classes, (EXAMPLES,)."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(EXAMPLES, width)) / math.sqrt(width)
    return features.astype(np.float32), rng.integers(CLASSES, size=EXAMPLES)


def speed(features: np.ndarray, labels: np.ndarray, settings: HeadSettings, repeats: int) -> list[Row]:
    """Ours against the loop as it is usually written, which has the budget, and against the loop at its best."""
    seeds, width = range(HEADS), features.shape[1]
    train = partial(train_heads, features, labels, classes=CLASSES)
    loop = partial(train_loop, features, labels)
    short = settings.model_copy(update={"epochs": 1})
    train(settings=short, seeds=range(2))  # warm
    loop(short, range(2))
    runs: dict[str, Any] = {
        "ours": partial(train, settings=settings, seeds=seeds),
        "loop": partial(loop, settings, seeds),
        "tuned loop": one_thread()(partial(loop, settings, seeds, fused=True)),  # its steps are too short for several
    }
    seconds = interleaved(runs, repeats)
    of = f"{HEADS} heads, {width} dimensions, against the"
    rate = partial(ratio_row, amount=HEADS, unit="heads/s", ours=seconds["ours"])
    usual = rate(f"{of} loop", peer=seconds["loop"], at_least=RATIO)
    return [usual, rate(f"{of} tuned loop", peer=seconds["tuned loop"])]


def difference(features: np.ndarray, labels: np.ndarray, settings: HeadSettings) -> Row:
    """Weights of two heads of ours and of the loop, without dropout, whose random masks differ."""
    plain, seeds = settings.model_copy(update={"dropout": 0.0}), (0, 1)
    ours: Any = train_heads(features, labels, classes=CLASSES, settings=plain, seeds=seeds)
    differences = [
        (weights[k].mT.reshape(other.shape) - other.detach()).abs().max()
        for k, net in enumerate(train_loop(features, labels, plain, seeds))
        for weights, other in zip((ours.W1, ours.b1, ours.W2, ours.b2), net.parameters(), strict=True)
    ]
    largest = float(torch.stack(differences).max())
    return Row(f"weights, {features.shape[1]} dimensions, largest difference", largest, "", at_most=DIFFERENCE)


def train_loop(
    features: np.ndarray, labels: np.ndarray, settings: HeadSettings, seeds: Sequence[int], *, fused: bool | None = None
) -> list[nn.Sequential]:
    """One head after the other, as one would write it; first weights and batches are those of our heads."""
    X, y = torch.tensor(features), torch.tensor(labels)
    steps = settings.epochs * math.ceil(len(X) / settings.batch_size)
    loss = nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing)
    trained = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        start = initial_head(X.shape[1], CLASSES, hidden=settings.hidden, generator=generator)
        hidden, out = nn.Linear(X.shape[1], settings.hidden), nn.Linear(settings.hidden, CLASSES)
        for layer, W, b in ((hidden, start.W1, start.b1), (out, start.W2, start.b2)):
            layer.load_state_dict({"weight": W[0].T, "bias": b[0, 0]})
        net = nn.Sequential(hidden, nn.ReLU(), nn.Dropout(settings.dropout), out)
        decayed, others = ([p for p in net.parameters() if (p.ndim > 1) is matrix] for matrix in (True, False))
        groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, fused=fused)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
        for _ in range(settings.epochs):
            for rows in torch.randperm(len(X), generator=generator).split(settings.batch_size):
                optimizer.zero_grad()
                loss(net(X[rows]), y[rows]).backward()
                nn.utils.clip_grad_norm_(net.parameters(), settings.max_grad_norm)
                optimizer.step()
                schedule.step()
        trained.append(net)
    return trained
