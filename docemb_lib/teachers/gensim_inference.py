"""What Paragraph Vector's inference processes do: load a trained model, and embed texts with it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from docemb_lib.teachers.preprocess import Preprocessing, preprocess
from docemb_lib.teachers.words import pieces

if TYPE_CHECKING:
    from gensim.models.doc2vec import Doc2Vec


class Inferred(NamedTuple):
    """Embeddings of some documents."""

    embeddings: np.ndarray  # float32 (N, dim)
    n_long: int  # documents of more than `MAX_WORDS` words


_models: list[Doc2Vec] = []  # this process' one model, put here by `load`


def load(model_file: Path) -> None:
    """Make the model in a file the one that `infer` uses; large arrays are memory-mapped, shared by all workers."""
    from gensim.models.doc2vec import Doc2Vec

    model = Doc2Vec.load(str(model_file), mmap="r")
    # Touch every page now: loky takes a process that grows by 300 MB between tasks for leaking, and restarts it.
    for array in (model.wv.vectors, model.syn1neg):
        array.max()
    _models[:] = [model]


def infer(texts: list[str], how: Preprocessing) -> Inferred:
    """Embed `texts` with the loaded model."""
    (model,) = _models
    documents = [pieces(preprocess(text, how)) for text in texts]
    embeddings = np.stack([_infer_document(model, parts) for parts in documents])
    return Inferred(embeddings, sum(len(parts) > 1 for parts in documents))


def _infer_document(model: Doc2Vec, parts: list[list[str]]) -> np.ndarray:
    """The mean over a document's pieces, weighted by their lengths in words."""
    vectors = np.stack([_infer_piece(model, words) for words in parts])
    if len(parts) == 1:
        return vectors[0]
    mean: np.ndarray = np.average(vectors, axis=0, weights=[len(words) for words in parts]).astype(np.float32)
    return mean


def _infer_piece(model: Doc2Vec, words: list[str]) -> np.ndarray:
    """gensim's inference with its generator reseeded from the words; the zero vector where it knows none of them."""
    if not any(word in model.wv.key_to_index for word in words):
        return np.zeros(model.vector_size, dtype=np.float32)
    content = " ".join(words).encode(errors="surrogatepass")
    model.random.seed(int.from_bytes(hashlib.sha256(content).digest()[:4]))
    vector: np.ndarray = model.infer_vector(words)
    return vector
