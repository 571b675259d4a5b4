"""Documents in a plane: the two directions in which a space spreads them the most."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.decomposition import PCA

from docemb_lib.errors import InputError


class Plane(NamedTuple):
    """What is left of a space in two dimensions."""

    points: np.ndarray  # (N, 2)
    explained: float  # share of the variance that both axes hold; NaN where all documents are one point


def principal_plane(embeddings: np.ndarray) -> Plane:
    """The first two principal components of (N, D) embeddings, each axis pointing to where its largest weight is.

    Raises InputError below three documents, or for a space of one dimension.
    """
    n, d = embeddings.shape
    if n < 3 or d < 2:
        raise InputError(f"principal axes of {n} documents in {d} dimensions: 3 and 2 or more are needed")
    pca = PCA(2, svd_solver="full")
    with np.errstate(invalid="ignore"):  # no variance at all
        points = pca.fit_transform(np.asarray(embeddings, dtype=np.float64))
    return Plane(points, float(pca.explained_variance_ratio_.sum()))
