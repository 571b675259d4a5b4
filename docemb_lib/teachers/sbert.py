"""The structural teacher: a sentence encoder with a short context (thesis, 3.2.1 and 4.4).

Its embeddings are mean-pooled and not normalised.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from docemb_lib.base import pretrained, tokenizing
from docemb_lib.base.errors import InputError
from docemb_lib.base.files import warn_once
from docemb_lib.base.hardware import devices_at_hand, side_by_side, uses_bf16
from docemb_lib.base.progress import progress
from docemb_lib.base.prompts import Prompts
from docemb_lib.settings.sections import Long
from docemb_lib.teachers.teacher import BAR_FROM

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

logger = logging.getLogger(__name__)
BATCH_TOKENS = 2048  # of a forward pass, padding included


class SBERT:
    """A sentence-transformers model without its normalisation.

    The MSE losses of the thesis need the raw embeddings.

    Args:
        model: folder, hub id, or `all-MiniLM-L6-v2`, which is installed with its package. Loaded at
            first use.
        max_tokens: context, special tokens included; None is the model's own (256 for MiniLM, 384
            for MPNet). Loading raises InputError for a number that the model does not take.
        long: a document beyond the context is truncated, or cut into chunks of that size, whose
            embeddings are averaged with their tokens (special ones included) as weights. The
            model's prompt, such as "passage: ", begins every chunk.
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
        bf16: bool | None = None,
        device: str | None = None,
    ) -> None:
        self.model = model
        self.long = long
        self.device = device
        self.bf16 = uses_bf16(device or devices_at_hand()[0]) if bf16 is None else bf16
        self._wanted_tokens = max_tokens

    @property
    def fingerprint(self) -> str:
        """Identifies the model's files and all options that change an embedding.

        The model is not loaded.
        """
        options = f"{self._wanted_tokens or 'own'}:{self.long}{':bf16' if self.bf16 else ''}"
        return f"sbert:{pretrained.fingerprint(self.model)}:{options}"

    @property
    def dim(self) -> int:
        return int(self._encoder.get_embedding_dimension())

    @cached_property
    def max_tokens(self) -> int:
        default = self._encoder.max_seq_length
        # A T5 has relative positions, so its config gives no limit.
        limit = context_of(self._encoder[0].auto_model.config.to_dict()) or default or 512
        tokens = self._wanted_tokens or min(default or limit, limit)
        least = self.special_tokens + 1
        if not least <= tokens <= limit:
            raise InputError(
                f"max_tokens: got {tokens}; "
                f"{self.model} takes {least} to {limit}, give one of these"
            )
        return tokens

    @property
    def special_tokens(self) -> int:
        """The number of special tokens around a text."""
        return sum(map(len, self._affixes))

    @property
    def max_text_tokens(self) -> int:
        """`max_tokens` without the special tokens, as `count_tokens` counts."""
        return self.max_tokens - self.special_tokens

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each text, without special tokens and truncation."""
        return tokenizing.count_tokens(self._tokenizer, texts)

    def unread(self, text: str) -> str:
        """The end of a text that its truncated embedding does not depend on, "" for a short one."""
        prompted = self._prompts.of(text) + text
        tokens = self._tokenizer.encode(prompted, add_special_tokens=False)
        beyond = tokens.offsets[self.max_text_tokens :]
        return prompted[beyond[0][0] :] if beyond else ""

    def embed(self, texts: Sequence[str], first: np.ndarray | None = None) -> np.ndarray:
        """Float32 (N, dim). A row depends on its own text alone, up to rounding.

        first: the embeddings of the truncated texts, (N, dim), which are those of their first
        chunks; None: these are computed, too.
        """
        prefix, suffix = self._affixes
        chunks = []  # token ids with the special ones
        rows = []  # chunks[k] is a part of texts[rows[k]]
        n_long = 0
        for row, ids in enumerate(self._tokenize(texts)):
            before = self._prompt_tokens(texts[row])
            room = self.max_text_tokens - len(before)
            if room < 1:
                raise InputError(
                    f"max_tokens: {self.max_tokens} leave no room after the prompt; give more"
                )
            ids = ids[len(before) :]
            n_long += len(ids) > room
            end = 1 if self.long == "truncate" else max(len(ids), 1)
            for start in range(0, end, room):
                chunks.append([*prefix, *before, *ids[start : start + room], *suffix])
                rows.append(row)
        if n_long:
            verb = "truncated to" if self.long == "truncate" else "cut into chunks of"
            message = "%s: %d of %d documents %s %d tokens"
            logger.info(message, self.model, n_long, len(texts), verb, self.max_tokens)

        owners = np.array(rows, dtype=np.intp)
        weights = np.array([len(ids) for ids in chunks], dtype=np.float32)
        total = np.bincount(owners, weights=weights, minlength=len(texts))  # (N,)
        shares = (weights / total[owners]).astype(np.float32)
        embeddings = np.zeros((len(texts), self.dim), dtype=np.float32)
        missing = np.arange(len(chunks))
        if first is not None:
            is_first = np.diff(owners, prepend=-1) > 0  # whether a chunk begins a text
            embeddings += first * shares[is_first, None]
            missing = np.flatnonzero(~is_first)
        wanted = [chunks[index] for index in missing]
        for batch, vectors in self._forward(wanted, show_bar=len(texts) >= BAR_FROM):
            indices = missing[batch]
            np.add.at(embeddings, owners[indices], vectors * shares[indices, None])
        return embeddings

    def _forward(
        self, chunks: list[list[int]], *, show_bar: bool
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yield the indices and the embeddings of chunks of about equal length, longest first."""
        from docemb_lib.packed.packing import token_batches

        # The states of a batch are padded before they are pooled.
        batches = token_batches([len(ids) for ids in chunks], BATCH_TOKENS, padded=True)
        parts = ([chunks[index] for index in batch] for batch in batches)
        with side_by_side(len(batches) if self._is_packed else 1) as run:
            results: Iterable[np.ndarray] = run(self._embed_batch, parts)
            if show_bar:
                results = progress(results, total=len(batches), desc="SBERT", unit="batches")
            yield from zip(batches, results, strict=True)

    def _embed_batch(self, chunks: list[list[int]]) -> np.ndarray:
        """The embeddings of chunks of token ids, (len(chunks), dim)."""
        import torch

        from docemb_lib.packed.forward import hidden_states
        from docemb_lib.packed.packing import pack

        encoder = self._encoder
        device = encoder.device
        padded = encoder.tokenizer.pad({"input_ids": chunks}, return_tensors="pt", verbose=False)
        features = padded.to(device)
        autocast = torch.autocast(device.type, torch.bfloat16, enabled=self.bf16)
        modules = list(encoder)
        with torch.inference_mode(), autocast:
            if self._is_packed:
                transformer = modules.pop(0)
                states = hidden_states(transformer.auto_model, pack(chunks))  # (T, D)
                is_token = features["attention_mask"].bool()  # (chunks, t)
                features["token_embeddings"] = states.new_zeros(*is_token.shape, states.shape[1])
                features["token_embeddings"][is_token] = states
            for module in modules:
                features = module(features)
        return features["sentence_embedding"].float().cpu().numpy()

    def _tokenize(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """The token ids of each text after its prompt, without special tokens."""
        prompted = (self._prompts.of(text) + text for text in texts)
        for part in tokenizing.batched(prompted, tokenizing.SLICE):
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
        encoder = SentenceTransformer(
            modules=modules,
            device=self.device,
            prompts=full.prompts,
            default_prompt_name=full.default_prompt_name,
        ).eval()
        # The tokenizer file of MiniLM asks for truncation and padding.
        encoder.tokenizer.backend_tokenizer.no_truncation()
        encoder.tokenizer.backend_tokenizer.no_padding()
        return encoder

    @cached_property
    def _is_packed(self) -> bool:
        """Whether the packed forward computes the encoder's states, which is faster on a CPU."""
        from docemb_lib.packed.forward import is_plain_short

        first = self._encoder[0]
        # A module of another class may do more than its model.
        is_stock = self._encoder.device.type == "cpu" and type(first).__name__ == "Transformer"
        return is_stock and is_plain_short(first.auto_model)

    @property
    def _tokenizer(self) -> Tokenizer:
        return self._encoder.tokenizer.backend_tokenizer

    @property
    def _prompts(self) -> Prompts:
        return Prompts.among(vars(self._encoder))

    def _prompt_tokens(self, text: str) -> list[int]:
        """The tokens that begin every chunk of a text; blanks after a prompt belong to the text."""
        prompt = self._prompts.of(text)
        if prompt:
            warn_once("%s: its prompt %r stands before texts", self.model, prompt)
        return list(self._tokenizer.encode(prompt.rstrip(), add_special_tokens=False).ids)

    @cached_property
    def _affixes(self) -> tuple[list[int], list[int]]:
        """Ids of the special tokens before and after a text."""
        encoding = self._tokenizer.encode("a")
        special = encoding.special_tokens_mask
        first = special.index(0)
        end = len(special) - special[::-1].index(0)
        return encoding.ids[:first], encoding.ids[end:]


def context_of(config: Mapping[str, Any]) -> int:
    """The number of tokens that an encoder has positions for, from its config.json.

    0 where that does not say.
    """
    positions: int = config.get("max_position_embeddings", 0)
    if config.get("model_type") in {"roberta", "mpnet", "xlm-roberta", "camembert"}:
        positions -= config.get("pad_token_id", 1) + 1  # they number positions from there onwards
    return positions
