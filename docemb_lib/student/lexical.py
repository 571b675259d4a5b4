"""The lexical half of a student, fitted in closed form on the documents where it is used, and its
files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from docemb_lib.base.errors import InputError
from docemb_lib.student.loading import find_file, one_line, read_json, read_modules

if TYPE_CHECKING:
    from docemb_lib.student.lexical_module import LexicalHalf

FOLDER, CODE = "3_Lexical", "lexical_module.py"
# of the mean variance, added to each: directions that a few documents leave empty are not blown up
SHRINKAGE = 0.01
LEAST_DIM, MOST_DIM = 16, 512
SAMPLE = 2000  # documents whose cosines give the spread of a half


def fit_lexical_half(
    dense: Callable[[], np.ndarray],
    texts: Sequence[str],
    *,
    dim: int | None = None,
    words: int = 50_000,
    weight: float | None = None,
    rows: Sequence[int] | np.ndarray | None = None,
) -> LexicalHalf:
    """Fit a lexical half on the texts of a collection, and the dense half's mean and map on its
    embeddings.

    Args:
        dense: gives (N, D), the embeddings of some documents; called once the words are fitted,
            since it takes long.
        texts: of the collection.
        dim: width of the lexical half. None: as many directions as the texts fill, from LEAST_DIM
            to MOST_DIM.
        words: size of its vocabulary at most.
        weight: w between 0 and 1; None: chosen without labels, see `balance`.
        rows: which of the texts the embeddings belong to, None: all.

    Raises InputError for fewer documents or words than `dim`, documents alike, and a weight out of
    range.
    """
    from docemb_lib.student.lexical_module import LexicalHalf
    from docemb_lib.teachers import (
        LSA,
    )  # imported here: a student also runs where gensim is not installed
    from docemb_lib.teachers.lsa import LEADS, directions
    from docemb_lib.teachers.words import UNSPACED

    given = 0.5 if weight is None else weight
    if not 0 <= given <= 1:
        raise InputError(f"weight: got {given}; give a number from 0 to 1")
    if dim is not None and dim < 1:
        raise InputError(f"dim: got {dim}; give 1 or more")
    lsa = LSA(dim or max(LEAST_DIM, directions(len(texts), MOST_DIM)), words=words).fit(texts)
    lexical = torch.from_numpy(lsa.embed(texts if rows is None else [texts[row] for row in rows]))
    if (lexical - lexical.mean(dim=0)).abs().max() < 1e-5:  # equal up to rounding
        problem = f"all {len(texts)} documents have the same lexical embedding"
        raise InputError(f"{problem}; use more documents, or some with other words")
    X = torch.from_numpy(np.asarray(dense(), dtype=np.float32))
    fitted = {
        "vectors": torch.from_numpy(lsa.vectors),
        "lexical_mean": lexical.mean(dim=0),
        "dense_mean": X.mean(dim=0),
        "dense_map": tempering(X),
        "weight": torch.tensor(given),
    }
    half = LexicalHalf(lsa.vocabulary, fitted, LEADS, UNSPACED, weight_given=weight is not None)
    if weight is None:
        half.weight.fill_(balance(half.dense(X), half.centred(lexical)))
    return half


def tempered(X: Tensor) -> Tensor:
    """(N, D), centred, tempered and of unit length. X: (N, D)."""
    return nn.functional.normalize((X - X.mean(dim=0)) @ tempering(X))


def balance(first: Tensor, second: Tensor) -> float:
    """The weight w of the second of two halves: s_1 / (s_1 + s_2), of the spreads of their cosines
    between documents.

    Weighted so, both halves contribute equally to how much the cosines of the whole vary; a half
    whose cosines are all equal has no weight. first, second: (N, D) and (N, L), of unit length.
    """
    spreads = [_spread(X) for X in (first, second)]
    return spreads[0] / sum(spreads) if all(spreads) else float(spreads[1] > 0)


def tempering(X: Tensor) -> Tensor:
    """(D, D): divides each principal direction of X, (N, D), by the square root of its standard
    deviation.

    A symmetric map, C^(-1/4) of the covariance C with some shrinkage: halfway between X and its
    whitening.
    """
    centred = (X - X.mean(dim=0)).double()
    variances, directions = torch.linalg.eigh(centred.T @ centred / len(X))
    variances = variances.clamp(min=0) + SHRINKAGE * variances.mean().clamp(min=1e-12)
    return ((directions * variances**-0.25) @ directions.T).float()


def _spread(X: Tensor) -> float:
    """The standard deviation of the cosines between different rows. X: (N, D), of unit length."""
    X = X[:: max(1, -(-len(X) // SAMPLE))]
    cosines = (X @ X.T)[~torch.eye(len(X), dtype=torch.bool)]
    return float(cosines.std()) if cosines.numel() > 1 else 0.0


def saved_lexical_half(path_or_id: str) -> LexicalHalf | None:
    """The lexical half of a saved student, or None. Raises InputError where its code or files were
    changed.

    docemb runs its own code; that of the folder is compared with its checksum because
    sentence-transformers runs it.
    """
    folder = dict(read_modules(path_or_id)).get("LexicalHalf")
    if folder is None:
        return None
    from docemb_lib.student.lexical_module import CONFIG, WEIGHTS, WORDS, LexicalHalf

    files = [find_file(path_or_id, name, subfolder=folder) for name in (WORDS, WEIGHTS)]
    code, expected = (
        find_file(path_or_id, CODE),
        read_json(path_or_id, CONFIG, subfolder=folder).get("code"),
    )
    if code is None or None in files or hashlib.sha256(code.read_bytes()).hexdigest() != expected:
        problem = f"{CODE} was changed (its checksum differs), or a file of {folder} is missing"
        raise InputError(
            f"{path_or_id}: {problem}; save the student again with docemb, or get an unchanged copy"
        )
    with one_line(path_or_id, f"{folder} cannot be used"):
        return LexicalHalf.load(str(code.parent / folder))
