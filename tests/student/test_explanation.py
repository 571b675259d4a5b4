"""Explanations of cosines, against products of passages and a loop over pairs of words."""

from itertools import product

import numpy as np
import pytest

PAGES = [
    "Fit a straight line to noisy points. The least squares solution minimises residuals. " * 4,
    "Robust regression fits a line where points are outliers; the residuals of the fit. " * 7,
]
WORDS = [f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]


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


@pytest.mark.parametrize(("pooling", "with_words"), KINDS)
def test_pairs_of_passages_are_products_of_their_shares(student_of, pooling, with_words):
    student = student_of(pooling, with_words)
    parts = student.explain(*PAGES, passages=16, bf16=False).query("part == 'passages'")
    X, of_pages = student.embed_documents(PAGES, passages=16, bf16=False)
    shares = []
    for x, (_, weights, embeddings) in zip(X, of_pages, strict=True):
        shares.append(weights[:, None] * embeddings / weights.sum() / np.linalg.norm(x))
    expected = (shares[0] @ shares[1].T).ravel()
    pairs = [*product(*(range(len(share)) for share in shares))]
    for places, product_, (_, row) in zip(
        pairs, expected, parts.sort_index().iterrows(), strict=True
    ):
        assert row["contribution"] == pytest.approx(product_, abs=1e-6)
        for side, page, of_page, number in zip("AB", PAGES, of_pages, places, strict=True):
            assert row[f"of {side}"] == page[slice(*of_page.spans[number])]


def test_words_are_sums_over_pairs_of_words_half_for_each(student_of):
    student = student_of("mean", True)
    half = student.words
    rows = []  # of each document: what each of its words adds to the columns of words
    for page in PAGES:
        roots = half.frequencies([page]).toarray()[0]
        known = {word: root for word, root in zip(half.vocabulary, roots, strict=True) if root}
        vectors = dict(zip(half.vocabulary, roots[:, None] * half.vectors, strict=True))
        length = np.linalg.norm(sum(vectors.values()))
        centred = {}
        for word, root in known.items():
            share = root / roots.sum()
            centred[word] = vectors[word] / length - share * half.words_mean.numpy()
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
