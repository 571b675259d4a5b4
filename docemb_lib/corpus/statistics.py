"""How many documents a corpus has and how long they are (thesis, Tables 4.1 and 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from datasets import Dataset


LIMITS = (384, 512)  # structural tokens: how much SBERT sees in the thesis, and its tokenizer's own limit


def corpus_statistics(corpus: Mapping[str, Dataset], *, limit: int, student_limit: int = 4096) -> pd.DataFrame:
    """One row per split: its documents, and their lengths in tokens without special tokens.

    `limit` is the structural teacher's in its own tokens, `student_limit` the student's in the student's. Columns:
    split, documents, tokens, mean, std, median (student tokens; std over the split, not an estimate), and percent of
    documents that are longer: beyond_limit and beyond_student, over_384 and over_512 (structural tokens, as in Tables
    4.1 and 5.1). An empty split has zero tokens and NaN.
    """
    rows = []
    for split, table in corpus.items():
        student = np.asarray(table["n_student_tokens"], dtype=np.float64)
        structural = np.asarray(table["n_structural_tokens"], dtype=np.float64)
        row = {"split": str(split), "documents": len(student), "tokens": int(student.sum())}
        if len(student):
            row |= {
                "mean": student.mean(),
                "std": student.std(),
                "median": np.median(student),
                "beyond_limit": 100 * (structural > limit).mean(),
                "beyond_student": 100 * (student > student_limit).mean(),
                **{f"over_{tokens}": 100 * (structural > tokens).mean() for tokens in LIMITS},
            }
        rows.append(row)
    columns = ["split", "documents", "tokens", "mean", "std", "median", "beyond_limit", "beyond_student"]
    columns += [f"over_{tokens}" for tokens in LIMITS]
    return pd.DataFrame(rows, columns=columns)
