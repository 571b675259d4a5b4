"""Classification heads on frozen embeddings (Tables 4.3 and 5.6), many of them trained at once.

A head is Linear(D, H), ReLU, Dropout, Linear(H, C), trained by AdamW with cosine decay. K heads
with equally many steps (seeds, folds, rounds) are kept as stacked weights (K, ., .), so that a step
of all heads is a few batched matrix products.

B: rows of a batch; C: classes; D: features; H: hidden width; K: heads; N: rows.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_array, hstack
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits
from torch import Generator, Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from docemb_lib.base.hardware import devices_at_hand
from docemb_lib.settings.sections import HeadSettings, PairFeatures

BLOCK = 4096  # rows whose hidden layers of all heads are held at a time
# Heads in one stack. On a CPU larger stacks are hardly faster, and smaller ones use more cores; a
# GPU takes as long for a step of a hundred heads as for one of ten.
TOGETHER = {"cpu": 10, "cuda": 100}

Features: TypeAlias = "np.ndarray | csr_array"  # (N, D), dense or sparse


class Heads(NamedTuple):
    """K heads. W1: (K, D, H), b1: (K, 1, H), W2: (K, H, C), b2: (K, 1, C)."""

    W1: Tensor
    b1: Tensor
    W2: Tensor
    b2: Tensor

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the class number that each head predicts for each row of (N, D): (K, N)."""
        predictions = []
        with torch.inference_mode():
            for start in range(0, len(features), BLOCK):
                block = np.asarray(features[start : start + BLOCK], dtype=np.float32)
                X = torch.tensor(block, device=self.W1.device)
                hidden = torch.relu(X @ self.W1 + self.b1)  # (K, BLOCK, H)
                logits = hidden @ self.W2 + self.b2  # (K, BLOCK, C)
                predictions.append(logits.argmax(dim=2).cpu().numpy())
        return np.concatenate(predictions, axis=1)


class LinearHeads(NamedTuple):
    """K logistic regressions, for few examples and sparse features: an MLP learns too little."""

    models: list[LogisticRegression]

    def predict(self, features: Features) -> np.ndarray:
        """Return the class number that each model predicts for each row of (N, D): (K, N)."""
        return np.stack([model.predict(features) for model in self.models])


class HeadJob(NamedTuple):
    """What one head is trained on."""

    rows: np.ndarray  # (n,) rows of the features, in any order
    seed: int  # of the initial weights, the order of the rows and the dropout masks


def pair_features(first: Features, second: Features, how: PairFeatures = "concat") -> Features:
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


