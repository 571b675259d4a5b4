"""The half of meaning of a student: a long encoder over packed documents, and a mean of its states.

Section 4.2 of the thesis describes it. B: documents of a batch; T: tokens of all of them; D: width
of the embedding.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from docemb_lib.base import tokenizing
from docemb_lib.base.errors import InputError
from docemb_lib.base.private import set_checkpointing
from docemb_lib.base.prompts import NO_PROMPTS, Prompts
from docemb_lib.packed.forward import hidden_states
from docemb_lib.packed.packing import PackedBatch
from docemb_lib.student import loading

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerFast


logger = logging.getLogger(__name__)
Pooling = Literal["mean", "lead", "first", "cls"]
MEANS = ("mean", "lead")
# Poolings of each encoder with a packed forward, then of those without.
PACKED = tuple(product(loading.LONGFORMERS, ("mean", "lead", "first")))
KINDS = (*PACKED, ("longformer", "cls"), ("modernbert", "mean"))
PIECE = 64  # tokens summed one after the other
# The limit of a tokenizer is a state of it, which is set and removed while a thread tokenises.
_tokenising = threading.Lock()
PADDED_STEP = 64  # padded lengths are multiples of it; shorter documents take as long


class Encoder(nn.Module):
    """A stock transformers model and its tokenizer: packed documents in, one embedding each.

    Without global attention, a Longformer computes what `transformers.LongformerModel` computes on
    each document alone, and nothing for padding; its unused projections for global attention are
    frozen. With global attention, and for a ModernBERT, the stock forward runs on padded documents.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        *,
        pooling: Pooling = "mean",
        prompts: Prompts = NO_PROMPTS,
    ) -> None:
        super().__init__()
        self.model = model
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.prompts = prompts
        # Recompute activations in the backward pass: less memory, a third more time.
        self.checkpointing = False
        # torch.compile between the attentions: for GPUs, takes half a minute to prepare.
        self.compiled = False
        for name, parameter in model.named_parameters():
            if self.packed and "_global." in name:
                parameter.requires_grad_(False)

    @property
    def pooling(self) -> Pooling:
        """How the states of the tokens become one embedding. Raises InputError for another way."""
        return self._pooling

    @pooling.setter
    def pooling(self, pooling: Pooling) -> None:
        model_type = self.config.model_type
        if (model_type, pooling) not in KINDS:
            known = ", ".join(f"{pooling} of a {encoder}" for encoder, pooling in KINDS)
            given = f"a student cannot pool by {pooling} of a {model_type}"
            raise InputError(f"pooling: {given}; it takes the {known}")
        self._pooling = pooling
        self.packed = (model_type, pooling) in PACKED

    @property
    def config(self) -> PretrainedConfig:
        return self.model.config

    @property
    def dim(self) -> int:
        """D, of the half of meaning."""
        return int(self.config.hidden_size)

    @property
    def max_tokens(self) -> int:
        """The limit of a document, special tokens included."""
        return int(self.tokenizer.model_max_length)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def padded(self, length: int) -> int:
        """Return the tokens that the forward pass computes for a document of `length` tokens."""
        return length if self.packed else padded_length(self.config, length)

    def compile_if_possible(self, run: Callable[[], object]) -> None:
        """Compile the packed forward, unless that fails in `run`, a first pass.

        torch.compile needs Triton and a C compiler, and fails only when it is first used.
        """
        self.compiled = True
        try:
            run()
        except Exception as error:  # compilers fail in many ways
            self.compiled = False
            reason = str(error).strip().split("\n")[0]
            logger.warning("torch.compile fails and is not used: %s", reason)

    def forward(self, batch: PackedBatch) -> Tensor:
        """Compute the embeddings of B packed documents, pooled over their tokens, (B, D)."""
        states, totals = self.weighted_states(batch)
        if self.pooling not in MEANS:
            return states[batch.first]
        return means(states, totals, batch)

    def weighted_states(self, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        """Compute the states that pooling averages, (T, D), and their sums of weights, (B,)."""
        hidden = self.hidden(batch)  # (T, D)
        hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        if self.pooling != "lead":
            return hidden, batch.lengths
        place = torch.arange(len(hidden), device=hidden.device)
        place = place - batch.first[batch.document]  # (T,), from 0 in each document
        weights = torch.ones_like(place)
        totals = batch.lengths
        for first, more in self.leads:
            weights = weights + more * (place < first)
            totals = totals + more * batch.lengths.clamp(max=first)
        return hidden * weights[:, None], totals

    @property
    def leads(self) -> tuple[tuple[int, int], ...]:
        """Pairs of numbers: a token among so many first ones counts so many times more."""
        if self.pooling != "lead":
            return ()
        # Imported here, because it imports sentence-transformers.
        from docemb_lib.student.words_module import FIRST_TOKENS

        return FIRST_TOKENS

    def hidden(self, batch: PackedBatch) -> Tensor:
        """Compute the last hidden states of a batch of T tokens, (T, D).

        Raises InputError for a document beyond `max_tokens`.
        """
        longest = max(batch.sizes)
        if longest > self.max_tokens:
            limit = f"the student reads {self.max_tokens}"
            raise InputError(
                f"batch: a document has {longest} tokens, and {limit}; cut the document"
            )
        if self.packed:
            return hidden_states(self.model, batch, self.checkpointing, self.compiled)
        is_global = self.pooling == "cls"
        return stock_hidden_states(self.model, batch, is_global, self.checkpointing)

    def encodings(self, texts: Sequence[str]) -> list[Encoding]:
        """Tokenise each text after its prompt, cut at `max_tokens`."""
        tokenizer = self.tokenizer.backend_tokenizer
        prompted = [self.prompts.of(text) + text for text in texts]
        with _tokenising:
            loading.remove_limits(self.tokenizer)  # set below, or by stock libraries
            for prompt in filter(None, self.prompts):
                if len(tokenizer.encode(prompt)) >= self.max_tokens:
                    limit = f"the {self.max_tokens} tokens that the student reads"
                    raise InputError(f"prompts: {prompt!r:.40} takes all of {limit}; shorten it")
            beginnings = tokenizing.heads(tokenizer, prompted, self.max_tokens)
            tokenizer.enable_truncation(self.max_tokens)
            return tokenizer.encode_batch(beginnings)


def means(states: Tensor, totals: Tensor, batch: PackedBatch) -> Tensor:
    """Divide the sum over each document's rows of (T, D) by its total of `totals`, (B,): (B, D).

    A GPU sums a segment row by row, so sum pieces of a document in parallel first, then their sums.
    Scattered additions would also be fast, but in another order every time.
    """
    pieces = []  # rows of each piece
    counts = []  # pieces of each document
    for size in batch.sizes:
        full, rest = divmod(size, PIECE)
        pieces += [PIECE] * full + [rest] * (rest > 0)
        counts.append(full + (rest > 0))
    for lengths in (pieces, counts):
        states = segment_sums(states, lengths)
    return states / totals[:, None]


def segment_sums(rows: Tensor, lengths: Sequence[int]) -> Tensor:
    """Sum each run of so many rows, (T, D) to (len(lengths), D)."""
    on_device = torch.tensor(lengths).to(rows.device, non_blocking=True)
    return torch.segment_reduce(rows, "sum", lengths=on_device, axis=0, unsafe=True)


def stock_hidden_states(
    model: PreTrainedModel, batch: PackedBatch, global_first_token: bool, checkpointing: bool
) -> Tensor:
    """Compute the last hidden states of any encoder by its stock forward, (T, D).

    Documents of the same padded length are computed together. `global_first_token` uses a
    Longformer's global attention on the first token of each document.
    """
    # `gradient_checkpointing_enable` does the same, but transformers will rename it.
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.gradient_checkpointing = checkpointing
            set_checkpointing(module, partial(checkpoint, use_reentrant=False))

    rows_of_length: dict[int, list[int]] = {}  # the documents of each padded length
    for row, size in enumerate(batch.sizes):
        rows_of_length.setdefault(padded_length(model.config, size), []).append(row)

    documents = batch.input_ids.split(batch.sizes)
    padding = model.config.pad_token_id
    hidden: dict[int, Tensor] = {}  # the states of each document, without padding
    # One pass for each padded length: a pass over all would pad the short ones to the longest.
    for length, rows in rows_of_length.items():
        texts = [documents[row] for row in rows]
        padded = pad_sequence(texts, batch_first=True, padding_value=padding)
        input_ids = F.pad(padded, (0, length - padded.shape[1]), value=padding)  # (rows, length)
        # The mask is made of the lengths, because a text may contain the padding token itself.
        places = torch.arange(length, device=input_ids.device)
        mask = (places < batch.lengths[rows][:, None]).long()  # (rows, length), 1 = token
        options = {}
        if global_first_token:
            options["global_attention_mask"] = (places == 0).long().expand_as(input_ids)
        states = model(input_ids, attention_mask=mask, **options).last_hidden_state
        for row, document in zip(rows, states, strict=True):  # (length, D)
            hidden[row] = document[: batch.sizes[row]]
    return torch.cat([hidden[row] for row in range(len(documents))])


def padded_length(config: PretrainedConfig, length: int) -> int:
    """Return the tokens that the stock forward computes for a document of `length` tokens."""
    # A stock Longformer would pad to the same multiple of its largest window, with a warning.
    step = max(getattr(config, "attention_window", [PADDED_STEP]))
    return -(-length // step) * step
