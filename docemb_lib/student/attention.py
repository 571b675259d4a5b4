"""Sliding-window attention over packed documents (Longformer, Beltagy et al. 2020), without padding or wasted blocks.

A document is cut into blocks of queries; each sees only the keys of its own document that some query of it can reach.
So short documents cost their own length, long ones their window, and one constant band masks every block. The scores
of a block fit a core's cache and are computed again in the backward pass: memory is that of queries, keys and values.
On CPUs this beats `scaled_dot_product_attention` over the same blocks, in bfloat16 by far, and takes dropout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CPU_SCORES = 2**21  # bytes of a block's scores, all heads: about a core's second-level cache
GPU_SCORES = 2**28  # large blocks, so that launching kernels costs little


class Block(NamedTuple):
    """Tokens `queries` attend to tokens `keys`: all of them where `whole`, else those within the window."""

    queries: slice
    keys: slice
    whole: bool


def blocks(lengths: Sequence[int], window: int, size: int) -> list[Block]:
    """Cut packed documents of `lengths` tokens into blocks of at most `size` queries; `window` is one-sided."""
    plan: list[Block] = []
    start = 0
    for length in lengths:
        end = start + length
        for first in range(start, end, size):
            last = min(first + size, end)
            low, high = max(start, first - window), min(end, last + window)
            reach = max(last - 1 - low, high - 1 - first)  # the largest distance in the block
            plan.append(Block(slice(first, last), slice(low, high), reach <= window))
        start = end
    return plan


def banded_attention(
    query: Tensor, key: Tensor, value: Tensor, lengths: Sequence[int], window: int, *, dropout: float = 0.0
) -> Tensor:
    """Softmax attention in which token i sees token j of its own document if |i - j| <= window.

    query, key, value: (T, H, head_dim) of one dtype, the query already scaled; lengths: tokens of each of the B packed
    documents, T in sum; window: one-sided, at least 1; dropout: share of the attention weights that is dropped, drawn
    from torch's default generator. Returns (T, H, head_dim). Differentiable once.
    """
    T, H, _ = query.shape
    if sum(lengths) != T:
        raise ValueError(f"lengths must sum to the {T} tokens of query, got {sum(lengths)}")
    if window < 1:
        raise ValueError(f"window must be at least 1, got {window}")
    window = min(window, max(lengths))
    size = _block_size(window, H * query.element_size(), CPU_SCORES if query.device.type == "cpu" else GPU_SCORES)
    return _BandedAttention.apply(
        query, key, value, blocks(lengths, window, size), _band(size, window, query), window, dropout
    )


def _block_size(window: int, score_bytes: int, budget: int) -> int:
    """Queries in a block: as many as fit the budget, but not so many that most scores lie outside the band."""
    fitting = budget // (score_bytes * 2 * window)
    return max(32, min(fitting, max(64, window)) // 32 * 32)


def _band(size: int, window: int, like: Tensor) -> Tensor:
    """(size, size + 2 window), added to the scores of a block whose keys start `window` before its first query."""
    distance = torch.arange(size + 2 * window, device=like.device) - torch.arange(size, device=like.device)[:, None]
    outside = (distance - window).abs() > window
    return torch.zeros_like(outside, dtype=like.dtype).masked_fill_(outside, -torch.inf)


def _weights(query: Tensor, key: Tensor, block: Block, band: Tensor, window: int) -> Tensor:
    """Attention weights of one block, (H, queries, keys), from all queries and keys, (H, T, head_dim)."""
    queries, keys = query[:, block.queries], key[:, block.keys]
    if block.whole:
        return torch.bmm(queries, keys.mT).softmax(-1)
    missing = window - (block.queries.start - block.keys.start)  # columns of the band before the document's start
    mask = band[: queries.shape[1], missing : missing + keys.shape[1]]
    return torch.bmm(queries, keys.mT).add_(mask).softmax(-1)


class _Dropout:
    """The same sequence of dropout masks in the forward and in the backward pass, from a seed."""

    def __init__(self, share: float, seed: int, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)
        self.threshold = round(share * 2**16) - 2**15
        self.scale = 1 / (1 - share)

    def mask(self, weights: Tensor) -> Tensor:
        """Like `weights`, 1 = kept, 0 = dropped. Four 16-bit draws from each random integer: several times as fast as
        `bernoulli_`, and the share is met within 1e-5."""
        integers = torch.empty(-(-weights.numel() // 4), dtype=torch.int64, device=weights.device)
        draws = integers.random_(-(2**63), None, generator=self.generator).view(torch.int16)
        draws = draws[: weights.numel()].view(weights.shape)
        return torch.ge(draws, self.threshold, out=torch.empty_like(weights))


class _BandedAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        plan: list[Block],
        band: Tensor,
        window: int,
        dropout: float,
    ) -> Tensor:
        ctx.save_for_backward(query, key, value, band)
        ctx.plan, ctx.window, ctx.dropout = plan, window, dropout
        ctx.seed = int(torch.randint(2**63 - 1, ())) if dropout else 0
        noise = _Dropout(dropout, ctx.seed, query.device) if dropout else None
        out = torch.empty_like(query)
        q, k, v, o = (tensor.transpose(0, 1) for tensor in (query, key, value, out))  # (H, T, head_dim)
        with torch.autocast(query.device.type, enabled=False):
            for block in plan:
                weights = _weights(q, k, block, band, window)
                if noise is not None:
                    weights.mul_(noise.mask(weights))
                o[:, block.queries] = torch.bmm(weights, v[:, block.keys])
            return out.mul_(noise.scale) if noise is not None else out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, band = ctx.saved_tensors
        noise = _Dropout(ctx.dropout, ctx.seed, query.device) if ctx.dropout else None
        d_query, d_key, d_value = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        with torch.autocast(query.device.type, enabled=False):
            if noise is not None:
                grad = grad * noise.scale
            q, k, v, g, dq, dk, dv = (
                tensor.transpose(0, 1) for tensor in (query, key, value, grad, d_query, d_key, d_value)
            )
            for block in ctx.plan:
                weights = _weights(q, k, block, band, ctx.window)
                kept, d_weights = weights, torch.bmm(g[:, block.queries], v[:, block.keys].mT)
                if noise is not None:
                    mask = noise.mask(weights)
                    kept, d_weights = weights * mask, d_weights.mul_(mask)
                d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
                dv[:, block.keys] += torch.bmm(kept.mT, g[:, block.queries])
                dk[:, block.keys] += torch.bmm(d_scores.mT, q[:, block.queries])
                dq[:, block.queries] = torch.bmm(d_scores, k[:, block.keys])
        return d_query, d_key, d_value, None, None, None, None
