"""Packed attention, and an encoder's forward pass over a packed batch that keeps each document
separate.

A Longformer without global attention (Beltagy et al. 2020) runs packed: the layers of the stock
`transformers.LongformerModel`, but on all tokens at once and with `banded_attention`, without
padding or wasted blocks. Any other encoder runs its stock forward on padded documents.

The attention has two backends. `blocks` runs everywhere: each block of queries reads only the keys
of its own document within the reach of some query, and one constant band masks them all. The scores
of a block fit into a core's cache and are computed again in the backward pass, so that memory is
that of queries, keys and values; on CPUs this is faster than `scaled_dot_product_attention` over
the same blocks, and supports dropout. `varlen` is torch's flash attention for packed sequences:
NVIDIA GPUs from Ampere on, half precision, no dropout.
"""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers import LongformerModel
from transformers.modeling_layers import GradientCheckpointingLayer

from docemb_lib.base.errors import InputError
from docemb_lib.base.integrity import warn_once
from docemb_lib.base.private import set_checkpointing, softmax_backward
from docemb_lib.student.packing import PackedBatch

Backend = Literal["blocks", "varlen"]

CPU_SCORES = 2**21  # bytes of a block's scores, all heads: about a core's second-level cache
GPU_SCORES = (
    2**28
)  # never the limit: blocks are as large as a window, because launching kernels costs most
# oneDNN compiles a kernel for every new shape of a bfloat16 product, which takes as long as ten
# products. Blocks therefore read a multiple of STEP tokens, so that documents of all lengths share
# a few shapes; the excess counts zero.
STEP = 64
PADDED_STEP = 64  # padded lengths are multiples of it; shorter documents take as long
_compile = lru_cache(partial(torch.compile, dynamic=True))  # once for each function
NO_DROPOUT = "attention dropout %s is left out: flash attention has none; training.attention: blocks has it, slower"


def hidden_states(
    model: LongformerModel,
    batch: PackedBatch,
    attention: Backend | None,
    checkpointing: bool,
    compiled: bool,
) -> Tensor:
    """Last hidden states (T, D) of a Longformer without global attention, packed.

    The options are `Student`'s.
    """
    embeddings = model.embeddings
    hidden = embeddings.word_embeddings(batch.input_ids) + embeddings.position_embeddings(
        _positions(model, batch)
    )
    # The only token type is added as a row: looking it up T times has a slow gradient on GPUs.
    hidden = embeddings.dropout(
        embeddings.LayerNorm(hidden + embeddings.token_type_embeddings.weight[0])
    )
    starts = torch.nn.functional.pad(batch.lengths.cumsum(0), (1, 0)).to(torch.int32)  # (B + 1,)
    for layer in model.encoder.layer:
        if checkpointing and torch.is_grad_enabled():
            hidden = checkpoint(
                _layer, layer, hidden, batch.sizes, starts, attention, compiled, use_reentrant=False
            )
        else:
            hidden = _layer(layer, hidden, batch.sizes, starts, attention, compiled)
    return hidden


def _positions(model: LongformerModel, batch: PackedBatch) -> Tensor:
    """(T,), rows of the position table: from the padding id + 1 on, without padding tokens in a
    text ("[PAD]").
    """
    padding = model.config.pad_token_id
    is_text = batch.input_ids != padding
    seen = is_text.cumsum(0)
    before = (seen - is_text.long())[batch.first]  # (B,) tokens of the documents before
    return torch.where(is_text, padding + seen - before[batch.document], padding)


def _layer(
    layer: Any,
    hidden: Tensor,
    lengths: Sequence[int],
    starts: Tensor,
    backend: Backend | None,
    compiled: bool,
) -> Tensor:
    before, after = (_compile(_before), _compile(_after)) if compiled else (_before, _after)
    query, key, value = before(layer, hidden)
    attention = layer.attention.self
    backend = backend or (
        "varlen" if fits_varlen(query.device, query.dtype, attention.head_dim) else "blocks"
    )
    dropout = attention.dropout if attention.training else 0.0
    if dropout and backend == "varlen":
        warn_once(NO_DROPOUT, dropout)
        dropout = 0.0
    window = attention.one_sided_attn_window_size
    context = banded_attention(
        query, key, value, lengths, window, starts=starts, dropout=dropout, backend=backend
    )
    return after(layer, context.flatten(1), hidden)


