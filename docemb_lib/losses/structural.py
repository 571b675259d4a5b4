"""Structural losses: a student's embedding against its sentence-encoder teacher's, in one space
(thesis, section 4.4).

Every loss maps student (B, D), teacher (B, D) and a mask (B,) with 1 = kept to one number per
document, (B,). A masked document has loss zero and is a negative of no other document.
"""

from abc import ABC, abstractmethod
from importlib import import_module
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docemb_lib.base.errors import InputError

Distance = Literal["mse", "cosine"]


class Described(nn.Module):
    """A module whose representation has its settings, so that a checkpoint of other settings is
    recognised.
    """

    def extra_repr(self) -> str:
        own = {
            name: value
            for name, value in vars(self).items()
            if name[0] != "_" and not callable(value)
        }
        return ", ".join(f"{name}={value!r}" for name, value in own.items() if name != "training")


class StructuralLoss(Described, ABC):
    """Base class. `forward` checks shapes and applies the mask; a subclass implements
    `document_losses`.
    """

    def forward(self, student: Tensor, teacher: Tensor, mask: Tensor | None = None) -> Tensor:
        """student, teacher: (B, D); mask: (B,), 1 = kept, None: all. Returns (B,)."""
        B, D = student.shape
        if teacher.shape != student.shape:
            both = f"got {(B, D)} of the student and {tuple(teacher.shape)} of the teacher"
            raise InputError(
                f"embeddings must be of the same documents and width, {both}: project them"
            )
        if mask is not None and mask.shape != (B,):
            raise InputError(
                f"mask must hold one number per document: expected {B}, got {tuple(mask.shape)}"
            )
        keep = student.new_ones(B) if mask is None else mask.to(student)
        # The mask zeroes losses here and, through `keep`, excludes negatives; `Weighting` moves the
        # weight to C.
        return keep * self.document_losses(student, teacher, keep)

    @abstractmethod
    def document_losses(self, student: Tensor, teacher: Tensor, keep: Tensor) -> Tensor:
        """The loss of each document, (B,); any finite value where `keep`, (B,), is 0."""


class MSE(StructuralLoss):
    """Mean squared difference: `loss_i = 1/D * sum_k (y_ik - t_ik)^2`, the squared distance divided
    by D.

    Example:
        >>> MSE()(torch.zeros(2, 4), torch.ones(2, 4))
        tensor([1., 1.])
    """

    def document_losses(self, student: Tensor, teacher: Tensor, keep: Tensor) -> Tensor:
        return (student - teacher).square().mean(dim=1)


class Cosine(StructuralLoss):
    """Cosine distance: `loss_i = 1 - cos(y_i, t_i)`.

    Example:
        >>> Cosine()(torch.eye(2), torch.ones(2, 2), mask=torch.tensor([1, 0]))
        tensor([0.2929, 0.0000])
    """

    def document_losses(self, student: Tensor, teacher: Tensor, keep: Tensor) -> Tensor:
        return 1 - (_unit(student) * _unit(teacher)).sum(dim=1)


class MaxMargin(StructuralLoss):
    """Pull a student's embedding to its teacher's and push it from those of other documents
    (thesis, Eq. 4.1)::

        loss_i = d(y_i, t_i) - gamma * mean of d(y_i, t_j) over the others j

    The others are the batch's documents that the mask keeps, j != i. The thesis writes "sim" for d
    but minimises it: d is a distance. A document without any others keeps its plain distance. With
    d = MSE and gamma = 1 the loss is affine in y: unbounded below, with a gradient that does not
    depend on y; beyond 1 it is concave. The MSE form holds (B, B, D) numbers.

    Example:
        >>> MaxMargin("cosine", gamma=0.5)(torch.eye(2), torch.eye(2))
        tensor([-0.5000, -0.5000])
    """

    def __init__(self, distance: Distance = "mse", gamma: float = 1.0) -> None:
        super().__init__()
        if distance not in get_args(Distance):
            mend = f"give one of {', '.join(get_args(Distance))}"
            raise InputError(f"distance: got {distance!r}; {mend}")
        self.distance, self.gamma = distance, gamma

    def document_losses(self, student: Tensor, teacher: Tensor, keep: Tensor) -> Tensor:
        if self.distance == "cosine":
            distances = 1 - _unit(student) @ _unit(teacher).T  # (B, B)
        # Differences first: |y|^2 - 2yt + |t|^2 would need no (B, B, D) but loses small distances
        # to rounding.
        else:
            distances = (student[:, None] - teacher[None]).square().mean(dim=2)
        others = keep.outer(keep).fill_diagonal_(0)  # i and j kept, j != i
        mean = (distances * others).sum(dim=1) / others.sum(dim=1).clamp(min=1)  # (B,)
        return distances.diagonal() - self.gamma * mean


class Contrastive(StructuralLoss):
    """Cross-entropy of finding a document's own teacher embedding among those of the batch (thesis,
    Eq. 4.2)::

        loss = mean over i of -log( exp(cos(y_i, t_i) / temperature) / sum_j exp(cos(y_i, t_j) /
        temperature) )

    with i and j over the documents kept by the mask. Each document kept has this mean as its loss.
    `temperature=None` is the thesis' loss, which has no temperature. Eq. 4.2 as printed sums the
    cosines inside one exponential, which leaves no positive term; it is read as a misprint of the
    above.

    Example:
        >>> Contrastive()(torch.ones(2, 3), torch.ones(2, 3))
        tensor([0.6931, 0.6931])
    """

    def __init__(self, temperature: float | None = None) -> None:
        super().__init__()
        self.temperature = temperature

    def document_losses(self, student: Tensor, teacher: Tensor, keep: Tensor) -> Tensor:
        B = len(student)
        logits = _unit(student) @ _unit(teacher).T / (self.temperature or 1.0)  # (B, B)
        # A masked row keeps its diagonal: a row of -inf alone would give NaN, which the mask's zero
        # does not remove.
        candidates = keep.bool() | torch.eye(B, dtype=torch.bool, device=student.device)
        losses = logits.masked_fill(~candidates, float("-inf")).logsumexp(dim=1) - logits.diagonal()
        return (keep * losses).sum().expand(B) / keep.sum().clamp(min=1)


def structural_loss(
    name: str, *, distance: Distance = "mse", gamma: float = 1.0, temperature: float | None = None
) -> nn.Module:
    """The loss that the parameter `structural_loss` names, or a class by `module:Class`.

    distance, gamma: of max-margin; temperature: of contrastive.
    """
    if name == "max-margin":
        return MaxMargin(distance, gamma)
    if name == "contrastive":
        return Contrastive(temperature)
    if name in ("mse", "cosine"):
        return MSE() if name == "mse" else Cosine()
    module, colon, attribute = name.partition(":")
    if not colon:
        raise InputError(
            f"structural_loss must be one of mse, cosine, max-margin, contrastive or None, got {name!r}"
        )
    try:
        made = getattr(import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise InputError(
            f"structural_loss: {name} cannot be imported ({error}); put it on PYTHONPATH"
        ) from None
    if not isinstance(made, StructuralLoss):
        mend = "make it one, as docs/extending.md shows"
        problem = f"{name} is not a subclass of docemb_lib.losses.StructuralLoss"
        raise InputError(f"structural_loss: {problem}; {mend}")
    return made


def _unit(vectors: Tensor) -> Tensor:
    return F.normalize(
        vectors, dim=1, eps=1e-8
    )  # shorter vectors are divided by eps instead of by their norm
