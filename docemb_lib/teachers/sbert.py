"""The structural teacher: a sentence encoder with a short context, mean-pooled and not normalised
(thesis, 4.2).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from docemb_lib.base import pretrained, tokenizing
from docemb_lib.base.errors import InputError
from docemb_lib.base.hardware import devices_at_hand, uses_bf16
from docemb_lib.base.progress import progress
from docemb_lib.settings.sections import Long
from docemb_lib.teachers.store import BAR_FROM

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

logger = logging.getLogger(__name__)


class SBERT:
    """A sentence-transformers model without its normalisation: the MSE losses of the thesis need
    raw embeddings.

    Args:
        model: folder, hub id, or `all-MiniLM-L6-v2`, which is installed with its package. Loaded at
            first use.
        max_tokens: context, special tokens included; None is the model's own (256 for MiniLM, 384
            for MPNet).
        long: a document beyond the context is truncated, or cut into chunks of that size, whose
            embeddings are averaged with their tokens (special ones included) as weights.
        batch_tokens: tokens per forward pass, padding included.
        bf16: compute in bfloat16; None: see `docemb_lib.base.hardware.uses_bf16`.
        device: None is the one that sentence-transformers chooses.

    Example:
        >>> SBERT(device="cpu").embed(["a document", "another one"]).shape
        (2, 384)
    """

    def __init__(
        self,
        model: str = "all-MiniLM-L6-v2",
        *,
        max_tokens: int | None = None,
        long: Long = "truncate",
        batch_tokens: int = 2048,
        bf16: bool | None = None,
        device: str | None = None,
    ) -> None:
        self.model, self.long, self.batch_tokens, self.device = model, long, batch_tokens, device
        self._wanted_tokens = max_tokens
        self.bf16 = uses_bf16(device or devices_at_hand()[0]) if bf16 is None else bf16

    @property
    def fingerprint(self) -> str:
        """Of the model's files and all options that change an embedding; the model is not loaded."""
        options = f"{self._wanted_tokens or 'own'}:{self.long}{':bf16' if self.bf16 else ''}"
        return f"sbert:{pretrained.fingerprint(self.model)}:{options}"

    @property
    def dim(self) -> int:
        return int(self._encoder.get_embedding_dimension())

    @cached_property
    def max_tokens(self) -> int:
        own = self._encoder.max_seq_length
        limit = (
            context_of(self._encoder[0].auto_model.config.to_dict()) or own or 512
        )  # T5 has relative positions
        tokens = self._wanted_tokens or min(own or limit, limit)
        least = sum(map(len, self._affixes)) + 1
        if not least <= tokens <= limit:
            mend = f"{self.model} takes {least} to {limit}, give one of these"
            raise InputError(f"max_tokens: got {tokens}; {mend}")
        return tokens

    @property
    def max_text_tokens(self) -> int:
        """`max_tokens` without the special tokens, as `count_tokens` counts."""
        return self.max_tokens - sum(map(len, self._affixes))

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each text, without special tokens and truncation."""
        return tokenizing.count_tokens(self._tokenizer, texts)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 (N, dim). A row depends on its own text alone, up to rounding."""
        return self.embed_both(texts)[1]

    def embed_both(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings of the texts truncated (the first chunk of each), and as `long` says: float32
        (N, dim) each.
        """
        (prefix, suffix), room = self._affixes, self.max_text_tokens
        sequences: list[list[int]] = []
        owners: list[int] = []  # sequences[k] is a part of texts[owners[k]]
        n_long = 0
        for owner, ids in enumerate(self._tokenize(texts)):
            n_long += len(ids) > room
            for start in [0] if self.long == "truncate" else range(0, max(len(ids), 1), room):
                sequences.append([*prefix, *ids[start : start + room], *suffix])
                owners.append(owner)
        if n_long:
            verb = "truncated to" if self.long == "truncate" else "cut into chunks of"
            logger.info(
                "%s: %d of %d documents %s %d tokens",
                self.model,
                n_long,
                len(texts),
                verb,
                self.max_tokens,
            )
        weights = np.array([len(ids) for ids in sequences], dtype=np.float32)
        first = np.zeros(len(sequences), dtype=bool)  # sequences that begin a text
        first[np.unique(owners, return_index=True)[1]] = True
        total = (
            np.bincount(owners, weights=weights, minlength=len(texts)) if sequences else np.zeros(0)
        )
        truncated, embeddings = (
            np.zeros((len(texts), self.dim), dtype=np.float32) for _ in range(2)
        )
        for part, rows in self._forward(sequences, show_bar=len(texts) >= BAR_FROM):
            documents = np.array(owners)[part]
            shares = (weights[part] / total[documents]).astype(np.float32)
            np.add.at(embeddings, documents, rows * shares[:, None])
            truncated[documents[first[part]]] = rows[first[part]]
        return truncated, embeddings

    def _forward(
        self, sequences: list[list[int]], *, show_bar: bool
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yield the indices and the embeddings of sequences of about equal length, longest first."""
        import torch

        batches: Iterable[list[int]] = _batches([len(ids) for ids in sequences], self.batch_tokens)
        for batch in progress(batches, desc="SBERT", unit="batches") if show_bar else batches:
            ids = {"input_ids": [sequences[index] for index in batch]}
            device = self._encoder.device
            padded = self._encoder.tokenizer.pad(ids, return_tensors="pt", verbose=False).to(device)
            with (
                torch.inference_mode(),
                torch.autocast(device.type, torch.bfloat16, enabled=self.bf16),
            ):
                out = self._encoder(padded)
            yield batch, out["sentence_embedding"].float().cpu().numpy()

    def _tokenize(self, texts: Sequence[str]) -> Iterator[list[int]]:
        for part in tokenizing.batched(texts, tokenizing.SLICE):
            if self.long == "truncate":
                part = tokenizing.heads(self._tokenizer, part, self.max_text_tokens)
            for encoding in self._tokenizer.encode_batch_fast(part, add_special_tokens=False):
                yield encoding.ids

    @cached_property
    def _encoder(self) -> SentenceTransformer:
        from sentence_transformers import SentenceTransformer

        full = pretrained.load_stock(self.model, device=self.device)
        # Compared by name, because the class has moved between versions of sentence-transformers.
        modules = [module for module in full if type(module).__name__ != "Normalize"]
        encoder = SentenceTransformer(modules=modules, device=self.device).eval()
        # which MiniLM's tokenizer file contains, like padding
        encoder.tokenizer.backend_tokenizer.no_truncation()
        encoder.tokenizer.backend_tokenizer.no_padding()
        return encoder

    @property
    def _tokenizer(self) -> Tokenizer:
        return self._encoder.tokenizer.backend_tokenizer

    @cached_property
    def _affixes(self) -> tuple[list[int], list[int]]:
        """Ids of the special tokens before and after a text."""
        encoding = self._tokenizer.encode("a")
        special = encoding.special_tokens_mask
        first, last = special.index(0), len(special) - special[::-1].index(0)
        return encoding.ids[:first], encoding.ids[last:]


def context_of(config: Mapping[str, Any]) -> int:
    """The number of tokens that an encoder has positions for, from its config.json; 0 where that
    does not say.
    """
    # RoBERTa-like encoders number positions from the padding id + 1 onwards.
    numbered = config.get("model_type") in {"roberta", "mpnet", "xlm-roberta", "camembert"}
    return config.get("max_position_embeddings", 0) - (
        config.get("pad_token_id", 1) + 1 if numbered else 0
    )


def _batches(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Indices of `lengths`, longest first, in batches of at most `batch_tokens` with padding (at
    least one each).
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if not batches or (len(batches[-1]) + 1) * lengths[batches[-1][0]] > batch_tokens:
            batches.append([])
        batches[-1].append(index)
    return batches
