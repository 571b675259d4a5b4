"""Packed attention, and the forward pass of an encoder over packed documents.

A Longformer without global attention (Beltagy et al. 2020) runs packed, also with MPNet's biases,
and so do BERT, RoBERTa and their like, whose layers it has. The layers are those of the stock
model, applied to the tokens of all documents at once, so nothing is spent on padding.
`banded_attention` keeps the documents apart. `stock` computes any other encoder.

The attention has two backends:

- `blocks` runs on every device. It cuts the queries of a document into blocks, and multiplies each
  block with the keys that some query of the block can see. The scores of a block fit into the
  cache of a core. The backward pass computes the weights again where they take more than
  KEPT_WEIGHTS, so the memory is that of queries, keys and values. On CPUs this is faster than
  `scaled_dot_product_attention` over the same blocks, and it supports dropout.
- `varlen` is torch's flash attention for packed sequences. It needs an NVIDIA GPU from Ampere on
  and half precision, and has no biases.

Documents of 3 and of 7 tokens, with a window of 2 and blocks of at most 4 queries, have three
blocks. Each row is a query, x is a key that it sees, and a dot is a score that is computed and
masked::

    token     0 1 2   3 4 5 6 7 8 9
    block 1   x x x                   queries 0 to 2, keys 0 to 2
              x x x
              x x x
    block 2           x x x . . .     queries 3 to 6, keys 3 to 8: the document starts at 3
                      x x x x . .
                      x x x x x .
                      . x x x x x
    block 3               x x x x x   queries 7 to 9, keys 5 to 9
                          . x x x x
                          . . x x x

B: documents of a batch; T: tokens of all of them; D: width of a state; H: heads of the attention.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers import LongformerModel, PreTrainedModel
from transformers.activations import GELUActivation
from transformers.models.longformer.modeling_longformer import LongformerLayer

from docemb_lib.base.private import (
    fits_onednn,
    flash_attention,
    onednn_linear,
    softmax_backward,
)
from docemb_lib.packed.packing import PackedBatch
from docemb_lib.packed.relative import of_offsets

# Short encoders: their layers and modules have the same names as those of a Longformer.
SHORT = ("bert", "roberta", "xlm-roberta", "camembert")

CPU_SCORES = 2**21  # bytes of a block's scores, all heads: about a core's second-level cache
# Bytes of a layer's attention weights that are kept for the backward pass. More are computed again,
# so that long documents take the memory of queries, keys and values alone.
KEPT_WEIGHTS = 2**27
# On a GPU the budget never decides: blocks are as large as a window, because launching kernels
# costs most.
GPU_SCORES = 2**28
# oneDNN compiles a kernel for every new shape of a bfloat16 product, which takes as long as ten
# products. Blocks therefore read a multiple of STEP tokens, so that documents of all lengths share
# a few shapes; the excess counts zero.
STEP = 64
# A sum of powers of 2 whose own logarithm is below is exact: no power overflows or, if it counts,
# vanishes.
EXACT = 100
_compile = lru_cache(partial(torch.compile, dynamic=True))  # compiles each function once


def is_plain_short(model: PreTrainedModel) -> bool:
    """Tell whether `hidden_states` computes a short encoder.

    It must be of `SHORT`, an encoder with learnt positions, and without adapters.
    """
    config = model.config
    positions = getattr(config, "position_embedding_type", "absolute")
    is_decoder = getattr(config, "is_decoder", False)
    if config.model_type not in SHORT or positions != "absolute" or is_decoder:
        return False
    # An adapter stands in the place of a linear layer, and holds it.
    return not any("base_layer" in name for name, _ in model.named_modules())


def hidden_states(
    model: LongformerModel,
    batch: PackedBatch,
    checkpointing: bool = False,
    compiled: bool = False,
) -> Tensor:
    """Compute the last hidden states of a Longformer without global attention, packed.

    The model may be a short encoder, too, see `is_plain_short`: each token then sees all of its
    document. The options are those of `Student`. Returns (T, D).
    """
    # The stock embeddings, in the order of the stock model: the sum, LayerNorm, dropout.
    embeddings = model.embeddings
    words = embeddings.word_embeddings(batch.input_ids)  # (T, D)
    positions = embeddings.position_embeddings(_positions(model, batch))  # (T, D)
    # The only token type is added as a row: looking it up T times has a slow gradient on GPUs.
    token_type = embeddings.token_type_embeddings.weight[0]  # (D,)
    hidden = embeddings.dropout(embeddings.LayerNorm(words + positions + token_type))
    if hidden.is_cuda and torch.is_autocast_enabled("cuda"):
        # Between its products a GPU waits for memory: states of half the bytes take half the time.
        # Each sublayer ends in a LayerNorm, so the rounding does not add up over the layers.
        hidden = hidden.to(torch.get_autocast_dtype("cuda"))

    # The first token of each document, and T: flash attention takes documents by these. (B + 1,)
    starts = F.pad(batch.lengths.cumsum(0), (1, 0)).to(torch.int32)
    # Checkpointing keeps the input of a layer alone and computes the layer again in the backward
    # pass.
    recomputes = checkpointing and torch.is_grad_enabled()
    run_layer = partial(checkpoint, _layer, use_reentrant=False) if recomputes else _layer
    strip = getattr(model.encoder, "offset_bias", None)  # of a RelativeLongformer
    for layer in model.encoder.layer:
        hidden = run_layer(layer, hidden, batch.sizes, starts, strip, compiled)  # (T, D)
    return hidden


def _positions(model: LongformerModel, batch: PackedBatch) -> Tensor:
    """Return the row of the position table for each token, (T,).

    As in the stock model, the tokens of a document count from the padding id + 1 on, and a padding
    token that a text contains ("[PAD]") has the padding id as its row and is not counted. BERT
    counts all tokens, from 0 on.
    """
    if model.config.model_type == "bert":
        places = torch.arange(len(batch.input_ids), device=batch.input_ids.device)
        return places - batch.first[batch.document]
    padding = model.config.pad_token_id
    is_text = batch.input_ids != padding  # (T,)
    seen = is_text.cumsum(0)  # (T,), over all documents
    before = (seen - is_text.long())[batch.first]  # (B,), counted in the documents before
    return torch.where(is_text, padding + seen - before[batch.document], padding)


def _layer(
    layer: LongformerLayer,
    hidden: Tensor,
    lengths: Sequence[int],
    starts: Tensor,
    strip: Tensor | None,
    compiled: bool,
) -> Tensor:
    """Apply one layer to the states of all tokens, (T, D) to (T, D).

    Only what stands before and after the attention is compiled: the attention's loop over blocks
    would be compiled again for every batch.
    """
    project = _compile(_project) if compiled else _project
    feed_forward = _compile(_feed_forward) if compiled else _feed_forward
    query, key, value = project(layer, hidden)  # (T, H, head_dim) each

    # The stock layer's own projections for global attention stay unused.
    attention = layer.attention.self
    fits = strip is None and fits_varlen(query.device, query.dtype, query.shape[2])
    dropout = attention.config.attention_probs_dropout_prob if attention.training else 0.0
    window = getattr(attention, "one_sided_attn_window_size", max(lengths))  # of BERT: all
    context = banded_attention(
        query,
        key,
        value,
        lengths,
        window,
        starts=starts if fits else None,
        strip=strip,
        dropout=dropout,
    )
    return feed_forward(layer, context.flatten(1), hidden)  # heads side by side: (T, D)


def _project(layer: LongformerLayer, hidden: Tensor) -> tuple[Tensor, ...]:
    """Return queries, keys and values, (T, H, head_dim) each."""
    attention = layer.attention.self
    projections = (attention.query, attention.key, attention.value)
    # One product of three times the columns: a projection alone does not fill a GPU, and on a CPU
    # the states are read once.
    weight = torch.cat([projection.weight for projection in projections])  # (3 D, D)
    bias = torch.cat([projection.bias for projection in projections])
    joined = _linear(hidden, weight, bias)  # (T, 3 D)
    return joined.view(len(hidden), 3, attention.config.num_attention_heads, -1).unbind(1)


def _feed_forward(layer: LongformerLayer, context: Tensor, hidden: Tensor) -> Tensor:
    """Add the attention's output to the states, then the feed-forward network's, (T, D) each."""
    # LayerNorm computes in float32; its result has the dtype of the states.
    first = layer.attention.output
    added = first.dropout(_linear(context, first.dense.weight, first.dense.bias)) + hidden
    attended = first.LayerNorm(added).to(hidden.dtype)

    wide = layer.intermediate
    activation = wide.intermediate_act_fn
    inner = _linear(attended, wide.dense.weight, wide.dense.bias, activation)  # (T, width between)
    last = layer.output
    added = last.dropout(_linear(inner, last.dense.weight, last.dense.bias)) + attended
    return last.LayerNorm(added).to(hidden.dtype)


def _linear(
    states: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Apply a linear layer and an activation to states, (T, in) to (T, out).

    CPUs multiply by oneDNN where it is the faster library, in autocast's dtype.
    """
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else states.dtype
    fused = False
    if states.device.type != "cpu" or torch.compiler.is_compiling() or not fits_onednn(dtype):
        product = F.linear(states, weight, bias)
    else:
        tensors = (tensor.to(dtype) for tensor in (states, weight, bias))
        if torch.is_grad_enabled():
            product = _Linear.apply(*tensors)
        else:
            fused = isinstance(activation, GELUActivation)
            product = onednn_linear(*tensors, gelu=fused)
    return product if activation is None or fused else activation(product)


