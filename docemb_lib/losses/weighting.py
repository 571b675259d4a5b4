"""Weights of the structural and the contextual losses, and the mask of long documents (thesis, Listing 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Form = Literal["weighted", "half_means_sum", "contextual_full"]


@dataclass(frozen=True)
class Weighting:
    """Weights of the structural loss S and the contextual loss C of each document.

    keep_i = 1 if len_i <= max_structural_len else 0, lam_i = lam * keep_i, and by `form`

    - `weighted`, the thesis' Listing 4.1:                           lam_i * S_i + (1 - lam_i) * C_i
    - `half_means_sum`, the author's code: the same, but at lam 0.5  keep_i * S_i + C_i
    - `contextual_full`, earlier drafts:                             lam_i * S_i + C_i

    Without lam it is the plain sum keep_i * S_i + C_i. `lam_by_length="linear:384:4096"` multiplies lam (1 where lam
    is None) by a factor that is 1 up to the first length and falls linearly to 0 at the second. Lengths are counted
    in the structural teacher's tokens without special tokens. `settings.Parameters` validates the values.
    """

    lam: float | None = None  # weight of the structural loss, in [0, 1]; None: no weighting
    max_structural_len: int | None = (
        None  # tokens; the mask drops the structural loss of longer documents; None: no mask
    )
    lam_by_length: str | None = None  # "linear:FIRST:LAST" or None
    form: Form = "weighted"

    @property
    def needs_lengths(self) -> bool:
        return self.max_structural_len is not None or self.lam_by_length is not None

    def keep(self, lengths: Tensor) -> Tensor:
        """The mask: True for documents with a structural loss. lengths: (B,), tokens. Returns (B,), bool."""
        if self.max_structural_len is None:
            return torch.ones_like(lengths, dtype=torch.bool)
        return lengths <= self.max_structural_len

    def weights(self, lengths: Tensor, *, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Factors of S_i and of C_i. lengths: (B,), tokens. Returns two tensors (B,) of `dtype`."""
        structural = self.keep(lengths).to(dtype)
        unweighted = self.lam is None or (self.form == "half_means_sum" and self.lam == 0.5)
        if unweighted and self.lam_by_length is None:
            return structural, torch.ones_like(structural)
        if self.lam is not None:
            structural = structural * self.lam
        if self.lam_by_length is not None:
            first, last = map(int, self.lam_by_length.split(":")[1:])
            structural = structural * ((last - lengths.to(dtype)) / (last - first)).clamp(0, 1)
        # 1 - lam_i with lam_i after the mask: a masked document has the whole contextual loss.
        contextual = torch.ones_like(structural) if self.form == "contextual_full" else 1 - structural
        return structural, contextual
