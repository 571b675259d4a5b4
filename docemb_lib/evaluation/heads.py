"""Classification heads on frozen embeddings (Tables 4.3 and 5.6), many of them trained as one
stack.

A head is Linear(D, hidden), ReLU, Dropout, Linear(hidden, classes), trained by AdamW with cosine
decay. K heads with equally many steps (seeds, folds, rounds) are kept as stacked weights (K, ., .),
so that each step of all heads is a few batched matrix products; the gradients are written out,
because autograd costs more than the products.

B: rows of a batch; C: classes; D: features; H: hidden width; K: heads; N: rows.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import hstack
from sklearn.linear_model import LogisticRegression
from torch import Generator, Tensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from docemb_lib.settings.sections import HeadSettings, PairFeatures

BLOCK = 4096  # rows whose hidden layers of all heads are held at a time
CHUNK = 16  # batches whose dropout masks are drawn together
TOGETHER = (
    10  # heads in one stack: larger stacks are hardly faster, and smaller ones use more cores
)


class Heads(NamedTuple):
    """K heads. W1: (K, D, hidden), b1: (K, 1, hidden), W2: (K, hidden, C), b2: (K, 1, C)."""

    W1: Tensor
    b1: Tensor
    W2: Tensor
    b2: Tensor

    def predict(self, features: np.ndarray) -> np.ndarray:
        """The class number that each head predicts for each row. features: (N, D).

        Returns (K, N).
        """
        K, D, H = self.W1.shape
        side_by_side = self.W1.permute(1, 0, 2).reshape(
            D, K * H
        )  # one product, since all heads read the same rows
        predictions = np.empty((K, len(features)), dtype=np.int64)
        with torch.inference_mode():
            for start in range(0, len(features), BLOCK):
                X = torch.tensor(np.asarray(features[start : start + BLOCK], dtype=np.float32))
                hidden = (X @ side_by_side).view(-1, K, H).transpose(0, 1)
                logits = torch.relu(hidden + self.b1) @ self.W2 + self.b2  # (K, BLOCK, C)
                predictions[:, start : start + BLOCK] = logits.argmax(dim=2).numpy()
        return predictions


class LinearHeads(NamedTuple):
    """K logistic regressions, for few examples, and for sparse features, from which an MLP learns
    too little.
    """

    models: list[Any]

    def predict(self, features: Any) -> np.ndarray:
        """As `Heads.predict`. features: (N, D), dense or sparse."""
        return np.stack([model.predict(features) for model in self.models])


def pair_features(first: Any, second: Any, how: PairFeatures = "concat") -> Any:
    """The input of a head for pairs. first, second: (N, D), both dense or both sparse. Returns (N,
    2 D).

    concat: [e0; e1], as in the thesis; a head needs some thousands of pairs to learn the comparison
    of e0 and e1. interaction: [|e0 - e1|; sqrt(D) * e0 * e1], which is a comparison; a few hundred
    pairs suffice. The factor, 1 for sparse embeddings, gives both parts about the same length.
    """
    factor = first.shape[1] ** 0.5 if isinstance(first, np.ndarray) else 1.0
    parts = [first, second] if how == "concat" else [abs(first - second), factor * (first * second)]
    if isinstance(first, np.ndarray):
        return np.concatenate(parts, axis=1)
    return hstack(parts, format="csr")


def initial_head(features: int, classes: int, *, hidden: int, generator: Generator) -> Heads:
    """One head (K = 1), initialised like torch's Linear layers: uniform in +-1 / sqrt(inputs)."""

    def uniform(inputs: int, *shape: int) -> Tensor:
        bound = 1 / math.sqrt(inputs)
        return torch.empty(1, *shape).uniform_(-bound, bound, generator=generator)

    first = uniform(features, features, hidden), uniform(features, 1, hidden)
    return Heads(*first, uniform(hidden, hidden, classes), uniform(hidden, 1, classes))


class HeadJob(NamedTuple):
    rows: np.ndarray  # (n,) of the features, in any order
    seed: int  # of the initial weights, the order of the rows and the dropout masks


