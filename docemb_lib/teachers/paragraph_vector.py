"""The contextual teacher: Paragraph Vector, gensim's Doc2Vec with repeatable results (thesis, 4.5.1 and Table 4.5).

All embeddings, also those of training documents, are inferred. Training and inference run in worker processes with a
fixed hash seed, and inference reseeds the model from each text, so an embedding depends on the text and the model
alone: not on the calling process, the order of the documents, their batches or the number of workers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
from joblib import cpu_count
from tqdm import tqdm

from docemb_lib.errors import InputError
from docemb_lib.hardware import free_memory
from docemb_lib.progress import progress
from docemb_lib.settings import SINGLE, label_of_paragraph_vector
from docemb_lib.teachers import gensim_models as gensim_inference
from docemb_lib.teachers import gensim_models as gensim_training
from docemb_lib.teachers.gensim_models import TrainingMemory, check_memory, training_memory, warn_of_shared_rows
from docemb_lib.teachers.words import Preprocessing, Words, write_words
from docemb_lib.teachers.worker_pool import WorkerPool

# ---- the contextual teacher


logger = logging.getLogger(__name__)

DESCRIPTION = "paragraph_vector.json"
BLOCK = 16  # documents per task at most: a millisecond to hand over, a fraction of a second to work on
TASKS = 8  # per process at least, where there are documents enough: the last one ends soon after the others
BAR_FROM = 512  # documents; smaller calls are somebody's blocks, and the bar over the blocks is theirs


@dataclass(frozen=True)
class Fitted:
    """What training found out; stored beside the model."""

    documents: int
    long_documents: int  # of more than 10,000 words, trained in pieces
    texts: str  # fingerprint of the documents, whatever the preprocessing
    min_count: int  # "10%" resolved
    vocabulary: int  # words kept
    weights: str  # fingerprint of vocabulary and weights


class ParagraphVector:
    """DM or DBOW of gensim.

    dm: distributed memory, or else a distributed bag of words.
    vector_size: width of an embedding.
    min_count: occurrences (not documents) that a word needs; "10%" is the thesis' name for 1% of the number of training
        documents, at least 2.
    preprocess: how a text becomes words, see `preprocess`.
    window, negative: context words on each side; noise words per prediction.
    sample: threshold for dropping frequent words; 0 keeps them all (gensim's own default is 1e-3).
    epochs: passes over the corpus in training, and over a document in inference.
    dbow_words: DBOW trains word vectors too (skip-gram); DM always does.
    workers: training threads. Only with one a training repeated gives the same model, bit for bit; more are for scale.
    max_vocab_size: cap on the words kept while counting; what gensim then drops depends on the corpus' order.
    """

    def __init__(
        self,
        *,
        dm: bool,
        vector_size: int = 100,
        min_count: int | str = 2,
        preprocess: Preprocessing = "lowercase",
        window: int = 5,
        negative: int = 5,
        sample: float = 0,
        epochs: int = 10,
        dbow_words: bool = True,
        workers: int = 1,
        max_vocab_size: int | None = None,
        seed: int = 0,
    ) -> None:
        if min_count != "10%" and not (isinstance(min_count, int) and min_count >= 1):
            raise InputError(f'min_count: got {min_count!r}, use a whole number of occurrences from 1, or "10%"')
        if preprocess not in get_args(Preprocessing):
            raise InputError(f"preprocess: got {preprocess!r}, use one of {', '.join(get_args(Preprocessing))}")
        for name, value in {"vector_size": vector_size, "epochs": epochs, "workers": workers}.items():
            if value < 1:
                raise InputError(f"{name}: got {value}, use 1 or more")
        self.dm, self.vector_size, self.min_count, self.preprocess = dm, vector_size, min_count, preprocess
        self.window, self.negative, self.sample, self.epochs = window, negative, sample, epochs
        self.dbow_words, self.workers, self.max_vocab_size, self.seed = dbow_words, workers, max_vocab_size, seed
        self._fitted: Fitted | None = None
        self._folder = Path()
        self._pool: WorkerPool[gensim_inference.Inferred] | None = None

    @property
    def parameters(self) -> dict[str, bool | int | float | str | None]:
        """The arguments of this model."""
        names = ("dm", "vector_size", "min_count", "preprocess", "window", "negative", "sample", "epochs")
        return {name: getattr(self, name) for name in (*names, "dbow_words", "workers", "max_vocab_size", "seed")}

    @property
    def label(self) -> str:
        """The thesis' name of the model, as in `DM;100;lowercase;2`."""
        return label_of_paragraph_vector(**{name: getattr(self, name) for name in SINGLE})

    @property
    def dim(self) -> int:
        """Width of an embedding."""
        return self.vector_size

    @property
    def fitted(self) -> Fitted:
        """What training found out. Raises InputError before training."""
        if self._fitted is None:
            raise InputError(self._untrained)
        return self._fitted

    @property
    def _untrained(self) -> str:
        return f"{self.label}: not trained; call fit(texts) or ParagraphVector.load(folder) first"

    @property
    def fingerprint(self) -> str:
        """Of the arguments, the vocabulary and the weights: all that decides an embedding."""
        content = json.dumps([self.parameters, self.fitted.weights])
        return f"pv:{self.label}:{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    def fit(self, texts: Iterable[str]) -> Self:
        """Train on `texts`, read once. Raises InputError if there is nothing to learn from."""
        folder = Path(tempfile.mkdtemp(prefix="docemb-pv-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)  # the model stays as long as this object
        words = write_words(folder / "words", texts, self.preprocess)
        self.fit_words(words, folder / "model")
        shutil.rmtree(words.folder)
        return self

    def fit_words(self, words: Words, folder: Path | str) -> Self:
        """Train on the words of a corpus and save to `folder`, which has to stay while the model is used.

        After an interruption the same call goes on after the last whole epoch, and with one worker ends in the same
        bits as an unbroken one. Raises InputError before any training where words and model do not fit together, no
        word is frequent enough, or the memory would not do.
        """
        folder = Path(folder).resolve()
        if words.preprocess != self.preprocess:
            raise InputError(f"{self.label}: the words in {words.folder} are of preprocess {words.preprocess!r}")
        fitted = self._finished(folder, words) or self._train(words, folder)
        gensim_training.remove_states(folder)
        self._serve(folder, fitted)
        return self

    def gensim_options(self, words: Words) -> dict[str, Any]:
        """The arguments of gensim's Doc2Vec for training on `words`."""
        options: dict[str, Any] = {name: value for name, value in self.parameters.items() if name != "preprocess"}
        dbow_words = int(self.dbow_words and not self.dm)
        return options | {"min_count": words.occurrences(self.min_count), "dbow_words": dbow_words}

    def embed(self, texts: Sequence[str], *, jobs: int | None = None) -> np.ndarray:
        """Float32 (N, dim), inferred by `jobs` processes (None: one per core).

        A text without any word of the vocabulary, the empty one included, is the zero vector: inference starts next to
        it, and nothing would move it. A text of more than 10,000 words is the mean of its pieces, weighted by words.
        """
        if self._pool is None:
            raise InputError(self._untrained)
        jobs = jobs or cpu_count()
        size = min(BLOCK, max(1, len(texts) // (TASKS * jobs)))
        starts = range(0, len(texts), size)
        embeddings = np.zeros((len(texts), self.dim), dtype=np.float32)
        blocks = ((list(texts[start : start + size]), self.preprocess) for start in starts)
        n_long = 0
        results: Iterable[tuple[int, gensim_inference.Inferred]] = self._pool.map(blocks, jobs=jobs)
        if len(texts) >= BAR_FROM:
            results = progress(results, desc=f"Embedding {self.label}", total=len(starts), unit="blocks")
        for block, inferred in results:
            embeddings[block * size : (block + 1) * size] = inferred.embeddings
            n_long += inferred.n_long
        if n_long:
            logger.info("%s: %d of %d documents averaged over pieces of 10,000 words", self.label, n_long, len(texts))
        return embeddings

    def stop(self) -> None:
        """End the processes that infer, which idle for a minute otherwise; the next `embed` starts others."""
        if self._pool is not None:
            self._pool.stop()

    def save(self, folder: Path | str) -> None:
        """Copy the trained model into `folder` (gensim's own files, which hold pickles, and a description)."""
        fitted, folder = self.fitted, Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for file in self._folder.glob(f"{gensim_training.MODEL_FILE}*"):
            shutil.copy2(file, folder)
        self._describe(folder, fitted)

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """The model saved in `folder`, which has to stay while the model is used. Load only folders you trust."""
        description = Path(folder) / DESCRIPTION
        if not description.is_file():
            raise InputError(f"{description}: no such file; name a folder written by ParagraphVector.save")
        content = json.loads(description.read_text())
        model = cls(**content["parameters"])
        model._serve(Path(folder).resolve(), Fitted(**content["fitted"]))
        return model

    def _check_size(self, words: Words) -> TrainingMemory:
        """What training on `words` will take. Raises InputError if it cannot be had."""
        most = self.max_vocab_size or words.types
        vocabulary, types = min(words.vocabulary(self.min_count), most), min(words.types, most)
        size = self.vector_size
        warn_of_shared_rows(vocabulary=vocabulary, lines=words.lines, vector_size=size, label=self.label)
        needed = training_memory(vocabulary=vocabulary, types=types, lines=words.lines, vector_size=size)
        check_memory(needed, free_memory("cpu"), self.label)
        return needed

    def _train(self, words: Words, folder: Path) -> Fitted:
        needed = self._check_size(words)
        logger.info("%s: training takes about %s", self.label, needed)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / DESCRIPTION).unlink(missing_ok=True)  # of another model, whose files are about to be written over
        key = hashlib.sha256(json.dumps([self.parameters, words.texts]).encode()).hexdigest()[:16]
        pool = WorkerPool(gensim_training.train)
        bar: tqdm[None]
        with progress(desc=f"Training {self.label} ({needed.shown})", total=self.epochs, unit="epochs") as bar:
            trained = pool.run(
                words.file,
                folder,
                key,
                self.gensim_options(words),
                meanwhile=lambda: bar.update(gensim_training.epochs_done(folder, key) - bar.n),
            )
        pool.stop()
        fitted = Fitted(
            documents=words.documents,
            long_documents=words.long_documents,
            texts=words.texts,
            min_count=words.occurrences(self.min_count),
            vocabulary=trained.vocabulary,
            weights=trained.fingerprint,
        )
        self._describe(folder, fitted)
        return fitted

    def _describe(self, folder: Path, fitted: Fitted) -> None:
        """Written last: with it the folder holds a whole model."""
        content = json.dumps({"parameters": self.parameters, "fitted": asdict(fitted)}, indent=2)
        (folder / f".{DESCRIPTION}").write_text(content + "\n")
        (folder / f".{DESCRIPTION}").replace(folder / DESCRIPTION)

    def _finished(self, folder: Path, words: Words) -> Fitted | None:
        """What is known of the model in `folder` if it is this one, trained on these texts."""
        if not (folder / DESCRIPTION).is_file():
            return None
        content = json.loads((folder / DESCRIPTION).read_text())
        same = content["parameters"] == self.parameters and content["fitted"]["texts"] == words.texts
        return Fitted(**content["fitted"]) if same else None

    def _serve(self, folder: Path, fitted: Fitted) -> None:
        """Infer from the model in `folder` from now on."""
        self.stop()
        model_file = folder / gensim_training.MODEL_FILE
        self._pool = WorkerPool(gensim_inference.infer, prepare=gensim_inference.load, prepare_args=(model_file,))
        self._folder, self._fitted = folder, fitted


# ---- several Paragraph Vectors as one contextual teacher


class Compound:
    """Trained Paragraph Vectors side by side, DM before DBOW whatever their order in `members`.

    Raises InputError for members trained on different texts; their preprocessing may differ.
    """

    def __init__(self, members: Sequence[ParagraphVector]) -> None:
        if len(members) < 2:
            raise InputError(f"Compound: got {len(members)} members, give two or more")
        first, *others = members
        for other in others:
            if other.fitted.texts != first.fitted.texts:
                raise InputError(
                    f"Compound: {first.label} was trained on texts {first.fitted.texts}, {other.label} on "
                    f"{other.fitted.texts}; train both on the same corpus"
                )
        self.members = sorted(members, key=lambda member: not member.dm)

    @property
    def label(self) -> str:
        """The members' labels, joined with `+`."""
        return "+".join(member.label for member in self.members)

    @property
    def dim(self) -> int:
        """The sum of the members' widths."""
        return sum(member.dim for member in self.members)

    @property
    def fingerprint(self) -> str:
        """Of all members, in order."""
        return "+".join(member.fingerprint for member in self.members)

    def embed(self, texts: Sequence[str], *, jobs: int | None = None) -> np.ndarray:
        """Float32 (N, dim): each member's embedding after the other's."""
        return np.concatenate([member.embed(texts, jobs=jobs) for member in self.members], axis=1)
