"""The contextual teacher: Paragraph Vector, gensim's Doc2Vec with repeatable results (thesis, 4.5.1
and Table 4.5).

All embeddings, those of training documents too, are inferred, in worker processes with a fixed hash
seed and a model reseeded from each text: an embedding depends on the text and the model alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from joblib import cpu_count

from docemb_lib.base.errors import InputError
from docemb_lib.base.progress import progress
from docemb_lib.base.worker_pool import WorkerPool
from docemb_lib.settings.sections import SINGLE, label_of_paragraph_vector
from docemb_lib.teachers.store import BAR_FROM
from docemb_lib.teachers.words import Preprocessing, Words, pieces, preprocess, write_words
from docemb_lib.workspace import write_text

if TYPE_CHECKING:
    from gensim.models.doc2vec import Doc2Vec

logger = logging.getLogger(__name__)

DESCRIPTION, VOCABULARY = (
    "paragraph_vector.json",
    "vocabulary.json",
)  # the words by their rows in the arrays
# Files `<name>.npy`, where V words are kept: word vectors and output weights, (V, vector_size);
# and, (V,), how often a word occurs, its threshold for dropping it, and the cumulated frequencies
# that noise words are drawn by.
ARRAYS = {"vectors": "f4", "weights": "f4", "counts": "i8", "thresholds": "u4", "noise": "u4"}
STATE = ("vectors", "weights", "documents", "random")  # files of the state after an epoch
# documents per task: a task takes a millisecond to send and a fraction of a second to compute
BLOCK = 16
WORTH = 128  # documents per process at least: the start of a process takes seconds
PROCESSES = WorkerPool()  # infer for all models; they end after an idle minute


@dataclass(frozen=True)
class Fitted:  # facts about a training, stored beside the model
    documents: int
    long_documents: int  # of more than 10,000 words, trained in pieces
    texts: str  # fingerprint of the documents, independent of the preprocessing
    min_count: int  # "10%" resolved
    vocabulary: int  # words kept
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
    min_count: int | str = (
        2  # occurrences (not documents) of a kept word; "10%": 1% of the training documents, min. 2
    )
    preprocess: Preprocessing = "lowercase"
    window: int = 5  # context words on each side
    negative: int = 5  # noise words per prediction
    sample: float = (
        0  # threshold for dropping frequent words; 0 keeps them all (gensim's own default is 1e-3)
    )
    epochs: int = 10  # passes over the corpus in training, and over a document in inference
    dbow_words: bool = True  # DBOW trains word vectors too (skip-gram); DM always does
    workers: int = 1  # training threads; only with 1 a repeated training gives the same bits
    max_vocab_size: int | None = (
        None  # cap on the words while counting; the corpus order decides what gensim drops
    )
    seed: int = 0

    def __post_init__(self) -> None:
        self._model: tuple[Fitted, Path] | None = None  # its files

    @property
    def label(self) -> str:
        """The thesis' name of the model, as in `DM;100;lowercase;2`."""
        return label_of_paragraph_vector(**{name: getattr(self, name) for name in SINGLE})

    @property
    def dim(self) -> int:
        return self.vector_size

    @property
    def fitted(self) -> Fitted:
        return self._trained[0]

    @property
    def _trained(self) -> tuple[Fitted, Path]:
        if self._model is None:
            mend = "call fit(texts) or ParagraphVector.load(folder) first"
            raise InputError(f"{self.label}: it is not trained; {mend}")
        return self._model

    @property
    def fingerprint(self) -> str:
        content = json.dumps([asdict(self), self.fitted.weights])
        return f"pv:{self.label}:{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def fit(self, texts: Iterable[str], folder: Path | str | None = None) -> Self:
        """Train on `texts`, read once, and save to `folder` (None: a temporary one): arrays (.npy)
        and JSON.
        """
        temporary = TemporaryDirectory(prefix="docemb-")
        weakref.finalize(self, temporary.cleanup)  # the model files live as long as this object
        words = write_words(Path(temporary.name, "words"), texts, self.preprocess)
        self.fit_words(words, folder or Path(temporary.name, "model"))
        shutil.rmtree(words.folder)
        return self

    def fit_words(self, words: Words, folder: Path | str) -> Self:
        """Train on the words of a corpus and save to `folder`, which must exist as long as the
        model is used.

        After an interruption the same call continues after the last whole epoch, and with one
        worker ends in the same bits as an uninterrupted one. Raises InputError before training if
        `words` has another preprocessing, or no word is frequent enough.
        """
        folder = Path(folder).resolve()
        if words.preprocess != self.preprocess:
            found = f"the words in {words.folder} are of preprocess {words.preprocess!r}"
            mend = "give words that are prepared the same"
            raise InputError(f"{self.label}: {found}, not {self.preprocess!r}; {mend}")
        words.kept_words(self.min_count)  # raises if there is none
        folder.mkdir(parents=True, exist_ok=True)
        key = hashlib.sha256(json.dumps([asdict(self), words.texts, STATE]).encode()).hexdigest()[
            :16
        ]
        options = self.gensim_options(words.occurrences(self.min_count))
        vocabulary, weights = train(words.file, folder, key, options, label=self.label)
        of_words = (words.documents, words.long_documents, words.texts, options["min_count"])
        fitted = Fitted(*of_words, vocabulary, weights)
        content = {"parameters": asdict(self), "fitted": asdict(fitted)}
        write_text(
            folder / DESCRIPTION, json.dumps(content, indent=2) + "\n"
        )  # last: the folder is whole
        remove_states(folder)
        self._model = fitted, folder
        return self

    def gensim_options(self, min_count: int) -> dict[str, Any]:
        """The arguments of gensim's Doc2Vec; "10%" needs a corpus to become the number `min_count`."""
        resolved = {"min_count": min_count, "dbow_words": int(self.dbow_words and not self.dm)}
        return {
            name: value for name, value in asdict(self).items() if name != "preprocess"
        } | resolved

    def embed(self, texts: Sequence[str], *, jobs: int | None = None) -> np.ndarray:
        """Float32 (N, dim), inferred by `jobs` processes (None: one per core, fewer for few texts).

        A text without any word of the vocabulary becomes the zero vector. One of more than 10,000
        words is the mean of its pieces, weighted by their words.
        """
        fitted, folder = self._trained
        jobs = jobs or max(PROCESSES.size, min(cpu_count(), -(-len(texts) // WORTH)), 1)
        starts = range(0, len(texts), BLOCK)
        model = folder, fitted.weights, tuple(self.gensim_options(fitted.min_count).items())
        blocks = ((model, list(texts[start : start + BLOCK]), self.preprocess) for start in starts)
        results: Iterable[np.ndarray] = PROCESSES.map(infer, blocks, jobs=jobs)
        if len(texts) >= BAR_FROM:
            results = progress(
                results, desc=f"Embedding {self.label}", total=len(starts), unit="blocks"
            )
        return np.concatenate([np.zeros((0, self.dim), dtype=np.float32), *results])

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """The model saved in `folder`, which must exist as long as the model is used.

        InputError if broken.
        """
        try:
            content = json.loads((Path(folder) / DESCRIPTION).read_text())
            model, fitted = cls(**content["parameters"]), Fitted(**content["fitted"])
            _read_model(Path(folder), model.vector_size)
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            reason = f"{type(error).__name__}: {error}"
            problem = f"this folder holds no whole Paragraph Vector ({reason})"
            raise InputError(f"{folder}: {problem}; remove it and train again") from error
        model._model = fitted, Path(folder).resolve()
        return model


class Compound:
    """Paragraph Vectors trained on the same texts, whose embeddings are concatenated, DM before
    DBOW.
    """

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
def train(
    corpus_file: Path, folder: Path, key: str, options: dict[str, Any], *, label: str = ""
) -> tuple[int, str]:
    """Train a Doc2Vec on a file's lines and save it to `folder`. Returns the number of kept words
    and a fingerprint.

    After each epoch the whole state replaces the one before in `folder`; training continues from a
    state with the same `key`. The learning rate falls linearly as in a single call of gensim's
    `train`, up to rounding.
    """
    from gensim.models.doc2vec import Doc2Vec, TaggedLineDocument

    logging.getLogger("gensim").setLevel(logging.ERROR)
    done = max(
        (int(state.name.rpartition("-")[2]) for state in folder.glob(f"state-{key}-*")), default=0
    )
    state = folder / f"state-{key}-{done}"
    remove_states(folder, but=state)
    model = Doc2Vec(**options)
    model.build_vocab(corpus_file=str(corpus_file))
    if not len(model.wv):
        mend = "give a larger number, or a smaller min_count"
        raise InputError(f"max_vocab_size: gensim keeps no word; {mend}")
    if done:
        vectors, weights, documents, random = (np.load(state / f"{name}.npy") for name in STATE)
        model.wv.vectors, model.syn1neg, model.dv.vectors = vectors, weights, documents
        model.random.set_state(("MT19937", random[:-1], int(random[-1])))
    # gensim's reader of corpus files does not shrink the windows of DM at random, so DM reads an
    # iterable. With a file, each thread compares the number of its own documents with
    # `total_examples` to find its learning rate.
    name, source, examples = (
        "corpus_file",
        str(corpus_file),
        -(-model.corpus_count // model.workers),
    )
    if model.dm:
        name, source, examples = "corpus_iterable", TaggedLineDocument(source), model.corpus_count
    first, last, epochs = model.alpha, model.min_alpha, options["epochs"]
    rates = np.linspace(first, last, epochs + 1)
    for epoch in progress(range(done, epochs), desc=f"Training {label}", unit="epochs"):
        model.train(
            **{name: source},
            total_examples=examples,
            total_words=model.corpus_total_words,
            epochs=1,
            start_alpha=rates[epoch],
            end_alpha=rates[epoch + 1],
        )
        model.alpha, model.min_alpha, model.epochs = first, last, epochs  # restored for inference
        _save_state(model, folder / f"state-{key}-{epoch + 1}")
    # Embeddings are always inferred, so the vectors of the training documents, most of the state,
    # are not kept.
    wv = model.wv
    values = (
        wv.vectors,
        model.syn1neg,
        wv.expandos["count"],
        wv.expandos["sample_int"],
        model.cum_table,
    )
    for (array, kind), content in zip(ARRAYS.items(), values, strict=True):
        (folder / f"{array}.npy").unlink(
            missing_ok=True
        )  # a loaded model keeps the map of its own file
        np.save(folder / f"{array}.npy", content.astype(kind, casting="safe", copy=False))
    write_text(folder / VOCABULARY, json.dumps(wv.index_to_key))
    digest = hashlib.sha256(json.dumps(model.wv.index_to_key).encode())
    for array in (model.wv.vectors, model.syn1neg, model.cum_table):
        digest.update(np.ascontiguousarray(array).data)
    return len(model.wv), digest.hexdigest()[:16]


def remove_states(folder: Path, *, but: Path | None = None) -> None:
    for state in (*folder.glob("state-*"), *folder.glob(".state-*")):
        if state != but:
            shutil.rmtree(state, ignore_errors=True)


def _save_state(model: Doc2Vec, state: Path) -> None:
    """Save what training changes, document vectors and random state included, under its name by one
    rename.
    """
    unfinished = state.with_name(f".{state.name}.{os.getpid()}")
    unfinished.mkdir()
    _, key, position, *_ = model.random.get_state()
    values = (
        model.wv.vectors,
        model.syn1neg,
        model.dv.vectors,
        np.append(key, np.uint32(position)),
    )
    for name, value in zip(STATE, values, strict=True):
        np.save(unfinished / f"{name}.npy", value)
    shutil.rmtree(state, ignore_errors=True)  # left by a killed process
    unfinished.rename(state)
    remove_states(state.parent, but=state)


@lru_cache(maxsize=2)  # as many as a compound has
def load_model(folder: Path, weights: str, options: tuple[tuple[str, Any], ...]) -> Doc2Vec:
    """Load a model; its arrays are memory-mapped, shared by all processes.

    weights: their fingerprint, which tells apart models of the same folder; options: items of
    `gensim_options`.
    """
    from gensim.models.doc2vec import Doc2Vec

    model = Doc2Vec(**dict(options))
    words, arrays = _read_model(folder, model.vector_size)
    model.wv.index_to_key, model.wv.key_to_index = (
        words,
        {word: row for row, word in enumerate(words)},
    )
    model.wv.vectors, model.syn1neg, counts, thresholds, model.cum_table = arrays
    model.wv.expandos = {"count": counts, "sample_int": thresholds}
    return model


def _read_model(folder: Path, vector_size: int) -> tuple[list[str], list[np.ndarray]]:
    """The words, and `ARRAYS` in their order. Raises ValueError where they do not fit: gensim
    checks no index.
    """
    words = json.loads((folder / VOCABULARY).read_text(encoding="utf-8"))
    arrays = [np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS]
    for (name, kind), array in zip(ARRAYS.items(), arrays, strict=True):
        shape = (len(words), vector_size)[: 2 if kind == "f4" else 1]
        if (array.dtype, array.shape) != (kind, shape) or not array.flags.c_contiguous:
            raise ValueError(
                f"{name}.npy is {array.dtype} {array.shape}, expected {np.dtype(kind)} {shape}"
            )
    return words, arrays


def infer(of: tuple[Any, ...], texts: list[str], how: Preprocessing) -> np.ndarray:
    """Embeddings of N texts, float32 (N, dim). of: what `load_model` takes."""
    model, embeddings = load_model(*of), []
    for text in texts:
        parts = pieces(preprocess(text, how))
        vectors = np.stack([_infer_piece(model, words) for words in parts])
        weights = list(map(len, parts))
        embeddings.append(
            vectors[0] if len(parts) == 1 else np.average(vectors, axis=0, weights=weights)
        )
    return np.stack(embeddings).astype(np.float32)


def _infer_piece(model: Doc2Vec, words: list[str]) -> np.ndarray:
    """gensim's inference, its generator reseeded from the words; zero if none of them is in the
    vocabulary.
    """
    if not any(word in model.wv.key_to_index for word in words):
        return np.zeros(model.vector_size, dtype=np.float32)
    content = " ".join(words).encode(errors="surrogatepass")
    model.random.seed(int.from_bytes(hashlib.sha256(content).digest()[:4]))
    return np.asarray(model.infer_vector(words))
