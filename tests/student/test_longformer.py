"""Forward passes equal the stock models' on each document alone."""

import shutil
from contextlib import nullcontext

import pytest
import torch

from docemb_lib.student import pack
from docemb_lib.training.run import activation_bytes

KINDS = ["mean", "lead", "first", "cls", "modernbert"]
LENGTHS = [3, 130, 17, 64, 100, 1, 131]
WITH_PADDING = [[101, 0, 2000, 0, 0, 3000, 102], [0, 5000]]  # texts that contain "[PAD]"
WINDOWS = [
    ([4, 4], 8),
    ([16, 16], 64),
    ([128, 128], 32),
    ([64, 4, 16], 8),
]


def stock_hidden(student, document):
    """Last hidden states of the stock model on one document alone, (T, D)."""
    ids = torch.tensor([document])
    is_first = torch.tensor([[1] + [0] * (len(document) - 1)])
    options = {"global_attention_mask": is_first} if student.pooling == "cls" else {}
    return student.model(ids, attention_mask=torch.ones_like(ids), **options).last_hidden_state[0]


def stock_embedding(student, document):
    hidden = stock_hidden(student, document)
    if student.pooling == "lead":
        weights = torch.tensor([16] * 16 + [8] * 48 + [4] * 192 + [1] * 4000)[: len(hidden)].to(
            hidden
        )
        return weights @ hidden / weights.sum()
    return hidden.mean(0) if student.pooling == "mean" else hidden[0]


def assert_hidden_states_are_stock(student, documents, atol):
    with torch.no_grad():
        hidden = student.hidden(pack(documents)).split([len(document) for document in documents])
        for document, states in zip(documents, hidden, strict=True):
            torch.testing.assert_close(states, stock_hidden(student, document), atol=atol, rtol=0)


def gradients_of(student, documents):
    """Of the sum of squared embeddings, with dropout drawn from seed 0."""
    student.zero_grad()
    torch.manual_seed(0)
    student(documents).square().sum().backward()
    return {name: p.grad.clone() for name, p in student.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("windows", "head_dim"), WINDOWS)
def test_packed_hidden_states_around_the_window_are_the_stock_ones(
    make_student, windows, head_dim, random_documents
):
    w = windows[0] // 2
    lengths = {1, 2, w - 1, w, w + 1, 2 * w - 1, 2 * w, 2 * w + 1, 4 * w, 4 * w + 3, 131}
    student = make_student(
        windows=windows, head_dim=head_dim
    ).double()  # the stock softmax is float32
    assert_hidden_states_are_stock(student, random_documents(sorted(lengths)), atol=3e-6)


@pytest.mark.parametrize("kind", [*KINDS, "converted"])
def test_hidden_states_and_embeddings_equal_the_stock_models(
    make_kind, converted, random_documents, kind
):
    student = converted if kind == "converted" else make_kind(kind).double()
    documents = random_documents([*LENGTHS, 400]) + WITH_PADDING
    atol = 1e-5 if kind == "converted" else 1e-6
    assert_hidden_states_are_stock(student, documents, atol)
    with torch.no_grad():
        expected = torch.stack([stock_embedding(student, document) for document in documents])
        torch.testing.assert_close(student(pack(documents)), expected, atol=atol, rtol=0)


def test_an_activation_that_is_not_fused_is_the_stock_one(make_student, random_documents):
    student = make_student(windows=[16], head_dim=8)
    student.model.encoder.layer[0].intermediate.intermediate_act_fn = torch.nn.SiLU()
    assert_hidden_states_are_stock(student, random_documents([3, 40]), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_the_stock_models(make_kind, random_documents, kind):
    student = make_kind(kind)
    documents = random_documents(LENGTHS)
    weight = torch.randn(len(documents), student.dim, generator=torch.Generator().manual_seed(1))
    parameters = {name: p for name, p in student.model.named_parameters() if p.requires_grad}
    scalars = [
        (student(pack(documents)) * weight).sum(),
        (torch.stack([stock_embedding(student, ids) for ids in documents]) * weight).sum(),
    ]
    ours, stock = (
        torch.autograd.grad(y, [*parameters.values()], allow_unused=True) for y in scalars
    )
    atol, rtol = (2e-5, 1e-4) if student.packed else (3e-5, 1e-3)
    torch.testing.assert_close(ours, stock, atol=atol, rtol=rtol)
    named = zip(parameters, ours, strict=True)
    of_global = [gradient for name, gradient in named if "_global.weight" in name]
    # Two layers of three; frozen where they are unused.
    assert len(of_global) == (6 if kind == "cls" else 0)
    assert all(gradient.abs().max() > 0 for gradient in of_global)


def test_gradients_in_bfloat16_stay_close_to_those_in_float32(converted, random_documents):
    batch = pack(random_documents(LENGTHS))
    expected = gradients_of(converted, batch)
    with torch.autocast("cpu", torch.bfloat16):
        gradients = gradients_of(converted, batch)
    for name, gradient in gradients.items():
        if name.endswith("key.bias"):  # a softmax is the same for every shift: rounding alone
            continue
        distance = (gradient - expected[name]).norm() / expected[name].norm()
        assert distance < 0.05, name


@pytest.mark.parametrize("kind", KINDS)
def test_checkpointing_changes_no_bit_of_the_gradients(make_kind, random_documents, kind):
    student = make_kind(kind, dropout=0.3).train()
    documents = pack(random_documents([3, 40, 17, 100]))
    expected = gradients_of(student, documents)
    for student.checkpointing in (True, False):
        torch.testing.assert_close(gradients_of(student, documents), expected, atol=0, rtol=0)


@pytest.mark.parametrize("kind", ["mean", "cls"])
def test_checkpointing_keeps_little_for_the_backward_pass(make_kind, kind):
    student = make_kind(kind)
    everything = activation_bytes(student, nullcontext)
    student.checkpointing = True
    assert activation_bytes(student, nullcontext) < everything / 4


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_of_attention_and_of_hidden_states_works_in_training_alone(
    make_kind, random_documents, kind
):
    student = make_kind(kind, dropout=0.4)
    batch = pack(random_documents([30, 50]))
    assert torch.equal(student(batch), student(batch))
    student.train()
    torch.manual_seed(0)
    first = student(batch)
    other = student(batch)
    torch.manual_seed(0)
    assert torch.equal(first, student(batch))
    assert not torch.allclose(first, other)
    for module in student.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert not torch.allclose(student(batch), student(batch))  # the attention has its own


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("g++") is None,
    reason="torch.compile needs a C++ compiler on the path: install g++",
)
def test_compiled_and_eager_layers_agree(make_student, random_documents):
    student = make_student(windows=[8])
    documents = pack(random_documents([3, 40, 17, 100]))
    with torch.no_grad():
        eager = student(documents)
        student.compiled = True
        torch.testing.assert_close(student(documents), eager, atol=1e-5, rtol=0)


def test_a_compiler_that_fails_is_reported_and_not_used(
    make_student, monkeypatch, caplog, random_documents
):
    def broken(*_, **__):
        raise RuntimeError("Cannot find a working triton installation\nwith a long explanation")

    student = make_student(windows=[8])
    batch = pack(random_documents([30]))
    expected = student(batch)
    monkeypatch.setattr("docemb_lib.packed.forward._compile", broken)
    student.compile_if_possible(lambda: student(batch))
    assert caplog.messages == [
        "torch.compile fails and is not used: Cannot find a working triton installation"
    ]
    assert torch.equal(student(batch), expected)
