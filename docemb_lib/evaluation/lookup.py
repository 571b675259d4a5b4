"""From texts to rows of embeddings: a text that a task has in several places is embedded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from docemb_lib.errors import InputError

Lookup = Callable[[Sequence[str]], np.ndarray]  # from N texts to their embeddings, (N, D)
BLOCK = 8192  # rows looked at together


def unique(*parts: Sequence[str]) -> list[str]:
    """Each text once, in the order of first appearance."""
    return list(dict.fromkeys(text for part in parts for text in part))


def rows_by_text(name: str, embeddings: np.ndarray, texts: list[str]) -> Lookup:
    """The look-up of embeddings, (N, D), which must be finite and as many as the texts.

    All texts in their order are looked up without a copy: a large pool may stay memory-mapped.
    """
    if embeddings.ndim != 2 or len(embeddings) != len(texts):
        raise InputError(
            f"task {name!r}: embeddings of shape {embeddings.shape} for {len(texts)} texts, "
            "expected one row per text, in the order of task.texts(split)"
        )
    blocks = range(0, len(texts), BLOCK)
    finite = np.concatenate([np.isfinite(embeddings[start : start + BLOCK]).all(axis=1) for start in blocks])
    if not finite.all():
        raise InputError(
            f"task {name!r}: {np.count_nonzero(~finite)} of {len(texts)} embeddings are not finite, "
            f"the first is row {int(np.argmin(finite))}; look for a diverged model"
        )
    row = {text: i for i, text in enumerate(texts)}

    def lookup(wanted: Sequence[str]) -> np.ndarray:
        return embeddings if list(wanted) == texts else embeddings[[row[text] for text in wanted]]

    return lookup
