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
from typing import Self, get_args

import numpy as np
from tqdm import tqdm

from docemb_lib.errors import InputError
from docemb_lib.progress import progress
from docemb_lib.teachers import gensim_worker
from docemb_lib.teachers.preprocess import Preprocessing, preprocess
from docemb_lib.teachers.worker_pool import WorkerPool

logger = logging.getLogger(__name__)

DESCRIPTION = "paragraph_vector.json"
BLOCK = 16  # documents per task: a millisecond to hand over, a fraction of a second to work on
BAR_FROM = 512  # documents; smaller calls are somebody's blocks, and the bar over the blocks is theirs


@dataclass(frozen=True)
class Fitted:
    """What training found out; stored beside the model."""

    documents: int
    long_documents: int  # of more than 10,000 words, trained in pieces
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
    workers: training threads. Only one gives repeatable models; more are for scale.
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
        self._pool: WorkerPool[gensim_worker.Inferred] | None = None

    @property
    def parameters(self) -> dict[str, bool | int | float | str | None]:
        """The arguments of this model."""
        names = ("dm", "vector_size", "min_count", "preprocess", "window", "negative", "sample", "epochs")
        return {name: getattr(self, name) for name in (*names, "dbow_words", "workers", "max_vocab_size", "seed")}

    @property
    def label(self) -> str:
        """The thesis' name of the model, as in `DM;100;lowercase;2`."""
        how = "None" if self.preprocess == "none" else self.preprocess
        return f"{'DM' if self.dm else 'DBOW'};{self.vector_size};{how};{self.min_count}"

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
        token_file, epochs_file = folder / "tokens.txt", folder / "epochs"
        documents, long_documents = self._write_tokens(texts, token_file)
        if not documents:
            raise InputError(f"{self.label}: no documents to train on; the corpus is empty")
        epochs_file.touch()
        min_count = max(2, round(0.01 * documents)) if self.min_count == "10%" else self.min_count
        options = {name: value for name, value in self.parameters.items() if name != "preprocess"}
        options |= {"min_count": min_count, "dbow_words": int(self.dbow_words and not self.dm)}
        pool = WorkerPool(gensim_worker.train)
        bar: tqdm[None]
        with progress(desc=f"Training {self.label}", total=self.epochs, unit="epochs") as bar:
            trained = pool.run(
                token_file,
                folder,
                epochs_file,
                options,
                meanwhile=lambda: bar.update(epochs_file.stat().st_size - bar.n),
            )
        pool.stop()
        token_file.unlink()
        epochs_file.unlink()
        self._serve(folder, Fitted(documents, long_documents, int(min_count), trained.vocabulary, trained.fingerprint))
        return self

    def embed(self, texts: Sequence[str], *, jobs: int | None = None) -> np.ndarray:
        """Float32 (N, dim), inferred by `jobs` processes (None: one per core).

        A text without any word of the vocabulary, the empty one included, is the zero vector: inference starts next to
        it, and nothing would move it. A text of more than 10,000 words is the mean of its pieces, weighted by words.
        """
        if self._pool is None:
            raise InputError(self._untrained)
        embeddings = np.zeros((len(texts), self.dim), dtype=np.float32)
        blocks = ((list(texts[start : start + BLOCK]), self.preprocess) for start in range(0, len(texts), BLOCK))
        n_long = 0
        results: Iterable[tuple[int, gensim_worker.Inferred]] = self._pool.map(blocks, jobs=jobs)
        if len(texts) >= BAR_FROM:
            results = progress(results, desc=f"Embedding {self.label}", total=-(-len(texts) // BLOCK), unit="blocks")
        for block, inferred in results:
            embeddings[block * BLOCK : (block + 1) * BLOCK] = inferred.embeddings
            n_long += inferred.n_long
        if n_long:
            logger.info("%s: %d of %d documents averaged over pieces of 10,000 words", self.label, n_long, len(texts))
        return embeddings

    def save(self, folder: Path | str) -> None:
        """Copy the trained model into `folder` (gensim's own files, which hold pickles, and a description)."""
        fitted, folder = self.fitted, Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for file in self._folder.glob(f"{gensim_worker.MODEL_FILE}*"):
            shutil.copy2(file, folder)
        description = {"parameters": self.parameters, "fitted": asdict(fitted)}
        (folder / DESCRIPTION).write_text(json.dumps(description, indent=2) + "\n")

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

    def _serve(self, folder: Path, fitted: Fitted) -> None:
        """Infer from the model in `folder` from now on."""
        if self._pool is not None:
            self._pool.stop()
        model_file = folder / gensim_worker.MODEL_FILE
        self._pool = WorkerPool(gensim_worker.infer, prepare=gensim_worker.load, prepare_args=(model_file,))
        self._folder, self._fitted = folder, fitted

    def _write_tokens(self, texts: Iterable[str], token_file: Path) -> tuple[int, int]:
        """Write the words of each document to a line; the numbers of documents and of long ones.

        Preprocessed once, not once an epoch. Words hold no white space, so a line splits into the same words again.
        """
        documents = long_documents = 0
        with token_file.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as lines:
            for text in progress(texts, desc=f"Words for {self.label}", unit="documents"):
                parts = gensim_worker.pieces(preprocess(text, self.preprocess))
                documents += 1
                long_documents += len(parts) > 1
                between = " " if self.workers == 1 else "\n"  # for one thread a long document is one line, see `train`
                lines.write(between.join(" ".join(words) for words in parts) + "\n")
        if long_documents:
            logger.info("%s: %d of %d documents trained in pieces", self.label, long_documents, documents)
        return documents, long_documents


class Compound:
    """Paragraph Vectors side by side, DM before DBOW whatever their order in `members` (thesis: `PV`, "DM + DBOW")."""

    def __init__(self, members: Sequence[ParagraphVector]) -> None:
        if len(members) < 2:
            raise InputError(f"Compound: got {len(members)} members, give two or more")
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
