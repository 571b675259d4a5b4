"""Classification heads trained as one against a loop that trains each with torch's own modules, in
one process.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from docemb_lib.bench.harness import Report, interleaved, ratio_row
from docemb_lib.evaluation.heads import HeadJob, initial_head, one_thread, train_jobs
from docemb_lib.settings.sections import HeadSettings

HEADS = 20  # four folds of five seeds
EXAMPLES, CLASSES = 1000, 3  # the thesis' smallest round
WIDTH = 384  # dimensions of the embeddings: MiniLM's
RATIO = 10  # budget


def bench_heads(*, quick: bool = False) -> Report:
    """Heads per second of both sides. The loop as it is usually written has a budget, the tuned
    loop has none.

    The loops draw batches by torch.randperm and an index, since a DataLoader would be slower.
    quick: one epoch, to see that all parts run.
    """
    epochs, repeats = (1, 1) if quick else (10, 3)
    settings, seeds = HeadSettings(epochs=epochs), range(HEADS)
    rng = np.random.default_rng(0)
    features = (rng.normal(size=(EXAMPLES, WIDTH)) / math.sqrt(WIDTH)).astype(
        np.float32
    )  # of length about 1
    labels = rng.integers(CLASSES, size=EXAMPLES)
    jobs = [HeadJob(np.arange(EXAMPLES), seed) for seed in seeds]
    loop = partial(train_loop, features, labels, settings, seeds)
    runs: dict[str, Any] = {
        "ours": partial(train_jobs, features, labels, jobs, settings, classes=CLASSES),
        "loop": loop,
        "tuned loop": one_thread()(
            partial(loop, fused=True)
        ),  # its steps are too short for several threads
    }
    seconds = interleaved(runs, repeats)
    rate = partial(ratio_row, amount=HEADS, unit="heads/s", ours=seconds["ours"])
    rows = [
        rate(f"{HEADS} heads against the loop", peer=seconds["loop"], at_least=RATIO),
        rate(
            f"{HEADS} heads against the loop with a fused optimiser on one thread",
            peer=seconds["tuned loop"],
        ),
    ]
    about = {
        "heads": HEADS,
        "examples": EXAMPLES,
        "classes": CLASSES,
        "dimensions": WIDTH,
        "repeats": repeats,
    }
    return Report("heads", "loop", about | settings.model_dump(), rows)


def train_loop(
    features: np.ndarray,
    labels: np.ndarray,
    settings: HeadSettings,
    seeds: Sequence[int],
    *,
    fused: bool | None = None,
) -> list[nn.Sequential]:
    """One head after the other, in the usual way; initial weights and batches are those of
    `train_jobs`.
    """
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
        decayed, others = (
            [p for p in net.parameters() if (p.ndim > 1) is matrix] for matrix in (True, False)
        )
        groups = [
            {"params": decayed, "weight_decay": settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
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
