"""Classification heads trained together, and a loop that trains each with torch's own modules."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import nn

from docemb_lib.bench.harness import Report, interleaved, ratio_row
from docemb_lib.evaluation.heads import HeadJob, initial_head, one_thread, train_jobs
from docemb_lib.settings.sections import HeadSettings

HEADS = 20  # four folds of five seeds
# The size of the thesis' smallest round.
EXAMPLES = 1000
CLASSES = 3
WIDTH = 384  # dimensions of the embeddings: MiniLM's


def bench_heads(*, quick: bool = False) -> Report:
    """Heads per second of both sides.

    The loop as it is usually written has a budget, the tuned loop has none. The loops draw batches
    by torch.randperm and an index, since a DataLoader would be slower. `quick` trains one epoch, to
    see that all parts run.
    """
    repeats = 1 if quick else 3
    settings = HeadSettings(epochs=1 if quick else 10)
    rng = np.random.default_rng(0)
    features = rng.normal(size=(EXAMPLES, WIDTH)) / math.sqrt(WIDTH)  # their length is about 1
    features = features.astype(np.float32)
    labels = rng.integers(CLASSES, size=EXAMPLES)
    jobs = [HeadJob(np.arange(EXAMPLES), seed) for seed in range(HEADS)]
    loop = partial(train_loop, features, labels, settings, range(HEADS))
    runs: dict[str, Callable[[], object]] = {
        "ours": partial(train_jobs, features, labels, jobs, settings, classes=CLASSES),
        "loop": loop,
        # The steps of the tuned loop are too short for several threads.
        "tuned loop": one_thread()(partial(loop, fused=True)),
    }
    seconds = interleaved(runs, repeats)
    rate = partial(ratio_row, amount=HEADS, unit="heads/s", ours=seconds["ours"])
    name = f"{HEADS} heads against the loop"
    tuned = f"{name} with a fused optimiser on one thread"
    rows = [
        rate(name, peer=seconds["loop"], at_least=10),
        rate(tuned, peer=seconds["tuned loop"]),
    ]
    sizes = {
        "heads": HEADS,
        "examples": EXAMPLES,
        "classes": CLASSES,
        "dimensions": WIDTH,
        "repeats": repeats,
    }
    return Report("heads", "loop", sizes | settings.model_dump(), rows)


def train_loop(
    features: np.ndarray,
    labels: np.ndarray,
    settings: HeadSettings,
    seeds: Sequence[int],
    *,
    fused: bool | None = None,
) -> list[nn.Sequential]:
    """One head after the other, in the usual way.

    Initial weights and batches are those of `train_jobs`.
    """
    X = torch.tensor(features)
    y = torch.tensor(labels)
    steps = settings.epochs * math.ceil(len(X) / settings.batch_size)
    loss = nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing)
    trained = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        start = initial_head(X.shape[1], CLASSES, hidden=settings.hidden, generator=generator)
        hidden = nn.Linear(X.shape[1], settings.hidden)
        out = nn.Linear(settings.hidden, CLASSES)
        hidden.load_state_dict({"weight": start.W1[0].T, "bias": start.b1[0, 0]})
        out.load_state_dict({"weight": start.W2[0].T, "bias": start.b2[0, 0]})
        net = nn.Sequential(hidden, nn.ReLU(), nn.Dropout(settings.dropout), out)
        groups = [
            {"params": [hidden.weight, out.weight], "weight_decay": settings.weight_decay},
            {"params": [hidden.bias, out.bias], "weight_decay": 0.0},
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
