"""Training a Doc2Vec in a process of its own, epoch by epoch, so that an interrupted training goes on.

gensim's own reader of a corpus file trains without Python's lock and scales with the threads, but it serves DBOW only:
for DM it never sets the sizes of the windows (gensim 4.4.0, `doc2vec_corpusfile.pyx`), so that the model depends on
what happens to lie in memory. DM is therefore given the same lines through Python, which costs it little: its
arithmetic runs without the lock too. Both are repeatable with one thread, and only with one. (With several, gensim
gives each its part of the file by bytes and takes it away by words: at the borders an epoch reads a few documents twice
or not at all.)
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.teachers.worker_pool import end_if_orphaned

if TYPE_CHECKING:
    from gensim.models.doc2vec import Doc2Vec

MODEL_FILE = "doc2vec.model"
SEPARATE = 2**18  # numbers: larger arrays get files of their own, which processes share; smaller ones lie in the pickle


class Trained(NamedTuple):
    """What a training leaves beside its model file."""

    vocabulary: int  # words kept
    fingerprint: str  # of the vocabulary and the weights


def train(corpus_file: Path, folder: Path, key: str, options: dict[str, Any]) -> Trained:
    """Train a Doc2Vec with `options` on the lines of a corpus file and save it to `folder`.

    After each epoch the whole state is left in `folder`, in place of the one before; where there is one with the same
    `key`, training goes on from it. The learning rate falls along the line that a single call of gensim's `train`
    would follow, up to its rounding.
    """
    from gensim.models.doc2vec import TaggedLineDocument
    from gensim.models.keyedvectors import KeyedVectors

    logging.getLogger("gensim").setLevel(logging.ERROR)
    model, done = _resume(folder, key) or (_new(corpus_file, options), 0)
    source: dict[str, Any] = (
        {"corpus_iterable": TaggedLineDocument(str(corpus_file))} if model.dm else {"corpus_file": str(corpus_file)}
    )
    # Reading the file itself, each thread compares the documents of its own with this number for its learning rate.
    examples = model.corpus_count if model.dm else -(-model.corpus_count // model.workers)
    first, last, epochs = model.alpha, model.min_alpha, options["epochs"]
    rates = np.linspace(first, last, epochs + 1)
    for epoch in range(done, epochs):
        model.train(
            **source,
            total_examples=examples,
            total_words=model.corpus_total_words,
            epochs=1,
            start_alpha=rates[epoch],
            end_alpha=rates[epoch + 1],
        )
        model.alpha, model.min_alpha, model.epochs = first, last, epochs  # as inference needs them
        end_if_orphaned()  # whoever wanted this model is gone, and another may be at work in its folder
        _leave_state(model, _state(folder, key, epoch + 1))
    # Embeddings are always inferred, so the vectors of the training documents, most of the file, are left away; and
    # nothing that depends on the clock is kept.
    model.dv = KeyedVectors(model.vector_size)
    model.lifecycle_events, model.total_train_time = None, 0.0
    model.save(str(folder / MODEL_FILE), sep_limit=SEPARATE)
    return Trained(len(model.wv), _fingerprint(model))


def epochs_done(folder: Path, key: str) -> int:
    """How many epochs of a training are safe in its folder."""
    return max((int(state.name.rpartition("-")[2]) for state in folder.glob(f"state-{key}-*")), default=0)


def remove_states(folder: Path, *, but: Path | None = None) -> None:
    """Remove what a training left to go on from, half-written states included."""
    for state in (*folder.glob("state-*"), *folder.glob(".state-*")):
        if state != but:
            shutil.rmtree(state, ignore_errors=True)


def _state(folder: Path, key: str, epochs: int) -> Path:
    return folder / f"state-{key}-{epochs}"


def _new(corpus_file: Path, options: dict[str, Any]) -> Doc2Vec:
    from gensim.models.doc2vec import Doc2Vec

    model = Doc2Vec(**options)
    model.build_vocab(corpus_file=str(corpus_file))
    if not len(model.wv):  # there are frequent words, or training would not have begun
        raise InputError(f"max_vocab_size: {model.max_vocab_size} leaves no word that occurs {model.min_count} times")
    return model


def _resume(folder: Path, key: str) -> tuple[Doc2Vec, int] | None:
    """The state of an interrupted training and its epochs; None: there is none."""
    from gensim.models.doc2vec import Doc2Vec

    done = epochs_done(folder, key)
    state = _state(folder, key, done)
    remove_states(folder, but=state)
    return (Doc2Vec.load(str(state / MODEL_FILE)), done) if done else None


def _leave_state(model: Doc2Vec, state: Path) -> None:
    """All of the model, with the vectors of documents and the state of its generator; one rename makes it count."""
    half = state.with_name(f".{state.name}.{os.getpid()}")
    half.mkdir()
    model.save(str(half / MODEL_FILE), sep_limit=SEPARATE)
    shutil.rmtree(state, ignore_errors=True)  # of a killed process that was a moment longer alive
    half.rename(state)
    remove_states(state.parent, but=state)


def _fingerprint(model: Doc2Vec) -> str:
    digest = hashlib.sha256(json.dumps(model.wv.index_to_key).encode())
    for array in (model.wv.vectors, model.syn1neg, model.cum_table):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]
