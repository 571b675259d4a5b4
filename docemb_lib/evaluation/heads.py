"""Classification heads on frozen embeddings (Tables 4.3 and 5.6), many of them trained at once.

A head is Linear(D, H), ReLU, Dropout, Linear(H, C), trained by AdamW with cosine decay. K heads
with equally many steps (seeds, folds, rounds) are kept as stacked weights (K, ., .), so that a step
of all heads is a few batched matrix products.

B: rows of a batch; C: classes; D: features; H: hidden width; K: heads; N: rows.
"""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import hstack
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR

from docemb_lib.base.hardware import devices_at_hand
from docemb_lib.evaluation.retrieval import Embeddings
from docemb_lib.settings.sections import HeadSettings, PairFeatures

BLOCK = 4096  # rows whose hidden layers of all heads are held at a time
TOGETHER = 10  # heads in one stack: larger ones are hardly faster, smaller ones use more cores

# What one head is trained on: rows of the features, in any order, and the seed of the initial
# weights, of the order of the rows and of the dropout masks.
HeadJob: TypeAlias = tuple[np.ndarray, int]


class Heads(NamedTuple):
    """K heads. W1: (K, D, H), b1: (K, 1, H), W2: (K, H, C), b2: (K, 1, C)."""

    W1: Tensor
    b1: Tensor
    W2: Tensor
    b2: Tensor

    def logits(self, x: Tensor, keep: Tensor | float = 1.0) -> Tensor:
        """Return (K, C, B) of x, (B, D) or (K, B, D).

        keep: the dropout mask divided by its mean, (K, B, H).
        """
        hidden = torch.relu(x @ self.W1 + self.b1) * keep
        return (hidden @ self.W2 + self.b2).mT


def pair_features(
    first: Embeddings, second: Embeddings, how: PairFeatures = "concat"
) -> Embeddings:
    """Return the input of a head for pairs, (N, 2 D).

    concat: [e0; e1], as in the thesis; a head needs some thousands of pairs to learn the comparison
    of e0 and e1. interaction: [|e0 - e1|; sqrt(D) * e0 * e1], which is a comparison; a few hundred
    pairs suffice. The factor, 1 for sparse embeddings, gives both parts about the same length.

    first, second: (N, D), both dense or both sparse.
    """
    dense = isinstance(first, np.ndarray)
    parts = [first, second]
    if how == "interaction":
        factor = first.shape[1] ** 0.5 if dense else 1.0
        parts = [abs(first - second), factor * (first * second)]
    return np.concatenate(parts, axis=1) if dense else hstack(parts, format="csr")


