"""The classification head on frozen embeddings: what it is, what it sees and what it answers (Tables 4.3 and 5.6).

A head is Linear(D, hidden), ReLU, Dropout, Linear(hidden, classes). K of them are kept as one: see `head_training`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from docemb_lib.settings import PairFeatures

if TYPE_CHECKING:  # torch itself is imported where heads are trained: published scores are read without it
    from torch import Generator, Tensor

BLOCK = 4096  # rows whose hidden layers of all heads are held at a time


class Heads(NamedTuple):
    """K heads. W1: (K, D, hidden), b1: (K, 1, hidden), W2: (K, hidden, C), b2: (K, 1, C)."""

    W1: Tensor
    b1: Tensor
    W2: Tensor
    b2: Tensor

    def predict(self, features: np.ndarray) -> np.ndarray:
        """The class number each head gives each row. features: (N, D). Returns (K, N)."""
        import torch

        K, D, H = self.W1.shape
        side_by_side = self.W1.permute(1, 0, 2).reshape(D, K * H)  # all heads read the same rows: one product
        answers = np.empty((K, len(features)), dtype=np.int64)
        with torch.inference_mode():
            for start in range(0, len(features), BLOCK):
                X = torch.tensor(np.asarray(features[start : start + BLOCK], dtype=np.float32))
                hidden = (X @ side_by_side).view(-1, K, H).transpose(0, 1)
                logits = torch.relu(hidden + self.b1) @ self.W2 + self.b2  # (K, BLOCK, C)
                answers[:, start : start + BLOCK] = logits.argmax(dim=2).numpy()
        return answers


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
