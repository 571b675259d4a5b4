import doctest

import numpy as np
import pytest
import torch

from docemb_lib.student import pack, student
from docemb_lib.student.student import Encoded


def test_the_example_runs():
    assert doctest.testmod(student) == (0, 2)


def test_projections_for_global_attention_are_frozen_where_unused(make_student):
    frozen = {
        name
        for name, weight in make_student(windows=[8]).named_parameters()
        if not weight.requires_grad
    }
    names = [
        f"{name}_global.{part}" for name in ("query", "key", "value") for part in ("weight", "bias")
    ]
    assert frozen == {f"model.encoder.layer.0.attention.self.{name}" for name in names}


def test_texts_become_tokens_with_special_ones_cut_at_the_limit(make_student, refused):
    student = make_student(windows=[8], max_tokens=10)
    tokens, truncated = student.tokenize(["one two", "", "word " * 8, "word " * 9, "word " * 99])
    assert [len(ids) for ids in tokens] == [4, 2, 10, 10, 10]
    assert all(ids[0] == 101 and ids[-1] == 102 for ids in tokens)
    assert truncated == 2
    assert student.tokenize(["word " * 9, "word"]) == Encoded(
        [[101, *[2773] * 8, 102], [101, 2773, 102]], truncated=1
    )
    assert student.tokenize([]) == Encoded([], 0)
    refused(
        "21 tokens, and the student reads 20",
        make_student(windows=[8], max_tokens=20),
        pack([[5] * 21]),
    )


def test_encode_takes_one_text_or_several(converted, texts):
    expected = converted.embed(texts, bf16=False)
    np.testing.assert_allclose(converted.encode(texts[0], bf16=False), expected[0], atol=1e-5)
    np.testing.assert_array_equal(converted.encode(texts, bf16=False), expected)


@pytest.mark.parametrize(
    ("kind", "least"), [("converted", 0.9999), ("global", 0.99), ("modernbert", 0.99)]
)
def test_bfloat16_embeddings_point_the_same_way(make_kind, converted, texts, kind, least):
    """The weights of the random models are drawn wide, so that rounding shows more than in a
    trained one.
    """
    student = converted if kind == "converted" else make_kind(kind)
    full = student.embed(texts, bf16=False)
    half = student.embed(texts, bf16=True)
    cosines = (full * half).sum(1) / np.linalg.norm(full, axis=1) / np.linalg.norm(half, axis=1)
    assert cosines.min() >= least
    assert np.abs(full - half).max() > 0  # the precisions differ


@pytest.mark.parametrize(("asked", "bf16"), [("bf16", True), ("fp32", False)])
def test_the_environment_chooses_the_precision_of_embeddings(
    converted, texts, monkeypatch, asked, bf16
):
    expected, other = (converted.embed(texts, bf16=chosen) for chosen in (bf16, not bf16))
    monkeypatch.setenv("DOCEMB_PRECISION", asked)
    np.testing.assert_array_equal(converted.embed(texts), expected)
    np.testing.assert_array_equal(converted.embed(texts, bf16=not bf16), other)


def test_a_single_string_and_embeddings_that_are_not_finite_are_refused(
    make_student, tmp_path, refused
):
    student = make_student(windows=[8])
    refused("one string", student.embed, "one text", out=tmp_path / "e.npy")
    assert list(tmp_path.iterdir()) == []
    with torch.no_grad():
        student.model.embeddings.word_embeddings.weight[2773] = float("nan")  # "word"
    refused(
        "an embedding is not finite: the student's weights are damaged",
        student.embed,
        ["one", "", "one word"],
        out=tmp_path / "e.npy",
    )
    assert list(tmp_path.iterdir()) == []
    assert np.isfinite(student.embed(["one"])).all()
