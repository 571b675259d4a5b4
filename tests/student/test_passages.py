"""Passages of documents from one pass: their means, their characters, and their sizes."""

import numpy as np
import pytest
import torch

from docemb_lib.base.prompts import Prompts
from docemb_lib.student import pack
from docemb_lib.student.passages import passage_sizes


@pytest.mark.parametrize(
    ("tokens", "sizes"), [(1, [1]), (16, [16]), (17, [8, 9]), (50, [12, 13, 12, 13])]
)
def test_passages_are_as_few_as_possible_and_of_equal_size(tokens, sizes):
    assert passage_sizes(tokens, 16) == sizes


@pytest.mark.parametrize("with_words", [False, True])
@pytest.mark.parametrize("kind", ["mean", "lead", "modernbert"])
def test_the_weighted_mean_of_passages_is_the_half_of_meaning(make_kind, texts, kind, with_words):
    student = make_kind(kind)
    if with_words:
        student.adapt([*texts, *texts, "a b c d e f g", "a b c d e f g"], dim=4)
    X, passages = student.embed_documents(texts, passages=32, bf16=False)
    np.testing.assert_array_equal(X, student.embed(texts, bf16=False))
    for row, (_, weights, embeddings) in zip(X, passages, strict=True):
        np.testing.assert_allclose(weights @ embeddings / weights.sum(), row[:16], atol=2e-6)


def test_a_passage_is_the_mean_of_states_that_have_seen_the_document(make_student, texts):
    student = make_student(windows=[8])
    text = max(texts, key=len)
    (tokens,) = student.tokenize([text]).sequences
    with torch.inference_mode():
        H = student.hidden(pack([tokens])).numpy()
    _, (passages,) = student.embed_documents([text], passages=16, bf16=False)
    ends = np.cumsum(passage_sizes(len(tokens), 16))
    expected = [rows.mean(axis=0) for rows in np.split(H, ends[:-1])]
    np.testing.assert_allclose(passages.embeddings, expected, atol=1e-5)
    assert passages.weights.tolist() == passage_sizes(len(tokens), 16)


def test_a_prompt_is_in_no_span(make_student):
    student = make_student(windows=[8], max_tokens=64)
    text = "of a few words, " * 9
    _, (as_text,) = student.embed_documents([f"passage: {text}"], passages=8, bf16=False)
    student.prompts = Prompts("passage: ")
    _, (passages,) = student.embed_documents([text], passages=8, bf16=False)
    moved = np.maximum(as_text.spans - len(student.prompts.document), 0)
    np.testing.assert_array_equal(passages.spans, moved)


def test_spans_cover_every_word_of_a_text_in_order(make_student):
    student = make_student(windows=[8], max_tokens=64)
    text = "Ünbelievably  straightforward\ntokenization, isn't it? 日本語 " * 9
    _, (passages,) = student.embed_documents([text], passages=8, bf16=False)
    starts, ends = passages.spans.T
    assert (starts[0], len(starts)) == (0, 8)
    assert (starts[1:] >= ends[:-1]).all()
    between = [text[end:start] for end, start in zip(ends[:-1], starts[1:], strict=True)]
    assert "".join(between).strip() == ""
    (kept,) = student.tokenize([text]).sequences
    words = student.tokenizer.decode(kept, skip_special_tokens=True)
    assert (
        student.tokenizer.decode(student.tokenize([text[: ends[-1]]]).sequences[0][1:-1]) == words
    )


def test_an_empty_text_is_one_passage_without_characters(make_student):
    X, (passages,) = make_student(windows=[8]).embed_documents([""], passages=16, bf16=False)
    assert passages.spans.tolist() == [[0, 0]]
    np.testing.assert_allclose(passages.embeddings, X, atol=1e-6)


def test_passages_of_a_few_tokens_are_refused(make_student, refused):
    embed = make_student(windows=[8]).embed_documents
    refused("passages: got 7 tokens", embed, ["a"], passages=7)
