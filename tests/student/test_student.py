import logging
import shutil

import numpy as np
import pytest
import torch

from docemb_lib.errors import InputError
from docemb_lib.student import longformer
from docemb_lib.student.packing import pack
from docemb_lib.student.student import Encoded, Student


def stock_hidden(student, document):
    """The stock model on one document alone: (T, D)."""
    return student.model(torch.tensor([document])).last_hidden_state[0]


def lengths_around(one_sided):
    around = {1, 2, one_sided - 1, one_sided, one_sided + 1}
    around |= {2 * one_sided - 1, 2 * one_sided, 2 * one_sided + 1, 4 * one_sided, 4 * one_sided + 3, 131}
    return sorted(length for length in around if length > 0)


@pytest.mark.parametrize(
    ("windows", "head_dim"),
    [([4, 4], 8), ([6, 6], 32), ([16, 16], 64), ([64, 64], 8), ([128, 128], 32), ([64, 4, 16], 8)],
)
def test_packed_hidden_states_equal_the_stock_models_on_each_document(
    make_student, windows, head_dim, random_documents
):
    student = make_student(windows=windows, head_dim=head_dim)
    documents = random_documents(lengths_around(windows[0] // 2))
    with torch.no_grad():
        hidden = student.hidden(pack(documents)).split([len(document) for document in documents])
        for document, ours in zip(documents, hidden, strict=True):
            torch.testing.assert_close(ours, stock_hidden(student, document), atol=1e-5, rtol=0)


def test_a_converted_model_equals_the_stock_model(converted, random_documents):
    documents = random_documents([1, 63, 64, 65, 129, 400])
    with torch.no_grad():
        hidden = converted.hidden(pack(documents)).split([len(document) for document in documents])
        for document, ours in zip(documents, hidden, strict=True):
            torch.testing.assert_close(ours, stock_hidden(converted, document), atol=1e-5, rtol=0)


def test_gradients_equal_the_stock_models(make_student, random_documents):
    student = make_student(windows=[8, 16])
    documents = random_documents([3, 40, 17, 100])
    trained = {name: weight for name, weight in student.model.named_parameters() if weight.requires_grad}
    weight = torch.randn(4, student.dim, generator=torch.Generator().manual_seed(1))

    ours = torch.autograd.grad((student(pack(documents)) * weight).sum(), list(trained.values()))
    means = torch.stack([stock_hidden(student, document).mean(0) for document in documents])
    theirs = torch.autograd.grad((means * weight).sum(), list(trained.values()))
    for name, mine, reference in zip(trained, ours, theirs, strict=True):
        torch.testing.assert_close(mine, reference, atol=2e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_an_embedding_depends_on_its_own_document_alone(make_student, random_documents):
    student = make_student(windows=[8, 8])
    documents = random_documents([5, 90, 33, 1, 12])
    with torch.no_grad():
        together = student(pack(documents))
        backwards = student(pack(documents[::-1])).flip(0)
        alone = torch.cat([student(pack([document])) for document in documents])
    torch.testing.assert_close(together, backwards, atol=1e-5, rtol=0)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


def test_positions_skip_a_padding_token_inside_a_text_as_the_stock_model_does(make_student):
    student = make_student(windows=[8])
    documents = [[101, 0, 2000, 0, 0, 3000, 102], [2000, 3000], [0, 5000]]
    with torch.no_grad():
        hidden = student.hidden(pack(documents)).split([7, 2, 2])
        for document, ours in zip(documents, hidden, strict=True):
            theirs = student.model(torch.tensor([document]), attention_mask=torch.ones(1, len(document)))
            torch.testing.assert_close(ours, theirs.last_hidden_state[0], atol=1e-5, rtol=0)


def test_dropout_of_attention_and_of_hidden_states_works_in_training_alone(make_student, random_documents):
    student = make_student(windows=[8], dropout=0.4)
    batch = pack(random_documents([30, 50]))
    assert torch.equal(student(batch), student(batch))
    student.train()
    torch.manual_seed(0)
    first, other = student(batch), student(batch)
    torch.manual_seed(0)
    assert torch.equal(first, student(batch))
    assert not torch.allclose(first, other)
    for module in student.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert not torch.allclose(student(batch), student(batch))  # what is left is the attention's own


def test_projections_for_global_attention_are_not_trained(make_student):
    frozen = {name for name, weight in make_student(windows=[8]).named_parameters() if not weight.requires_grad}
    prefix = "model.encoder.layer.0.attention.self."
    assert frozen == {
        f"{prefix}{name}_global.{part}" for name in ("query", "key", "value") for part in ("weight", "bias")
    }


def test_a_document_beyond_the_positions_is_refused(make_student):
    with pytest.raises(InputError, match="21 tokens, the student reads 20"):
        make_student(windows=[8], max_tokens=20)(pack([[5] * 21]))


def test_texts_become_tokens_with_special_ones_and_are_cut_with_a_word(make_student, caplog):
    student = make_student(windows=[8], max_tokens=10)
    with caplog.at_level(logging.WARNING):
        tokens = student.tokenize(["one two", "", "word " * 8, "word " * 9, "word " * 99])
    assert [len(ids) for ids in tokens] == [4, 2, 10, 10, 10]
    assert all(ids[0] == 101 and ids[-1] == 102 for ids in tokens)
    assert [record.getMessage() for record in caplog.records] == ["2 of 5 documents cut at 10 tokens"]
    assert student.encode(["word " * 9, "word"]) == Encoded([[101, *[2773] * 8, 102], [101, 2773, 102]], truncated=1)


def test_embeddings_come_in_the_order_of_the_texts_whatever_the_batches(converted, texts):
    expected = np.concatenate([converted.embed([text], bf16=False) for text in texts])
    for result in (
        converted.embed(texts, bf16=False, batch_tokens=64),
        converted.embed((text for text in texts), bf16=False),
    ):
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, expected, atol=1e-5)


def test_embedding_needs_no_more_than_an_empty_list(converted, tmp_path):
    assert converted.embed([]).shape == (0, 384)
    assert converted.embed([], out=tmp_path / "none.npy").shape == (0, 384)


def test_bfloat16_embeddings_point_the_same_way(converted, texts):
    full, half = converted.embed(texts, bf16=False), converted.embed(texts, bf16=True)
    cosines = (full * half).sum(1) / np.linalg.norm(full, axis=1) / np.linalg.norm(half, axis=1)
    assert cosines.min() >= 0.9999
    assert np.abs(full - half).max() > 0  # it was indeed the other arithmetic


def test_embeddings_in_a_file_are_memory_mapped_and_equal(converted, texts, tmp_path):
    result = converted.embed(texts[:3], out=tmp_path / "deep" / "e.npy", bf16=False)
    assert isinstance(result, np.memmap)
    np.testing.assert_array_equal(result, converted.embed(texts[:3], bf16=False))
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["e.npy"]


def test_a_failure_leaves_no_file_and_the_mode_as_it_was(make_student, tmp_path):
    student = make_student(windows=[8]).train()
    with pytest.raises(InputError, match=r"texts\[600\]: got NoneType"):
        student.embed(["word"] * 600 + [None], out=tmp_path / "e.npy")
    assert list(tmp_path.iterdir()) == []
    assert student.training
    assert student.model.encoder.layer[0].training


@pytest.mark.parametrize(("arguments", "message"), [(("one text",), "one string"), ((["a"], "e.bin"), "ends in .npy")])
def test_what_cannot_be_embedded_is_refused(make_student, tmp_path, arguments, message):
    text, *out = arguments
    with pytest.raises(InputError, match=message):
        make_student(windows=[8]).embed(text, out=tmp_path / out[0] if out else None)


def test_a_student_is_a_plain_module(make_student, random_documents):
    student = make_student(windows=[8])
    copy = make_student(windows=[8], seed=1)
    copy.load_state_dict(student.state_dict())
    batch = pack(random_documents([20]))
    assert isinstance(student, Student)
    assert torch.equal(copy(batch), student(batch))


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_checkpointing_changes_no_bit_of_the_gradients(make_student, dropout, random_documents):
    student = make_student(windows=[8, 16], dropout=dropout).train()
    documents = pack(random_documents([3, 40, 17, 100]))
    gradients = []
    for student.checkpointing in (False, True):
        student.zero_grad()
        torch.manual_seed(0)
        student(documents).square().sum().backward()
        gradients.append({name: p.grad.clone() for name, p in student.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert torch.equal(gradient, gradients[1][name]), name


def test_checkpointing_keeps_the_input_of_each_layer_alone(make_student, random_documents, saved_bytes):
    student = make_student(windows=[8] * 4).train()
    documents = pack(random_documents([200, 100]))
    everything = saved_bytes(student, documents)
    student.checkpointing = True
    inputs = 4 * 300 * student.dim * 4  # layers, tokens, width, bytes
    assert inputs <= saved_bytes(student, documents) < 2 * inputs < everything / 4


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the path: install g++")
def test_compiled_and_eager_layers_agree(make_student, random_documents):
    student = make_student(windows=[8, 16])
    documents = pack(random_documents([3, 40, 17, 100]))
    with torch.no_grad():
        eager = student(documents)
        student.compiled = True
        torch.testing.assert_close(student(documents), eager, atol=1e-5, rtol=0)


def test_dropout_that_flash_attention_lacks_is_said(make_student, monkeypatch, caplog, random_documents):
    longformer._warn_of_dropout.cache_clear()
    monkeypatch.setattr("docemb_lib.student.longformer.choose_backend", lambda *_: "varlen")
    monkeypatch.setattr(
        "docemb_lib.student.longformer.banded_attention", lambda q, k, v, *_, **options: v * (1 - options["dropout"])
    )
    with caplog.at_level(logging.WARNING):
        make_student(windows=[8], dropout=0.125).train()(pack(random_documents([30])))
    assert "attention dropout 0.125 is left out" in caplog.text