class _Linear(torch.autograd.Function):
    """A linear layer by oneDNN, with the gradient written down. All tensors have one dtype."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Compute Y = X W^T + b, (T, out)."""
        ctx.save_for_backward(states, weight)
        return onednn_linear(states, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute dX = G W, dW = G^T X and db, the sum of the rows of G."""
        states, weight = ctx.saved_tensors
        d_bias = grad.sum(0)
        # In bfloat16 torch itself multiplies by oneDNN, and is a little faster.
        if grad.dtype == torch.bfloat16:
            return grad @ weight, grad.T @ states, d_bias
        return onednn_linear(grad, weight.T), onednn_linear(grad.T, states.T), d_bias


def banded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Sequence[int],
    window: int,
    *,
    starts: Tensor | None = None,
    strip: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Compute softmax attention inside a window around each token of a document.

    Token i sees token j of its own document if |i - j| <= window. Scores are scaled by
    head_dim^-1/2.

    Args:
        query, key, value: (T, H, head_dim) of one dtype.
        lengths: tokens of each of the B packed documents, T in sum.
        window: one-sided, at least 1.
        starts: (B + 1,) int32, the first token of each document, and T, for `varlen`, which the
            tensors must fit, see `fits_varlen`; None: `blocks`.
        strip: biases that `blocks` adds to the scores, see `RelativeLongformer`.
        dropout: probability of dropping an attention weight, drawn from torch's default generator.

    Returns (T, H, head_dim), differentiable once.
    """
    H = query.shape[1]
    dtype = query.dtype
    # A wider window sees no more.
    longest = max(lengths)
    window = min(window, longest)
    if starts is not None:
        return flash_attention(
            query, key, value, starts, longest=longest, window=window, dropout=dropout
        )

    # As many queries as fit the budget, but not so many that most scores lie outside the band. In
    # fp32, 64 queries took an eighth less time than 128 with a window of 128 (two cores with AVX2).
    on_cpu = query.device.type == "cpu"
    budget = CPU_SCORES if on_cpu else GPU_SCORES
    fitting = budget // (H * query.element_size() * 2 * window)
    most = 64 if on_cpu and dtype == torch.float32 else max(64, window)
    size = max(32, min(fitting, most) // 32 * 32)
    step = STEP if on_cpu and dtype == torch.bfloat16 else 1
    plan = blocks(lengths, window, size, step)
    scores = sum(_length(block.read_queries) * _length(block.read_keys) for block in plan)
    keeps = torch.is_grad_enabled() and scores * H * query.element_size() <= KEPT_WEIGHTS
    bias = None if strip is None else block_biases(strip, size + step, window)
    return _BandedAttention.apply(query, key, value, bias, plan, window, dropout, keeps)


def fits_varlen(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Tell whether flash attention supports such tensors; it is then the faster backend."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    if torch.cuda.get_device_capability(device) < (8, 0):  # older than Ampere
        return False
    return dtype in (torch.bfloat16, torch.float16) and head_dim % 8 == 0 and head_dim <= 256


class Block(NamedTuple):
    """A block of queries of one document, with the keys that some of them see.

    The tokens that are read start with the same tokens. They may extend into the next document, so
    that many blocks have a common shape.
    """

    queries: slice
    keys: slice
    read_queries: slice
    read_keys: slice


def blocks(lengths: Sequence[int], window: int, size: int, step: int = 1) -> list[Block]:
    """Cut documents into blocks of at most `size` queries.

    The blocks read multiples of `step` tokens, as far as there are tokens.
    """
    T = sum(lengths)

    def read(tokens: slice) -> slice:
        stop = tokens.start - -_length(tokens) // step * step  # rounded up
        return slice(tokens.start, min(stop, T))

    plan: list[Block] = []
    # No block spans two documents, so no score between documents is ever computed.
    start = 0  # the first token of a document
    for length in lengths:
        end = start + length
        for first in range(start, end, size):
            last = min(first + size, end)  # the first token after the block
            low = max(start, first - window)
            high = min(end, last + window)
            queries = slice(first, last)
            keys = slice(low, high)
            plan.append(Block(queries, keys, read(queries), read(keys)))
        start = end
    return plan


def block_biases(strip: Tensor, rows: int, window: int) -> Tensor:
    """Return the biases of a block of so many queries with all their keys, (H, rows, columns).

    The first query comes `window` tokens after the first key. Other blocks take parts of it.
    """
    columns = rows + 2 * window
    along = of_offsets(strip, 1 - rows - window, columns - 1 - window)
    return along.unfold(1, columns, 1).flip(1)


def _length(tokens: slice) -> int:
    return tokens.stop - tokens.start


def _weights(
    query: Tensor, key: Tensor, bias: Tensor | None, block: Block, window: int
) -> tuple[Tensor, Tensor]:
    """Compute exp(scores) of one block, and its sum over the keys: their ratio is the softmax.

    Keys that a query does not see have 0. query, key: of all tokens, (H, T, head_dim); bias: see
    `block_biases`. Returns (H, read queries, read keys) and (H, read queries, 1).
    """
    # Each head multiplies all queries of the block with all keys that any of them sees.
    q = query[:, block.read_queries]
    # A product would copy keys that are not contiguous twice.
    k = key[:, block.read_keys].contiguous().mT
    if bias is not None:
        bias = bias[_of_block(block, window)]
    if q.is_cuda:
        return _exponentials(q, k, bias, block, window, shifts=True)
    # To find the largest scores takes as long as all else, and few heads need it.
    exponentials, sums = _exponentials(q, k, bias, block, window, shifts=False)
    exact = sums[:, : _length(block.queries)].log2().abs() < EXACT
    heads = ~exact.all(1)[:, 0]  # (H,)
    if heads.any():
        bias = None if bias is None else bias[heads]
        shifted = _exponentials(q[heads], k[heads], bias, block, window, shifts=True)
        exponentials[heads], sums[heads] = shifted
    return exponentials, sums


def _of_block(block: Block, window: int) -> tuple[slice, slice, slice]:
    """Return the part of `block_biases` that belongs to the scores of a block."""
    # A block at the start of its document lacks keys before it.
    first = window - (block.queries.start - block.keys.start)
    rows = slice(_length(block.read_queries))
    return slice(None), rows, slice(first, first + _length(block.read_keys))


def _exponentials(
    q: Tensor, k: Tensor, bias: Tensor | None, block: Block, window: int, *, shifts: bool
) -> tuple[Tensor, Tensor]:
    """Compute `_weights` from the queries, the keys and the biases of one block.

    shifts: subtract the largest score of each query, so that no exponential overflows.
    """
    # A power of 2 takes half the time of one of e.
    beta = math.log2(math.e)
    scale = beta * q.shape[2] ** -0.5
    if bias is None:
        beta = 0
        bias = q.new_empty(1)
    scores = torch.baddbmm(bias, q, k, beta=beta, alpha=scale)
    place = block.queries.start - block.keys.start  # of the first query among the keys

    def seen(matrix: Tensor) -> Tensor:
        """Set keys outside the window and keys of the next document to zero."""
        matrix[:, :, _length(block.keys) :] = 0
        return matrix.triu_(place - window).tril_(place + window)

    if shifts:
        hidden = seen(torch.ones_like(scores)) == 0
        scores -= scores.masked_fill(hidden, -torch.inf).amax(2, keepdim=True)
    powers = seen(scores.exp2_())
    return powers, powers.sum(2, keepdim=True)


class _Dropout:
    """A sequence of dropout masks that a seed repeats.

    The backward pass needs the masks of the forward pass, and drawing them again takes no memory.
    """

    def __init__(self, share: float, seed: int, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)
        self.threshold = round(share * 2**16) - 2**15  # a 16-bit draw below it drops its weight
        self.scale = 1 / (1 - share)

    def mask(self, weights: Tensor) -> Tensor:
        """Return the next mask, of the shape and dtype of `weights`; 1 = kept.

        Four 16-bit draws come from one integer, which is faster than `bernoulli_` and exact within
        1e-5.
        """
        integers = torch.empty(-(-weights.numel() // 4), dtype=torch.int64, device=weights.device)
        draws = integers.random_(-(2**63), None, generator=self.generator).view(torch.int16)
        draws = draws[: weights.numel()].view(weights.shape)
        return torch.ge(draws, self.threshold, out=torch.empty_like(weights))


class _BandedAttention(torch.autograd.Function):
    """The `blocks` backend, with the gradient written down."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        plan: list[Block],
        window: int,
        share: float,
        keeps: bool,
    ) -> Tensor:
        """Compute the context of each token, (T, H, head_dim), block by block."""
        ctx.plan = plan
        ctx.window = window
        ctx.share = share
        ctx.seed = int(torch.randint(2**63 - 1, ())) if share else 0
        # One product computes all heads of a block: (H, T, head_dim).
        q, k, v = (tensor.transpose(0, 1) for tensor in (query, key, value))
        o = torch.empty_like(query, memory_format=torch.contiguous_format)
        noise = _Dropout(share, ctx.seed, query.device) if share else None
        kept = []
        all_sums = []
        b = None if bias is None else bias.to(q.dtype)
        with torch.autocast(query.device.type, enabled=False):
            for block in plan:
                weights, sums = _weights(q, k, b, block, window)
                if keeps:
                    kept.append(weights)
                if noise is not None:
                    weights = weights * noise.mask(weights)
                context = torch.bmm(weights, v[:, block.read_keys])  # (H, read queries, head_dim)
                n_queries = _length(block.queries)
                all_sums.append(sums[:, :n_queries])
                result = o[block.queries].transpose(0, 1)
                torch.div(context[:, :n_queries], all_sums[-1], out=result)
            if noise is not None:
                o.mul_(noise.scale)
        sums = torch.cat(all_sums, 1)
        ctx.save_for_backward(q, k, v, b, sums, *kept)
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the gradients of query, key, value and bias, block by block.

        With P = softmax(Q K^T / c), O = P V and the gradient G of O: dV = P^T G, dP = G V^T, dS
        follows from dP by the softmax's derivative, dQ = dS K / c, dK = dS^T Q / c, and that of the
        bias is dS. Neighbouring blocks share keys, and all blocks biases, so these are sums over
        blocks.
        """
        q, k, v, b, sums, *kept = ctx.saved_tensors
        noise = _Dropout(ctx.share, ctx.seed, q.device) if ctx.share else None
        with torch.autocast(q.device.type, enabled=False):
            if noise is not None:
                grad = grad * noise.scale
            g = grad.transpose(0, 1)  # (H, T, head_dim)
            dq, dk, dv = (g.new_zeros(g.shape) for _ in range(3))
            db = None
            if b is not None:  # a sum over all blocks, which bfloat16 would round away
                db = torch.zeros_like(b, dtype=torch.promote_types(b.dtype, torch.float32))
            again = (_weights(q, k, b, block, ctx.window)[0] for block in ctx.plan)
            for block, weights in zip(ctx.plan, kept or again, strict=True):
                # P of the block, without dropout: (H, read queries, read keys), like all below.
                weights = weights / sums[:, block.read_queries]
                # Queries of the next document must not reach the gradients of keys and values.
                weights[:, _length(block.queries) :] = 0
                g_block = g[:, block.read_queries].contiguous()  # G, (H, read queries, head_dim)
                dropped = weights
                d_weights = torch.bmm(g_block, v[:, block.read_keys].contiguous().mT)  # dP = G V^T
                if noise is not None:
                    # A dropped weight has no part in O, so neither V nor P learns through it.
                    mask = noise.mask(weights)
                    dropped = weights * mask
                    d_weights.mul_(mask)
                d_scores = softmax_backward(d_weights, weights)  # dS
                # Rows of queries that were read for the shape alone are zero in P, hence in dS:
                # they add nothing to these sums.
                dv[:, block.read_keys] += torch.bmm(dropped.mT, g_block)  # dV = P^T G
                dk[:, block.read_keys] += torch.bmm(d_scores.mT, q[:, block.read_queries])
                d_queries = torch.bmm(d_scores, k[:, block.read_keys])  # dQ = dS K
                dq[:, block.queries] = d_queries[:, : _length(block.queries)]
                if db is not None:
                    db[_of_block(block, ctx.window)] += d_scores
            scale = q.shape[2] ** -0.5
            dq *= scale
            dk *= scale
        gradients = (tensor.transpose(0, 1) for tensor in (dq, dk, dv))  # (T, H, head_dim)
        return *gradients, db, *[None] * 4
