from functools import partial
from itertools import pairwise

import pytest
import torch

from docemb_lib.base.errors import InputError
from docemb_lib.student import longformer
from docemb_lib.student.longformer import Block, banded_attention, blocks, fits_varlen

RAGGED = [1, 2, 31, 32, 33, 64, 65, 200, 7]


def dense_weights(query, key, lengths, window):
    """The slow obvious way: all T x T scores, masked. (H, T, T)"""
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    position = torch.arange(len(document))
    allowed = ((position[:, None] - position).abs() <= window) & (document[:, None] == document)
    scores = torch.einsum("ihd,jhd->hij", query, key) / query.shape[2] ** 0.5
    return scores.masked_fill(~allowed, -torch.inf).softmax(-1)


def dense_attention(query, key, value, lengths, window):
    return torch.einsum("hij,jhd->ihd", dense_weights(query, key, lengths, window), value)


def random_heads(T, *, heads, head_dim, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(T, heads, head_dim, dtype=torch.float64, generator=generator) for _ in range(3)
    ]


def test_blocks_stop_at_documents_and_reach_one_window_beyond():
    s = slice
    assert blocks([3, 7], window=2, size=4) == [
        Block(s(0, 3), s(0, 3), True, s(0, 3), s(0, 3)),
        Block(s(3, 7), s(3, 9), False, s(3, 7), s(3, 9)),
        Block(s(7, 10), s(5, 10), False, s(7, 10), s(5, 10)),
    ]


def test_blocks_read_on_to_multiples_of_a_step():
    read = [
        (block.read_queries, block.read_keys) for block in blocks([3, 7], window=2, size=4, step=4)
    ]
    assert read == [
        (slice(0, 4), slice(0, 4)),
        (slice(3, 7), slice(3, 10)),
        (slice(7, 10), slice(5, 10)),
    ]
    plan = blocks([*range(100, 500), 1000], window=128, size=128, step=64)[:-8]
    shapes = {
        (longformer._length(block.read_queries), longformer._length(block.read_keys))
        for block in plan
    }
    assert len(shapes) <= 10  # documents of four hundred lengths


def attention_in_steps(query, key, value, lengths, window, *, step, dropout=0.0, size=32):
    """Blocks of the shapes of bfloat16 on CPUs, but in double precision, so that rounding hides no
    error.
    """
    window = min(window, max(lengths))
    plan = blocks(lengths, window, size, step)
    band = longformer._band(size, window, query)
    return longformer._BandedAttention.apply(
        query * query.shape[2] ** -0.5, key, value, plan, band, window, dropout
    )


