from functools import partial
from itertools import accumulate, pairwise

import pytest
import torch

from docemb_lib.packed import forward
from docemb_lib.packed.forward import Block, banded_attention, blocks, fits_varlen

RAGGED = [1, 2, 31, 32, 33, 64, 65, 200, 7]


def dense_weights(query, key, lengths, window, strip=None):
    """The slow obvious way: all T x T scores, masked. (H, T, T)"""
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    position = torch.arange(len(document))
    allowed = ((position[:, None] - position).abs() <= window) & (document[:, None] == document)
    scores = torch.einsum("ihd,jhd->hij", query, key) / query.shape[2] ** 0.5
    if strip is not None:
        scores = scores + strip[:, (position - position[:, None]).clamp(-128, 128) + 128]
    return scores.masked_fill(~allowed.to(scores.device), -torch.inf).softmax(-1)


def dense_attention(query, key, value, lengths, window, strip=None):
    weights = dense_weights(query, key, lengths, window, strip)
    return torch.einsum("hij,jhd->ihd", weights, value)


def random_strip(heads):
    """A bias of each head for the offsets from -128 to 128."""
    generator = torch.Generator().manual_seed(2)
    return 2 * torch.randn(heads, 257, dtype=torch.float64, generator=generator)


def random_heads(T, *, heads, head_dim, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(T, heads, head_dim, dtype=torch.float64, generator=generator) for _ in range(3)
    ]


def test_blocks_stop_at_documents_and_reach_one_window_beyond():
    s = slice
    assert blocks([3, 7], window=2, size=4) == [
        Block(s(0, 3), s(0, 3), s(0, 3), s(0, 3)),
        Block(s(3, 7), s(3, 9), s(3, 7), s(3, 9)),
        Block(s(7, 10), s(5, 10), s(7, 10), s(5, 10)),
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
        (forward._length(block.read_queries), forward._length(block.read_keys)) for block in plan
    }
    assert len(shapes) <= 10  # documents of four hundred lengths


def attention_in_steps(
    query, key, value, lengths, window, *, step, dropout=0.0, size=32, keeps=False, strip=None
):
    """Blocks of the shapes of bfloat16 on CPUs, but in double precision, so that rounding hides no
    error.
    """
    window = min(window, max(lengths))
    plan = blocks(lengths, window, size, step)
    bias = None if strip is None else forward.block_biases(strip, size + step, window)
    return forward._BandedAttention.apply(query, key, value, bias, plan, window, dropout, keeps)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("step", [None, 64])
