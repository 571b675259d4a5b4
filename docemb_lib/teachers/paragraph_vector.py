"""The contextual teacher: Paragraph Vector with repeatable results (thesis, 4.5.1 and Table 4.5).

It is gensim's Doc2Vec. All embeddings, those of training documents too, are inferred, in worker
processes with a fixed hash seed and a model reseeded from each text: an embedding depends on the
text and the model alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import weakref
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

import numpy as np
from joblib import cpu_count

from docemb_lib.base.errors import InputError
from docemb_lib.base.files import hash_of, write_text
from docemb_lib.base.progress import progress
from docemb_lib.base.worker_pool import WorkerPool
from docemb_lib.settings.sections import SINGLE, label_of_paragraph_vector
from docemb_lib.teachers.teacher import BAR_FROM
from docemb_lib.teachers.words import Preprocessing, Words, pieces, preprocess, write_words

if TYPE_CHECKING:
    from gensim.models.doc2vec import Doc2Vec

logger = logging.getLogger(__name__)

DESCRIPTION = "paragraph_vector.json"
VOCABULARY = "vocabulary.json"  # the words by their rows in the arrays
# The files `<name>.npy` of a model that keeps V words: word vectors and output weights,
# (V, vector_size); and, (V,), how often a word occurs, its threshold for dropping it, and the
# cumulated frequencies that noise words are drawn by.
ARRAYS = {"vectors": "f4", "weights": "f4", "counts": "i8", "thresholds": "u4", "noise": "u4"}
STATE = ("vectors", "weights", "documents", "random")  # files of the state after an epoch
# Documents per task: a task takes a millisecond to send and a fraction of a second to compute.
BLOCK = 16
WORTH = 128  # documents per process at least: the start of a process takes seconds
PROCESSES = WorkerPool()  # infer for all models; they end after an idle minute

Option = bool | int | float | str | None
Options = dict[str, Option]  # arguments of gensim's Doc2Vec
# What `load_model` takes: a folder, the fingerprint of its weights, and the items of Options.
ModelKey = tuple[Path, str, tuple[tuple[str, Option], ...]]


@dataclass(frozen=True)
class Fitted:
    """Facts about a training, stored beside the model."""

    texts: str  # fingerprint of the documents, independent of the preprocessing
    min_count: int  # "10%" resolved
    weights: str  # fingerprint of vocabulary and weights


@dataclass(kw_only=True, eq=False)
class ParagraphVector:
    """DM or DBOW of gensim, repeatable; the fields are the arguments.

    Example:
        >>> teacher = ParagraphVector(dm=True, vector_size=8, epochs=1).fit(["a b a", "b a b"])
        >>> teacher.embed(["a b"], jobs=1).shape
        (1, 8)
    """

    dm: bool  # distributed memory, otherwise a distributed bag of words
    vector_size: int = 100  # width of an embedding
    # Occurrences (not documents) of a kept word; "10%": 1% of the training documents, at least 2.
    min_count: int | str = 2
    preprocess: Preprocessing = "lowercase"
    window: int = 5  # context words on each side
    negative: int = 5  # noise words per prediction
    # Threshold for dropping frequent words; 0 keeps them all (gensim's own default is 1e-3).
    sample: float = 0
    epochs: int = 10  # passes over the corpus in training, and over a document in inference
    dbow_words: bool = True  # DBOW trains word vectors too (skip-gram); DM always does
    workers: int = 1  # training threads; only with 1 a repeated training gives the same bits
    # Cap on the words while counting; the order of the corpus decides what gensim drops.
    max_vocab_size: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self._fitted: Fitted | None = None
        self._folder = Path()  # of the files of a trained model

    @property
    def label(self) -> str:
        """The thesis' name of the model, as in `DM;100;lowercase;2`."""
        return label_of_paragraph_vector(**{name: getattr(self, name) for name in SINGLE})

    @property
    def dim(self) -> int:
        return self.vector_size

    @property
    def fitted(self) -> Fitted:
        """Facts about the training. Raises InputError for a model that is not trained."""
        if self._fitted is None:
            raise InputError(
                f"{self.label}: it is not trained; "
                "call fit(texts) or ParagraphVector.load(folder) first"
            )
        return self._fitted

    @property
    def fingerprint(self) -> str:
        content = json.dumps([asdict(self), self.fitted.weights])
        return f"pv:{self.label}:{hash_of(content)[:16]}"

    def fit(self, texts: Iterable[str], folder: Path | str | None = None) -> Self:
        """Train on `texts`, read once, and save arrays (.npy) and JSON to `folder`.

        None is a temporary folder, which exists as long as this object.
        """
        stack = ExitStack()
        temporary = Path(stack.enter_context(TemporaryDirectory(prefix="docemb-vectors-")))
        weakref.finalize(self, stack.close)
        words = write_words(temporary / "words", texts, self.preprocess)
        self.fit_words(words, folder or temporary / "model")
        shutil.rmtree(words.folder)
        return self

    def fit_words(self, words: Words, folder: Path | str) -> Self:
        """Train on the words of a corpus and save to `folder`.

        The folder must exist as long as the model is used. After an interruption the same call
        continues after the last whole epoch, and with one worker ends in the same bits as an
        uninterrupted one.

        Raises InputError before training if `words` has another preprocessing, or no word is
        frequent enough.
        """
        folder = Path(folder).resolve()
        if words.preprocess != self.preprocess:
            raise InputError(
                f"{self.label}: the words in {words.folder} are of preprocess "
                f"{words.preprocess!r}, not {self.preprocess!r}; "
                "give words that are prepared the same"
            )
        words.kept_words(self.min_count)  # raises if there is none
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps([asdict(self), words.texts, STATE])
        key = hash_of(content)[:16]
        least = words.occurrences(self.min_count)
        options = self.gensim_options(least)
        weights = train(words.file, folder, key, options, label=self.label)
        fitted = Fitted(words.texts, least, weights)
        description = {"parameters": asdict(self), "fitted": asdict(fitted)}
        # The description is written last: a folder that has one is whole.
        write_text(folder / DESCRIPTION, json.dumps(description, indent=2) + "\n")
        remove_states(folder)
        self._fitted = fitted
        self._folder = folder
        return self

    def gensim_options(self, min_count: int) -> Options:
        """The arguments of gensim's Doc2Vec; `min_count` is the number that "10%" stands for."""
        options = asdict(self)
        del options["preprocess"]
        options["min_count"] = min_count
        options["dbow_words"] = int(self.dbow_words and not self.dm)
        return options

    def embed(self, texts: Sequence[str], *, jobs: int | None = None) -> np.ndarray:
        """Float32 (N, dim), inferred by `jobs` processes.

        None is one process per core, and fewer for few texts. A text without any word of the
        vocabulary becomes the zero vector. One of more than 10,000 words is the mean of its pieces,
        weighted by their words.
        """
        options = self.gensim_options(self.fitted.min_count)
        model = (self._folder, self.fitted.weights, tuple(options.items()))
        jobs = jobs or max(PROCESSES.size, min(cpu_count(), -(-len(texts) // WORTH)), 1)
        starts = range(0, len(texts), BLOCK)
        blocks = ((model, list(texts[start : start + BLOCK]), self.preprocess) for start in starts)
        results: Iterable[np.ndarray] = PROCESSES.map(infer, blocks, jobs=jobs)
        if len(texts) >= BAR_FROM:
            desc = f"Embedding {self.label}"
            results = progress(results, desc=desc, total=len(starts), unit="blocks")
        return np.concatenate([np.zeros((0, self.dim), dtype=np.float32), *results])

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """The model saved in `folder`, which must exist as long as the model is used.

        Raises InputError for a folder without a whole model.
        """
        try:
            content = json.loads(Path(folder, DESCRIPTION).read_text())
            model = cls(**content["parameters"])
            model._fitted = Fitted(**content["fitted"])
            _read_model(Path(folder), model.vector_size)
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise InputError(
                f"{folder}: this folder holds no whole Paragraph Vector "
                f"({type(error).__name__}: {error}); remove it and train again"
            ) from error
        model._folder = Path(folder).resolve()
        return model


class Compound:
    """Paragraph Vectors of the same texts, whose embeddings are concatenated, DM before DBOW."""

    def __init__(self, members: Sequence[ParagraphVector]) -> None:
        self.members = sorted(members, key=lambda member: not member.dm)
        self.label = "+".join(member.label for member in self.members)
        self.dim = sum(member.dim for member in self.members)

    @property
    def fingerprint(self) -> str:
        return "+".join(member.fingerprint for member in self.members)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.concatenate([member.embed(texts) for member in self.members], axis=1)


# Training with gensim, and inference, which is run in worker processes.
def train(corpus_file: Path, folder: Path, key: str, options: Options, *, label: str = "") -> str:
    """Train a Doc2Vec on a file's lines, save it to `folder` and return a fingerprint.

    After each epoch the whole state replaces
    the one before in `folder`; training continues from a state with the same `key`. The learning
    rate falls linearly as in a single call of gensim's `train`, up to rounding.

    Raises InputError if max_vocab_size leaves no word.
    """
    from gensim.models.doc2vec import Doc2Vec, TaggedLineDocument

    logging.getLogger("gensim").setLevel(logging.ERROR)
    states = folder.glob(f"state-{key}-*")
    done = max((int(state.name.rpartition("-")[2]) for state in states), default=0)
    state = folder / f"state-{key}-{done}"
    remove_states(folder, but=state)
    model = Doc2Vec(**options)
    model.build_vocab(corpus_file=str(corpus_file))
    if not len(model.wv):
        raise InputError(
            "max_vocab_size: gensim keeps no word; give a larger number, or a smaller min_count"
        )
    if done:
        arrays = (np.load(state / f"{name}.npy") for name in STATE)
        model.wv.vectors, model.syn1neg, model.dv.vectors, random = arrays
        model.random.set_state(("MT19937", random[:-1], int(random[-1])))
    # gensim's reader of corpus files does not shrink the windows of DM at random, so DM reads an
    # iterable. With a file, each thread compares the number of its own documents with
    # `total_examples` to find its learning rate.
    if model.dm:
        corpus = {"corpus_iterable": TaggedLineDocument(str(corpus_file))}
        examples = model.corpus_count
    else:
        corpus = {"corpus_file": str(corpus_file)}
        examples = -(-model.corpus_count // model.workers)
    schedule = {name: getattr(model, name) for name in ("alpha", "min_alpha", "epochs")}
    epochs = model.epochs
    rates = np.linspace(model.alpha, model.min_alpha, epochs + 1)
    for epoch in progress(range(done, epochs), desc=f"Training {label}", unit="epochs"):
        model.train(
            **corpus,
            total_examples=examples,
            total_words=model.corpus_total_words,
            epochs=1,
            start_alpha=rates[epoch],
            end_alpha=rates[epoch + 1],
        )
        vars(model).update(schedule)  # `train` has changed it, and inference needs it
        _save_state(model, folder / f"state-{key}-{epoch + 1}")
    return _save_model(model, folder)


def _save_model(model: Doc2Vec, folder: Path) -> str:
    """Save what inference needs, and return a fingerprint.

    Embeddings are always inferred, so the vectors of the training documents, most of the state, are
    not kept.
    """
    wv = model.wv
    arrays = {
        "vectors": wv.vectors,
        "weights": model.syn1neg,
        "counts": wv.expandos["count"],
        "thresholds": wv.expandos["sample_int"],
        "noise": model.cum_table,
    }
    for name, array in arrays.items():
        file = folder / f"{name}.npy"
        file.unlink(missing_ok=True)  # a loaded model keeps the map of its own file
        np.save(file, array.astype(ARRAYS[name], casting="safe", copy=False))
    words = json.dumps(wv.index_to_key)
    write_text(folder / VOCABULARY, words)
    digest = hashlib.sha256(words.encode())
    for name in ("vectors", "weights", "noise"):
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()[:16]


def remove_states(folder: Path, *, but: Path | None = None) -> None:
    """Remove the states of a training, half-written ones included, except `but`."""
    for state in (*folder.glob("state-*"), *folder.glob(".state-*")):
        if state != but:
            shutil.rmtree(state, ignore_errors=True)


def _save_state(model: Doc2Vec, state: Path) -> None:
    """Save what training changes, document vectors and random state included, by one rename."""
    unfinished = state.with_name(f".{state.name}.{os.getpid()}")
    unfinished.mkdir()
    _, key, position, *_ = model.random.get_state()
    random = np.append(key, np.uint32(position))
    arrays = (model.wv.vectors, model.syn1neg, model.dv.vectors, random)
    for name, array in zip(STATE, arrays, strict=True):
        np.save(unfinished / f"{name}.npy", array)
    shutil.rmtree(state, ignore_errors=True)  # left by a killed process
    unfinished.rename(state)
    remove_states(state.parent, but=state)


@lru_cache(maxsize=2)  # as many as a compound has
def load_model(folder: Path, weights: str, options: tuple[tuple[str, object], ...]) -> Doc2Vec:
    """Load a model; its arrays are memory-mapped, shared by all processes.

    Args:
        weights: their fingerprint, which tells apart models of the same folder.
        options: items of `gensim_options`.
    """
    from gensim.models.doc2vec import Doc2Vec

    model = Doc2Vec(**dict(options))
    words, arrays = _read_model(folder, model.vector_size)
    model.wv.index_to_key = words
    model.wv.key_to_index = {word: row for row, word in enumerate(words)}
    model.wv.vectors, model.syn1neg, counts, thresholds, model.cum_table = arrays
    model.wv.expandos = {"count": counts, "sample_int": thresholds}
    return model


def _read_model(folder: Path, vector_size: int) -> tuple[list[str], list[np.ndarray]]:
    """The words, and `ARRAYS` in their order.

    Raises ValueError for arrays that do not fit the words, because gensim checks no index.
    """
    words = json.loads((folder / VOCABULARY).read_text(encoding="utf-8"))
    arrays = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS]
    for (name, kind), array in zip(ARRAYS.items(), arrays, strict=True):
        shape = (len(words), vector_size) if kind == "f4" else (len(words),)
        if (array.dtype, array.shape) != (kind, shape) or not array.flags.c_contiguous:
            raise ValueError(
                f"{name}.npy is {array.dtype} {array.shape}, expected {np.dtype(kind)} {shape}"
            )
    return words, arrays


def infer(key: ModelKey, texts: list[str], how: Preprocessing) -> np.ndarray:
    """Embeddings of N texts, float32 (N, dim), by the model that `load_model` loads for a key."""
    model = load_model(*key)
    embeddings = []
    for text in texts:
        parts = pieces(preprocess(text, how))
        vectors = [_infer_piece(model, words) for words in parts]
        weights = list(map(len, parts))
        # One vector stays as it is, in its own bits.
        several = len(parts) > 1
        embeddings.append(np.average(vectors, axis=0, weights=weights) if several else vectors[0])
    return np.stack(embeddings).astype(np.float32)


def _infer_piece(model: Doc2Vec, words: list[str]) -> np.ndarray:
    """gensim's inference, its generator reseeded from the words; zero if it knows no word."""
    if not any(word in model.wv.key_to_index for word in words):
        return np.zeros(model.vector_size, dtype=np.float32)
    content = " ".join(words).encode(errors="surrogatepass")
    model.random.seed(int.from_bytes(hashlib.sha256(content).digest()[:4]))
    return np.asarray(model.infer_vector(words))
