"""Does a model do as well on long documents? Scores by the length of what was scored."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from docemb_lib.errors import InputError
from docemb_lib.evaluation.uncertainty import bootstrap

EDGES = (256, 384, 512, 1024, 2048, 4096)  # tokens; SBERT teachers read 256 to 512, the student 4,096


def by_length(
    per_example: np.ndarray, lengths: Sequence[int] | np.ndarray, edges: Sequence[int] = EDGES, *, seed: int = 0
) -> pd.DataFrame:
    """Tidy rows by length: bucket, examples, value, low, high (a 95% interval, see `bootstrap`).

    per_example: (seeds, N), as a score has it; lengths: (N,), see `example_lengths` of a task; edges: ascending, the
    last length of each bucket but the one beyond. A bucket without examples has no value, one with a single example no
    interval: both NaN.
    """
    answers = np.asarray(per_example).mean(axis=0, dtype=np.float64)  # (N,)
    lengths = np.asarray(lengths)
    if len(lengths) != len(answers):
        raise InputError(f"by_length: {len(lengths)} lengths for {len(answers)} examples, expected one each")
    if not len(edges) or list(edges) != sorted(set(edges)):
        raise InputError(f"by_length: edges must be ascending and at least one, got {list(edges)}")
    bucket_of = np.searchsorted(edges, lengths, side="left")
    rows = []
    for number, name in enumerate(bucket_names(edges)):
        own = answers[bucket_of == number]
        found = bootstrap(own[None], seed=seed) if len(own) > 1 else None
        low, high = (float(found.low[0]), float(found.high[0])) if found else (np.nan, np.nan)
        rows.append((name, len(own), own.mean() if len(own) else np.nan, low, high))
    return pd.DataFrame(rows, columns=["bucket", "examples", "value", "low", "high"])


def bucket_names(edges: Sequence[int]) -> list[str]:
    """How buckets are called: up to the first edge, between two, beyond the last."""
    between = [f"{low + 1}-{high}" for low, high in pairwise(edges)]
    return [f"≤ {edges[0]}", *between, f"> {edges[-1]}"]
