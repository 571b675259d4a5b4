"""The student: a long encoder over packed documents, and the mean of its last hidden states (thesis, 4.2)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence, Sized
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from docemb_lib.errors import InputError
from docemb_lib.pretrained import resolve
from docemb_lib.progress import progress
from docemb_lib.student import conversion, export, loading, longformer
from docemb_lib.student import longformer as stock
from docemb_lib.student.attention import Backend
from docemb_lib.student.inference import chunks, embed_chunks, growing_npy, one_ahead
from docemb_lib.student.loading import Pooling
from docemb_lib.student.packing import PackedBatch

logger = logging.getLogger(__name__)

PIECE = 64  # tokens that are summed one after the other
PACKED = (("longformer", "mean"), ("longformer", "first"))  # have a packed forward
KINDS = (*PACKED, ("longformer", "cls"), ("modernbert", "mean"))


class Encoded(NamedTuple):
    """Token ids of each text with special tokens, and how many texts were longer than the student reads."""

    sequences: list[list[int]]
    truncated: int


class Student(nn.Module):
    """Documents in, one embedding each, by the weights of a stock transformers model.

    pooling: "mean" of all tokens, special ones included, or a Longformer's first token: "first", or "cls", where it has
    global attention. Without that, a Longformer computes what `transformers.LongformerModel` does on each document
    alone, with its sliding windows, and nothing on padding; its projections for global attention are therefore frozen.
    With "cls", and for ModernBERT, the stock forward runs on padded documents. The tokenizer's `model_max_length` is
    the limit on a document. A short encoder whose `attention_window` is twice `max_tokens` stays what it is: a BERT
    with pooling "first" is BERT and its [CLS].

    mean: (D,), subtracted from every embedding, see `centre`; None: nothing is.
    """

    mean: Tensor | None

    def __init__(self, model: Any, tokenizer: Any, *, pooling: Pooling = "mean", mean: Tensor | None = None) -> None:
        super().__init__()
        kind = model.config.model_type, pooling
        if kind not in KINDS:
            known = ", ".join(f"{pooling} of a {encoder}" for encoder, pooling in KINDS)
            raise InputError(f"pooling: got {pooling} of a {model.config.model_type}; a student takes the {known}")
        self.model, self.tokenizer = model, tokenizer
        self.pooling: Pooling = pooling
        if mean is not None and mean.shape != (self.dim,):
            raise InputError(f"mean: got a tensor of shape {list(mean.shape)}, embeddings have {self.dim} dimensions")
        self.register_buffer("mean", mean)
        self.packed = kind in PACKED
        self.checkpointing = False  # keep a layer's input alone for the backward pass: less memory, a third more time
        # For the packed forward alone:
        self.attention: Backend | None = None  # None: the faster one for device and dtype
        self.compiled = False  # torch.compile between the attentions: for GPUs, after a minute's preparation
        if self.packed:
            for name, parameter in model.named_parameters():
                if "_global." in name:
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
        """A student from a short BERT- or RoBERTa-like encoder, from a Longformer, or from a ModernBERT as it is;
        `conversion.convert` says how.

        max_tokens: positions, special tokens included; attention_window: both directions together, None is the
        Longformer's own or 512. In eval mode, on the CPU. Raises InputError for other architectures and for values out
        of range.
        """
        source = resolve(str(path_or_id))
        subfolder = loading.transformer_subfolder(source)
        model = conversion.convert(
            source,
            subfolder=subfolder,
            layers=layers,
            max_tokens=max_tokens,
            attention_window=attention_window,
            dropout=dropout,
        )
        return cls._with_tokenizer(model, source, subfolder, max_tokens, pooling)

    @classmethod
    def load(cls, folder_or_id: str | Path) -> Student:
        """A saved student, or any Longformer or ModernBERT with mean pooling, from safetensors weights; in eval mode,
        on the CPU.

        Raises InputError for other models, for files that do not belong together and for pickled weights.
        """
        source = resolve(str(folder_or_id))
        pooling = loading.saved_pooling(source)
        subfolder = loading.transformer_subfolder(source)
        model = loading.load_long(source, subfolder=subfolder)
        max_tokens = loading.saved_max_tokens(source, positions=loading.positions(model.config))
        return cls._with_tokenizer(model, source, subfolder, max_tokens, pooling, loading.saved_mean(source))

    @classmethod
    def _with_tokenizer(
        cls, model: Any, source: str, subfolder: str, max_tokens: int, pooling: Pooling, mean: Tensor | None = None
    ) -> Student:
        rows = model.get_input_embeddings().num_embeddings
        tokenizer = loading.load_tokenizer(source, subfolder=subfolder, max_tokens=max_tokens, rows=rows)
        return cls(model, tokenizer, pooling=pooling, mean=mean).eval()

    def save(self, folder: str | Path, *, card: str | None = None) -> None:
        """Write a sentence-transformers folder; `card` is its README with front matter, None a plain one."""
        if card is None:
            card = export.plain_card(
                self.config, pooling=self.pooling, max_tokens=self.max_tokens, centred=self.mean is not None
            )
        export.write_folder(
            Path(folder),
            self.model,
            self.tokenizer,
            pooling=self.pooling,
            max_tokens=self.max_tokens,
            mean=self.mean,
            card=card,
        )

    def centre(self, texts: Iterable[str], *, bf16: bool | None = None) -> None:
        """Subtract the mean embedding of `texts` from every embedding from now on; it is saved with the student.

        Distilled embeddings share a direction that says nothing of a document and takes up most of a cosine. For use
        after training: a loss would see centred embeddings beside teacher embeddings that are not.
        """
        self.mean = None
        embeddings = self.embed(texts, bf16=bf16, desc="centring")
        if not len(embeddings):
            raise InputError("texts: none; give the documents whose mean embedding is to be subtracted")
        self.mean = torch.from_numpy(embeddings.mean(axis=0, dtype=np.float64)).float().to(self.device)

    @property
    def config(self) -> Any:
        return self.model.config

    @property
    def dim(self) -> int:
        """Width of an embedding."""
        return int(self.config.hidden_size)

    @property
    def max_tokens(self) -> int:
        """Tokens of a document that the student reads, special tokens included."""
        return int(self.tokenizer.model_max_length)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def forward(self, batch: PackedBatch) -> Tensor:
        """Embeddings (B, D) of B packed documents: the mean over each one's tokens, or its first token; centred where
        the student is."""
        hidden = self.hidden(batch)
        hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        pooled = _means(hidden, batch) if self.pooling == "mean" else hidden[batch.lengths.cumsum(0) - batch.lengths]
        return pooled if self.mean is None else pooled - self.mean

    def hidden(self, batch: PackedBatch) -> Tensor:
        """Last hidden states (T, D) of a batch of T tokens. Raises InputError for a document beyond `max_tokens`."""
        longest = max(batch.sizes)
        if longest > self.max_tokens:
            raise InputError(f"batch: a document of {longest} tokens, the student reads {self.max_tokens}; cut it")
        if self.packed:
            return longformer.hidden_states(
                self.model, batch, attention=self.attention, checkpointing=self.checkpointing, compiled=self.compiled
            )
        return stock.stock_hidden_states(
            self.model, batch, global_first_token=self.pooling == "cls", checkpointing=self.checkpointing
        )

    def encode(self, texts: Sequence[str], *, first: int = 0) -> Encoded:
        """Token ids of each text, cut at `max_tokens`. A text that is no string is an InputError that names its index,
        counted from `first`."""
        for index, text in enumerate(texts, first):
            if not isinstance(text, str):
                raise InputError(f"texts[{index}]: got {type(text).__name__}, give a string")
        if not texts:
            return Encoded([], 0)
        tokens = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=self.max_tokens,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return Encoded(tokens["input_ids"], sum(bool(encoding.overflowing) for encoding in tokens.encodings))

    def tokenize(self, texts: Iterable[str]) -> list[list[int]]:
        """Token ids of each text with special tokens, cut at `max_tokens`; how many were cut is logged."""
        sequences: list[list[int]] = []
        truncated = 0
        for chunk in chunks(texts):
            encoded = self.encode(chunk, first=len(sequences))
            sequences += encoded.sequences
            truncated += encoded.truncated
        self._log_truncated(truncated, len(sequences))
        return sequences

    def embed(
        self,
        texts: Iterable[str],
        *,
        out: str | Path | None = None,
        batch_tokens: int | None = None,
        bf16: bool | None = None,
        devices: Sequence[str | torch.device] | None = None,
        desc: str = "embedding",
    ) -> np.ndarray:
        """Embeddings of N documents in their order, float32 (N, D), without dropout or gradients.

        texts: any iterable, taken as it goes. out: a .npy file that holds the embeddings, there only when complete; the
        result is then its read-only memory map, and memory stays constant whatever N. batch_tokens: tokens in one
        forward pass; None: 8192 on CPUs, 65536 on GPUs. bf16: compute in bfloat16; None: where the hardware is fast at
        it. devices: all of them share the work, each with a copy of the student; None: the one it is on.
        """
        if isinstance(texts, str):
            raise InputError("texts: got one string, give a list of documents")
        target = None if out is None else Path(out)
        in_memory: list[np.ndarray] = [np.empty((0, self.dim), dtype=np.float32)]
        truncated = done = 0
        with ExitStack() as stack:
            append = in_memory.append if target is None else stack.enter_context(growing_npy(target, self.dim))
            total = len(texts) if isinstance(texts, Sized) else None
            bar: Any = stack.enter_context(progress(desc=desc, total=total, unit="documents"))

            def encode(chunk: list[str]) -> list[list[int]]:
                nonlocal truncated, done
                encoded = self.encode(chunk, first=done)
                truncated += encoded.truncated
                done += len(chunk)
                return encoded.sequences

            tokenised = stack.enter_context(closing(one_ahead(encode, chunks(texts))))
            embeddings = embed_chunks(
                self, tokenised, devices=devices, batch_tokens=batch_tokens, bf16=bf16, report=bar.update
            )
            for rows in stack.enter_context(closing(embeddings)):
                append(rows)
        self._log_truncated(truncated, done)
        return np.concatenate(in_memory) if target is None else np.load(target, mmap_mode="r")

    def _log_truncated(self, truncated: int, n: int) -> None:
        if truncated:
            logger.warning("%d of %d documents cut at %d tokens", truncated, n, self.max_tokens)


def _means(hidden: Tensor, batch: PackedBatch) -> Tensor:
    """(B, D), the mean over each document's rows of (T, D).

    In two steps, because a GPU sums a segment row by row: pieces of a document, then their sums. Without scattered
    additions, which it would do in another order every time.
    """
    pieces, counts = [], []
    for size in batch.sizes:
        full, rest = divmod(size, PIECE)
        pieces += [PIECE] * full + [rest] * (rest > 0)
        counts.append(full + (rest > 0))
    for lengths in (pieces, counts):
        on_device = torch.tensor(lengths).to(hidden.device, non_blocking=True)
        hidden = torch.segment_reduce(hidden, "sum", lengths=on_device, axis=0, unsafe=True)
    return hidden / batch.lengths[:, None]
