"""The stock forward pass of an encoder over packed documents, which are padded for it."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from docemb_lib.base.private import set_checkpointing
from docemb_lib.packed.packing import PackedBatch

PADDED_STEP = 64  # padded lengths are multiples of it; shorter documents take as long


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
