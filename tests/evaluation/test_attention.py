"""Attention against stock BERT's own, and against queries and keys multiplied token by token."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, LongformerConfig, LongformerModel, ModernBertConfig, ModernBertModel

from docemb_lib.corpus.sentences import tag_words
from docemb_lib.errors import InputError
from docemb_lib.evaluation.probes import attention_by_part, attention_of_words, token_attention
from docemb_lib.pretrained import resolve
from docemb_lib.student import Student

TEXT = "The old ships had left the harbour's unfathomable depths early, and nobody watched the rocky coast (12 km)."
WINDOWS = [8, 16]


@pytest.fixture(scope="module")
def minilm() -> str:
    return resolve("all-MiniLM-L6-v2")


@pytest.fixture(scope="module", params=["first", "cls", "mean"])
def student(request, minilm) -> Student:
    """Random, with windows much shorter than the text and attention far from uniform."""
    torch.manual_seed(0)
    config = LongformerConfig(
        vocab_size=30522, hidden_size=16, num_attention_heads=2, num_hidden_layers=2, intermediate_size=32,
        attention_window=WINDOWS, max_position_embeddings=201, pad_token_id=0, initializer_range=0.5,
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(minilm, model_max_length=200)
    return Student(LongformerModel(config, add_pooling_layer=False), tokenizer, pooling=request.param).eval()


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_with_a_window_over_all_of_it_the_weights_are_berts(minilm, pooling):
    student = Student.from_encoder(minilm, layers=None, max_tokens=128, attention_window=256, pooling=pooling)
    bert = AutoModel.from_pretrained(minilm, attn_implementation="eager").eval()
    inputs = AutoTokenizer.from_pretrained(minilm)(TEXT, return_tensors="pt")
    with torch.inference_mode():
        last = bert(**inputs, output_attentions=True).attentions[-1][0].mean(0)  # (T, T)
    expected = last[0] if pooling == "first" else last.mean(0)
    weights, _ = token_attention(student, TEXT)
    np.testing.assert_allclose(weights, expected.numpy(), atol=1e-5)
    assert weights.std() > 0.005


def test_windows_and_global_attention_are_those_of_the_last_layer(student):
    text = TEXT * 2
    weights, offsets = token_attention(student, text)
    T = len(weights)
    assert T > 50  # several windows
    np.testing.assert_allclose(weights.sum(), 1, atol=1e-5)
    ids = student.tokenizer(text)["input_ids"]
    padded = torch.tensor([ids + [0] * (-T % max(WINDOWS))])
    is_global = torch.zeros_like(padded)
    is_global[0, 0] = student.pooling == "cls"
    mask = (torch.arange(padded.shape[1]) < T)[None].long()
    with torch.inference_mode():
        hidden = student.model(
            padded, attention_mask=mask, global_attention_mask=is_global, output_hidden_states=True
        ).hidden_states[-2][0, :T]  # fmt: skip
        layer = student.model.encoder.layer[-1].attention.self
        names = ("query_global", "key_global") if student.pooling == "cls" else ("query", "key")
        Q, K = (getattr(layer, name)(hidden).view(T, 2, 8) for name in names)
    expected = np.zeros(T)
    queries = range(T) if student.pooling == "mean" else [0]
    for i in queries:
        seen = [j for j in range(T) if student.pooling == "cls" or abs(i - j) <= WINDOWS[-1] // 2]
        for head in range(2):
            logits = np.array([float(Q[i, head] @ K[j, head]) / np.sqrt(8) for j in seen])
            shares = np.exp(logits - logits.max())
            expected[seen] += shares / shares.sum() / 2 / len(queries)
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    assert [text[a:b] for a, b in offsets if b > a][:3] == ["The", "old", "ships"]


def test_a_word_gets_what_its_tokens_get():
    words = tag_words("New harbours, 12 (all).")
    offsets = np.array([[0, 0], [0, 3], [3, 10], [10, 12], [12, 13], [14, 16], [17, 18], [18, 21], [21, 22], [0, 0]])
    weights = np.arange(1.0, 11.0)
    assert [word.text for word in words] == ["New", "harbours", "all"]
    assert attention_of_words(weights, offsets, words).tolist() == [2, 3 + 4, 8]
    cut = attention_of_words(weights[:3], offsets[:3], words)
    np.testing.assert_array_equal(cut, [2, 3, np.nan])


def test_parts_are_means_over_their_words_as_in_a_slow_loop(student):
    texts = [TEXT, str(logging.__doc__), "12 !", "The ship."]
    found = attention_by_part(student, texts)
    assert found["document"].unique().tolist() == [0, 1, 3]
    for number in (0, 1, 3):
        weights, offsets = token_attention(student, texts[number])
        by_part: dict[str, list[float]] = {}
        for word in tag_words(texts[number]):
            own = [w for w, (a, b) in zip(weights, offsets, strict=True) if word.start < b <= word.end]
            if own:
                by_part.setdefault(word.part, []).append(sum(own))
        every = np.mean([one for own in by_part.values() for one in own])
        rows = found[found["document"] == number].set_index("part")
        assert set(rows.index) == set(by_part)
        for part, own in by_part.items():
            assert rows.loc[part, "words"] == len(own)
            assert rows.loc[part, "attention"] == pytest.approx(np.mean(own))
            assert rows.loc[part, "relative"] == pytest.approx(np.mean(own) / every)


def test_what_the_student_does_not_read_does_not_count(student):
    long = f"{TEXT} " * 30
    found = attention_by_part(student, [long])
    assert 0 < found["words"].sum() < 200 < len(tag_words(long))


def test_the_student_stays_in_training_mode_and_nothing_is_dropped(student):
    before = attention_by_part(student, [TEXT])
    student.train()
    try:
        pd.testing.assert_frame_equal(attention_by_part(student, [TEXT]), before)
        assert student.training
    finally:
        student.eval()


def test_texts_without_words_are_refused(student):
    with pytest.raises(InputError, match="none of the 2 texts has a word"):
        attention_by_part(student, ["", "1 2"])


def test_a_student_without_attentions_is_refused(minilm):
    config = ModernBertConfig(
        vocab_size=30522, hidden_size=16, num_attention_heads=2, num_hidden_layers=1, intermediate_size=24, pad_token_id=0
    )  # fmt: skip
    student = Student(ModernBertModel(config), AutoTokenizer.from_pretrained(minilm))
    with pytest.raises(InputError, match="attention: a modernbert gives none; take a student with BERT's layers"):
        attention_by_part(student, [TEXT])
