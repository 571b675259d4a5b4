"""The half of words of a student, fitted in closed form on a collection, and its files.

N: documents; D: width of the half of meaning; L: width of the half of words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from docemb_lib.base.errors import InputError
from docemb_lib.base.files import hash_of
from docemb_lib.base.pretrained import one_line
from docemb_lib.student.loading import find_file, read_modules

if TYPE_CHECKING:
    from docemb_lib.student.words_module import WordsHalf

FOLDER = "3_Words"
CODE = "words_module.py"
# This share of the mean variance is added to each, so that directions that a few documents leave
# empty are not blown up.
SHRINKAGE = 0.01
LEAST_DIM = 16
MOST_DIM = 512
SAMPLE = 2000  # documents whose cosines give the spread of a half


def fit_words(
    embed: Callable[[list[str]], np.ndarray],
    texts: Sequence[str],
    *,
    dim: int | None = None,
    weight: float | None = None,
    count: int | None = None,
) -> WordsHalf:
    """Fit a half of words on the texts of a collection, and mean and map of that of meaning.

    Args:
        embed: gives the encoder's embeddings, (N, D); called once the words are fitted, since it
            takes long.
        texts: of the collection.
        dim: width of the half of words. None: as many directions as the texts fill, from LEAST_DIM
            to MOST_DIM.
        weight: w between 0 and 1; None: chosen without labels, see `balance`.
        count: the number of documents to embed, drawn by the hashes of their texts. None: all.

    Raises InputError for fewer documents or words than `dim`, documents alike, and a weight out of
    range.
    """
    # Imported here: a student also runs where gensim is not installed.
    from docemb_lib.student.words_module import WordsHalf
    from docemb_lib.teachers import LSA
    from docemb_lib.teachers.lsa import LEADS, directions

    if weight is not None and not (isinstance(weight, Real) and 0 <= weight <= 1):
        raise InputError(f"weight: got {weight!r}; give a number from 0 to 1")
    if dim is None:
        dim = max(LEAST_DIM, directions(len(texts), MOST_DIM))
    if not isinstance(dim, Integral) or not 1 <= dim < 2**31:
        raise InputError(f"dim: got {dim!r}; give a whole number from 1 to that of documents")
    lsa = LSA(dim).fit(texts)
    # By their hashes, so that the order of the collection decides nothing.
    sample = sorted(texts, key=hash_of)[:count]
    words = torch.from_numpy(lsa.embed(sample))  # (N, L)
    if (words - words.mean(dim=0)).abs().max() < 1e-5:  # equal up to rounding
        problem = f"all {len(texts)} documents have the same words"
        raise InputError(f"{problem}; use more documents, or some with other words")

    X = torch.from_numpy(np.asarray(embed(sample), dtype=np.float32))  # (N, D)
    if len(X) != len(sample) or not X.isfinite().all():
        problem = f"it gives {len(X)} rows for {len(sample)} texts, or numbers that are not finite"
        raise InputError(f"embed: {problem}; give finite rows, one for each")
    fitted = {
        "vectors": torch.from_numpy(lsa.vectors),
        "words_mean": words.mean(dim=0),
        "meaning_mean": X.mean(dim=0),
        "meaning_map": partial_whitening(X),
        "weight": torch.tensor(0.5 if weight is None else weight),
    }
    half = WordsHalf(lsa.vocabulary, fitted, LEADS, weight_given=weight is not None)
    if weight is None:
        half.weight.fill_(round(balance(half.meaning(X), half.centred(words)), 4))  # as printed
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
    direction by the square root of its standard deviation. It does not depend on the number of
    threads, as with torch it would: the files of a student are its key.
    """
    from threadpoolctl import threadpool_limits

    centred = (X - X.mean(dim=0)).double().numpy()
    with threadpool_limits(1):
        variances, directions = np.linalg.eigh(centred.T @ centred / len(X))
        variances = variances.clip(min=0)
        variances += SHRINKAGE * max(variances.mean(), 1e-12)
        mapping = (directions * variances**-0.25) @ directions.T
    return torch.from_numpy(mapping).float()


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


def saved_words(path_or_id: str, dim: int | None = None) -> WordsHalf | None:
    """Load the half of words of a saved student; None where it has none.

    docemb runs its own code, not that in the folder. Raises InputError for files that are missing
    or do not belong together. dim: D of the encoder.
    """
    folder = dict(read_modules(path_or_id)).get("WordsHalf")
    if folder is None:
        return None
    from docemb_lib.student.words_module import CONFIG, WEIGHTS, WORDS, WordsHalf

    with one_line(path_or_id, f"{folder} cannot be used"):
        names = (WORDS, CONFIG, WEIGHTS)
        files = [str(find_file(path_or_id, name, subfolder=folder)) for name in names]
        half = WordsHalf.load(str(Path(files[0]).parent))
        # A document without words, which fails where the shapes differ.
        X = half.join(torch.zeros(1, dim or len(half.meaning_mean)), half.words([""]))
        if not X.isfinite().all():
            raise ValueError("a value is not finite")
    return half
