"""The classification head on frozen embeddings, several at once (thesis, Tables 4.3 and 5.6).

A head is Linear(D, hidden), ReLU, Dropout, Linear(hidden, classes). One head is a few hundred tiny steps, nearly all of
them overhead, so K heads that differ in nothing but their seed train as one: every weight has a leading K, the losses
are added up, and neither the gradients nor AdamW mix what belongs to different heads. The result is that of training
each alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.settings import HeadSettings, PairFeatures

if TYPE_CHECKING:  # torch itself is imported where heads are trained: published scores are read without it
    from torch import Generator, Tensor


class Heads(NamedTuple):
    """K trained heads. W1: (K, D, hidden), b1: (K, 1, hidden), W2: (K, hidden, C), b2: (K, 1, C)."""

    W1: Tensor
    b1: Tensor
    W2: Tensor
    b2: Tensor

    def predict(self, features: np.ndarray) -> np.ndarray:
        """The class number each head gives each row. features: (N, D). Returns (K, N)."""
        import torch

        K, D, H = self.W1.shape
        X = torch.tensor(np.asarray(features, dtype=np.float32))
        with torch.inference_mode():
            # all heads read the same rows: one product with their first layers side by side
            hidden = (X @ self.W1.permute(1, 0, 2).reshape(D, K * H)).view(-1, K, H).transpose(0, 1)
            logits = torch.relu(hidden + self.b1) @ self.W2 + self.b2  # (K, N, C)
        return logits.argmax(dim=2).numpy()


def pair_features(first: np.ndarray, second: np.ndarray, how: PairFeatures = "concat") -> np.ndarray:
    """What a head sees of a pair. first, second: (N, D). Returns (N, 2 D).

    concat: [e0; e1], as in the thesis. It leaves it to the head to find out that two embeddings are to be compared,
    which takes some thousands of pairs. interaction: [|e0 - e1|; e0 * e1] is the comparison, and a few hundred do.
    """
    if how == "concat":
        return np.concatenate([first, second], axis=1)
    return np.concatenate([np.abs(first - second), first * second], axis=1)


def initial_head(features: int, classes: int, *, hidden: int, generator: Generator) -> Heads:
    """One head (K = 1) as torch's Linear layers begin: weights and biases uniform in +-1 / sqrt(inputs)."""
    import torch

    def uniform(inputs: int, *shape: int) -> Tensor:
        bound = 1 / math.sqrt(inputs)
        return torch.empty(1, *shape).uniform_(-bound, bound, generator=generator)

    return Heads(
        W1=uniform(features, features, hidden),
        b1=uniform(features, 1, hidden),
        W2=uniform(hidden, hidden, classes),
        b2=uniform(hidden, 1, classes),
    )


def clip_each_head(gradients: Sequence[Tensor], *, max_norm: float) -> None:
    """Scale, in place, the gradients of every head whose norm over all its weights exceeds max_norm. Each (K, ., .)."""
    import torch

    parts = torch.stack([torch.linalg.vector_norm(gradient, dim=(1, 2)) for gradient in gradients])  # (weights, K)
    scale = (max_norm / (torch.linalg.vector_norm(parts, dim=0) + 1e-6)).clamp(max=1.0)
    if (scale < 1).any():
        for gradient in gradients:
            gradient.mul_(scale[:, None, None])


def train_heads(
    features: np.ndarray,
    labels: np.ndarray,
    *,
    classes: int,
    settings: HeadSettings | None = None,
    seeds: Sequence[int],
) -> Heads:
    """K heads, one per seed: its initial weights, the order of its batches and its dropout masks come from the seed.

    features: (N, D); labels: (N,) class numbers below `classes`; settings: None is the thesis'. Computed in float32.
    """
    import torch
    from torch.nn.functional import cross_entropy

    if not len(seeds):
        raise InputError("heads: no seed given, expected one per head")
    settings = settings or HeadSettings()
    X = torch.tensor(np.asarray(features, dtype=np.float32))
    y = torch.tensor(np.asarray(labels, dtype=np.int64))
    (N, D), H = X.shape, settings.hidden
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    single = [initial_head(D, classes, hidden=H, generator=generator) for generator in generators]
    heads = Heads(*(torch.cat(weights).requires_grad_() for weights in zip(*single, strict=True)))

    optimizer = torch.optim.AdamW(
        [
            {"params": [heads.W1, heads.W2], "weight_decay": settings.weight_decay},
            {"params": [heads.b1, heads.b2], "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        fused=True,
    )
    steps = settings.epochs * math.ceil(N / settings.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    kept = 1 - settings.dropout
    for _ in range(settings.epochs):
        order = torch.stack([torch.randperm(N, generator=generator) for generator in generators])  # (K, N)
        if settings.dropout:
            keep = torch.stack([torch.rand(N, H, generator=generator) < kept for generator in generators])  # (K, N, H)
        for start in range(0, N, settings.batch_size):
            stop = min(start + settings.batch_size, N)
            rows = order[:, start:stop]  # (K, B)
            hidden = torch.relu(torch.baddbmm(heads.b1, X[rows], heads.W1))  # (K, B, H)
            if settings.dropout:
                hidden = hidden * keep[:, start:stop] / kept
            logits = torch.baddbmm(heads.b2, hidden, heads.W2)  # (K, B, C)
            total = cross_entropy(
                logits.flatten(0, 1), y[rows].flatten(), label_smoothing=settings.label_smoothing, reduction="sum"
            )
            optimizer.zero_grad()
            (total / (stop - start)).backward()  # the sum over heads of each one's mean over its batch
            clip_each_head([w.grad for w in heads if w.grad is not None], max_norm=settings.max_grad_norm)
            optimizer.step()
            schedule.step()
    return Heads(*(weights.detach() for weights in heads))
