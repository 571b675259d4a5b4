"""Sliding-window attention over packed documents (Longformer, Beltagy et al. 2020), without padding or wasted blocks.

One function, two backends. `blocks` runs everywhere: it cuts a document into blocks of queries, each of which reads
only the keys of its own document within the reach of some query. Short documents therefore cost their own length, long
ones their window, and one constant band masks every block. The scores of a block fit into a core's cache and are
computed again in the backward pass, so that memory is that of queries, keys and values. On CPUs this is faster than
`scaled_dot_product_attention` over the same blocks, in bfloat16 by far, and supports dropout. `varlen` is torch's flash
attention for packed sequences: NVIDIA GPUs from Ampere on, half precision, no dropout.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from docemb_lib.errors import InputError
from docemb_lib.private import softmax_backward

Backend = Literal["blocks", "varlen"]

CPU_SCORES = 2**21  # bytes of a block's scores, all heads: about a core's second-level cache
GPU_SCORES = 2**28  # never the limit: blocks are as large as a window, because launching kernels costs most
# oneDNN compiles a kernel for every new shape of a bfloat16 product, which takes as long as ten products. Blocks
# therefore read a multiple of STEP tokens, so that documents of all lengths share a few shapes; the excess counts zero.
STEP = 64


def banded_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Sequence[int],
    window: int,
    *,
    starts: Tensor | None = None,
    dropout: float = 0.0,
    backend: Backend | None = None,
) -> Tensor:
    """Softmax attention with scores scaled by head_dim^-1/2, in which token i sees token j of its own document if
    |i - j| <= window.

    Args:
        query, key, value: (T, H, head_dim) of one dtype.
        lengths: tokens of each of the B packed documents, T in sum.
        window: one-sided, at least 1.
        starts: (B + 1,) int32, the first token of each document, and T; None: computed from `lengths`.
        dropout: probability of dropping an attention weight, drawn from torch's default generator; `blocks` only.
        backend: None is the faster one.

    Returns:
        (T, H, head_dim), differentiable once.

    Raises:
        InputError: the device, the dtype, the head or dropout rules out the requested `varlen`.
    """
    T, H, head_dim = query.shape
    if sum(lengths) != T:
        raise ValueError(f"lengths must sum to the {T} tokens of query, got {sum(lengths)}")
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    window = min(window, max(lengths))
    device, dtype = query.device, query.dtype
    if (backend or choose_backend(device, dtype, head_dim)) == "varlen":
        reason = _unfit_for_varlen(device, dtype, head_dim)
        if reason is None and dropout:
            reason = f"it has no dropout, and {dropout} is asked for"
        if reason is not None:
            raise InputError(f"attention: varlen cannot be used: {reason}; take blocks, or None for the faster one")
        from torch.nn.attention.varlen import varlen_attn  # has windows from torch 2.11 on

        if starts is None:
            starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
        longest = max(lengths)
        out: Any = varlen_attn(query, key, value, starts, starts, longest, longest, window_size=(window, window))
        return out
    on_cpu = device.type == "cpu"
    # As many queries as fit the budget, but not so many that most scores lie outside the band.
    fitting = (CPU_SCORES if on_cpu else GPU_SCORES) // (H * query.element_size() * 2 * window)
    size = max(32, min(fitting, max(64, window)) // 32 * 32)
    plan = blocks(lengths, window, size, STEP if on_cpu and dtype == torch.bfloat16 else 1)
    query = query * head_dim**-0.5
    return _BandedAttention.apply(query, key, value, plan, _band(size, window, query), window, dropout)


def choose_backend(device: torch.device, dtype: torch.dtype, head_dim: int) -> Backend:
    """The faster backend for such tensors."""
    return "blocks" if _unfit_for_varlen(device, dtype, head_dim) else "varlen"


def _unfit_for_varlen(device: torch.device, dtype: torch.dtype, head_dim: int) -> str | None:
    """Why flash attention does not support such tensors; None: it does."""
    if device.type != "cuda" or torch.version.hip is not None:
        return "it needs an NVIDIA GPU"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs a GPU of the Ampere generation or later"
    if dtype not in (torch.bfloat16, torch.float16):
        return f"it computes in bfloat16 or float16, not in {str(dtype).removeprefix('torch.')}"
    if head_dim % 8 or head_dim > 256:
        return f"its heads are multiples of 8 up to 256 wide, not {head_dim}"
    return None


class Block(NamedTuple):
    """Tokens `queries` attend to tokens `keys`: to all of them if `whole`, else to those within the window.

    `read_queries` and `read_keys` start with the same tokens and may extend into the next document for a common shape.
    """

    queries: slice
    keys: slice
    whole: bool
    read_queries: slice
    read_keys: slice


def blocks(lengths: Sequence[int], window: int, size: int, step: int = 1) -> list[Block]:
    """Cut packed documents of `lengths` tokens into blocks of at most `size` queries; `window` is one-sided. The
    numbers of tokens read are multiples of `step`, as far as there are tokens."""
    plan: list[Block] = []
    T = sum(lengths)

    def read(tokens: slice) -> slice:
        return slice(tokens.start, min(tokens.start + -(-_length(tokens) // step) * step, T))

    start = 0
    for length in lengths:
        end = start + length
        for first in range(start, end, size):
            last = min(first + size, end)
            low, high = max(start, first - window), min(end, last + window)
            reach = max(last - 1 - low, high - 1 - first)  # the largest distance in the block
            queries, keys = slice(first, last), slice(low, high)
            plan.append(Block(queries, keys, reach <= window, read(queries), read(keys)))
        start = end
    return plan


def _length(tokens: slice) -> int:
    return tokens.stop - tokens.start


def _band(size: int, window: int, like: Tensor) -> Tensor:
    """(size, size + 2 window), 0 inside the window and -inf outside, for a block whose keys start `window` tokens
    before its first query."""
    distance = torch.arange(size + 2 * window, device=like.device) - torch.arange(size, device=like.device)[:, None]
    outside = (distance - window).abs() > window
    return torch.zeros_like(outside, dtype=like.dtype).masked_fill_(outside, -torch.inf)


def _weights(query: Tensor, key: Tensor, block: Block, band: Tensor, window: int) -> Tensor:
    """Attention weights of one block, (H, read queries, read keys), from all queries and keys, (H, T, head_dim); zero
    for tokens that are read for the shape alone."""
    scores = torch.bmm(query[:, block.read_queries], key[:, block.read_keys].mT)
    n_queries, n_keys = _length(block.queries), _length(block.keys)
    if not block.whole:
        missing = window - (block.queries.start - block.keys.start)  # columns of the band before the document's start
        scores[:, :n_queries, :n_keys] += band[:n_queries, missing : missing + n_keys]
    if n_keys < scores.shape[2]:
        scores[:, :, n_keys:] = -torch.inf
    weights = scores.softmax(-1)
    if n_queries < scores.shape[1]:
        weights[:, n_queries:] = 0
    return weights


class _Dropout:
    """A sequence of dropout masks that a seed repeats: the backward pass needs the masks of the forward pass."""

    def __init__(self, share: float, seed: int, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)
        self.threshold = round(share * 2**16) - 2**15
        self.scale = 1 / (1 - share)

    def mask(self, weights: Tensor) -> Tensor:
        """Like `weights`, 1 = kept, 0 = dropped. Each random integer gives four 16-bit draws: several times as fast as
        `bernoulli_`, and the share is exact within 1e-5."""
        integers = torch.empty(-(-weights.numel() // 4), dtype=torch.int64, device=weights.device)
        draws = integers.random_(-(2**63), None, generator=self.generator).view(torch.int16)
        draws = draws[: weights.numel()].view(weights.shape)
        return torch.ge(draws, self.threshold, out=torch.empty_like(weights))


class _BandedAttention(torch.autograd.Function):
    """The `blocks` backend. The query is already scaled."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, plan: list[Block], band: Tensor, window: int, share: float
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, band)
        ctx.plan, ctx.window, ctx.share = plan, window, share
        ctx.seed = int(torch.randint(2**63 - 1, ())) if share else 0
        noise = _Dropout(share, ctx.seed, query.device) if share else None
        out = torch.empty_like(query)
        q, k, v, o = (tensor.transpose(0, 1) for tensor in (query, key, value, out))  # (H, T, head_dim)
        with torch.autocast(query.device.type, enabled=False):
            for block in plan:
                weights = _weights(q, k, block, band, window)
                if noise is not None:
                    weights.mul_(noise.mask(weights))
                o[:, block.queries] = torch.bmm(weights, v[:, block.read_keys])[:, : _length(block.queries)]
            return out.mul_(noise.scale) if noise is not None else out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        # With P = softmax(QK^T), O = PV and the gradient G of O: dV = P^T G, dP = G V^T, dS from dP by the softmax's
        # derivative, dQ = dS K, dK = dS^T Q. Keys are shared by neighbouring blocks, so dK and dV are sums over blocks.
        query, key, value, band = ctx.saved_tensors
        noise = _Dropout(ctx.share, ctx.seed, query.device) if ctx.share else None
        d_query, d_key, d_value = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        with torch.autocast(query.device.type, enabled=False):
            if noise is not None:
                grad = grad * noise.scale
            q, k, v, g, dq, dk, dv = (
                tensor.transpose(0, 1) for tensor in (query, key, value, grad, d_query, d_key, d_value)
            )
            for block in ctx.plan:
                weights = _weights(q, k, block, band, ctx.window)
                kept, d_weights = weights, torch.bmm(g[:, block.read_queries], v[:, block.read_keys].mT)
                if noise is not None:
                    mask = noise.mask(weights)
                    kept, d_weights = weights * mask, d_weights.mul_(mask)
                d_scores = softmax_backward(d_weights, weights)
                dv[:, block.read_keys] += torch.bmm(kept.mT, g[:, block.read_queries])
                dk[:, block.read_keys] += torch.bmm(d_scores.mT, q[:, block.read_queries])
                dq[:, block.queries] = torch.bmm(d_scores, k[:, block.read_keys])[:, : _length(block.queries)]
        return d_query, d_key, d_value, None, None, None, None
