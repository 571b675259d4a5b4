"""How much memory a Paragraph Vector takes while it is trained, known from the counts of its corpus' words."""

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
from docemb_lib.teachers.words import Preprocessing, pieces, preprocess
from docemb_lib.teachers.worker_pool import end_if_orphaned

if TYPE_CHECKING:
    from gensim.models.doc2vec import Doc2Vec


# ---- how much memory a Paragraph Vector takes while it is trained


logger = logging.getLogger(__name__)

FLOAT = 4  # bytes of a weight
PER_WORD = 8 + 4 + 4  # its count, its sampling threshold, its place in the table that noise words are drawn from
# Measured with half a million words of eleven letters, and rounded up:
NAME = 300  # a kept word's string, its places in gensim's list and dictionary, and the copy that its threads read
COUNTED = 120  # a word's string and its place in the dictionary while gensim counts
LINE = 40  # a document's number in gensim's list
ADDRESSED = 2**32  # numbers of one array: gensim multiplies row and width as 32-bit integers, which wrap around


class TrainingMemory(NamedTuple):
    """Bytes at the peak of a training. The first two are arrays, known exactly; the last two are about right."""

    words: int  # vectors and output weights of the vocabulary
    documents: int  # their vectors
    names: int  # the vocabulary's strings
    counting: int  # the dictionary of all different words, before the rare ones are dropped and the arrays are made

    @property
    def arrays(self) -> int:
        return self.words + self.documents

    @property
    def total(self) -> int:
        """The dictionary is gone when the arrays come."""
        return max(self.arrays + self.names, self.names + self.counting)

    @property
    def shown(self) -> str:
        """The total, for people."""
        return _shown(self.total)

    def __str__(self) -> str:
        return (
            f"{self.shown} of memory (words {_shown(self.words)}, documents {_shown(self.documents)}, "
            f"strings {_shown(self.names)}; while counting {_shown(self.counting)})"
        )


def training_memory(*, vocabulary: int, types: int, lines: int, vector_size: int) -> TrainingMemory:
    """What training takes with `vocabulary` words kept of `types`, and `lines` documents."""
    return TrainingMemory(
        words=vocabulary * (2 * vector_size * FLOAT + PER_WORD),
        documents=lines * vector_size * FLOAT,
        names=vocabulary * NAME + lines * LINE,
        counting=types * COUNTED,
    )


def warn_of_shared_rows(*, vocabulary: int, lines: int, vector_size: int, label: str) -> None:
    """Say where gensim lets several rows of an array share one place, which it does without a word (seen in 4.4.0).

    No error: the thesis' last teachers, 8.3 million documents at 1,024 dimensions, were trained so.
    """
    most = ADDRESSED // vector_size
    for name, rows, mend in (
        ("words", vocabulary, "a larger min_count"),
        ("documents", lines, "fewer documents"),
    ):
        if rows > most:
            logger.warning(
                "%s: gensim tells %s vectors of %d numbers apart, so of the %s %s those beyond share a vector with "
                "others while training; a smaller vector_size or %s avoids it",
                label, f"{most:,}", vector_size, f"{rows:,}", name, mend,
            )  # fmt: skip


def check_memory(needed: TrainingMemory, free: int, label: str) -> None:
    """Refuse a training that does not fit into `free` bytes."""
    if needed.total > free:
        raise InputError(
            f"{label}: training takes about {needed}, {_shown(free)} are free; use a larger min_count, a smaller "
            "vector_size, a max_vocab_size, or fewer documents"
        )


def _shown(size: float) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**29 else f"{size / 2**20:.1f} MiB"


# ---- training a Doc2Vec in a process of its own


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


# ---- what Paragraph Vector's inference processes do


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
