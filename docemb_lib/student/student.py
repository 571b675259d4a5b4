"""The student: a long encoder over packed documents, and a mean of its last hidden states (thesis,
4.2).
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Iterable, Sequence, Sized
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from docemb_lib.base import tokenizing
from docemb_lib.base.errors import InputError
from docemb_lib.base.pretrained import resolve
from docemb_lib.base.progress import progress
from docemb_lib.student import export, lexical, loading, longformer
from docemb_lib.student.embedding import CHUNK, embed_chunks, growing_npy, one_ahead
from docemb_lib.student.export import MEANS, Pooling
from docemb_lib.student.longformer import Backend
from docemb_lib.student.packing import PackedBatch

if TYPE_CHECKING:
    from docemb_lib.student.lexical_module import LexicalHalf

logger = logging.getLogger(__name__)

PIECE = 64  # tokens summed one after the other
PACKED = (
    ("longformer", "mean"),
    ("longformer", "lead"),
    ("longformer", "first"),
)  # those with a packed forward
KINDS = (*PACKED, ("longformer", "cls"), ("modernbert", "mean"))


class Encoded(NamedTuple):
    """Token ids of each text, and the number of texts that are too long and lose tokens."""

    sequences: Sequence[Sequence[int] | np.ndarray]
    truncated: int


class Student(nn.Module):
    """Documents in, one embedding each, with the weights of a stock transformers model.

    Without global attention, a Longformer computes what `transformers.LongformerModel` computes on
    each document alone, and nothing for padding; its unused projections for global attention are
    frozen. With pooling "cls", and for ModernBERT, the stock forward runs on padded documents. A
    short encoder converted with at most its own limit as `max_tokens`, and an `attention_window` of
    twice as many, computes what it did before; with pooling "first" it gives the state of BERT's
    [CLS].

    Args:
        model: a Longformer or a ModernBERT.
        tokenizer: a fast one, whose `model_max_length` limits a document.
        pooling: "mean" of all tokens, special ones included; "lead", in which those at the
            beginning count more; or the first token of a Longformer, without global attention
            ("first") or with it ("cls").
        lexical: the half that `embed` appends, see `adapt`; training sees the dense half alone.

    Example:
        >>> student = Student.from_encoder("all-MiniLM-L6-v2", layers=[0], max_tokens=1024)
        >>> student.embed(["a document", "another one"]).shape
        (2, 384)
    """

    lexical: LexicalHalf | None

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        pooling: Pooling = "mean",
        lexical: LexicalHalf | None = None,
    ) -> None:
        super().__init__()
        kind = model.config.model_type, pooling
        if kind not in KINDS:
            known = ", ".join(f"{pooling} of a {encoder}" for encoder, pooling in KINDS)
            given = f"a student cannot pool by {pooling} of a {model.config.model_type}"
            raise InputError(f"pooling: {given}; it takes the {known}")
        self.model, self.tokenizer = model, tokenizer
        self.pooling: Pooling = pooling
        self.__dict__["lexical"] = (
            lexical  # not a submodule: checkpoints and replicas hold the dense half alone
        )
        self.trained_on: str | None = None  # a corpus, as in "300 documents of reports"
        self.packed = kind in PACKED
        self.checkpointing = (
            False  # recompute activations in the backward pass: less memory, a third more time
        )
        # Options of the packed forward:
        self.attention: Backend | None = None  # None: the faster one for device and dtype
        self.compiled = (
            False  # torch.compile between the attentions: for GPUs, takes a minute to prepare
        )
        for name, parameter in model.named_parameters():
            if self.packed and "_global." in name:
                parameter.requires_grad_(False)

    @classmethod
    def from_encoder(
        cls,
        path_or_id: str | Path,
        *,
        pooling: Pooling = "mean",
        layers: Sequence[int] | None = None,
        max_tokens: int = 4096,
        attention_window: int | None = None,
        dropout: float | None = None,
    ) -> Student:
        """A student from a short BERT- or RoBERTa-like encoder, a Longformer, or a ModernBERT (see
        `loading.convert`); in eval mode, on the CPU. Raises InputError for other architectures.

        path_or_id: folder or hub id; layers: those to keep, in this order (None: all); max_tokens:
        positions, special tokens included; attention_window: both directions together (None: the
        Longformer's own or 512); dropout: of hidden states and attention (None: the encoder's).
        """
        source = resolve(str(path_or_id))
        model = loading.convert(source, layers, max_tokens, attention_window, dropout)
        return cls(
            model, loading.load_tokenizer(source, max_tokens=max_tokens), pooling=pooling
        ).eval()

    @classmethod
    def load(cls, folder_or_id: str | Path) -> Student:
        """A saved student, or any Longformer or ModernBERT with mean pooling, in eval mode, on the
        CPU.

        Raises InputError for other models, for files that do not belong together and for pickled
        weights.
        """
        source = resolve(str(folder_or_id))
        pooling = export.saved_pooling(str(folder_or_id))
        model = loading.load_long(source, str(folder_or_id))
        max_tokens = loading.saved_max_tokens(source, positions=loading.positions(model.config))
        tokenizer = loading.load_tokenizer(source, max_tokens=max_tokens)
        student = cls(model, tokenizer, pooling=pooling, lexical=lexical.saved_lexical_half(source))
        student.trained_on = export.saved_training(source)
        return student.eval()

    def save(self, folder: str | Path, *, card: str | None = None) -> None:
        """Write a sentence-transformers folder; `card` is its README with front matter, None a
        plain one.
        """
        export.write_folder(self, Path(folder), card)

    def adapt(
        self,
        texts: Sequence[str],
        *,
        dim: int | None = None,
        words: int = 50_000,
        weight: float | None = None,
        bf16: bool | None = None,
        devices: Sequence[str | torch.device] | None = None,
    ) -> None:
        """Fit a lexical half on the documents of a collection; `embed` appends it from now on, and
        it is saved.

        The weights of the encoder stay as they are. `embed` then gives [dense; lexical], (N, D +
        dim). dim: None is the width of the student's half, if it has one; bf16,
        devices: of `embed`. See `lexical.fit_lexical_half` for the other arguments and for the
        causes of InputError, after which the student is unchanged.
        """
        dim = self.lexical.vectors.shape[1] if dim is None and self.lexical is not None else dim
        rows = np.unique(
            np.linspace(0, len(texts) - 1, min(adapted_on(self.dim), len(texts))).astype(int)
        ).tolist()
        plain = copy.copy(self)  # the same encoder without a lexical half
        plain.__dict__["lexical"] = None

        def dense() -> np.ndarray:
            wanted = [texts[row] for row in rows]
            return plain.embed(wanted, bf16=bf16, devices=devices, desc="adapting")

        half = lexical.fit_lexical_half(
            dense, texts, dim=dim, words=words, rows=rows, weight=weight
        )
        self.__dict__["lexical"] = half

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def dim(self) -> int:
        """D, of the dense half."""
        return int(self.config.hidden_size)

    @property
    def width(self) -> int:
        """The width of the rows that `embed` returns, D or that of both halves."""
        return self.dim if self.lexical is None else self.lexical.dim

    @property
    def max_tokens(self) -> int:
        """Of a document, special tokens included."""
        return int(self.tokenizer.model_max_length)

    def padded(self, length: int) -> int:
        """Tokens that the forward pass computes for a document of `length` tokens."""
        return length if self.packed else longformer.padded_length(self.config, length)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def forward(self, batch: PackedBatch) -> Tensor:
        """Embeddings (B, D) of B packed documents, pooled over their tokens."""
        hidden = self.hidden(batch)
        hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        if self.pooling not in MEANS:
            return hidden[batch.first]
        totals = batch.lengths
        if self.pooling == "lead":
            hidden, totals = _lead_weighted(hidden, batch)
        return _means(hidden, totals, batch)

    def hidden(self, batch: PackedBatch) -> Tensor:
        """Last hidden states (T, D) of a batch of T tokens.

        Raises InputError for a document beyond `max_tokens`.
        """
        if (longest := max(batch.sizes)) > self.max_tokens:
            limit = f"the student reads {self.max_tokens}"
            mend = "cut the document"
            raise InputError(f"batch: a document has {longest} tokens, and {limit}; {mend}")
        if self.packed:
            return longformer.hidden_states(
                self.model, batch, self.attention, self.checkpointing, self.compiled
            )
        return longformer.stock_hidden_states(
            self.model, batch, self.pooling == "cls", self.checkpointing
        )

    def tokenize(self, texts: Sequence[str]) -> Encoded:
        """Token ids of each text, cut at `max_tokens`."""
        if not texts:
            return Encoded([], 0)
        loading.remove_limits(self.tokenizer)  # set by the call below
        heads = tokenizing.heads(self.tokenizer.backend_tokenizer, texts, self.max_tokens)
        tokens = self.tokenizer(
            heads,
            truncation=True,
            max_length=self.max_tokens,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return Encoded(
            tokens["input_ids"], sum(bool(encoding.overflowing) for encoding in tokens.encodings)
        )

    def encode(self, texts: str | Sequence[str], **options: Any) -> np.ndarray:
        """Float32 (N, width), or (width,) for a single text, as in sentence-transformers. options:
        of `embed`.
        """
        return (
            self.embed([texts], **options)[0]
            if isinstance(texts, str)
            else self.embed(texts, **options)
        )

    def embed(
        self,
        texts: Iterable[str],
        *,
        out: str | Path | None = None,
        bf16: bool | None = None,
        devices: Sequence[str | torch.device] | None = None,
        desc: str = "embedding",
    ) -> np.ndarray:
        """Embeddings of N documents, without dropout or gradients; logs the number of documents
        that were cut.

        Args:
            texts: any iterable, read once.
            out: a .npy file for the embeddings, which appears when complete; memory then does not
                grow with N.
            bf16: compute in bfloat16; None: see `docemb_lib.base.hardware.uses_bf16`.
            devices: share the work, each with a copy of the student; None: the student's own.
            desc: label of the progress bar.

        Returns float32 (N, width) in the order of `texts`; with `out`, its read-only memory map.
        """
        if isinstance(texts, str):
            raise InputError("texts: this is one string; give a list of documents")
        target = None if out is None else Path(out)
        in_memory: list[np.ndarray] = [np.empty((0, self.width), dtype=np.float32)]
        lexical_rows: deque[Tensor] = (
            deque()
        )  # of the chunks that are tokenised and not embedded yet
        truncated = done = 0
        with ExitStack() as stack:
            append = (
                in_memory.append
                if target is None
                else stack.enter_context(growing_npy(target, self.width))
            )
            total = len(texts) if isinstance(texts, Sized) else None
            bar: Any = stack.enter_context(progress(desc=desc, total=total, unit="documents"))

            def tokenize(chunk: list[str]) -> Sequence[Sequence[int] | np.ndarray]:
                nonlocal truncated, done
                encoded = self.tokenize(chunk)
                truncated += encoded.truncated
                done += len(chunk)
                if self.lexical is not None:
                    lexical_rows.append(self.lexical.lexical(chunk))
                return encoded.sequences

            tokenised = stack.enter_context(
                closing(one_ahead(tokenize, tokenizing.batched(texts, CHUNK)))
            )
            embeddings = embed_chunks(self, tokenised, devices, bf16, bar.update)
            for rows in stack.enter_context(closing(embeddings)):
                if self.lexical is not None:
                    rows = self.lexical.join(torch.from_numpy(rows), lexical_rows.popleft()).numpy()
                if not np.isfinite(rows).all():
                    raise InputError(
                        "an embedding is not finite: the student's weights are damaged; restore them"
                    )
                append(rows)
        if truncated:
            message = "%d of %d documents are cut at %d tokens"
            logger.warning(message, truncated, done, self.max_tokens)
        return np.concatenate(in_memory) if target is None else np.load(target, mmap_mode="r")


def _lead_weighted(hidden: Tensor, batch: PackedBatch) -> tuple[Tensor, Tensor]:
    """The states (T, D) times their weights, and the sum of the weights of each document (B,)."""
    from docemb_lib.student.lexical_module import (
        FIRST_TOKENS,
    )  # which imports sentence-transformers

    place = torch.arange(len(hidden), device=hidden.device) - batch.first[batch.document]
    weights = sum((more * (place < first) for first, more in FIRST_TOKENS), torch.ones_like(place))
    totals = sum(
        (more * batch.lengths.clamp(max=first) for first, more in FIRST_TOKENS), batch.lengths
    )
    return hidden * weights[:, None], totals


def _means(hidden: Tensor, totals: Tensor, batch: PackedBatch) -> Tensor:
    """(B, D), the sum over each document's rows of (T, D), divided by its total of `totals` (B,).

    A GPU sums a segment row by row, so sum pieces of a document in parallel first, then their sums.
    Scattered additions would also be fast, but in another order every time.
    """
    pieces, counts = [], []
    for size in batch.sizes:
        full, rest = divmod(size, PIECE)
        pieces += [PIECE] * full + [rest] * (rest > 0)
        counts.append(full + (rest > 0))
    for lengths in (pieces, counts):
        on_device = torch.tensor(lengths).to(hidden.device, non_blocking=True)
        hidden = torch.segment_reduce(hidden, "sum", lengths=on_device, axis=0, unsafe=True)
    return hidden / totals[:, None]


def adapted_on(dim: int) -> int:
    """How many documents at most give the mean and the map of the dense half, of `dim` dimensions,
    in `adapt`.

    With 384 dimensions, 1,000 were no better on validation splits, 300 were worse.
    """
    return max(512, round(4 / 3 * dim))
