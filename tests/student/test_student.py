from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch

from docemb_lib.student import Student, pack
from docemb_lib.student.student import Encoded


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


@pytest.mark.parametrize(
    ("kind", "least"), [("converted", 0.9999), ("cls", 0.99), ("modernbert", 0.99)]
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


def test_a_single_string_and_embeddings_that_are_not_finite_are_refused(
    make_student, tmp_path, refused
):
    student = make_student(windows=[8])
    refused("this is a str and no sequence", student.embed, "one text", out=tmp_path / "e.npy")
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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"a": "one"}, "this is a dict and no sequence of documents; give a list of strings"),
        (pd.DataFrame({"text": ["one"]}), "this is a DataFrame and no sequence"),
        (["one", None], "item 1 is the NoneType None and no string; mend or leave it out"),
        (["one", "a \ud83d"], "item 1 is the str .* and no string"),
        (pd.Series(["one", np.nan], dtype=object), "item 1 is the float nan and no string"),
    ],
)
def test_what_is_no_list_of_strings_is_refused_before_it_is_embedded(
    make_student, given, said, refused, monkeypatch
):
    student = make_student(windows=[8])
    monkeypatch.setattr(Student, "hidden", print)
    refused(f"texts: {said}", student.embed, given)


def test_an_item_of_an_iterator_is_refused_where_it_is_read(make_student, refused):
    message = "texts: item 1 is the int 2 and no string"
    refused(message, make_student(windows=[8]).embed, iter(["one", 2]))


@pytest.mark.parametrize("pooling", ["Lead", "", None, "max"])
def test_another_pooling_is_refused_when_it_is_set(make_student, pooling, refused):
    student = make_student(windows=[8])
    refused("pooling: a student cannot pool by", setattr, student, "pooling", pooling)
    assert student.pooling == "mean"


def test_a_student_pools_as_it_is_set(make_student):
    student = make_student(windows=[8])
    student.pooling = "lead"
    texts = ["word " * 20 + "other"]
    lead = make_student(windows=[8], pooling="lead").embed(texts, bf16=False)
    np.testing.assert_array_equal(student.embed(texts, bf16=False), lead)


NO_FORMS = [
    {"attention_window": 7},
    {"attention_window": 0},
    {"attention_window": [32]},
    {"layers": "0"},
    {"layers": [True]},
    {"layers": []},
    {"max_tokens": None},
    {"max_tokens": -4},
    {"max_tokens": 10**8},
    {"dropout": -0.1},
]


@pytest.mark.parametrize("form", NO_FORMS, ids=str)
def test_what_is_no_form_of_a_student_is_refused(minilm, form, refused):
    refused(f"{next(iter(form))}.*, got ", Student.from_encoder, minilm, **form)


def test_arguments_that_are_no_numbers_are_refused(make_student, refused, tmp_path):
    student = make_student(windows=[8])
    texts = ["one word", "another word", "two words"] * 3
    refused("dim: got 16.0", student.adapt, texts, dim=16.0)
    refused("passages: got '64'", student.embed_documents, texts, passages="64")
    refused("folder: '' is empty or a file; name a", student.save, "")
    for devices in ("gpu", ["cuda:99"], 99):
        refused("devices: .* cannot be used", student.embed, texts, devices=devices)
    np.testing.assert_array_equal(student.embed(texts, devices="cpu"), student.embed(texts))


def test_threads_tokenise_with_the_limit(make_student):
    student = make_student(windows=[8], max_tokens=12)
    text = "ferry quay " * 200
    lengths = set()

    def tokenise():
        for _ in range(50):
            lengths.update(map(len, student.encodings([text] * 8)))

    with ThreadPoolExecutor(4) as threads:
        for future in [threads.submit(tokenise) for _ in range(4)]:
            future.result()
    assert lengths == {12}


# ---- Files
def test_embeddings_are_written_to_npy_alone(make_student, tmp_path, refused):
    student = make_student(windows=[8])
    refused("a.txt is a folder or no .npy file", student.embed, ["one"], out=tmp_path / "a.txt")
    (tmp_path / "b.npy").mkdir()
    refused("b.npy is a folder or no .npy file", student.embed, ["one"], out=tmp_path / "b.npy")
