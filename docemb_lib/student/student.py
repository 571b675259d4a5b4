"""The student: an encoder over packed documents, perhaps with a half of words beside it.

D: width of the encoder's embedding; N: documents that are embedded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from docemb_lib.base.errors import InputError
from docemb_lib.base.pretrained import resolve
from docemb_lib.base.prompts import NO_PROMPTS, Prompts
from docemb_lib.settings.profile import validated
from docemb_lib.settings.sections import Student as Form
from docemb_lib.student import export, loading, words
from docemb_lib.student.embedding import (
    CHUNK,
    Compute,
    Devices,
    Tokens,
    checked,
    embed_texts,
    write_npy,
)
from docemb_lib.student.encoder import Encoder, Pooling
from docemb_lib.student.passages import (
    Passages,
    check_passages,
    explained,
    outline,
    parts_of,
    passage_means,
    rows_with_passages,
)

if TYPE_CHECKING:
    import pandas as pd
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from docemb_lib.student.words_module import WordsHalf

logger = logging.getLogger(__name__)

MOST_UNKNOWN = 0.05  # share of tokens


class Encoded(NamedTuple):
    """Token ids of each text, and the number of texts that are too long and lose tokens."""

    sequences: Tokens
    truncated: int


class Embedded(NamedTuple):
    """N documents: their embeddings, float32 (N, width), and the passages of each, if asked for."""

    embeddings: np.ndarray
    passages: list[Passages]


class Student(Encoder):
    """Documents in, one embedding each, with the weights of a stock transformers model.

    See `Encoder` for what it computes. A short encoder converted with at most its own limit as
    `max_tokens`, and an `attention_window` of twice as many, computes what it did before; with
    pooling "first" it gives the state of BERT's [CLS].

    Args:
        model: a Longformer or a ModernBERT.
        tokenizer: a fast one, whose `model_max_length` limits a document.
        pooling: "mean" of all tokens, special ones included; "lead", in which those at the
            beginning count more; the first token of a Longformer, without global attention
            ("first") or with it ("cls"). The thesis tried global attention and rejected it
            (section 4.3).
        words: the half that `embed` appends, see `adapt`; training sees the half of meaning alone.
        prompts: what the encoder wants before a document, as in "passage: ", and before a `Query`;
            the half of words does not read it.

    Example:
        >>> student = Student.from_encoder("all-MiniLM-L6-v2", layers=[0], max_tokens=1024)
        >>> student.embed(["a document", "another one"]).shape
        (2, 384)
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        *,
        pooling: Pooling = "mean",
        words: WordsHalf | None = None,
        prompts: Prompts = NO_PROMPTS,
    ) -> None:
        super().__init__(model, tokenizer, pooling=pooling, prompts=prompts)
        self.words = words

    @classmethod
    def from_encoder(
        cls,
        path_or_id: str | Path,
        *,
        pooling: Pooling | None = None,
        layers: Sequence[int] | None = None,
        max_tokens: int = 4096,
        attention_window: int | None = None,
        dropout: float | None = None,
    ) -> Student:
        """Convert a short encoder of `loading.CONVERTED`, or take a long one as it is.

        The student is in eval mode, on the CPU; `loading.convert` describes the conversion. Raises
        InputError for other architectures, and for modules of sentence-transformers that a student
        has not, such as a dense layer.

        path_or_id: folder or hub id; pooling: None for the encoder's own; layers: those to keep, in
        this order (None: all); max_tokens: positions, special tokens included; attention_window:
        both directions together (None: the Longformer's own or 512); dropout: of hidden states and
        attention (None: the encoder's).
        """
        source = resolve(str(path_or_id))
        prompts = export.saved_prompts(str(path_or_id))
        is_long = loading.load_config(source).model_type in loading.LONG
        own = (export.saved_pooling if is_long else export.encoder_pooling)(str(path_or_id))
        given = {
            "layers": layers,
            "max_tokens": max_tokens,
            "attention_window": attention_window,
            "dropout": dropout,
        }
        form = validated(Form, given, str(path_or_id)).model_dump(include={*given})
        model, tokenizer = loading.convert(source, **form)
        loading.check_tokens(str(path_or_id), model, tokenizer)
        return cls(model, tokenizer, pooling=pooling or own, prompts=prompts).eval()

    @classmethod
    def load(cls, folder_or_id: str | Path) -> Student:
        """Load a saved student, or any long encoder with mean pooling.

        The student is in eval mode, on the CPU. Raises InputError for other models, and for files
        that do not belong together.
        """
        source = resolve(str(folder_or_id))
        loading.check_files(Path(source))
        config = loading.load_config(source)
        if config.model_type not in loading.LONG:
            raise loading.no_student(str(folder_or_id), config.model_type)
        pooling = export.saved_pooling(str(folder_or_id))
        model = loading.load_weights(source, config)
        max_tokens = loading.saved_max_tokens(source, positions=loading.positions(model.config))
        tokenizer = loading.load_tokenizer(source, max_tokens=max_tokens)
        loading.check_tokens(str(folder_or_id), model, tokenizer)
        return cls(
            model,
            tokenizer,
            pooling=pooling,
            words=words.saved_words(source, model.config.hidden_size),
            prompts=export.saved_prompts(str(folder_or_id)),
        ).eval()

    def save(self, folder: str | Path, *, card: str | None = None, words: bool = True) -> None:
        """Write a sentence-transformers folder.

        card: its README with front matter; None writes a plain one. words: False leaves the
        half of words out, so that the folder holds no code unless `pooling` is "lead" or the
        student was an MPNet.
        """
        if not str(folder) or Path(folder).is_file():
            raise InputError(f"folder: {str(folder)!r} is empty or a file; name a folder")
        half = self.words if words else None
        export.write_folder(self, half, Path(folder), card)

    def adapt(
        self,
        texts: Sequence[str],
        *,
        dim: int | None = None,
        weight: float | None = None,
        embed: Callable[[list[str]], np.ndarray] | None = None,
    ) -> None:
        """Fit a half of words on a collection; `embed` appends it from now on, and it is saved.

        The weights of the encoder stay as they are. `Student.embed` then gives [meaning; words],
        (N, D + dim). dim: None is the width of the student's half, if it has one; embed: gives the
        half of meaning of some texts (None: the student's own method). See `words.fit_words`
        for the weight and for the causes of InputError, after which the student is unchanged.
        """
        texts = checked(texts)
        if dim is None and self.words is not None:
            dim = self.words.vectors.shape[1]
        embed = embed or partial(self.without_words().embed, desc="adapting")
        # Documents that give mean and map: with 384 dimensions, 1,000 were no better on validation
        # splits, 300 were worse.
        count = max(512, round(4 / 3 * self.dim))
        half = words.fit_words(embed, texts, dim=dim, weight=weight, count=count)
        width = len(half.meaning_mean)
        if width != self.dim:
            raise InputError(f"embed: its rows have {width} numbers; give {self.dim}")
        self.words = half

    def without_words(self) -> Student:
        """Return the student without its half of words; both share the encoder."""
        if self.words is None:
            return self
        meaning = Student(
            self.model,
            self.tokenizer,
            pooling=self.pooling,
            prompts=self.prompts,
        )
        return meaning.train(self.training)

    @property
    def width(self) -> int:
        """The width of the rows that `embed` returns, D or that of both halves."""
        return self.dim if self.words is None else self.words.dim

    def tokenize(self, texts: Sequence[str]) -> Encoded:
        """Return the token ids of each text after its prompt, cut at `max_tokens`."""
        encodings = self.encodings(texts)
        truncated = sum(bool(encoding.overflowing) for encoding in encodings)
        return Encoded([encoding.ids for encoding in encodings], truncated)

    def embed(
        self,
        texts: Iterable[str],
        *,
        out: str | Path | None = None,
        bf16: bool | None = None,
        devices: Devices = None,
        desc: str = "embedding",
    ) -> np.ndarray:
        """Embed N documents without dropout or gradients; logs how many were cut.

        Args:
            texts: any iterable of strings, which is read once.
            out: a .npy file for the embeddings, which appears when complete; memory then does not
                hold them all.
            bf16: compute in bfloat16; None: see `docemb_lib.base.hardware.uses_bf16`.
            devices: share the work, each with a copy of the student; None: the student's own.
            desc: label of the progress bar.

        Returns float32 (N, width) in the order of `texts`; with `out`, its read-only memory map.
        Raises InputError for what is no sequence of strings, naming the item, for another `out`,
        and for embeddings that are not finite.
        """
        texts = checked(texts)
        embed = partial(self.embed_documents, bf16=bf16, devices=devices, desc=desc)
        if out is None:
            return embed(texts).embeddings
        return write_npy(Path(out), texts, self.width, lambda block: embed(block).embeddings)

    def embed_documents(
        self,
        texts: Iterable[str],
        *,
        passages: int | None = None,
        bf16: bool | None = None,
        devices: Devices = None,
        desc: str = "embedding",
    ) -> Embedded:
        """Embed N documents as `embed` does, and give the passages of each from the same pass.

        The half of words, if any, has no passages.

        Args:
            passages: the most tokens of a passage; None: there are none.

        Raises InputError also for passages of a student that does not average its states.
        """
        texts = checked(texts)
        compute: Compute = Encoder.__call__
        if passages is not None:
            check_passages(self, passages)
            compute = partial(rows_with_passages, size=passages)
        truncated: list[bool] = []
        unknown: list[float] = []  # shares of tokens, by document
        outlines: list[tuple[np.ndarray, np.ndarray]] = []

        def tokenize(chunk: list[str]) -> Tokens:
            encodings = self.encodings(chunk)
            truncated.extend(bool(encoding.overflowing) for encoding in encodings)
            sequences = [encoding.ids for encoding in encodings]
            sign = self.tokenizer.unk_token_id
            unknown.extend(ids.count(sign) / len(ids) for ids in sequences)
            if passages is not None:
                outlines.extend(outline(encoding, self, passages) for encoding in encodings)
            return sequences

        rows = embed_texts(
            self, texts, tokenize, devices=devices, bf16=bf16, desc=desc, compute=compute
        )
        if any(truncated):
            message = "%d of %d documents are cut at %d tokens"
            logger.warning(message, sum(truncated), len(texts), self.max_tokens)
        if unknown and np.mean(unknown) > MOST_UNKNOWN:
            message = "%.0f%% of the tokens are unknown to this encoder; give a multilingual one"
            logger.warning(message, 100 * np.mean(unknown))
        half = self.words
        embeddings = [np.empty((0, self.width), dtype=np.float32)]
        for start in range(0, len(texts), CHUNK):
            X = rows[start : start + CHUNK, : self.dim]
            if half is not None:
                words = half.words(texts[start : start + CHUNK])
                X = half.join(torch.from_numpy(X).to(half.weight.device), words).cpu().numpy()
            embeddings.append(X)
        result = np.concatenate(embeddings)
        if not np.isfinite(result).all():
            problem = "an embedding is not finite: the student's weights are damaged"
            raise InputError(f"{problem}; restore them")
        of_documents = []
        for row, (spans, weights) in zip(rows, outlines, strict=False):
            of_passages = passage_means(row.reshape(-1, self.dim), weights, half)
            of_documents.append(Passages(spans, weights, of_passages))
        return Embedded(result, of_documents)

    def explain(
        self, a: str, b: str, *, passages: int = 128, bf16: bool | None = None
    ) -> pd.DataFrame:
        """Tell which passages and words of two texts add how much to their cosine.

        Returns a row for each pair of passages, of at most `passages` tokens, and for each word,
        the greatest contribution first; the contributions sum to the cosine. A product of two
        different words counts half for each. See `embed` for bf16 and for a student that does not
        average its states.
        """
        texts = (a, b)
        _, of_texts = self.embed_documents(texts, passages=passages, bf16=bf16)
        parts = [
            parts_of(text, of_text, self.words)
            for text, of_text in zip(texts, of_texts, strict=True)
        ]
        return explained(*parts)
