"""What 07_simde defines in its cells and the library lacks, beside plain loops."""

import numpy as np
import pytest
import torch

from docemb_lib.student import Student

NOTEBOOK = "07_simde.py"


def test_halves_keep_the_order_of_sentences_and_lose_none(defined):
    sentences = ["One. ", "Two. ", "Three. ", "Four."]
    halves = defined.halves_of(sentences, np.array([True, False, False, True]))
    assert halves == ("One. Four.", "Two. Three. ")


def test_draws_have_equal_classes_and_keep_smaller_draws(defined):
    labels = np.array([0, 1, 2] * 10 + [0] * 50)
    drawn = {number: defined.draw_per_class(labels, number, draw=4) for number in (1, 4, 10)}
    for number, rows in drawn.items():
        assert np.bincount(labels[rows]).tolist() == [number] * 3
    assert set(drawn[1]) < set(drawn[4]) < set(drawn[10])
    assert not np.array_equal(drawn[4], defined.draw_per_class(labels, 4, draw=5))


@pytest.mark.parametrize("pooling", ["mean", "first", "cls"])
def test_a_token_receives_the_mean_attention_of_the_tokens_that_are_pooled(defined, pooling):
    """Beside full attention by queries and keys, of a text shorter than half a window."""
    student = Student.from_encoder(
        "all-MiniLM-L6-v2", layers=[0], pooling=pooling, attention_window=64
    )
    text = "Two ships left. One ship stayed."
    ids = student.tokenizer(text, return_tensors="pt")["input_ids"]
    kind = "_global" if pooling == "cls" else ""
    is_global = torch.zeros_like(ids)
    is_global[0, 0] = pooling == "cls"
    with torch.no_grad():
        output = student.model(ids, global_attention_mask=is_global, output_hidden_states=True)
        hidden = output.hidden_states[-2][0, : ids.shape[1]]
        layer = student.model.encoder.layer[-1].attention.self
        q = getattr(layer, f"query{kind}")(hidden).unflatten(1, (layer.num_heads, -1))
        k = getattr(layer, f"key{kind}")(hidden).unflatten(1, (layer.num_heads, -1))
    logits = torch.einsum("qhd,khd->hqk", q, k) / layer.head_dim**0.5
    received = logits.softmax(dim=-1).mean(dim=0)
    expected = received.mean(dim=0) if pooling == "mean" else received[0]
    found, places = defined.token_attention(student, text)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert text[slice(*places[2])] == "ships"
