"""What Paragraph Vector's worker processes do: train a gensim model, and infer with one."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.teachers.preprocess import Preprocessing, preprocess

if TYPE_CHECKING:
    from gensim.models.doc2vec import Doc2Vec, TaggedDocument

MAX_WORDS = (
    10_000  # gensim drops the words of a document beyond this, in training and in inference, and does not say so
)
MODEL_FILE = "doc2vec.model"


class Trained(NamedTuple):
    """What a training leaves beside its model file."""

    vocabulary: int  # words kept
    fingerprint: str  # of the vocabulary and the weights


class Inferred(NamedTuple):
    """Embeddings of some documents."""

    embeddings: np.ndarray  # float32 (N, dim)
    n_long: int  # documents of more than `MAX_WORDS` words


class TokenFile:
    """The training documents of a file with one document per line, long ones in several pieces under one tag."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[TaggedDocument]:
        from gensim.models.doc2vec import TaggedDocument

        with self.path.open(encoding="utf-8", errors="surrogatepass", newline="\n") as lines:
            for tag, line in enumerate(lines):
                for piece in pieces(line.split()):
                    yield TaggedDocument(piece, [tag])


def pieces(words: list[str]) -> list[list[str]]:
    """Consecutive runs of at most `MAX_WORDS` words; an empty document is one empty piece."""
    return [words[start : start + MAX_WORDS] for start in range(0, max(len(words), 1), MAX_WORDS)]


def train(token_file: Path, folder: Path, epochs_file: Path, options: dict[str, Any]) -> Trained:
    """Train a Doc2Vec with `options` on a token file and save it to `folder`; `epochs_file` grows a byte an epoch.

    With one worker thread the result is repeatable. With more, gensim reads the file itself, as fast as the threads
    go; there a line is a tag and a long document is several lines.
    """
    from gensim.models.callbacks import CallbackAny2Vec
    from gensim.models.doc2vec import Doc2Vec
    from gensim.models.keyedvectors import KeyedVectors

    parent = os.getppid()

    class Epochs(CallbackAny2Vec):  # here, so that importing this module loads no gensim
        def on_epoch_end(self, model: Doc2Vec) -> None:
            if os.getppid() != parent:
                os._exit(1)  # whoever wanted this model is gone
            with epochs_file.open("ab") as file:
                file.write(b".")

    logging.getLogger("gensim").setLevel(logging.ERROR)
    source = {"corpus_iterable": TokenFile(token_file)} if options["workers"] == 1 else {"corpus_file": str(token_file)}
    model = Doc2Vec(**options)
    model.build_vocab(**source)
    if not len(model.wv):
        raise InputError(
            f"min_count: none of the {model.corpus_total_words} words in {model.corpus_count} training documents "
            f"occurs {options['min_count']} times; use a smaller min_count or more documents"
        )
    model.train(
        **source,
        total_examples=model.corpus_count,
        total_words=model.corpus_total_words,
        epochs=model.epochs,
        callbacks=[Epochs()],
    )
    # Embeddings are always inferred, so the vectors of the training documents, most of the file, are left away; and
    # nothing that depends on the clock is kept.
    model.dv = KeyedVectors(model.vector_size)
    model.lifecycle_events, model.total_train_time = None, 0.0
    model.save(str(folder / MODEL_FILE))
    return Trained(len(model.wv), _fingerprint(model))


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


def _fingerprint(model: Doc2Vec) -> str:
    digest = hashlib.sha256(json.dumps(model.wv.index_to_key).encode())
    for array in (model.wv.vectors, model.syn1neg, model.cum_table):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]
