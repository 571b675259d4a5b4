"""The student: a stock Longformer run over packed documents, and the mean of its last hidden states (thesis, 4.2)."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import LongformerModel

from docemb_lib.errors import InputError
from docemb_lib.hardware import fast_bf16
from docemb_lib.progress import progress
from docemb_lib.student import conversion, export
from docemb_lib.student.attention import Backend
from docemb_lib.student.longformer import hidden_states
from docemb_lib.student.packing import PackedBatch, pack, token_batches
from docemb_lib.teachers.pretrained import resolve

logger = logging.getLogger(__name__)
CHUNK = 512  # documents tokenised, sorted and embedded at a time: what an iterable's memory is bounded by


class Encoded(NamedTuple):
    """Token ids of each text with special tokens, and how many texts were longer than the student reads."""

    sequences: list[list[int]]
    truncated: int


class Student(nn.Module):
    """Documents in, one embedding each, by the weights of a stock `transformers.LongformerModel`.

    Computes what that model does on each document alone, with its sliding windows and no global attention, and nothing
    on padding. Its projections for global attention are therefore frozen. The tokenizer's `model_max_length` is the
    limit on a document.
    """

    def __init__(self, model: LongformerModel, tokenizer: Any) -> None:
        super().__init__()
        self.model, self.tokenizer = model, tokenizer
        self.attention: Backend | None = None  # None: the faster one for device and dtype
        self.checkpointing = False  # keep a layer's input alone for the backward pass: less memory, a third more time
        self.compiled = False  # torch.compile between the attentions: for GPUs, after a minute's preparation
        for name, parameter in model.named_parameters():
            if "_global." in name:
                parameter.requires_grad_(False)

    @classmethod
    def from_encoder(
        cls,
        path_or_id: str | Path,
        *,
        layers: Sequence[int] | None = None,
        max_tokens: int = 4096,
        attention_window: int | None = None,
        dropout: float | None = None,
    ) -> Student:
        """A student from a short BERT- or RoBERTa-like encoder, or from a Longformer; `conversion.convert` says how.

        max_tokens: positions, special tokens included; attention_window: both directions together, None is the
        Longformer's own or 512. In eval mode, on the CPU. Raises InputError for other architectures and for values out
        of range.
        """
        source = resolve(str(path_or_id))
        subfolder = export.transformer_subfolder(source)
        longformer = conversion.convert(
            source,
            subfolder=subfolder,
            layers=layers,
            max_tokens=max_tokens,
            attention_window=attention_window,
            dropout=dropout,
        )
        return cls(longformer, conversion.load_tokenizer(source, subfolder=subfolder, max_tokens=max_tokens)).eval()

    @classmethod
    def load(cls, folder_or_id: str | Path) -> Student:
        """A saved student, or any Longformer with mean pooling, from safetensors weights; in eval mode, on the CPU.

        Raises InputError for other models and for pickled weights.
        """
        source = resolve(str(folder_or_id))
        export.check_mean_pooling(source)
        subfolder = export.transformer_subfolder(source)
        longformer = conversion.load_longformer(source, subfolder=subfolder)
        max_tokens = min(_positions(longformer.config), export.saved_max_tokens(source) or math.inf)
        tokenizer = conversion.load_tokenizer(source, subfolder=subfolder, max_tokens=int(max_tokens))
        return cls(longformer, tokenizer).eval()

    def save(self, folder: str | Path, *, card: str | None = None) -> None:
        """Write a sentence-transformers folder; `card` is its README with front matter, None a plain one."""
        card = export.plain_card(dim=self.dim, max_tokens=self.max_tokens) if card is None else card
        export.write_folder(Path(folder), self.model, self.tokenizer, max_tokens=self.max_tokens, card=card)

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
        """Embeddings (B, D) of B packed documents: the mean over each one's tokens, special tokens included."""
        hidden = self.hidden(batch)
        hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        # No scattered additions: a GPU does them in another order every time.
        return torch.segment_reduce(hidden, "mean", lengths=batch.lengths, axis=0, unsafe=True)

    def hidden(self, batch: PackedBatch) -> Tensor:
        """Last hidden states (T, D) of a batch of T tokens. Raises InputError for a document beyond `max_tokens`."""
        longest = max(batch.sizes)
        if longest > self.max_tokens:
            raise InputError(f"batch: a document of {longest} tokens, the student reads {self.max_tokens}; cut it")
        return hidden_states(
            self.model, batch, attention=self.attention, checkpointing=self.checkpointing, compiled=self.compiled
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
        for chunk in _chunks(texts):
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
        batch_tokens: int = 8192,
        bf16: bool | None = None,
        desc: str = "embedding",
    ) -> np.ndarray:
        """Embeddings of N documents in their order, float32 (N, D), without dropout or gradients.

        out: a .npy file that holds them, there only when complete; the result is then its read-only memory map.
        batch_tokens: tokens in one forward pass. bf16: compute in bfloat16; None: where the hardware is fast at it.
        """
        if isinstance(texts, str):
            raise InputError("texts: got one string, give a list of documents")
        documents: Any = texts if isinstance(texts, Sized) else list(texts)
        target = None if out is None else Path(out)
        truncated = done = 0
        bar: Any = progress(desc=desc, total=len(documents), unit="documents")
        with (
            bar,
            _rows(target, (len(documents), self.dim)) as rows,
            self._inference(fast_bf16(self.device) if bf16 is None else bf16),
        ):
            for chunk in _chunks(documents):
                encoded = self.encode(chunk, first=done)
                for batch in token_batches([len(ids) for ids in encoded.sequences], batch_tokens):
                    packed = pack([encoded.sequences[index] for index in batch]).to(self.device)
                    rows[[done + index for index in batch]] = self(packed).float().cpu().numpy()
                    bar.update(len(batch))
                truncated += encoded.truncated
                done += len(chunk)
        self._log_truncated(truncated, done)
        return rows if target is None else np.load(target, mmap_mode="r")

    @contextmanager
    def _inference(self, bf16: bool) -> Iterator[None]:
        was_training = self.training
        self.eval()
        try:
            with torch.inference_mode(), torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=bf16):
                yield
        finally:
            self.train(was_training)

    def _log_truncated(self, truncated: int, n: int) -> None:
        if truncated:
            logger.warning("%d of %d documents cut at %d tokens", truncated, n, self.max_tokens)


def _positions(config: Any) -> int:
    """Tokens that a Longformer can number: the rows of its position table after the padding id's."""
    return int(config.max_position_embeddings - config.pad_token_id - 1)


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    remaining = iter(texts)
    while chunk := list(islice(remaining, CHUNK)):
        yield chunk


@contextmanager
def _rows(path: Path | None, shape: tuple[int, int]) -> Iterator[np.ndarray]:
    """An array to fill: in memory, or in a hidden file beside `path` that gets its name once all is written."""
    if path is None:
        yield np.empty(shape, dtype=np.float32)
        return
    if path.suffix != ".npy":
        raise InputError(f"out: got {path}, give a file that ends in .npy")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{os.getpid()}.npy")
    try:
        rows = np.lib.format.open_memmap(partial, "w+", np.float32, shape)
        yield rows
        rows.flush()
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