def train_and_predict(
    features: Embeddings,
    labels: np.ndarray,
    scored: Embeddings,
    jobs: Sequence[HeadJob],
    settings: HeadSettings,
) -> np.ndarray:
    """Train a head per job and return the class numbers that it predicts for `scored`: (K, M).

    Heads are trained in float32 on a GPU or on all cores, those with equally many steps together.
    For sparse features, and with `hidden` 0, they are logistic regressions (C = 10) without a seed.

    features: (N, D); labels: (N,) class numbers; scored: (M, D).
    """
    if settings.hidden == 0 or not isinstance(features, np.ndarray):
        return _predict_by_regressions(features, labels, scored, jobs)
    device = devices_at_hand()[0]
    X, unseen = (
        torch.tensor(np.asarray(rows, dtype=np.float32), device=device)
        for rows in (features, scored)
    )
    y = torch.tensor(labels, device=device)

    steps = np.array([math.ceil(len(rows) / settings.batch_size) for rows, _ in jobs])
    # The stacks do not depend on the number of cores, so the results do not depend on it either.
    stacks = []
    for number in np.unique(steps):
        numbers = np.flatnonzero(steps == number)
        stacks += np.array_split(numbers, math.ceil(len(numbers) / TOGETHER))

    def predict(numbers: np.ndarray) -> Tensor:
        heads = train_stack(X, y, [jobs[number] for number in numbers], settings)
        classes = [heads.logits(block).argmax(dim=1) for block in unseen.split(BLOCK)]
        return torch.cat(classes, dim=1)

    cores = torch.get_num_threads()
    with (
        one_thread(),
        ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        predicted = torch.cat(list(pool.map(predict, stacks)))
    return predicted.cpu().numpy()[np.argsort(np.concatenate(stacks))]


@contextmanager
def one_thread() -> Iterator[None]:
    """Run operations of torch on the calling thread: a step is too short for several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _predict_by_regressions(
    features: Embeddings, labels: np.ndarray, scored: Embeddings, jobs: Sequence[HeadJob]
) -> np.ndarray:
    """Fit a logistic regression per job; jobs with the same rows share one: it has no seed."""
    by_rows: dict[bytes, np.ndarray] = {}
    for rows, _ in jobs:
        key = rows.tobytes()
        if key not in by_rows:
            model = LogisticRegression(C=10, max_iter=1000)
            # The products of a step are too small for several threads, which wait for each other
            # where other programs run.
            with threadpool_limits(1):
                model.fit(features[rows], labels[rows])
            by_rows[key] = model.predict(scored)
    return np.stack([by_rows[rows.tobytes()] for rows, _ in jobs])


def train_stack(X: Tensor, y: Tensor, jobs: Sequence[HeadJob], settings: HeadSettings) -> Heads:
    """Train heads with equally many steps together, on the device of X (N, D) and y (N,)."""
    # The random numbers are drawn on the CPU, so that they are the same with every device.
    generators = [torch.Generator().manual_seed(seed) for _, seed in jobs]
    sizes = (X.shape[1], settings.hidden, int(y.max()) + 1)
    drawn = [initial_weights(*sizes, generator) for generator in generators]
    stacked = [torch.stack(weights) for weights in zip(*drawn, strict=True)]
    heads = Heads(*(weights.to(X.device).requires_grad_() for weights in stacked))
    decayed = {"params": [heads.W1, heads.W2], "weight_decay": settings.weight_decay}
    biases = {"params": [heads.b1, heads.b2], "weight_decay": 0.0}
    optimizer = AdamW([decayed, biases], lr=settings.learning_rate, fused=True)
    steps = settings.epochs * math.ceil(len(jobs[0][0]) / settings.batch_size)
    schedule = CosineAnnealingLR(optimizer, steps)
    smoothing = settings.label_smoothing
    for batch in batches(jobs, settings, generators):
        rows, keep, weight = (part.to(X.device) for part in batch)
        logits = heads.logits(X[rows], keep)
        losses = F.cross_entropy(logits, y[rows], reduction="none", label_smoothing=smoothing)
        gradients = torch.autograd.grad((weight * losses).sum(), heads)
        # Each head is clipped by its own norm.
        norms = [torch.linalg.vector_norm(gradient, dim=(1, 2)) for gradient in gradients]
        norm = torch.linalg.vector_norm(torch.stack(norms), dim=0)  # (K,)
        scale = (settings.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)[:, None, None]
        for weights, gradient in zip(heads, gradients, strict=True):
            weights.grad = scale * gradient
        optimizer.step()
        schedule.step()
    return Heads(*(weights.detach() for weights in heads))


def initial_weights(
    features: int, hidden: int, classes: int, generator: torch.Generator
) -> list[Tensor]:
    """Draw the weights of one head like torch's Linear layers: uniform in +-1 / sqrt(inputs)."""
    drawn = []
    for inputs, outputs in ((features, hidden), (hidden, classes)):
        bound = 1 / math.sqrt(inputs)
        for rows in (inputs, 1):  # the matrix and the bias
            drawn.append(torch.empty(rows, outputs).uniform_(-bound, bound, generator=generator))
    return drawn


def batches(
    jobs: Sequence[HeadJob], settings: HeadSettings, generators: Sequence[torch.Generator]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield the rows (K, B), dropout masks (K, B, H) and row weights (K, B) of each step.

    Masks are divided by their mean. The last batch of an epoch is short. A head that has fewer rows
    in it than others is filled up with row -1, of weight 0.
    """
    rngs = [np.random.default_rng(seed) for _, seed in jobs]  # faster than torch's generators
    share = 1 - torch.tensor(settings.dropout)  # of the hidden units that are kept
    for _ in range(settings.epochs):
        orders = []
        for (rows, _), generator in zip(jobs, generators, strict=True):
            order = torch.randperm(len(rows), generator=generator)
            orders.append(torch.tensor(rows)[order])
        padded = pad_sequence(orders, batch_first=True, padding_value=-1)
        for batch in padded.split(settings.batch_size, dim=1):
            present = batch >= 0
            sizes = present.sum(dim=1, keepdim=True)
            uniform = []
            for rng, size in zip(rngs, sizes.flatten().tolist(), strict=True):
                drawn = rng.random((size, settings.hidden), dtype=np.float32)
                uniform.append(torch.from_numpy(drawn))
            keep = (pad_sequence(uniform, batch_first=True) < share) / share
            yield batch, keep, present / sizes