def _before(layer: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, (T, H, head_dim) each."""
    attention = layer.attention.self
    heads = (-1, attention.num_heads, attention.head_dim)
    if torch.is_autocast_enabled(
        hidden.device.type
    ):  # cast once instead of in each of the three projections
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    return (
        attention.query(hidden).view(heads),
        attention.key(hidden).view(heads),
        attention.value(hidden).view(heads),
    )


def _after(layer: Any, context: Tensor, hidden: Tensor) -> Tensor:
    return layer.ff_chunk(layer.attention.output(context, hidden))


def stock_hidden_states(
    model: Any, batch: PackedBatch, global_first_token: bool, checkpointing: bool
) -> Tensor:
    """Last hidden states (T, D) of any encoder, by its stock forward on documents padded to the
    same length.

    global_first_token: use a Longformer's global attention on the first token of each document.
    """
    for module in (
        model.modules()
    ):  # `gradient_checkpointing_enable` does the same, but transformers will rename it
        if isinstance(module, GradientCheckpointingLayer):
            module.gradient_checkpointing = checkpointing
            set_checkpointing(module, partial(checkpoint, use_reentrant=False))
    documents = batch.input_ids.split(batch.sizes)
    hidden: dict[int, Tensor] = {}
    same_length: dict[int, list[int]] = {}  # padded
    for row, size in enumerate(batch.sizes):
        same_length.setdefault(padded_length(model.config, size), []).append(row)
    for length, rows in same_length.items():
        input_ids = batch.input_ids.new_full((len(rows), length), model.config.pad_token_id)
        for line, row in zip(input_ids, rows, strict=True):
            line[: batch.sizes[row]] = documents[row]
        is_text = torch.arange(length, device=input_ids.device) < batch.lengths[rows][:, None]
        is_first = (torch.arange(length, device=input_ids.device) == 0).long().expand_as(input_ids)
        options = {"global_attention_mask": is_first} if global_first_token else {}
        output = model(
            input_ids, attention_mask=is_text.long(), **options
        ).last_hidden_state  # (rows, length, D)
        hidden |= {
            row: document[: batch.sizes[row]] for row, document in zip(rows, output, strict=True)
        }
    return torch.cat([hidden[row] for row in range(len(documents))])


def padded_length(config: Any, length: int) -> int:
    """Tokens of a document of `length` tokens in the stock forward."""
    # A stock Longformer would pad to the same, with a warning.
    return _rounded(length, max(getattr(config, "attention_window", [PADDED_STEP])))


def _rounded(length: int, step: int) -> int:
    return -(-length // step) * step


def banded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Sequence[int],
    window: int,
    *,
    starts: Tensor | None = None,
    dropout: float = 0.0,
    backend: Backend = "blocks",
) -> Tensor:
    """Softmax attention with scores scaled by head_dim^-1/2, in which token i sees token j of its
    own document if |i - j| <= window.

    Args:
        query, key, value: (T, H, head_dim) of one dtype.
        lengths: tokens of each of the B packed documents, T in sum.
        window: one-sided, at least 1.
        starts: (B + 1,) int32, the first token of each document, and T; for `varlen`.
        dropout: probability of dropping an attention weight, drawn from torch's default generator;
            `blocks` only.

    Returns (T, H, head_dim), differentiable once. Raises InputError where the device, the dtype,
    the head or dropout rules out the requested `varlen`.
    """
    _, H, head_dim = query.shape
    longest = max(lengths)
    window = min(window, longest)
    device, dtype = query.device, query.dtype
    if backend == "varlen":
        if starts is None or dropout or not fits_varlen(device, dtype, head_dim):
            needs = "an NVIDIA GPU from Ampere on, half precision, heads of multiples of 8 up to 256, and no dropout"
            raise InputError(
                f"attention: varlen needs {needs}; take blocks, or None for the faster one"
            )
        from torch.nn.attention.varlen import varlen_attn  # has windows from torch 2.11 on

        out: Any = varlen_attn(
            query, key, value, starts, starts, longest, longest, window_size=(window, window)
        )
        return out
    on_cpu = device.type == "cpu"
    # As many queries as fit the budget, but not so many that most scores lie outside the band. In
    # fp32, 64 queries took an eighth less time than 128 with a window of 128 (two cores with AVX2).
    fitting = (CPU_SCORES if on_cpu else GPU_SCORES) // (H * query.element_size() * 2 * window)
    most = 64 if on_cpu and dtype == torch.float32 else max(64, window)
    size = max(32, min(fitting, most) // 32 * 32)
    plan = blocks(lengths, window, size, STEP if on_cpu and dtype == torch.bfloat16 else 1)
    query = query * head_dim**-0.5
    return _BandedAttention.apply(
        query, key, value, plan, _band(size, window, query), window, dropout
    )


def fits_varlen(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether flash attention supports such tensors; it is then the faster backend."""
    if (
        device.type != "cuda"
        or torch.version.hip is not None
        or torch.cuda.get_device_capability(device) < (8, 0)
    ):
        return False
    return dtype in (torch.bfloat16, torch.float16) and head_dim % 8 == 0 and head_dim <= 256


class Block(NamedTuple):
    """Tokens `queries` attend to tokens `keys`: to all of them if `whole`, else to those within the
    window.
    """

    queries: slice
    keys: slice
    whole: bool
    # both start with the same tokens and may extend into the next document for a common shape
    read_queries: slice
    read_keys: slice


def blocks(lengths: Sequence[int], window: int, size: int, step: int = 1) -> list[Block]:
    """Blocks of at most `size` queries that read multiples of `step` tokens, as far as there are
    tokens.
    """
    plan: list[Block] = []
    T, end = sum(lengths), 0

    def read(tokens: slice) -> slice:
        return slice(tokens.start, min(tokens.start + _rounded(_length(tokens), step), T))

    for length in lengths:
        start, end = end, end + length
        for first in range(start, end, size):
            last = min(first + size, end)
            low, high = max(start, first - window), min(end, last + window)
            reach = max(last - 1 - low, high - 1 - first)  # the largest distance in the block
            queries, keys = slice(first, last), slice(low, high)
            plan.append(Block(queries, keys, reach <= window, read(queries), read(keys)))
    return plan


def _length(tokens: slice) -> int:
    return tokens.stop - tokens.start


def _band(size: int, window: int, like: Tensor) -> Tensor:
    """(size, size + 2 window), 0 inside the window and -inf outside; its keys start `window` tokens
    before a block.
    """
    distance = (
        torch.arange(size + 2 * window, device=like.device)
        - torch.arange(size, device=like.device)[:, None]
    )
    outside = (distance - window).abs() > window
    return torch.zeros_like(outside, dtype=like.dtype).masked_fill_(outside, -torch.inf)


def _weights(query: Tensor, key: Tensor, block: Block, band: Tensor, window: int) -> Tensor:
    """(H, read queries, read keys) of one block from all (H, T, head_dim); zero for tokens read for
    the shape alone.
    """
    scores = torch.bmm(query[:, block.read_queries], key[:, block.read_keys].mT)
    n_queries, n_keys = _length(block.queries), _length(block.keys)
    if not block.whole:
        missing = window - (
            block.queries.start - block.keys.start
        )  # columns of the band before the document's start
        scores[:, :n_queries, :n_keys] += band[:n_queries, missing : missing + n_keys]
    if n_keys < scores.shape[2]:
        scores[:, :, n_keys:] = -torch.inf
    weights = scores.softmax(-1)
    if n_queries < scores.shape[1]:
        weights[:, n_queries:] = 0
    return weights


class _Dropout:
    """A sequence of dropout masks that a seed repeats: the backward pass needs the masks of the
    forward pass.
    """

    def __init__(self, share: float, seed: int, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)
        self.threshold = round(share * 2**16) - 2**15
        self.scale = 1 / (1 - share)

    def mask(self, weights: Tensor) -> Tensor:
        """Like `weights`, 1 = kept. Four 16-bit draws an integer: faster than `bernoulli_`, exact
        within 1e-5.
        """
        integers = torch.empty(-(-weights.numel() // 4), dtype=torch.int64, device=weights.device)
        draws = integers.random_(-(2**63), None, generator=self.generator).view(torch.int16)
        draws = draws[: weights.numel()].view(weights.shape)
        return torch.ge(draws, self.threshold, out=torch.empty_like(weights))


class _BandedAttention(torch.autograd.Function):
    """The `blocks` backend. The query is already scaled."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        plan: list[Block],
        band: Tensor,
        window: int,
        share: float,
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, band)
        ctx.plan, ctx.window, ctx.share = plan, window, share
        ctx.seed = int(torch.randint(2**63 - 1, ())) if share else 0
        noise = _Dropout(share, ctx.seed, query.device) if share else None
        out = torch.empty_like(query)
        q, k, v, o = (
            tensor.transpose(0, 1) for tensor in (query, key, value, out)
        )  # (H, T, head_dim)
        with torch.autocast(query.device.type, enabled=False):
            for block in plan:
                weights = _weights(q, k, block, band, window)
                if noise is not None:
                    weights.mul_(noise.mask(weights))
                o[:, block.queries] = torch.bmm(weights, v[:, block.read_keys])[
                    :, : _length(block.queries)
                ]
            return out.mul_(noise.scale) if noise is not None else out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # With P = softmax(QK^T), O = PV and the gradient G of O: dV = P^T G, dP = G V^T, dS from dP
        # by the softmax's derivative, dQ = dS K, dK = dS^T Q. Keys are shared by neighbouring
        # blocks, so dK and dV are sums over blocks.
        query, key, value, band = ctx.saved_tensors
        noise = _Dropout(ctx.share, ctx.seed, query.device) if ctx.share else None
        d_query, d_key, d_value = (
            torch.empty_like(query),
            torch.zeros_like(key),
            torch.zeros_like(value),
        )
        with torch.autocast(query.device.type, enabled=False):
            if noise is not None:
                grad = grad * noise.scale
            tensors = query, key, value, grad, d_query, d_key, d_value
            q, k, v, g, dq, dk, dv = (tensor.transpose(0, 1) for tensor in tensors)
            for block in ctx.plan:
                weights = _weights(q, k, block, band, ctx.window)
                kept, d_weights = (
                    weights,
                    torch.bmm(g[:, block.read_queries], v[:, block.read_keys].mT),
                )
                if noise is not None:
                    mask = noise.mask(weights)
                    kept, d_weights = weights * mask, d_weights.mul_(mask)
                d_scores = softmax_backward(d_weights, weights)
                dv[:, block.read_keys] += torch.bmm(kept.mT, g[:, block.read_queries])
                dk[:, block.read_keys] += torch.bmm(d_scores.mT, q[:, block.read_queries])
                dq[:, block.queries] = torch.bmm(d_scores, k[:, block.read_keys])[
                    :, : _length(block.queries)
                ]
        return d_query, d_key, d_value, None, None, None, None
