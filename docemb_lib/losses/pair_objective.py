"""What a student learns from pairs of texts alone, and all that is trained beside it (SimDE)."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from docemb_lib.errors import InputError
from docemb_lib.losses.contextual import full_precision
from docemb_lib.losses.info_nce import InfoNCE
from docemb_lib.losses.masked_language import MaskedLanguageHead
from docemb_lib.losses.objective import Objective


class PairObjective(nn.Module):
    """L = mean over i of InfoNCE_i + mlm_weight * MLM, and with `distillation`: L_distillation + weight * L.

    MLM is the mean cross-entropy over the hidden tokens of all texts of the batch, each read a second time with these
    tokens hidden; the embeddings are those of the texts as they are. The module is whole, so that a checkpoint of it
    is; the student is held once, by `distillation` where there is one.
    """

    def __init__(
        self,
        student: nn.Module,
        *,
        contrast: InfoNCE,
        head: MaskedLanguageHead | None = None,
        mlm_weight: float = 0.1,
        distillation: Objective | None = None,
        weight: float = 1.0,
    ) -> None:
        """head: for the MLM loss, None: without it. Raises InputError for weights below 0, and for a distillation of
        another student."""
        super().__init__()
        for name, value in (("mlm_weight", mlm_weight), ("weight", weight)):
            if not 0 <= value < float("inf"):
                raise InputError(f"{name} must be a number from 0 upwards, got {value}")
        if distillation is None:
            self.own_student = student
        elif distillation.student is not student:
            raise InputError("distillation: of another student; give an objective of the one that reads the pairs")
        self.contrast, self.head, self.distillation = contrast, head, distillation
        self.mlm_weight, self.weight = mlm_weight if head is not None else 0.0, weight

    @property
    def student(self) -> Any:
        return self.own_student if self.distillation is None else self.distillation.student

    @property
    def parts(self) -> list[str]:
        """The names of the parts of the loss."""
        teachings = [] if self.distillation is None else self.distillation.teachings
        return ["contrast", *(["mlm"] if self.mlm_weight else []), *(teaching.name for teaching in teachings)]

    def embed(self, batch: Any) -> Tensor:
        """(n, D) of n packed texts, in float32 or better."""
        return full_precision(self.student(batch))

    def contrast_losses(self, embeddings: Tensor) -> Tensor:
        """(B,) of the 2B texts of a batch: the first ones of its pairs, then the second ones. embeddings: (2B, D)"""
        with torch.autocast(embeddings.device.type, enabled=False):
            return self.contrast(*embeddings.chunk(2))

    def masked_loss(self, masked: Any, labels: Tensor) -> Tensor:
        """Sum of the cross-entropies of the hidden tokens of packed texts, (). labels: (T,)"""
        head = cast(MaskedLanguageHead, self.head)
        return head.loss(self.student.hidden(masked), labels, self.student.model.get_input_embeddings().weight)

    def extra_repr(self) -> str:
        return f"mlm_weight={self.mlm_weight}, weight={self.weight}"
