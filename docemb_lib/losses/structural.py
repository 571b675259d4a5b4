"""Structural losses: a student's embedding against its sentence-encoder teacher's, in one space (thesis, section 4.4).

Every loss maps student (B, D), teacher (B, D) and a mask (B,) with 1 = kept to one number per document, (B,).
A masked document scores zero and is nobody's negative; with an empty mask all scores are zero. The losses that compare
with other documents, max-margin and contrastive, take further ones beside the batch's: `negatives`, (K, D), are the
teacher's embeddings of K documents that the batch does not hold.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docemb_lib.errors import InputError

Distance = Literal["mse", "cosine"]

_SMALLEST_NORM = 1e-8  # shorter vectors are divided by this instead of by their norm


class MSE(nn.Module):
    """Mean squared difference: loss_i = 1/D * sum_k (y_ik - t_ik)^2, the squared distance divided by D."""

    def forward(self, student: Tensor, teacher: Tensor, mask: Tensor | None = None) -> Tensor:
        """student, teacher: (B, D); mask: (B,), 1 = kept. Returns (B,), zero where masked."""
        _check_views(student, teacher)
        return _kept(student, mask) * (student - teacher).square().mean(dim=1)


class Cosine(nn.Module):
    """Cosine distance: loss_i = 1 - cos(y_i, t_i)."""

    def forward(self, student: Tensor, teacher: Tensor, mask: Tensor | None = None) -> Tensor:
        """student, teacher: (B, D); mask: (B,), 1 = kept. Returns (B,), zero where masked."""
        _check_views(student, teacher)
        return _kept(student, mask) * (1 - (_unit(student) * _unit(teacher)).sum(dim=1))


class MaxMargin(nn.Module):
    """Pull a student's embedding to its teacher's and push it from the other documents' (thesis, Eq. 4.1).

    loss_i = d(y_i, t_i) - gamma * mean of d(y_i, t_j) over the others j

    The others are the batch's documents that `mask` keeps, j != i, and all `negatives`. The thesis writes "sim" for d
    but minimises it: d is a distance. A document without any others keeps its plain distance. With d = MSE and
    gamma = 1 the loss is affine in y: unbounded below, with a gradient that does not depend on y; beyond 1 it is
    concave. The MSE form holds (B, B, D) numbers: meant for small batches, and for any number of `negatives`.
    """

    def __init__(self, distance: Distance = "mse", gamma: float = 1.0) -> None:
        super().__init__()
        if distance not in _PAIRWISE:
            raise InputError(f"distance must be one of {', '.join(_PAIRWISE)}, got {distance!r}")
        if not 0 <= gamma < float("inf"):
            raise InputError(f"gamma must be a number from 0 upwards, got {gamma}")
        self.distance, self.gamma = distance, gamma

    def forward(
        self, student: Tensor, teacher: Tensor, mask: Tensor | None = None, negatives: Tensor | None = None
    ) -> Tensor:
        """student, teacher: (B, D); mask: (B,), 1 = kept; negatives: (K, D). Returns (B,), zero where masked."""
        _check_views(student, teacher)
        keep = _kept(student, mask)
        distances = _PAIRWISE[self.distance](student, teacher)  # (B, B)
        others = keep.outer(keep).fill_diagonal_(0)  # i and j kept, j != i
        total, count = (distances * others).sum(dim=1), others.sum(dim=1)  # (B,) both
        if negatives is not None:
            _check_negatives(student, negatives)
            K = len(negatives)
            total, count = total + K * _MEAN[self.distance](student, negatives), count + K
        return keep * (distances.diagonal() - self.gamma * (total / count.clamp(min=1)))

    def extra_repr(self) -> str:
        return f"distance={self.distance!r}, gamma={self.gamma}"


class Contrastive(nn.Module):
    """Cross-entropy of finding one's own teacher embedding among the batch's (thesis, Eq. 4.2).

    loss = mean over i of -log( exp(cos(y_i, t_i) / temperature) / sum_j exp(cos(y_i, t_j) / temperature) )

    with i over the documents kept by `mask`, and j over these and all `negatives`; each document kept is given this
    mean. `temperature=None` is the thesis' loss, without one. Eq. 4.2 as printed sums the cosines inside one
    exponential, which leaves no positive term; it is read as a misprint of the above.
    """

    def __init__(self, temperature: float | None = None) -> None:
        super().__init__()
        if temperature is not None and not 0 < temperature < float("inf"):
            raise InputError(f"temperature must be a number above 0 or None, got {temperature}")
        self.temperature = temperature

    def forward(
        self, student: Tensor, teacher: Tensor, mask: Tensor | None = None, negatives: Tensor | None = None
    ) -> Tensor:
        """student, teacher: (B, D); mask: (B,), 1 = kept; negatives: (K, D). Returns (B,): the mean where kept, zero
        where masked."""
        _check_views(student, teacher)
        B, K = len(student), 0
        keep, targets = _kept(student, mask), teacher
        if negatives is not None:
            _check_negatives(student, negatives)
            K, targets = len(negatives), torch.cat([teacher, negatives])
        logits = _pairwise_cosine(student, targets) / (self.temperature or 1.0)  # (B, B + K)
        # A masked row still sees itself: it is multiplied by zero below, and a row of -inf would make that NaN.
        own = torch.eye(B, B + K, dtype=torch.bool, device=student.device)
        candidates = F.pad(keep.bool(), (0, K), value=True) | own
        losses = logits.masked_fill(~candidates, float("-inf")).logsumexp(dim=1) - logits.diagonal()
        return keep * (keep * losses).sum() / keep.sum().clamp(min=1)

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


CONTRASTING = (MaxMargin, Contrastive)  # the losses that compare with other documents, and take `negatives`


def structural_loss(
    name: str, *, distance: Distance = "mse", gamma: float = 1.0, temperature: float | None = None
) -> nn.Module:
    """The loss of the parameter `structural_loss`; `distance` and `gamma` belong to max-margin, `temperature` to
    contrastive.

    Raises InputError for a name that is none of mse, cosine, max-margin, contrastive.
    """
    if name == "mse":
        return MSE()
    if name == "cosine":
        return Cosine()
    if name == "max-margin":
        return MaxMargin(distance, gamma)
    if name == "contrastive":
        return Contrastive(temperature)
    raise InputError(f"structural_loss must be one of mse, cosine, max-margin, contrastive or None, got {name!r}")


def _unit(vectors: Tensor) -> Tensor:
    return F.normalize(vectors, dim=1, eps=_SMALLEST_NORM)


def _pairwise_cosine(student: Tensor, teacher: Tensor) -> Tensor:
    return _unit(student) @ _unit(teacher).T  # (B, B)


def _pairwise_cosine_distance(student: Tensor, teacher: Tensor) -> Tensor:
    return 1 - _pairwise_cosine(student, teacher)


def _pairwise_mse(student: Tensor, teacher: Tensor) -> Tensor:
    # Differences first: |y|^2 - 2yt + |t|^2 would need no (B, B, D) but loses the small distances to rounding.
    return (student[:, None] - teacher[None]).square().mean(dim=2)


def _mean_mse(student: Tensor, negatives: Tensor) -> Tensor:
    # The mean squared distance to many points is that to their centre, plus their own spread: no (B, K, D).
    centre = negatives.mean(dim=0)
    return (student - centre).square().mean(dim=1) + (negatives - centre).square().mean()


def _mean_cosine_distance(student: Tensor, negatives: Tensor) -> Tensor:
    return 1 - _unit(student) @ _unit(negatives).mean(dim=0)


_PAIRWISE = {"mse": _pairwise_mse, "cosine": _pairwise_cosine_distance}  # (B, B), of each document to each teacher's
_MEAN = {"mse": _mean_mse, "cosine": _mean_cosine_distance}  # (B,), of each document to all negatives


def _kept(student: Tensor, mask: Tensor | None) -> Tensor:
    """The mask as numbers of the student's type, (B,); ones where there is none."""
    if mask is None:
        return student.new_ones(len(student))
    if mask.shape != student.shape[:1]:
        raise InputError(f"mask must hold one number per document: expected {len(student)}, got {tuple(mask.shape)}")
    return mask.to(student)


def _check_views(student: Tensor, teacher: Tensor) -> None:
    if student.shape[0] != teacher.shape[0]:
        raise InputError(f"student and teacher must hold the same documents, got {len(student)} and {len(teacher)}")
    if student.shape[1:] != teacher.shape[1:]:
        raise InputError(
            f"student embeddings are {student.shape[1]} wide and teacher embeddings {teacher.shape[1]}: "
            "take a student as wide as its teacher, or project both to one width"
        )


def _check_negatives(student: Tensor, negatives: Tensor) -> None:
    if negatives.ndim != 2 or not len(negatives) or negatives.shape[1] != student.shape[1]:
        raise InputError(
            f"negatives must hold one document or more, as wide as the teacher: expected (K, {student.shape[1]}), "
            f"got {tuple(negatives.shape)}"
        )