@pytest.mark.parametrize(("heads", "head_dim"), [(3, 8), (1, 64), (2, 5)])
@pytest.mark.parametrize("window", [1, 5, 64, 1000])
def test_attention_and_its_gradients_equal_dense_masked_attention(
    window, heads, head_dim, step, biased
):
    """Also where blocks read a multiple of `step` tokens."""
    ours = random_heads(sum(RAGGED), heads=heads, head_dim=head_dim)
    if biased:
        ours.append(random_strip(heads))
    dense = [tensor.clone().requires_grad_() for tensor in ours]
    for tensor in ours:
        tensor.requires_grad_()
    attend = banded_attention if step is None else partial(attention_in_steps, step=step)
    strips = [tensors[3] if biased else None for tensors in (ours, dense)]
    result = attend(*ours[:3], RAGGED, window, strip=strips[0])
    expected = dense_attention(*dense[:3], RAGGED, window, strips[1])
    torch.testing.assert_close(result, expected)
    weight = torch.randn(
        result.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    for output in (result, expected):
        (output * weight).sum().backward()
    for tensor, reference in zip(ours, dense, strict=True):
        torch.testing.assert_close(tensor.grad, reference.grad)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_whose_exponentials_overflow_or_vanish_change_nothing(sign, dtype, biased):
    """Of one head, whose tokens see themselves with scores of 800 or -800."""
    ours = [tensor.to(dtype) for tensor in random_heads(sum(RAGGED), heads=3, head_dim=8)]
    ours[0][:, 1] = 800 * 8**0.5 * torch.nn.functional.normalize(ours[0][:, 1], dim=1)
    ours[1][:, 1] = sign * ours[0][:, 1] / (800 * 8**0.5)
    dense = [tensor.double().requires_grad_() for tensor in ours]
    ours = [tensor.requires_grad_() for tensor in ours]
    strip = random_strip(3) if biased else None
    result = banded_attention(*ours, RAGGED, 40, strip=strip if strip is None else strip.to(dtype))
    expected = dense_attention(*dense, RAGGED, 40, strip)
    torch.testing.assert_close(result.double(), expected, rtol=1e-3, atol=1e-3)
    result.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(ours[2].grad.double(), dense[2].grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("step", [1, 16])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_gradients_agree_with_finite_differences_with_and_without_dropout(dropout, step, keeps):
    """Where the backward pass has the weights of the forward pass, and where it computes them."""
    inputs = [tensor.requires_grad_() for tensor in random_heads(20, heads=1, head_dim=2)]
    options = {"step": step, "dropout": dropout, "size": 8, "keeps": keeps}

    def attend(query, key, value):
        torch.manual_seed(0)  # the same dropout at every evaluation
        return attention_in_steps(query, key, value, [3, 17], 4, **options)

    assert torch.autograd.gradcheck(attend, inputs)


def test_weights_that_take_much_memory_are_computed_again(monkeypatch):
    inputs = [tensor.float().requires_grad_() for tensor in random_heads(64, heads=2, head_dim=8)]

    def saved_bytes():
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: saved.append(x.nbytes), lambda x: x
        ):
            banded_attention(*inputs, [64], 64)
        return sum(saved)

    of_weights = 2 * 64 * 64 * 4  # two heads, one block, float32
    monkeypatch.setattr(forward, "KEPT_WEIGHTS", of_weights)
    kept = saved_bytes()
    monkeypatch.setattr(forward, "KEPT_WEIGHTS", of_weights - 1)
    assert kept - saved_bytes() == of_weights


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


def flash_attention_as_documented(query, key, value, starts, *, longest, window, dropout):
    """`flash_attention` as a slow loop: scores scaled by head_dim^-1/2, without dropout."""
    assert dropout == 0
    assert starts.dtype == torch.int32
    ends = starts.tolist()
    assert longest == max(last - first for first, last in pairwise(ends))
    out = torch.empty_like(query)
    for first, last in pairwise(ends):
        for i in range(first, last):
            low = max(first, i - window)
            high = min(last, i + window + 1)
            scores = torch.einsum("hd,jhd->hj", query[i], key[low:high]) / query.shape[2] ** 0.5
            out[i] = torch.einsum("hj,jhd->hd", scores.softmax(-1), value[low:high])
    return out


def test_both_backends_compute_the_same(monkeypatch):
    """A CPU has no flash attention, so its arguments are checked against its documentation."""
    monkeypatch.setattr(forward, "flash_attention", flash_attention_as_documented)
    lengths = [1, 2, 33, 70]
    starts = torch.tensor([0, 1, 3, 36, 106], dtype=torch.int32)
    inputs = random_heads(sum(lengths), heads=2, head_dim=8)
    for window in (1, 5, 1000):
        packed = banded_attention(*inputs, lengths, window, starts=starts)
        torch.testing.assert_close(packed, banded_attention(*inputs, lengths, window))


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


@pytest.fixture
def on_gpu():
    """Heads for flash attention, (T, H, head_dim), with the arguments that describe documents."""
    device = torch.device("cuda")
    if not (torch.cuda.is_available() and fits_varlen(device, torch.bfloat16, 64)):
        pytest.skip("needs a GPU with flash attention")
    lengths = [1, 2, 64, 33, 64, 20]
    generator = torch.Generator(device).manual_seed(0)
    shape = (sum(lengths), 2, 64)
    inputs = [torch.randn(shape, generator=generator, device=device).bfloat16() for _ in range(4)]
    starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    return inputs, lengths, starts


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_flash_attention_on_a_gpu_has_the_gradients_of_plain_attention(on_gpu, dropout):
    """The draws of dropout depend on the seed alone, so that values which are unit vectors show
    the weights that are kept.
    """
    (query, key, value, grad), lengths, starts = on_gpu
    window = 16
    units = torch.cat([torch.eye(64, dtype=value.dtype)[:length] for length in lengths])
    units = units[:, None].expand(-1, 2, -1).contiguous().to(value)

    def attend(query, key, value):
        torch.manual_seed(1)
        options = {"starts": starts, "dropout": dropout}
        return banded_attention(query, key, value, lengths, window, **options)

    shown = attend(query, key, units).split(lengths)  # (length, H, 64) of each document
    kept = torch.block_diag(*[torch.ones(n, n) for n in lengths]).repeat(2, 1, 1).to(value)
    for weights, first in zip(shown, starts.tolist(), strict=False):
        tokens = slice(first, first + len(weights))
        kept[:, tokens, tokens] = (weights[..., : len(weights)] > 0).to(kept).transpose(0, 1)

    inputs = [tensor.requires_grad_() for tensor in (query, key, value)]
    result = attend(*inputs)
    gradients = torch.autograd.grad(result, inputs, grad)
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    weights = dense_weights(*exact[:2], lengths, window)  # (H, T, T)
    expected = (weights * kept / (1 - dropout)) @ exact[2].transpose(0, 1)
    expected = expected.transpose(0, 1)
    references = torch.autograd.grad(expected, exact, grad.double())
    for ours, reference in zip((result, *gradients), (expected, *references), strict=True):
        assert (ours - reference).norm() < 0.01 * reference.norm()
