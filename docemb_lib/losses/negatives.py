"""Negatives beyond the batch: rows of the teacher's embeddings, which lie on disk (thesis, 5.4).

A pool is read in blocks, and losses keep no more of it than a few vectors, so the memory does not
grow with the number of negatives.

N: documents of a pool; B: documents of a batch; D: width of an embedding.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 4096  # rows of a pool that are held at a time


class NegativePool:
    """Teacher embeddings that all documents of a batch have as negatives.

    Args:
        embeddings: (M, D), in memory or memory-mapped.
        rows: the N rows of the pool; None: all M.
        has_own: whether the pool holds the own teacher embedding of each document of the batch,
            once. A document is no negative of itself, so the losses take it out again.
    """

    def __init__(
        self, embeddings: np.ndarray, rows: np.ndarray | None = None, *, has_own: bool = False
    ) -> None:
        self.embeddings = embeddings
        self.rows = np.arange(len(embeddings)) if rows is None else rows
        self.has_own = has_own

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def negatives(self) -> int:
        """The number of negatives of each document."""
        return max(len(self) - self.has_own, 0)

    def blocks(self) -> Iterator[Tensor]:
        """The embeddings in float32, (n, D) each, n at most `BLOCK`."""
        for start in range(0, len(self), BLOCK):
            rows = self.rows[start : start + BLOCK]
            yield torch.from_numpy(np.asarray(self.embeddings[rows], dtype=np.float32))

    @cached_property
    def sums(self) -> tuple[Tensor, Tensor, Tensor]:
        """Sums over the pool of t, (D,), of t / |t|, (D,), and of |t|^2, (), in float64.

        They are computed once: the mean distances of max-margin depend on nothing else.
        """
        D = self.embeddings.shape[1]
        total = torch.zeros(D, dtype=torch.float64)
        units = torch.zeros_like(total)
        squares = torch.zeros((), dtype=torch.float64)
        for block in self.blocks():
            block = block.double()
            total += block.sum(dim=0)
            units += unit(block).sum(dim=0)
            squares += block.square().sum()
        return total, units, squares

    def mean_mse(self, student: Tensor, teacher: Tensor) -> Tensor:
        """The mean of 1/D |y_i - t_j|^2 over the negatives j of each document i, (B,).

        student, teacher: (B, D). With the mean m_i of the negatives it is 1/D (|y_i - m_i|^2 + mean
        of |t_j - m_i|^2), and the second term is a constant.
        """
        total, _, squares = (sums.to(student.device) for sums in self.sums)
        positive = teacher.double() * self.has_own  # what the sums hold of it, (B, D)
        mean = (total - positive) / self.negatives  # m_i, (B, D)
        mean_square = (squares - positive.square().sum(dim=1)) / self.negatives
        variance = mean_square - mean.square().sum(dim=1)
        distances = (student.double() - mean).square().mean(dim=1)  # (B,)
        return (distances + variance / student.shape[1]).to(student)

    def mean_cosine_distance(self, student: Tensor, teacher: Tensor) -> Tensor:
        """The mean of 1 - cos(y_i, t_j) over the negatives j of each document i, (B,).

        student, teacher: (B, D). It is 1 minus the product of y_i's direction with the mean
        direction of the negatives.
        """
        _, units, _ = (sums.to(student.device) for sums in self.sums)
        positive = unit(teacher.double()) * self.has_own  # what the sums hold of it, (B, D)
        mean = (units - positive) / self.negatives  # (B, D)
        return (1 - (unit(student.double()) * mean).sum(dim=1)).to(student)

    def log_sum_exp(self, queries: Tensor) -> Tensor:
        """The logarithm of the sum over the pool of exp(q_i . t_j / |t_j|), (B,).

        queries: (B, D). Differentiable once, with respect to the queries. The gradient, the mean of
        the directions t_j / |t_j| with weights softmax_j, is summed in the same pass over the
        blocks, each of which is read once and kept by nothing.
        """
        q = queries.detach()
        summed = q.new_full((len(q),), -torch.inf)  # the logarithm of the sum so far
        mean = torch.zeros_like(q)  # the gradient of the sum so far, (B, D)
        for block in self.blocks():
            units = unit(block.to(q))  # (n, D)
            logits = q @ units.T  # (B, n)
            both = torch.logaddexp(summed, logits.logsumexp(dim=1))
            # The weights of earlier blocks shrink by what this block adds to the sum.
            mean = mean * (summed - both).exp()[:, None]
            mean = mean + (logits - both[:, None]).exp() @ units
            summed = both
        # The difference is zero and has the gradient.
        product = (queries * mean).sum(dim=1)
        return summed + product - product.detach()


def unit(vectors: Tensor) -> Tensor:
    """Scale each row to unit length; a row shorter than `eps` is divided by `eps` instead."""
    return F.normalize(vectors, dim=1, eps=1e-8)