@pytest.mark.parametrize("step", [None, 64])
@pytest.mark.parametrize(("heads", "head_dim"), [(3, 8), (2, 32), (1, 64), (2, 5)])
@pytest.mark.parametrize("window", [1, 2, 5, 32, 64, 1000])
def test_attention_and_its_gradients_equal_dense_masked_attention(window, heads, head_dim, step):
    """Also where blocks read a multiple of `step` tokens."""
    ours = [
        tensor.requires_grad_()
        for tensor in random_heads(sum(RAGGED), heads=heads, head_dim=head_dim)
    ]
    dense = [tensor.detach().clone().requires_grad_() for tensor in ours]
    attend = banded_attention if step is None else partial(attention_in_steps, step=step)
    result = attend(*ours, RAGGED, window)
    expected = dense_attention(*dense, RAGGED, window)
    torch.testing.assert_close(result, expected)
    weight = torch.randn(
        result.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    for output in (result, expected):
        (output * weight).sum().backward()
    for tensor, reference in zip(ours, dense, strict=True):
        torch.testing.assert_close(tensor.grad, reference.grad)


@pytest.mark.parametrize("step", [1, 16])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_agree_with_finite_differences_with_and_without_dropout(dropout, step):
    inputs = [tensor.requires_grad_() for tensor in random_heads(20, heads=1, head_dim=2)]

    def attend(query, key, value):
        torch.manual_seed(0)  # the same dropout at every evaluation
        return attention_in_steps(query, key, value, [3, 17], 4, step=step, dropout=dropout, size=8)

    assert torch.autograd.gradcheck(attend, inputs)


@pytest.mark.parametrize("step", [1, 64])
def test_dropout_drops_its_share_of_the_weights_and_scales_up_the_rest(step):
    lengths = [150, 60]
    window = 40
    query, key, _ = (tensor / 4 for tensor in random_heads(210, heads=4, head_dim=210))
    value = torch.eye(210, dtype=torch.float64)[:, None].expand(
        210, 4, 210
    )  # the output is the weights themselves
    torch.manual_seed(0)
    dropped = attention_in_steps(
        query, key, value, lengths, window, step=step, dropout=0.25
    ).transpose(0, 1)
    weights = dense_weights(query, key, lengths, window)
    kept = dropped > 0
    torch.testing.assert_close(dropped[kept], weights[kept] / 0.75)
    assert kept.sum() / (weights > 0).sum() == pytest.approx(0.75, abs=0.01)


def test_bfloat16_stays_close_to_full_precision_under_autocast():
    inputs = random_heads(300, heads=2, head_dim=32)
    expected = dense_attention(*inputs, [100, 200], 64)
    with torch.autocast("cpu", torch.bfloat16):
        result = banded_attention(*(tensor.bfloat16() for tensor in inputs), [100, 200], 64)
    assert result.dtype == torch.bfloat16
    assert torch.cosine_similarity(result.double().flatten(), expected.flatten(), dim=0) > 0.9999


def flash_attention_as_documented(
    query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, window_size
):
    """torch's documentation of `varlen_attn` as a slow loop: scores scaled by head_dim^-1/2,
    `window_size` (left, right).
    """
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert cu_seq_q.is_contiguous()
    assert query.stride(-1) == key.stride(-1) == value.stride(-1) == 1
    ends = cu_seq_q.tolist()
    assert max_q == max_k == max(last - first for first, last in pairwise(ends))
    out = torch.empty_like(query)
    for first, last in pairwise(ends):
        for i in range(first, last):
            low = max(first, i - window_size[0])
            high = min(last, i + window_size[1] + 1)
            scores = torch.einsum("hd,jhd->hj", query[i], key[low:high]) / query.shape[2] ** 0.5
            out[i] = torch.einsum("hj,jhd->hd", scores.softmax(-1), value[low:high])
    return out


def test_both_backends_compute_the_same(monkeypatch):
    """A CPU has no flash attention, so its arguments are checked against its documentation."""
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", flash_attention_as_documented)
    monkeypatch.setattr(longformer, "fits_varlen", lambda *_: True)
    lengths = [1, 2, 33, 70]
    starts = torch.tensor([0, 1, 3, 36, 106], dtype=torch.int32)
    inputs = random_heads(sum(lengths), heads=2, head_dim=8)
    for window in (1, 5, 1000):
        packed = banded_attention(*inputs, lengths, window, starts=starts, backend="varlen")
        torch.testing.assert_close(
            packed, banded_attention(*inputs, lengths, window, backend="blocks")
        )


def test_flash_attention_is_for_devices_precisions_and_heads_that_have_it(monkeypatch):
    monkeypatch.setattr("torch.version.hip", None)
    gpu = torch.device("cuda")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (9, 0))
    assert fits_varlen(gpu, torch.bfloat16, 64)
    assert fits_varlen(gpu, torch.float16, 32)
    assert not fits_varlen(gpu, torch.float32, 64)
    assert not fits_varlen(gpu, torch.bfloat16, 20)
    assert not fits_varlen(torch.device("cpu"), torch.bfloat16, 64)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (7, 5))
    assert not fits_varlen(gpu, torch.float16, 64)


def test_flash_attention_is_refused_where_it_does_not_fit(monkeypatch):
    given = {"starts": torch.tensor([0, 5], dtype=torch.int32), "backend": "varlen"}
    for fits, dropout in ((False, 0.0), (True, 0.1)):
        monkeypatch.setattr(longformer, "fits_varlen", lambda *_, fits=fits: fits)
        with pytest.raises(
            InputError, match=r"varlen needs an NVIDIA GPU .* and no dropout; take blocks"
        ):
            banded_attention(
                *random_heads(5, heads=1, head_dim=8), [5], 2, dropout=dropout, **given
            )
