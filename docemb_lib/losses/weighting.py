"""How much the structural and the contextual losses of each document count (thesis, Listing 4.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from docemb_lib.errors import InputError

Form = Literal["weighted", "half_means_sum", "contextual_full"]


@dataclass(frozen=True)
class Weighting:
    """How much the structural loss S and the contextual loss C of each document count.

    keep_i = 1 if len_i <= max_structural_len else 0, lam_i = lam * keep_i, and by `form`

    - `weighted`, the thesis' Listing 4.1:                           lam_i * S_i + (1 - lam_i) * C_i
    - `half_means_sum`, the author's code: the same, but at lam 0.5  keep_i * S_i + C_i
    - `contextual_full`, earlier drafts:                             lam_i * S_i + C_i

    Without lam it is the plain sum keep_i * S_i + C_i. `lam_by_length="linear:384:4096"` multiplies lam (1 where lam
    is None) by a factor that is 1 up to the first length and falls linearly to 0 at the second. Lengths are counted
    in the structural teacher's tokens without special tokens.
    """

    lam: float | None = None  # weight of the structural loss, in [0, 1]; None: no weighting
    max_structural_len: int | None = None  # longer documents give no structural loss; None: all do
    lam_by_length: str | None = None  # "linear:FIRST:LAST" or None
    form: Form = "weighted"

    def __post_init__(self) -> None:
        lam, longest = self.lam, self.max_structural_len
        if lam is not None and not (_is_number(lam) and 0 <= lam <= 1):
            raise InputError(f"lam must lie in [0, 1] or be None, got {_shown(lam)}")
        if longest is not None and not (_is_number(longest) and longest >= 1):
            raise InputError(f"max_structural_len must be 1 token or more, or None, got {_shown(longest)}")
        if self.form not in get_args(Form):
            raise InputError(f"form must be one of {', '.join(get_args(Form))}, got {_shown(self.form)}")
        if self.lam_by_length is not None:
            _length_span(self.lam_by_length)
            if self.form == "half_means_sum":
                raise InputError("form half_means_sum drops the weights at lam 0.5: set lam_by_length to None with it")

    @property
    def needs_lengths(self) -> bool:
        return self.max_structural_len is not None or self.lam_by_length is not None

    def keep(self, lengths: Tensor) -> Tensor:
        """Which documents have a structural loss. lengths: (B,), tokens. Returns (B,), bool."""
        if self.max_structural_len is None:
            return torch.ones_like(lengths, dtype=torch.bool)
        return lengths <= self.max_structural_len

    def weights(self, lengths: Tensor, *, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """What S_i and C_i are multiplied by. lengths: (B,), tokens. Returns two tensors (B,) of `dtype`."""
        structural = self.keep(lengths).to(dtype)
        unweighted = self.lam is None or (self.form == "half_means_sum" and self.lam == 0.5)
        if unweighted and self.lam_by_length is None:
            return structural, torch.ones_like(structural)
        if self.lam is not None:
            structural = structural * self.lam
        if self.lam_by_length is not None:
            first, last = _length_span(self.lam_by_length)
            structural = structural * ((last - lengths.to(dtype)) / (last - first)).clamp(0, 1)
        contextual = torch.ones_like(structural) if self.form == "contextual_full" else 1 - structural
        return structural, contextual


PLAIN_SUM = Weighting()  # every document and every loss counts alike


def _length_span(text: str) -> tuple[int, int]:
    from docemb_lib.settings import length_ramp  # here, because losses work without pydantic

    try:
        return length_ramp(text)
    except ValueError as error:
        raise InputError(f"lam_by_length {error}, got {_shown(text)}") from None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """`value` as an error shows it; YAML's spellings of nothing are a frequent slip where parameters are strings."""
    if isinstance(value, str) and value.strip().lower() in {"null", "none", "~", ""}:
        return f"the string {value!r}: write None"
    return repr(value)
