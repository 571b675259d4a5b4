"""What a student learns from one teacher: a loss between their embeddings, and the projections that they pass."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor, nn

from docemb_lib.errors import InputError
from docemb_lib.losses.contextual import SoftCCA
from docemb_lib.losses.projection import Projection, check_widths
from docemb_lib.losses.structural import CONTRASTING

Role = Literal["structural", "contextual"]


class Teaching(nn.Module):
    """One teacher of an objective.

    name: what its embeddings, and its part of the loss, are called.
    role: a `structural` loss is called with the mask, and weighed by lam_i; a `contextual` one is called without, and
        weighed by 1 - lam_i (see `Weighting`).
    loss: from embeddings or views, (B, P) both, to (B,); see `structural` and `contextual`.
    student_projection, teacher_projection: from the student's and the teacher's embeddings to views; None: identity.
    weight: of this loss among those of its role.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        loss: nn.Module,
        *,
        student_projection: nn.Module | None = None,
        teacher_projection: nn.Module | None = None,
        weight: float = 1.0,
    ) -> None:
        super().__init__()
        if role not in get_args(Role):
            raise InputError(f"teacher {name}: role must be one of {', '.join(get_args(Role))}, got {role!r}")
        if not 0 < weight < float("inf"):
            raise InputError(f"teacher {name}: weight must be a number above 0, got {weight}")
        if isinstance(student_projection, Projection) and isinstance(teacher_projection, Projection):
            ours, theirs = student_projection, teacher_projection
            width = check_widths(ours.spec, ours.in_features, theirs.spec, theirs.in_features, teacher=name)
            if isinstance(loss, SoftCCA) and loss.dim != width:
                raise InputError(
                    f"teacher {name}: both projections end in {width}, but SoftCCA was made for {loss.dim}"
                )
        self.name, self.role, self.weight = name, role, float(weight)
        self.loss = loss
        self.student_projection = student_projection or nn.Identity()
        self.teacher_projection = teacher_projection or nn.Identity()

    @property
    def takes_negatives(self) -> bool:
        """Whether the loss compares with other documents, and so with those of a bank."""
        return self.role == "structural" and isinstance(self.loss, CONTRASTING)

    @property
    def keeps_statistics(self) -> bool:
        """Whether the loss remembers earlier batches, as SoftCCA does."""
        return any(True for _ in self.loss.buffers())

    def views(self, student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
        """student: (B, D), teacher: (B, T), embeddings. Returns what the loss compares, (B, P) both."""
        return self.student_projection(student), self.teacher_projection(teacher)

    def extra_repr(self) -> str:
        return f"{self.name!r}, {self.role!r}, weight={self.weight}"
