"""Private names of other packages that docemb relies on.

A release of any of these packages may change such a name. `tests/base/test_private.py` checks each
one, and says which broke and with which version it was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.nn import Module
    from transformers import TrainingArguments

KERNEL_STREAM = "ipykernel.iostream"  # module of a kernel's sys.stdout
INJECTED_CELL = "# Parameters\n"  # first line of the cell that papermill injects
# pydantic: location parts that name no field
UNION_LOCATIONS = ("function-", "lax-or-strict[", "list[", "dict[", "constrained-", "literal[")


def keep_grown_workers() -> None:
    """Let this process of loky's grow.

    By default loky restarts a process that has grown by 300 MB, which a model makes it do.
    """
    from joblib.externals.loky import process_executor

    process_executor._USE_PSUTIL = False


def softmax_backward(grad: Tensor, weights: Tensor) -> Tensor:
    """Gradient of the scores of `weights = softmax(scores, -1)`, in one kernel."""
    import torch

    return torch._softmax_backward_data(grad, weights, -1, weights.dtype)


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: Tensor,
    *,
    longest: int,
    window: int,
    dropout: float,
) -> Tensor:
    """Flash attention of packed documents, with dropout of attention weights.

    It is what the public `torch.nn.attention.varlen.varlen_attn` calls with a dropout of 0.

    Args:
        query, key, value: (T, H, head_dim) of half precision.
        starts: (B + 1,) int32, the first token of each document, and T.
        longest: tokens of the longest document.
        window: a token sees so many tokens to either side.
        dropout: probability of dropping a weight, drawn from torch's default generator.

    Returns (T, H, head_dim).
    """
    import torch

    attention = torch.ops.aten._flash_attention_forward
    causal = False
    with_weights = False  # returns no attention weights
    arguments = (query, key, value, starts, starts, longest, longest, dropout, causal, with_weights)
    return attention(*arguments, window_size_left=window, window_size_right=window)[0]


def fits_onednn(dtype: torch.dtype) -> bool:
    """Whether `onednn_linear` computes in `dtype` on this CPU, at least as fast as torch.

    Where torch has no MKL, which is on processors that are not x86, its library is the faster one.
    """
    import torch

    if not (torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()):
        return False
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float32


def onednn_linear(
    states: Tensor, weight: Tensor, bias: Tensor | None = None, *, gelu: bool = False
) -> Tensor:
    """A linear layer and then the exact GELU if asked, by oneDNN on a CPU, without a gradient.

    For float32 torch itself takes MKL, which on AMD's processors with AVX-512 is half as fast.

    states: (T, in); weight: (out, in); bias: (out,), all of one dtype, with any strides. Returns
    (T, out).
    """
    import torch

    activation = "gelu" if gelu else "none"
    approximation = "none"
    linear = torch.ops.mkldnn._linear_pointwise
    return linear(states, weight, bias, activation, [], approximation)


def use_one_gpu(arguments: TrainingArguments) -> None:
    """Keep transformers.Trainer from wrapping the model in nn.DataParallel."""
    _ = arguments.device  # counts the GPUs and sets `_n_gpu`
    arguments._n_gpu = min(arguments._n_gpu, 1)


def set_checkpointing(layer: Module, function: Callable[..., object]) -> None:
    """Let a GradientCheckpointingLayer of transformers recompute its activations by `function`."""
    layer._gradient_checkpointing_func = function  # type: ignore[assignment]
