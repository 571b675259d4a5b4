"""Explanations of cosines, against a loop over pairs of tokens and words in float64."""

from itertools import product

import numpy as np
import pytest
import torch

from docemb_lib.student import pack

PAGES = [
    "Fit a straight line to noisy points. The least squares solution minimises residuals. " * 4,
    "Robust regression fits a line where points are outliers; the residuals of the fit. " * 7,
]
WORDS = [f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
LEADS = (
    (16, 8),
    (64, 4),
    (256, 3),
)  # of pooling "lead": first tokens, and how much more they count


def cosine(X):
    first, second = X.astype(np.float64)
    return first @ second / np.linalg.norm(first) / np.linalg.norm(second)


@pytest.fixture(scope="module")
def student_of(make_student):
    """A student by pooling, with words or without."""

    def make(pooling, with_words):
        student = make_student(windows=[8], pooling=pooling)
        if with_words:
            rng = np.random.default_rng(0)
            collection = [" ".join(rng.choice(WORDS, size=30)) for _ in range(30)]
            student.adapt([*PAGES, *PAGES, *collection], dim=6)
        return student

    return make


KINDS = [*product(("mean", "lead"), (False, True))]


@pytest.mark.parametrize(("pooling", "with_words"), KINDS)
def test_the_parts_sum_to_the_cosine(student_of, pooling, with_words):
    student = student_of(pooling, with_words)
    parts = student.explain(*PAGES, passages=16, bf16=False)
    expected = cosine(student.embed(PAGES, bf16=False))
    assert parts["contribution"].sum() == pytest.approx(expected, abs=1e-6)
    assert parts["contribution"].is_monotonic_decreasing
    assert ("word" in set(parts["part"])) == with_words


def centred_tokens(student, text):
    """What each token adds to the dense columns of an embedding, (T, D)."""
    (tokens,) = student.tokenize([text]).sequences
    with torch.inference_mode():
        H = student.hidden(pack([tokens])).double().numpy()
    place = np.arange(len(H))
    weights = np.ones(len(H))
    if student.pooling == "lead":
        for first, more in LEADS:
            weights += more * (place < first)
    weights /= weights.sum()
    half = student.lexical
    if half is None:
        return weights[:, None] * H
    rows = weights[:, None] * (H - half.dense_mean.numpy()) @ half.dense_map.double().numpy()
    return np.sqrt(1 - float(half.weight)) * rows / np.linalg.norm(rows.sum(axis=0))


@pytest.mark.parametrize(("pooling", "with_words"), [*product(("mean", "lead"), (False, True))])
def test_pairs_of_passages_are_sums_over_pairs_of_tokens(student_of, pooling, with_words):
    student = student_of(pooling, with_words)
    parts = student.explain(*PAGES, passages=16, bf16=False).query("part == 'passages'")
    _, passages = student.embed_documents(PAGES, passages=16, bf16=False)
    lengths = np.linalg.norm(student.embed(PAGES, bf16=False).astype(np.float64), axis=1)
    first, second = (centred_tokens(student, page) for page in PAGES)
    edges = [
        np.linspace(0, len(rows), -(-len(rows) // 16) + 1).astype(int) for rows in (first, second)
    ]
    pairs = [*product(range(len(edges[0]) - 1), range(len(edges[1]) - 1))]
    for (i, j), (_, row) in zip(pairs, parts.sort_index().iterrows(), strict=True):
        expected = 0.0
        for x in first[edges[0][i] : edges[0][i + 1]]:
            for y in second[edges[1][j] : edges[1][j + 1]]:
                expected += x @ y / lengths.prod()
        assert row["contribution"] == pytest.approx(expected, abs=1e-6)
        for side, page, of_page, number in zip("AB", PAGES, passages, (i, j), strict=True):
            assert row[f"of {side}"] == page[slice(*of_page.spans[number])]


def test_words_are_sums_over_pairs_of_words_half_for_each(student_of):
    student = student_of("mean", True)
    half = student.lexical
    rows = []  # of each document: what each of its words adds to the lexical columns
    for page in PAGES:
        roots = half.frequencies([page]).toarray()[0]
        known = {word: root for word, root in zip(half.vocabulary, roots, strict=True) if root}
        vectors = dict(zip(half.vocabulary, roots[:, None] * half.vectors, strict=True))
        length = np.linalg.norm(sum(vectors.values()))
        centred = {}
        for word, root in known.items():
            share = root / roots.sum()
            centred[word] = vectors[word] / length - share * half.lexical_mean.numpy()
        norm = np.linalg.norm(sum(centred.values()))
        rows.append({word: vector / norm for word, vector in centred.items()})
    expected = dict.fromkeys([*rows[0], *rows[1]], 0.0)
    for (first, x), (second, y) in product(rows[0].items(), rows[1].items()):
        expected[first] += float(half.weight) * x @ y / 2
        expected[second] += float(half.weight) * x @ y / 2
    words = student.explain(*PAGES, bf16=False).query("part == 'word'").set_index("of A")
    assert words["contribution"].to_dict() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("text", ["", "Xylophone."])
def test_a_text_without_known_words_has_contributions_of_passages_alone(student_of, text):
    student = student_of("mean", True)
    parts = student.explain(PAGES[0], text, bf16=False)
    expected = cosine(student.embed([PAGES[0], text], bf16=False))
    by_part = parts.groupby("part")["contribution"].sum()
    assert by_part.to_dict() == pytest.approx({"passages": expected, "word": 0}, abs=1e-6)


@pytest.mark.parametrize("pooling", ["first", "cls"])
def test_a_student_that_is_no_mean_is_refused(make_student, refused, pooling):
    student = make_student(windows=[8], pooling=pooling)
    refused(f"pooling '{pooling}' is the state of one token", student.explain, "one", "two")
