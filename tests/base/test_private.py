"""Each private name of another package that docemb relies on is still there."""

import inspect
from importlib.metadata import version
from typing import Annotated

import pytest
import torch
from conftest import replace_notebook
from pydantic import BaseModel, BeforeValidator, ValidationError

from docemb_lib.base import private

# The versions that the private names were tried with.
TRIED = {
    "ipykernel": "6.31.0",
    "joblib": "1.6.0",
    "jupyter-client": "8.10.0",
    "papermill": "2.7.0",
    "pydantic": "2.14.3",
    "torch": "2.13.0",
    "transformers": "5.23.0",
}


def ipykernel_stream(tmp_path):
    from ipykernel.iostream import OutStream

    assert OutStream.__module__ == private.KERNEL_STREAM


def joblib_growth(tmp_path):
    from joblib.externals.loky import process_executor

    assert process_executor._USE_PSUTIL  # growth is measured, as psutil is installed
    assert "if _USE_PSUTIL:" in inspect.getsource(process_executor._process_worker)


def papermill_injected_cell(tmp_path):
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    (tmp_path / "notebooks").mkdir()
    replace_notebook(tmp_path, "a", "lam = 1", "")
    notebook = load_notebook_node(str(tmp_path / "notebooks" / "a.ipynb"))
    cells = parameterize_notebook(notebook, {"lam": 0.5}).cells
    assert cells[1].source == private.INJECTED_CELL + "lam = 0.5\n"


def pydantic_locations(tmp_path):
    class Model(BaseModel):
        union: Annotated[int, BeforeValidator(lambda value: value)] | dict[str, int] | list[int]

    with pytest.raises(ValidationError) as caught:
        Model(union="a")
    inner = [str(part) for error in caught.value.errors() for part in error["loc"][1:]]
    assert len(inner) == 3
    assert all(part.startswith(private.UNION_LOCATIONS) for part in inner)


def torch_onednn_linear(tmp_path):
    for dtype in (torch.float32, torch.bfloat16):
        if not private.fits_onednn(dtype):
            continue  # this CPU does not have it, and no forward pass takes it
        states, weight, bias = (
            torch.randn(*shape, dtype=dtype) for shape in ((7, 32), (16, 32), (16,))
        )
        product = torch.nn.functional.linear(states.double(), weight.double(), bias.double())
        for gelu, expected in ((False, product), (True, torch.nn.functional.gelu(product))):
            output = private.onednn_linear(states, weight, bias, gelu=gelu)
            torch.testing.assert_close(output, expected.to(dtype))


def torch_softmax_backward(tmp_path):
    scores = torch.randn(2, 3, 5, requires_grad=True)
    weights = scores.softmax(-1)
    grad = torch.randn(2, 3, 5)
    weights.backward(grad)
    torch.testing.assert_close(private.softmax_backward(grad, weights.detach()), scores.grad)


def torch_flash_attention(tmp_path):
    """A CPU has no flash attention; its kernel for tensors without data checks the arguments."""
    heads = torch.empty(10, 2, 8, dtype=torch.bfloat16, device="meta")
    starts = torch.empty(3, dtype=torch.int32, device="meta")
    options = {"longest": 6, "window": 2, "dropout": 0.1}
    context = private.flash_attention(heads, heads, heads, starts, **options)
    assert (context.shape, context.dtype) == (heads.shape, heads.dtype)


def transformers_one_gpu(tmp_path):
    from transformers import TrainingArguments

    arguments = TrainingArguments(str(tmp_path), use_cpu=True)
    private.use_one_gpu(arguments)
    assert arguments.n_gpu == arguments._n_gpu == 0
    arguments._n_gpu = 4  # as counted on a machine with four
    private.use_one_gpu(arguments)
    assert arguments.n_gpu == 1


def transformers_checkpointing(tmp_path):
    from transformers.modeling_layers import GradientCheckpointingLayer

    class Layer(GradientCheckpointingLayer):
        def forward(self, hidden):
            return 2 * hidden

    called = []
    layer = Layer().train()
    layer.gradient_checkpointing = True
    private.set_checkpointing(
        layer, lambda function, *arguments: called.append(True) or function(*arguments)
    )
    assert (layer(torch.ones(1)), called) == (2, [True])


def transformers_longformer_products(tmp_path):
    """`RelativeLongformer` adds its biases to these products, whose last axis is the offset."""
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    config = LongformerConfig(hidden_size=8, num_attention_heads=2, attention_window=[4])
    attention = LongformerSelfAttention(config, 0)
    query, key = torch.randn(2, 1, 8, 2, 4)  # (documents, tokens, heads, width) each
    products = attention._sliding_chunks_query_key_matmul(query, key, 2)
    for offset in range(-2, 3):
        here = slice(max(0, -offset), 8 - max(0, offset))
        there = slice(max(0, offset), 8 - max(0, -offset))
        expected = (query[:, here] * key[:, there]).sum(-1)
        torch.testing.assert_close(products[:, here, :, 2 + offset], expected)


@pytest.mark.parametrize(
    "check",
    [
        ipykernel_stream,
        joblib_growth,
        papermill_injected_cell,
        pydantic_locations,
        torch_flash_attention,
        torch_onednn_linear,
        torch_softmax_backward,
        transformers_one_gpu,
        transformers_checkpointing,
        transformers_longformer_products,
    ],
)
def test_a_private_name_is_still_what_docemb_relies_on(check, tmp_path):
    prefixes = {name.replace("-", "_"): name for name in TRIED}
    (package,) = [name for prefix, name in prefixes.items() if check.__name__.startswith(prefix)]
    try:
        check(tmp_path)
    except Exception as error:
        tried = f"tried with {TRIED[package]}"
        pytest.fail(f"{package} {version(package)} broke {check.__name__} ({tried}): {error}")
