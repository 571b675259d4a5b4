"""Which tokens of a text are hidden for masked-language modelling (Devlin et al. 2019, Section 3.1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from docemb_lib.losses.masked_language import NO_LABEL

SHARE = 0.15  # of tokens to be guessed; the SimDE paper gives no rate
HIDDEN, REPLACED = 0.8, 0.1  # of these: shown as the mask token, shown as any token; the rest as they are


class Masked(NamedTuple):
    """A text whose hidden tokens are to be guessed, (T,) both."""

    input_ids: np.ndarray
    labels: np.ndarray  # the token where it is to be guessed, else NO_LABEL


def mask_tokens(ids: np.ndarray, rng: np.random.Generator, *, mask_id: int, vocabulary: int) -> Masked:
    """Choose tokens of `ids`, (T,), none of them special, and hide most of the chosen. vocabulary: number of ids."""
    chosen = rng.random(len(ids)) < SHARE
    fate = rng.random(len(ids))
    anything = rng.integers(vocabulary, size=len(ids))
    shown = np.where(fate < HIDDEN, mask_id, np.where(fate < HIDDEN + REPLACED, anything, ids))
    return Masked(np.where(chosen, shown, ids), np.where(chosen, ids, NO_LABEL))
