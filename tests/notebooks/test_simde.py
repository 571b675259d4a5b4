"""What 07_simde defines in its cells, beside plain loops."""

import math

import numpy as np
import pytest
import torch

from docemb_lib.student import Student

NOTEBOOK = "07_simde.py"


@pytest.mark.parametrize("seed", range(5))
def test_no_half_of_two_sentences_is_empty(defined, seed):
    rng = np.random.default_rng(seed)
    draws = [defined.toss_coins(2, rng).tolist() for _ in range(40)]
    assert {*map(tuple, draws)} == {(True, False), (False, True)}


def test_half_of_the_sentences_go_into_the_first_half_in_the_mean(defined):
    rng = np.random.default_rng(0)
    shares = [defined.toss_coins(9, rng).mean() for _ in range(2000)]
    assert np.mean(shares) == pytest.approx(0.5, abs=0.02)


def test_halves_keep_the_order_of_sentences_and_lose_none(defined):
    sentences = ["One. ", "Two. ", "Three. ", "Four."]
    halves = defined.halves_of(sentences, np.array([True, False, False, True]))
    assert halves == ("One. Four.", "Two. Three. ")


def test_infonce_is_the_formula_of_the_paper(defined):
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64).unbind()

    def weight(i, j):
        h, h_plus = first[i].tolist(), second[j].tolist()
        product = sum(a * b for a, b in zip(h, h_plus, strict=True))
        cosine = product / math.hypot(*h) / math.hypot(*h_plus)
        return math.exp(cosine / 0.05)

    expected = []
    for i in range(4):
        total = sum(weight(i, j) for j in range(4))
        expected.append(-math.log(weight(i, i) / total))
    np.testing.assert_allclose(defined.info_nce(first, second, 0.05), expected)


def test_equal_embeddings_have_the_loss_of_chance(defined):
    equal = torch.ones(6, 3, dtype=torch.float64)
    assert defined.info_nce(equal, equal, 0.05).tolist() == pytest.approx([math.log(6)] * 6)


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
