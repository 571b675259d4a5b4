"""Classification heads trained as one against a loop that trains each with torch's own modules, in one process."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from docemb_lib.bench.measure import interleaved
from docemb_lib.bench.report import Report, Row, machine, versions
from docemb_lib.errors import InputError
from docemb_lib.progress import progress

if TYPE_CHECKING:
    from docemb_lib.settings import HeadSettings

HEADS = 20  # say, four folds of five seeds
EXAMPLES, CLASSES = 1000, 3  # the thesis' smallest round
WIDTHS = (384, 768)  # dimensions of the embeddings: MiniLM's, and those of base models
RATIO, DIFFERENCE = 10, 1e-5  # budgets
CPU = torch.device("cpu")  # a head's steps are too small for a GPU


def bench_heads(*, quick: bool = False, repeats: int | None = None) -> Report:
    """Heads a second of both sides, and whether they end in the same weights.

    repeats: of each timing; None: 3. quick: to see that all runs; the numbers mean little. Raises InputError below 1.
    """
    from docemb_lib.settings import HeadSettings

    repeats = (1 if quick else 3) if repeats is None else repeats
    if repeats < 1:
        raise InputError(f"repeats: got {repeats}, give at least 1")
    settings = HeadSettings(epochs=1 if quick else 10)
    rows: list[Row] = []
    points: list[dict[str, Any]] = []
    bar: Any = progress(desc="bench", total=len(WIDTHS), unit="parts")
    with bar:
        for width in WIDTHS:
            features, labels = random_examples(width)
            found = measure(features, labels, settings, repeats)
            rows += [*speed_rows(found), difference_row(features, labels, settings)]
            points += found
            bar.update()
    notes = [
        "both loops draw their batches by torch.randperm and an index; a DataLoader would cost them more",
        "the tuned loop has torch's fused AdamW and one thread",
    ]
    if quick:
        notes.append("quick: one epoch; the numbers mean little")
    about = {"heads": HEADS, "examples": EXAMPLES, "classes": CLASSES, "widths": list(WIDTHS), "repeats": repeats}
    settings_shown = about | settings.model_dump()
    return Report("heads", "loop", machine(CPU), versions(), settings_shown, rows, {"speed": points}, notes)


def random_examples(width: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of length about 1, (EXAMPLES, width), and their classes, (EXAMPLES,)."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(EXAMPLES, width)) / math.sqrt(width)
    return features.astype(np.float32), rng.integers(CLASSES, size=EXAMPLES)


def measure(features: np.ndarray, labels: np.ndarray, settings: HeadSettings, repeats: int) -> list[dict[str, Any]]:
    """Seconds of all heads: ours, the loop as it is usually written, and the loop at its best.

    At its best it has torch's fused AdamW and one thread: its operations are too short for several.
    """
    from docemb_lib.evaluation.heads import one_thread, train_heads

    seeds = range(HEADS)
    runs: dict[str, Callable[[], object]] = {
        "ours": partial(train_heads, features, labels, classes=CLASSES, settings=settings, seeds=seeds),
        "loop": partial(train_loop, features, labels, settings, seeds),
        "tuned loop": one_thread()(partial(train_loop, features, labels, settings, seeds, fused=True)),
    }
    short = settings.model_copy(update={"epochs": 1})
    train_heads(features, labels, classes=CLASSES, settings=short, seeds=range(2))  # warm
    train_loop(features, labels, short, range(2))
    seconds = interleaved(runs, repeats, CPU)
    return [
        {"width": features.shape[1], "side": side, "heads_per_s": HEADS / statistics.median(times), "repeats": times}
        for side, times in seconds.items()
    ]


def speed_rows(points: Sequence[dict[str, Any]]) -> list[Row]:
    """Ours against both loops; only the usual one has a budget."""
    ours, *loops = points
    rows = []
    for loop in loops:
        ratios = [theirs / own for theirs, own in zip(loop["repeats"], ours["repeats"], strict=True)]
        rows.append(
            Row(
                f"{HEADS} heads, {ours['width']} dimensions, against the {loop['side']}",
                ours["heads_per_s"],
                "heads/s",
                peer=loop["heads_per_s"],
                at_least=RATIO if loop["side"] == "loop" else None,
                spread=(min(ratios), max(ratios)),
            )
        )
    return rows


def difference_row(features: np.ndarray, labels: np.ndarray, settings: HeadSettings) -> Row:
    """Weights of two heads of ours and of the loop, without dropout, whose dice differ."""
    from docemb_lib.evaluation.heads import train_heads

    plain, seeds = settings.model_copy(update={"dropout": 0.0}), (0, 1)
    ours = train_heads(features, labels, classes=CLASSES, settings=plain, seeds=seeds)
    loop = train_loop(features, labels, plain, seeds)
    differences = [
        (weights[k].mT.reshape(theirs.shape) - theirs.detach()).abs().max()
        for k, net in enumerate(loop)
        for weights, theirs in zip((ours.W1, ours.b1, ours.W2, ours.b2), net.parameters(), strict=True)
    ]
    largest = float(torch.stack(differences).max())
    return Row(f"weights, {features.shape[1]} dimensions, largest difference", largest, "", at_most=DIFFERENCE)


def train_loop(
    features: np.ndarray, labels: np.ndarray, settings: HeadSettings, seeds: Sequence[int], *, fused: bool | None = None
) -> list[nn.Sequential]:
    """One head after the other, as one would write it; first weights and batches are those of our heads.

    features: (N, D); labels: (N,); fused: which implementation of AdamW, None: torch's default.
    """
    from docemb_lib.evaluation.heads import initial_head

    X, y = torch.tensor(features), torch.tensor(labels)
    steps = settings.epochs * math.ceil(len(X) / settings.batch_size)
    loss = nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing)
    trained = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        start = initial_head(X.shape[1], CLASSES, hidden=settings.hidden, generator=generator)
        net = nn.Sequential(
            nn.Linear(X.shape[1], settings.hidden),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden, CLASSES),
        )
        weights = {
            "0.weight": start.W1[0].T,
            "0.bias": start.b1[0, 0],
            "3.weight": start.W2[0].T,
            "3.bias": start.b2[0, 0],
        }
        net.load_state_dict(weights)
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
