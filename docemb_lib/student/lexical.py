"""The lexical half of a student, fitted in closed form on a collection, and its files.

N: documents; D: width of the dense half; L: width of the lexical half.
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

FOLDER = "3_Lexical"
CODE = "lexical_module.py"
# This share of the mean variance is added to each, so that directions that a few documents leave
# empty are not blown up.
SHRINKAGE = 0.01
LEAST_DIM = 16
MOST_DIM = 512
SAMPLE = 2000  # documents whose cosines give the spread of a half


def fit_lexical_half(
    dense: Callable[[], np.ndarray],
    texts: Sequence[str],
    *,
    dim: int | None = None,
    words: int = 50_000,
    weight: float | None = None,
    rows: Sequence[int] | None = None,
) -> LexicalHalf:
    """Fit a lexical half on the texts of a collection, and the dense half's mean and map.

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
    # Imported here: a student also runs where gensim is not installed.
    from docemb_lib.student.lexical_module import LexicalHalf
    from docemb_lib.teachers import LSA
    from docemb_lib.teachers.lsa import LEADS, directions

    if weight is not None and not 0 <= weight <= 1:
        raise InputError(f"weight: got {weight}; give a number from 0 to 1")
    if dim is None:
        dim = max(LEAST_DIM, directions(len(texts), MOST_DIM))
    if dim < 1:
        raise InputError(f"dim: got {dim}; give 1 or more")
    lsa = LSA(dim, words=words).fit(texts)
    embedded = texts if rows is None else [texts[row] for row in rows]
    lexical = torch.from_numpy(lsa.embed(embedded))  # (N, L)
    if (lexical - lexical.mean(dim=0)).abs().max() < 1e-5:  # equal up to rounding
        problem = f"all {len(texts)} documents have the same lexical embedding"
        raise InputError(f"{problem}; use more documents, or some with other words")

    X = torch.from_numpy(np.asarray(dense(), dtype=np.float32))  # (N, D)
    fitted = {
        "vectors": torch.from_numpy(lsa.vectors),
        "lexical_mean": lexical.mean(dim=0),
        "dense_mean": X.mean(dim=0),
        "dense_map": partial_whitening(X),
        "weight": torch.tensor(0.5 if weight is None else weight),
    }
    half = LexicalHalf(lsa.vocabulary, fitted, LEADS, weight_given=weight is not None)
    if weight is None:
        half.weight.fill_(balance(half.dense(X), half.centred(lexical)))
    return half


def partially_whitened(X: Tensor, fitted: int | None = None) -> Tensor:
    """Centre X, whiten it partially and scale its rows to unit length, (N, D).

    fitted: mean and map are those of the first so many rows; None: of all.
    """
    documents = X[:fitted]
    return nn.functional.normalize((X - documents.mean(dim=0)) @ partial_whitening(documents))


def partial_whitening(X: Tensor) -> Tensor:
    """Return C^(-1/4) for the covariance C of X with some shrinkage, (D, D). X: (N, D).

    This symmetric map is halfway between X and its whitening, C^(-1/2): it divides each principal
    direction by the square root of its standard deviation.
    """
    centred = (X - X.mean(dim=0)).double()
    variances, directions = torch.linalg.eigh(centred.T @ centred / len(X))
    variances = variances.clamp(min=0) + SHRINKAGE * variances.mean().clamp(min=1e-12)
    return ((directions * variances**-0.25) @ directions.T).float()


def balance(first: Tensor, second: Tensor) -> float:
    """Return the weight w of the second of two halves by the spreads of their cosines.

    The spread s of a half is the standard deviation of its cosines between documents, and w is
    s_1 / (s_1 + s_2). Weighted so, both halves contribute equally to how much the cosines of the
    whole vary; a half whose cosines are all equal has no weight. first, second: (N, D) and (N, L),
    of unit length.
    """
    spread = _spread(first)
    other = _spread(second)
    if spread and other:
        return spread / (spread + other)
    return float(other > 0)


def _spread(X: Tensor) -> float:
    """Return the standard deviation of the cosines between rows of X, (N, D), of unit length."""
    X = X[:: max(1, -(-len(X) // SAMPLE))]
    cosines = (X @ X.T)[~torch.eye(len(X), dtype=torch.bool)]
    return float(cosines.std()) if cosines.numel() > 1 else 0.0


def saved_lexical_half(path_or_id: str) -> LexicalHalf | None:
    """Load the lexical half of a saved student; None where it has none.

    docemb runs its own code. The code in the folder is compared with its checksum because
    sentence-transformers runs it. Raises InputError where the code or a file was changed.
    """
    folder = dict(read_modules(path_or_id)).get("LexicalHalf")
    if folder is None:
        return None
    from docemb_lib.student.lexical_module import CONFIG, WEIGHTS, WORDS, LexicalHalf

    files = [find_file(path_or_id, name, subfolder=folder) for name in (WORDS, WEIGHTS)]
    expected = read_json(path_or_id, CONFIG, subfolder=folder).get("code")
    code = find_file(path_or_id, CODE)
    if code is None or None in files or hashlib.sha256(code.read_bytes()).hexdigest() != expected:
        problem = f"{CODE} was changed (its checksum differs), or a file of {folder} is missing"
        mend = "save the student again with docemb, or get an unchanged copy"
        raise InputError(f"{path_or_id}: {problem}; {mend}")
    with one_line(path_or_id, f"{folder} cannot be used"):
        half = LexicalHalf.load(str(code.parent / folder))
        problem = _misfit(half)
    if problem:
        raise InputError(f"{path_or_id}: {folder}: {problem}; restore its files")
    return half


def _misfit(half: LexicalHalf) -> str:
    """Say what does not belong together in a loaded half; "" for a sound one."""
    tensors = {"vectors": torch.from_numpy(half.vectors), **dict(half.named_buffers())}
    L = half.vectors.shape[-1]
    D = len(half.dense_map)
    expected = {
        "vectors": (len(half.vocabulary), L),
        "lexical_mean": (L,),
        "dense_mean": (D,),
        "dense_map": (D, D),
        "weight": (),
    }
    for name, needed in expected.items():
        shape = tuple(tensors[name].shape)
        if shape != needed:
            return f"{name} has the shape {shape}, and needs {needed}"
        if not torch.isfinite(tensors[name]).all():
            return f"{name} has a value that is not finite"
    if len(set(half.vocabulary)) < len(half.vocabulary):
        return "a word is there twice"
    if not 0 <= float(half.weight) <= 1:
        return f"the weight is {float(half.weight)}, and lies between 0 and 1"
    return ""