def train_jobs(
    features: Any,
    labels: np.ndarray,
    jobs: Sequence[HeadJob],
    settings: HeadSettings,
    *,
    classes: int,
) -> Heads | LinearHeads:
    """K heads in float32, one per job and in their order; those with equally many steps train
    together, on all cores.

    features: (N, D), dense or a sparse matrix. For sparse ones, and with `hidden` 0, heads are
    logistic regressions (C = 10) without a seed. labels: (N,) class numbers below `classes`.
    """
    if settings.hidden == 0 or not isinstance(features, np.ndarray):
        return _linear(features, labels, jobs)
    X = torch.tensor(np.asarray(features, dtype=np.float32))
    y = torch.tensor(np.asarray(labels, dtype=np.int64))
    stacks: dict[int, list[int]] = defaultdict(list)
    for number, job in enumerate(jobs):
        stacks[math.ceil(len(job.rows) / settings.batch_size)].append(number)
    # the parts do not depend on the number of cores, so that the results do not depend on it either
    parts: list[list[int]] = []
    for stack in stacks.values():
        number = math.ceil(len(stack) / TOGETHER)
        bounds = [len(stack) * part // number for part in range(number + 1)]
        parts += [stack[start:end] for start, end in pairwise(bounds)]

    def train_part(members: list[int]) -> Heads:
        with torch.no_grad():  # grad mode is a property of the thread
            return train_stack(
                X, y, [jobs[number] for number in members], settings, classes=classes
            )

    cores = torch.get_num_threads()
    with (
        one_thread(),
        ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        trained = Heads(*map(torch.cat, zip(*pool.map(train_part, parts), strict=True)))
    places = torch.argsort(torch.tensor([number for part in parts for number in part]))
    return Heads(*(weights[places] for weights in trained))


@contextmanager
def one_thread() -> Iterator[None]:
    """Run every operation of torch on the calling thread: a step is too short for several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def train_stack(
    X: Tensor, y: Tensor, jobs: Sequence[HeadJob], settings: HeadSettings, *, classes: int
) -> Heads:
    """Heads with equally many steps. X: (N, D); y: (N,)."""
    D = X.shape[1]
    generators = [torch.Generator().manual_seed(job.seed) for job in jobs]
    initial = [
        initial_head(D, classes, hidden=settings.hidden, generator=generator)
        for generator in generators
    ]
    heads = Heads(*map(torch.cat, zip(*initial, strict=True)))
    decayed = {"params": [heads.W1, heads.W2], "weight_decay": settings.weight_decay}
    biases = {"params": [heads.b1, heads.b2], "weight_decay": 0.0}
    optimizer = AdamW([decayed, biases], lr=settings.learning_rate, fused=True)
    steps = settings.epochs * math.ceil(len(jobs[0].rows) / settings.batch_size)
    schedule = LambdaLR(optimizer, lambda step: (1 + math.cos(math.pi * step / steps)) / 2)
    smoothing, max_norm = (
        torch.tensor(settings.label_smoothing),
        torch.tensor(settings.max_grad_norm),
    )
    # the two large tensors of a step are allocated once: allocation in every step would take longer
    # than the products
    seen, gradient = X.new_empty(len(jobs) * settings.batch_size, D), torch.empty_like(heads.W1)
    for rows, keep, weight in batches(jobs, settings, generators):
        x = torch.index_select(X, 0, rows.flatten(), out=seen[: rows.numel()]).view(
            *rows.shape, D
        )  # (K, B, D)
        gradients = backward(
            heads, x, y[rows], keep=keep, weight=weight, smoothing=smoothing, out=gradient
        )
        clip_each_head(gradients, max_norm=max_norm)
        for weights, own in zip(heads, gradients, strict=True):
            weights.grad = own
        optimizer.step()
        schedule.step()
    return heads


def _linear(features: Any, labels: np.ndarray, jobs: Sequence[HeadJob]) -> LinearHeads:
    """A logistic regression per job; jobs with the same rows share one, since it has no seed."""
    fitted: dict[bytes, Any] = {}
    for job in jobs:
        if (key := np.sort(job.rows).tobytes()) not in fitted:
            fitted[key] = LogisticRegression(C=10, max_iter=1000).fit(
                features[job.rows], labels[job.rows]
            )
    return LinearHeads([fitted[np.sort(job.rows).tobytes()] for job in jobs])


def backward(
    heads: Heads,
    x: Tensor,
    y: Tensor,
    *,
    keep: Tensor | None,
    weight: Tensor,
    smoothing: Tensor,
    out: Tensor | None = None,
) -> Heads:
    """The gradient of the sum over heads and rows of weight * cross-entropy with label smoothing.

    x: (K, B, D); y: (K, B); keep: (K, B, H), the dropout mask divided by its mean, None: no
    dropout; weight: (K, B, 1); smoothing: a scalar; out: memory for the gradient of W1. Gradients
    have the shapes of the weights.
    """
    hidden = torch.baddbmm(heads.b1, x, heads.W1).relu_()  # (K, B, H)
    if keep is not None:
        hidden.mul_(keep)
    logits = torch.baddbmm(
        heads.b2.mT, heads.W2.mT, hidden.mT
    )  # (K, C, B): a softmax over a short last axis is slow
    # gradient at the logits: softmax minus the smoothed target, smoothing / C plus 1 - smoothing at
    # the label
    error = torch.softmax(logits, dim=1).sub_(smoothing / logits.shape[1])
    error.scatter_add_(1, y[:, None], (smoothing - 1).expand(len(y), 1, y.shape[1])).mul_(weight.mT)
    inner = torch.bmm(error.mT, heads.W2.mT).mul_(
        hidden.sign()
    )  # (K, B, H); the sign is the derivative of the ReLU
    if keep is not None:
        inner.mul_(keep)
    first = torch.bmm(x.mT, inner, out=out), inner.sum(1, keepdim=True)
    return Heads(*first, torch.bmm(hidden.mT, error.mT), error.sum(2)[:, None])


def batches(
    jobs: Sequence[HeadJob], settings: HeadSettings, generators: Sequence[Generator]
) -> Iterator[tuple[Tensor, Tensor | None, Tensor]]:
    """For each step rows (K, B), dropout masks divided by their mean (K, B, H) or None, and row
    weights (K, B, 1).

    The last batch of an epoch is short. Heads for which it is shorter than for others repeat row 0
    with weight 0.
    """
    K, B, H = len(jobs), settings.batch_size, settings.hidden
    rows_of = [torch.tensor(job.rows) for job in jobs]
    dropout_rngs = [
        np.random.default_rng(job.seed) for job in jobs
    ]  # several times as fast as torch's
    sizes = torch.tensor([len(rows) for rows in rows_of])
    shortest, longest = int(sizes.min()), int(sizes.max())
    kept = 1 - torch.tensor(settings.dropout)
    weight_of_full = torch.full((K, B, 1), 1 / B)
    for _ in range(settings.epochs):
        order = torch.zeros(K, longest, dtype=torch.long)
        for k, (rows, generator) in enumerate(zip(rows_of, generators, strict=True)):
            order[k, : len(rows)] = rows[torch.randperm(len(rows), generator=generator)]
        for chunk in range(0, longest, CHUNK * B):
            drawn = min(CHUNK * B, longest - chunk)
            keep = torch.zeros(K, drawn, H) if settings.dropout else None
            if keep is not None:
                for masks, rows, rng in zip(keep.numpy(), rows_of, dropout_rngs, strict=True):
                    own = masks[: max(0, len(rows) - chunk)]
                    rng.random(own.shape, dtype=np.float32, out=own)
                keep.lt_(kept).div_(kept)
            for start in range(0, drawn, B):
                rows = order[:, chunk + start : chunk + start + B]
                weight = weight_of_full
                if chunk + start + B > shortest:
                    left = (sizes - chunk - start).clamp(max=B)[:, None]
                    weight = ((torch.arange(rows.shape[1]) < left) / left)[:, :, None]
                yield rows, None if keep is None else keep[:, start : start + B], weight


def clip_each_head(gradients: Sequence[Tensor], *, max_norm: Tensor) -> None:
    """Scale, in place, the gradients (K, ., .) of heads whose norm over all weights exceeds
    max_norm.
    """
    parts = torch.stack(
        [torch.linalg.vector_norm(gradient, dim=(1, 2)) for gradient in gradients]
    )  # (weights, K)
    scale = (max_norm / (torch.linalg.vector_norm(parts, dim=0) + 1e-6)).clamp(max=1.0)
    if (scale < 1).any():
        for gradient in gradients:
            gradient.mul_(scale[:, None, None])
