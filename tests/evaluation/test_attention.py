"""Attention to words against a slow loop over heads and windows, and plain sums."""

import logging
from math import lcm

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, LongformerConfig, LongformerModel

from docemb_lib.base.pretrained import resolve
from docemb_lib.corpus.rows import tag_words
from docemb_lib.evaluation.attention import attention_by_part, places_of, token_attention
from docemb_lib.student import Student

TEXT = (
    "The old ships had left the harbour's unfathomable depths early, "
    "and nobody watched the rocky coast (12 km)."
)
WINDOWS = [6, 8]
HEADS = 2


@pytest.fixture(scope="module", params=["first", "cls", "mean"])
def student(request):
    """A random student with windows much shorter than the text and far from uniform attention."""
    torch.manual_seed(0)
    config = LongformerConfig(
        vocab_size=30522,
        hidden_size=16,
        num_attention_heads=HEADS,
        num_hidden_layers=2,
        intermediate_size=32,
        attention_window=WINDOWS,
        max_position_embeddings=201,
        pad_token_id=0,
        initializer_range=0.5,
    )
    tokenizer = AutoTokenizer.from_pretrained(resolve("all-MiniLM-L6-v2"), model_max_length=200)
    model = LongformerModel(config, add_pooling_layer=False)
    return Student(model, tokenizer, pooling=request.param).eval()


def test_windows_and_global_attention_are_those_of_a_loop_over_the_last_layer(student):
    text = TEXT * 2
    weights, _ = token_attention(student, text)
    T = len(weights)
    assert T > 50  # several windows
    ids = student.tokenizer(text)["input_ids"]
    padded = torch.tensor([ids + [0] * (-T % lcm(*WINDOWS))])
    is_global = torch.zeros_like(padded)
    is_global[0, 0] = student.pooling == "cls"
    mask = (torch.arange(padded.shape[1]) < T)[None].long()
    masks = {"attention_mask": mask, "global_attention_mask": is_global}
    with torch.inference_mode():
        hidden = student.model(padded, **masks, output_hidden_states=True).hidden_states[-2][0, :T]
        layer = student.model.encoder.layer[-1].attention.self
        projected = {}
        for kind in ("", "_global"):
            names = (f"query{kind}", f"key{kind}")
            projected[kind] = [getattr(layer, name)(hidden).view(T, HEADS, 8) for name in names]
    expected = np.zeros(T)
    queries = range(T) if student.pooling == "mean" else [0]
    for i in queries:
        from_all = bool(is_global[0, i])
        Q, K = projected["_global" if from_all else ""]
        seen = [
            j for j in range(T) if from_all or is_global[0, j] or abs(i - j) <= WINDOWS[-1] // 2
        ]
        for head in range(HEADS):
            logits = np.array([float(Q[i, head] @ K[j, head]) / np.sqrt(8) for j in seen])
            shares = np.exp(logits - logits.max())
            expected[seen] += shares / shares.sum() / HEADS / len(queries)
    np.testing.assert_allclose(weights, expected, atol=1e-5)


def test_words_are_found_in_their_order():
    words = [word for word, _ in tag_words(TEXT)]
    assert [TEXT[a:b] for a, b in places_of(words, TEXT)] == words
    assert places_of(["a", "a"], "a 3 a").tolist() == [[0, 1], [4, 5]]


def test_parts_are_means_over_their_words_as_in_a_slow_loop(student):
    texts = [TEXT, str(logging.__doc__), "12 !", "The ship."]
    frame = attention_by_part(student, texts)
    assert frame["document"].unique().tolist() == [0, 1, 3]  # the third has no word
    for number, rows in frame.set_index("part").groupby("document"):
        text = texts[number]
        weights, offsets = token_attention(student, text)
        by_part = {}
        end = 0
        for word, part in tag_words(text):
            start = text.index(word, end)
            end = start + len(word)
            tokens = zip(weights, offsets, strict=True)
            received = [weight for weight, (a, b) in tokens if start < b <= end]
            if received:
                by_part.setdefault(part, []).append(sum(received))
        every = np.mean([value for values in by_part.values() for value in values])
        assert set(rows.index) == set(by_part)
        for part, values in by_part.items():
            expected = (len(values), np.mean(values), np.mean(values) / every)
            of_part = tuple(rows.loc[part, ["words", "attention", "relative"]])
            assert of_part == pytest.approx(expected)


def test_words_beyond_the_limit_of_the_student_are_not_counted(student):
    long = f"{TEXT} " * 30
    assert 0 < attention_by_part(student, [long])["words"].sum() < 200 < len(tag_words(long))
