"""Students that run the stock forward: a Longformer whose first token has global attention, and a ModernBERT."""

import re

import numpy as np
import pytest
import torch
from transformers import AutoModel

from docemb_lib.errors import InputError
from docemb_lib.student import Student, pack
from docemb_lib.student.longformer import padded_batches

KINDS = ["global", "modernbert"]
LENGTHS = [3, 130, 17, 64, 100, 1, 131]


def stock_embedding(student, document):
    """What the stock model makes of one document alone, (D,)."""
    ids = torch.tensor([document])
    if student.pooling == "mean":
        return student.model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0].mean(0)
    first = torch.zeros_like(ids)
    first[0, 0] = 1
    output = student.model(ids, attention_mask=torch.ones_like(ids), global_attention_mask=first)
    return output.last_hidden_state[0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings_equal_the_stock_models_on_each_document(make_kind, random_documents, kind):
    student = make_kind(kind)
    documents = random_documents(LENGTHS)
    documents.append([101, 0, 2000, 0, 0, 3000, 102])  # somebody writes of "[PAD]"
    with torch.no_grad():
        for document, ours in zip(documents, student(pack(documents)), strict=True):
            torch.testing.assert_close(ours, stock_embedding(student, document), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_the_stock_models(make_kind, random_documents, kind):
    student = make_kind(kind)
    documents = random_documents(LENGTHS)
    weight = torch.randn(len(documents), student.dim, generator=torch.Generator().manual_seed(1))
    parameters = dict(student.model.named_parameters())
    assert all(parameter.requires_grad for parameter in parameters.values())

    def gradients(embeddings):
        return torch.autograd.grad((embeddings * weight).sum(), list(parameters.values()), allow_unused=True)

    ours = gradients(student(pack(documents)))
    theirs = gradients(torch.stack([stock_embedding(student, document) for document in documents]))
    for name, mine, reference in zip(parameters, ours, theirs, strict=True):
        assert (mine is None) == (reference is None), name
        if mine is not None:
            torch.testing.assert_close(
                mine, reference, atol=3e-5, rtol=1e-3, msg=lambda text, name=name: f"{name}: {text}"
            )
    if kind == "global":
        found = {name: mine for name, mine in zip(parameters, ours, strict=True) if "_global.weight" in name}
        assert len(found) == 6
        assert all(gradient.abs().max() > 0 for gradient in found.values())


def test_global_attention_reaches_the_first_token_from_beyond_every_window(make_kind, random_documents):
    """With two layers of windows 8 and 16 a token sees 12 positions to either side at most."""
    student = make_kind("global")
    [document] = random_documents([200])
    changed = [*document[:-1], 500]
    with torch.no_grad():
        one, other = student(pack([document, changed]))
        assert (one - other).abs().max() > 1e-4
        local = student.model(torch.tensor([document, changed])).last_hidden_state[:, 0]
    torch.testing.assert_close(local[0], local[1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_lie_in_the_order_of_the_batch(make_kind, random_documents, kind):
    student = make_kind(kind)
    documents = random_documents([20, 400, 7])
    with torch.no_grad():
        hidden = student.hidden(pack(documents))
        alone = torch.cat([student.hidden(pack([document])) for document in documents])
    assert hidden.shape == (427, 16)
    torch.testing.assert_close(hidden, alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_checkpointing_changes_no_bit_of_the_gradients(make_kind, random_documents, kind, dropout):
    student = make_kind(kind, dropout=dropout).train()
    documents = pack(random_documents([3, 40, 17, 100]))
    gradients = []
    for student.checkpointing in (False, True, False):
        student.zero_grad()
        torch.manual_seed(0)
        student(documents).square().sum().backward()
        gradients.append({name: p.grad.clone() for name, p in student.named_parameters() if p.grad is not None})
    for other in gradients[1:]:
        assert other.keys() == gradients[0].keys()
        for name, gradient in gradients[0].items():
            assert torch.equal(gradient, other[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_checkpointing_keeps_little_for_the_backward_pass(make_kind, random_documents, saved_bytes, kind):
    student = make_kind(kind).train()
    documents = pack(random_documents([200, 190]))
    everything = saved_bytes(student, documents)
    student.checkpointing = True
    assert saved_bytes(student, documents) < everything / 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_training_step_lowers_the_loss(make_kind, random_documents, kind):
    student = make_kind(kind).train()
    documents = pack(random_documents([30, 60, 45]))
    target = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
    optimiser = torch.optim.SGD((p for p in student.parameters() if p.requires_grad), lr=1e-3)
    losses = []
    for _ in range(3):
        loss = (student(documents) - target).square().mean()
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_embeddings_point_the_same_way(make_kind, texts, kind):
    student = make_kind(kind)
    full, half = student.embed(texts, bf16=False), student.embed(texts, bf16=True)
    cosines = (full * half).sum(1) / np.linalg.norm(full, axis=1) / np.linalg.norm(half, axis=1)
    assert cosines.min() >= 0.99  # weights drawn wide: rounding shows more than in a trained model
    assert np.abs(full - half).max() > 0


@pytest.mark.parametrize(
    ("sizes", "step", "expected"),
    [
        ([5, 100, 70, 90, 60], 1, [[1, 3], [2, 4], [0]]),  # 75 of 100; 52.5 of 70
        ([5, 100, 70, 90, 60], 128, [[1, 3, 2, 4, 0]]),  # all become 128
        ([300, 120, 200, 257], 128, [[0, 3], [2], [1]]),  # 384, 384, 256, 128
        ([7, 7, 7], 64, [[0, 1, 2]]),
    ],
)
def test_documents_are_padded_beside_others_of_about_their_length(sizes, step, expected):
    assert padded_batches(sizes, step) == expected


def test_a_modernbert_is_taken_as_it_is(modernbert_folder):
    student = Student.from_encoder(modernbert_folder, max_tokens=200)
    assert (student.dim, student.max_tokens, student.pooling) == (16, 200, "mean")
    assert student.config.max_position_embeddings == 600
    original = AutoModel.from_pretrained(modernbert_folder)
    for name, weight in original.state_dict().items():
        assert torch.equal(student.model.state_dict()[name], weight), name


def test_dropout_of_a_modernbert_acts_in_training_alone(modernbert_folder, random_documents):
    student = Student.from_encoder(modernbert_folder, max_tokens=600, dropout=0.25)
    config = student.config
    assert config.embedding_dropout == config.mlp_dropout == config.attention_dropout == 0.25
    documents = pack(random_documents([30, 50]))
    assert torch.equal(student(documents), student(documents))
    student.train()
    assert not torch.allclose(student(documents), student(documents))
    for module in student.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    assert not torch.allclose(student(documents), student(documents))  # what is left is the attention's own


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": [0]}, "layers: got [0], which is for encoders that are converted"),
        ({"attention_window": 64}, "attention_window: got 64, which is for encoders that are converted"),
        ({"max_tokens": 601}, "max_tokens: got 601"),
        ({"max_tokens": 7}, "max_tokens: got 7"),
        ({"dropout": 1.0}, "dropout: got 1.0"),
        ({"pooling": "cls"}, "pooling: got cls of a modernbert"),
        ({"pooling": "max"}, "pooling: got max of a modernbert"),
    ],
)
def test_what_a_modernbert_cannot_be_is_refused(modernbert_folder, arguments, message):
    with pytest.raises(InputError, match=re.escape(message)):
        Student.from_encoder(modernbert_folder, **{"max_tokens": 600, **arguments})


def test_a_converted_encoder_can_have_a_global_first_token(minilm):
    student = Student.from_encoder(minilm, pooling="cls", layers=[0], max_tokens=300, attention_window=16)
    [ids] = student.tokenize(["Global attention starts from the local projections. " * 20])
    with torch.no_grad():
        torch.testing.assert_close(student(pack([ids]))[0], stock_embedding(student, ids), atol=1e-5, rtol=0)