def train_jobs(
    features: Features,
    labels: np.ndarray,
    jobs: Sequence[HeadJob],
    settings: HeadSettings,
    *,
    classes: int,
) -> Heads | LinearHeads:
    """Train a head per job in float32 on a GPU or on all cores: K heads in the order of the jobs.

    Heads with equally many steps are trained together. For sparse features, and with `hidden` 0,
    heads are logistic regressions (C = 10) without a seed.

    features: (N, D), dense or sparse; labels: (N,) class numbers below `classes`.
    """
    if settings.hidden == 0 or not isinstance(features, np.ndarray):
        return _train_linear(features, labels, jobs)
    device = torch.device(devices_at_hand()[0])
    X = torch.tensor(np.asarray(features, dtype=np.float32), device=device)
    y = torch.tensor(np.asarray(labels, dtype=np.int64), device=device)

    steps = np.array([math.ceil(len(job.rows) / settings.batch_size) for job in jobs])
    # The stacks do not depend on the number of cores, so the results do not depend on it either.
    stacks = []
    for number in np.unique(steps):
        numbers = np.flatnonzero(steps == number)
        stacks += np.array_split(numbers, math.ceil(len(numbers) / TOGETHER[device.type]))

    def train_numbers(numbers: np.ndarray) -> Heads:
        return train_stack(X, y, [jobs[number] for number in numbers], settings, classes)

    cores = torch.get_num_threads()
    with (
        one_thread(),
        ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        trained = _joined(pool.map(train_numbers, stacks))
    places = np.argsort(np.concatenate(stacks))
    return Heads(*(weights[places] for weights in trained))


@contextmanager
def one_thread() -> Iterator[None]:
    """Run operations of torch on the calling thread: a step is too short for several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _train_linear(features: Features, labels: np.ndarray, jobs: Sequence[HeadJob]) -> LinearHeads:
    """Fit a logistic regression per job; jobs with the same rows share one: it has no seed."""
    fitted = {}
    models = []
    for job in jobs:
        key = np.sort(job.rows).tobytes()
        if key not in fitted:
            model = LogisticRegression(C=10, max_iter=1000)
            # The products of a step are too small for several threads, which wait for each other
            # where other programs run.
            with threadpool_limits(1):
                fitted[key] = model.fit(features[job.rows], labels[job.rows])
        models.append(fitted[key])
    return LinearHeads(models)


@torch.no_grad()  # `loss_gradient` takes the place of autograd
def train_stack(
    X: Tensor, y: Tensor, jobs: Sequence[HeadJob], settings: HeadSettings, classes: int
) -> Heads:
    """Train heads with equally many steps together, on the device of X (N, D) and y (N,)."""
    # The random numbers are drawn on the CPU, so that they are the same with every device.
    generators = [torch.Generator().manual_seed(job.seed) for job in jobs]
    shape = (X.shape[1], settings.hidden, classes)
    drawn = _joined(initial_head(*shape, generator) for generator in generators)
    heads = Heads(*(weights.to(X.device) for weights in drawn))
    decayed = {"params": [heads.W1, heads.W2], "weight_decay": settings.weight_decay}
    biases = {"params": [heads.b1, heads.b2], "weight_decay": 0.0}
    optimizer = AdamW([decayed, biases], lr=settings.learning_rate, fused=True)
    steps = settings.epochs * math.ceil(len(jobs[0].rows) / settings.batch_size)
    schedule = LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * step / steps)) / 2)
    for batch in batches(jobs, settings, generators):
        rows, keep, weight = (part.to(X.device) for part in batch)
        gradients = loss_gradient(
            heads, X[rows], y[rows], keep, weight, smoothing=settings.label_smoothing
        )
        clip_each_head(gradients, max_norm=settings.max_grad_norm)
        for weights, gradient in zip(heads, gradients, strict=True):
            weights.grad = gradient
        optimizer.step()
        schedule.step()
    return heads


def _joined(stacks: Iterable[Heads]) -> Heads:
    """Return the heads of several stacks as one stack."""
    return Heads(*map(torch.cat, zip(*stacks, strict=True)))


def initial_head(features: int, hidden: int, classes: int, generator: Generator) -> Heads:
    """Draw one head (K = 1) like torch's Linear layers: uniform in +-1 / sqrt(inputs)."""
    drawn = []
    for inputs, outputs in ((features, hidden), (hidden, classes)):
        bound = 1 / math.sqrt(inputs)
        for rows in (inputs, 1):  # the matrix and the bias
            weights = torch.empty(1, rows, outputs)
            drawn.append(weights.uniform_(-bound, bound, generator=generator))
    return Heads(*drawn)


def batches(
    jobs: Sequence[HeadJob], settings: HeadSettings, generators: Sequence[Generator]
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield the rows (K, B), dropout masks (K, B, H) and row weights (K, B) of each step.

    Masks are divided by their mean. The last batch of an epoch is short. A head that has fewer rows
    in it than others repeats row 0 with weight 0.
    """
    rngs = [np.random.default_rng(job.seed) for job in jobs]  # faster than torch's generators
    sizes = torch.tensor([len(job.rows) for job in jobs])
    share = 1 - torch.tensor(settings.dropout)  # of the hidden units that are kept
    for _ in range(settings.epochs):
        orders = []
        for job, generator in zip(jobs, generators, strict=True):
            order = torch.randperm(len(job.rows), generator=generator)
            orders.append(torch.tensor(job.rows)[order])
        for start in range(0, int(sizes.max()), settings.batch_size):
            rows = pad_sequence(
                [order[start : start + settings.batch_size] for order in orders], batch_first=True
            )
            left = (sizes - start).clamp(max=settings.batch_size)  # (K,) rows of each head
            weight = (torch.arange(rows.shape[1]) < left[:, None]) / left[:, None]
            uniform = np.ones((*rows.shape, settings.hidden), dtype=np.float32)
            for mask, rng, size in zip(uniform, rngs, left, strict=True):
                rng.random(dtype=np.float32, out=mask[:size])
            yield rows, torch.from_numpy(uniform).lt_(share).div_(share), weight


def loss_gradient(
    heads: Heads, x: Tensor, y: Tensor, keep: Tensor, weight: Tensor, *, smoothing: float
) -> Heads:
    """Return the gradient of the sum of weight * cross-entropy with label smoothing.

    The sum is over heads and rows. The gradient is written out, because autograd takes a third
    longer for so small products. It has the shapes of the weights.

    x: (K, B, D); y: (K, B); keep: (K, B, H), the dropout mask divided by its mean; weight: (K, B).
    """
    hidden = torch.baddbmm(heads.b1, x, heads.W1).relu_().mul_(keep)  # (K, B, H)
    # (K, C, B): a softmax over a short last axis is slow
    logits = torch.baddbmm(heads.b2.mT, heads.W2.mT, hidden.mT)

    # At the logits: softmax minus the smoothed target (smoothing / C, and 1 - smoothing more at the
    # label).
    error = torch.softmax(logits, dim=1).sub_(smoothing / logits.shape[1])  # (K, C, B)
    at_label = torch.full_like(error[:, :1], smoothing - 1)
    error.scatter_add_(1, y[:, None], at_label).mul_(weight[:, None])
    # The sign of the hidden layer is the derivative of the ReLU.
    inner = torch.bmm(error.mT, heads.W2.mT).mul_(hidden.sign()).mul_(keep)  # (K, B, H)
    return Heads(
        W1=torch.bmm(x.mT, inner),
        b1=inner.sum(1, keepdim=True),
        W2=torch.bmm(hidden.mT, error.mT),
        b2=error.sum(2)[:, None],
    )


def clip_each_head(gradients: Sequence[Tensor], *, max_norm: float) -> None:
    """Scale the gradients (K, ., .) of a head in place where their joint norm exceeds max_norm."""
    parts = [torch.linalg.vector_norm(gradient, dim=(1, 2)) for gradient in gradients]
    norms = torch.linalg.vector_norm(torch.stack(parts), dim=0)  # (K,)
    scale = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale[:, None, None])
