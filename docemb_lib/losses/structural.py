"""Structural losses: a student's embedding against a sentence-encoder teacher's (thesis, 4.4).

Both embeddings are in one space. Every loss maps student (B, D), teacher (B, D) and a mask (B,)
with 1 = kept to one number per document, (B,). A masked document has loss zero and is a negative of
no other document.

B: documents of a batch; D: width of an embedding; y: the student's embeddings; t: the teacher's.
"""

from abc import ABC, abstractmethod
from inspect import signature
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docemb_lib.base.errors import InputError
from docemb_lib.settings.files import load_class

Distance = Literal["mse", "cosine"]


class Described(nn.Module):
    """A module whose representation shows its settings.

    A checkpoint of other settings is recognised by its representation.
    """

    def extra_repr(self) -> str:
        settings = []
        for name, value in vars(self).items():
            if name[0] != "_" and name != "training" and not callable(value):
                settings.append(f"{name}={value!r}")
        return ", ".join(settings)


class Loss(Described):
    """A loss of embeddings or views, (B, D) both."""

    def with_parts(self, *arguments: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Compute the loss of each document, (B,), and what it is made of by name, (B,) each."""
        return self(*arguments), {}


class StructuralLoss(Loss, ABC):
    """The base class checks shapes and applies the mask; a subclass has `document_losses`."""

    def forward(self, student: Tensor, teacher: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compute the loss of each document, (B,).

        student, teacher: (B, D); mask: (B,), 1 = kept, None: all are kept. Raises InputError where
        the shapes do not fit.
        """
        B, D = student.shape
        if teacher.shape != student.shape:
            raise InputError(
                f"embeddings must be of the same documents and width, got {(B, D)} of the student "
                f"and {tuple(teacher.shape)} of the teacher: project them"
            )
        if mask is not None and mask.shape != (B,):
            raise InputError(
                f"mask must hold one number per document: expected {B}, got {tuple(mask.shape)}"
            )
        keep = student.new_ones(B) if mask is None else mask.to(student)
        # The mask zeroes losses here and, through `keep`, excludes negatives; `Weighting` moves the
        # weight of a masked document to its contextual loss.
        return keep * self.document_losses(student, teacher, keep)

    @abstractmethod
    def document_losses(self, student: Tensor, teacher: Tensor, keep: Tensor) -> Tensor:
        """Compute the loss of each document, (B,); any finite value where `keep`, (B,), is 0."""


class MSE(StructuralLoss):
    """Mean squared difference, which is the squared distance divided by D.

    `loss_i = 1/D * sum_k (y_ik - t_ik)^2`

    Example:
        >>> MSE()(torch.zeros(2, 4), torch.ones(2, 4))
        tensor([1., 1.])
    """

    def document_losses(self, student: Tensor, teacher: Tensor, keep: Tensor) -> Tensor:
        return (student - teacher).square().mean(dim=1)  # (B, D) to (B,)


class Cosine(StructuralLoss):
    """Cosine distance: `loss_i = 1 - cos(y_i, t_i)`.

    Example:
        >>> Cosine()(torch.eye(2), torch.ones(2, 2), mask=torch.tensor([1, 0]))
        tensor([0.2929, 0.0000])
    """

    def document_losses(self, student: Tensor, teacher: Tensor, keep: Tensor) -> Tensor:
        return 1 - (unit(student) * unit(teacher)).sum(dim=1)  # (B, D) to (B,)


class MaxMargin(StructuralLoss):
    """Pull a student's embedding to its teacher's, and push it from other documents' (Eq. 4.1).

    ::

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
            raise InputError(
                f"distance: got {distance!r}; give one of {', '.join(get_args(Distance))}"
            )
        self.distance = distance
        self.gamma = gamma

    def document_losses(self, student: Tensor, teacher: Tensor, keep: Tensor) -> Tensor:
        if self.distance == "cosine":
            distances = 1 - unit(student) @ unit(teacher).T  # d(y_i, t_j), (B, B)
        else:
            # Differences first: |y|^2 - 2yt + |t|^2 would need no (B, B, D) but loses small
            # distances to rounding.
            distances = (student[:, None] - teacher[None]).square().mean(dim=2)  # (B, B)
        others = keep.outer(keep).fill_diagonal_(0)  # (B, B), 1 where i and j are kept, j != i
        # Without others the sum is 0, and so is the mean: the clamp avoids 0 / 0.
        mean = (distances * others).sum(dim=1) / others.sum(dim=1).clamp(min=1)  # (B,)
        return distances.diagonal() - self.gamma * mean


class Contrastive(StructuralLoss):
    """Cross-entropy of finding a document's own teacher embedding in the batch (Eq. 4.2).

    ::

        loss_i = -log( exp(cos(y_i, t_i) / temperature) / sum_j exp(cos(y_i, t_j) / temperature) )

    with j over the documents kept by the mask. `temperature=None` is the thesis' loss, which has
    no temperature. Eq. 4.2 as printed sums the cosines inside one exponential, which leaves no
    positive term; it is read as a misprint of the above.

    Example:
        >>> Contrastive()(torch.ones(2, 3), torch.ones(2, 3))
        tensor([0.6931, 0.6931])
    """

    def __init__(self, temperature: float | None = None) -> None:
        super().__init__()
        self.temperature = temperature

    def document_losses(self, student: Tensor, teacher: Tensor, keep: Tensor) -> Tensor:
        B = len(student)
        logits = unit(student) @ unit(teacher).T / (self.temperature or 1.0)  # (B, B)
        # A masked row keeps its diagonal: a row of -inf alone would give NaN, which the mask's zero
        # does not remove.
        candidates = keep.bool() | torch.eye(B, dtype=torch.bool, device=student.device)  # (B, B)
        logits_kept = logits.masked_fill(~candidates, float("-inf"))
        return logits_kept.logsumexp(dim=1) - logits.diagonal()  # (B,)


def unit(vectors: Tensor) -> Tensor:
    """Scale each row to unit length; a row shorter than `eps` is divided by `eps` instead."""
    return F.normalize(vectors, dim=1, eps=1e-8)


STRUCTURAL = {"mse": MSE, "cosine": Cosine, "max-margin": MaxMargin, "contrastive": Contrastive}


def of_settings(kind: type[Loss], **settings: object) -> Loss:
    """Make a loss with those of the settings that its class has."""
    names = signature(kind).parameters.keys() & settings
    return kind(**{name: settings[name] for name in names})


def structural_loss(
    name: str, *, distance: Distance = "mse", gamma: float = 1.0, temperature: float | None = None
) -> Loss:
    """Make the loss that the parameter `structural_loss` names, or a class by `module:Class`.

    distance and gamma belong to max-margin, temperature to contrastive. Raises InputError for a
    class that is missing or no `StructuralLoss`.
    """
    if name in STRUCTURAL:
        settings = {"distance": distance, "gamma": gamma, "temperature": temperature}
        return of_settings(STRUCTURAL[name], **settings)
    try:
        kind = load_class(name)
    except InputError as error:
        raise InputError(f"structural_loss: {error}") from error
    if not issubclass(kind, StructuralLoss):
        raise InputError(
            f"structural_loss: {name} is not a subclass of docemb_lib.losses.StructuralLoss; "
            "make it one, as docs/extending.md shows"
        )
    return kind()
