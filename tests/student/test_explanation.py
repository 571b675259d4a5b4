"""Explanations of cosines, against a loop over pairs of tokens and words in float64."""

from itertools import product

import numpy as np
import pytest
import torch

from docemb_lib.student import pack
from docemb_lib.student.explanation import Explanation

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
            student.adapt([*PAGES, *PAGES, *collection], dim=6, bf16=False)
        return student

    return make


KINDS = [*product(("mean", "lead"), (False, True))]


@pytest.mark.parametrize(("pooling", "with_words"), KINDS)
def test_the_parts_sum_to_the_cosine(student_of, pooling, with_words):
    student = student_of(pooling, with_words)
    explanation = student.explain(*PAGES, passages=16, bf16=False)
    expected = cosine(student.embed(PAGES, bf16=False))
    total = explanation.pairs.sum() + sum(explanation.words.values())
    assert total == pytest.approx(expected, abs=1e-6)
    assert explanation.cosine == pytest.approx(expected, abs=1e-6)
    assert bool(explanation.words) == with_words


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
    explanation = student.explain(*PAGES, passages=16, bf16=False)
    lengths = np.linalg.norm(student.embed(PAGES, bf16=False).astype(np.float64), axis=1)
    first, second = (centred_tokens(student, page) for page in PAGES)
    edges = [
        np.linspace(0, len(rows), -(-len(rows) // 16) + 1).astype(int) for rows in (first, second)
    ]
    for i, j in product(range(len(edges[0]) - 1), range(len(edges[1]) - 1)):
        expected = 0.0
        for x in first[edges[0][i] : edges[0][i + 1]]:
            for y in second[edges[1][j] : edges[1][j + 1]]:
                expected += x @ y / lengths.prod()
        assert explanation.pairs[i, j] == pytest.approx(expected, abs=1e-6)


def test_words_are_sums_over_pairs_of_words_half_for_each(student_of):
    student = student_of("mean", True)
    half = student.lexical
    mean = half.lexical_mean.double().numpy()
    rows = []  # of each document: what each of its words adds to the lexical columns
    for page in PAGES:
        counts = {}
        words = half.counter.build_analyzer()(page)
        leads = [half.counter.build_analyzer()(" ".join(page.split()[:n])) for n, _ in half.leads]
        for word in words:
            if word in half.vocabulary:
                counts[word] = words.count(word)
                for (_, more), lead in zip(half.leads, leads, strict=True):
                    counts[word] += more * lead.count(word)
        roots = {word: count**0.5 for word, count in counts.items()}
        vectors = {
            word: root * half.vectors[half.vocabulary.index(word)].astype(np.float64)
            for word, root in roots.items()
        }
        length = np.linalg.norm(sum(vectors.values()))
        share = {word: root / sum(roots.values()) for word, root in roots.items()}
        centred = {word: vectors[word] / length - share[word] * mean for word in vectors}
        norm = np.linalg.norm(sum(centred.values()))
        rows.append({word: vector / norm for word, vector in centred.items()})
    expected = dict.fromkeys([*rows[0], *rows[1]], 0.0)
    for (first, x), (second, y) in product(rows[0].items(), rows[1].items()):
        expected[first] += float(half.weight) * x @ y / 2
        expected[second] += float(half.weight) * x @ y / 2
    words = student.explain(*PAGES, bf16=False).words
    assert dict(words) == pytest.approx(expected, abs=1e-6)
    strengths = [abs(value) for value in words.values()]
    assert strengths == sorted(strengths, reverse=True)


@pytest.mark.parametrize("text", ["", "Xylophone."])
def test_a_text_without_known_words_has_contributions_of_passages_alone(student_of, text):
    student = student_of("mean", True)
    explanation = student.explain(PAGES[0], text, bf16=False)
    expected = cosine(student.embed([PAGES[0], text], bf16=False))
    assert explanation.cosine == pytest.approx(expected, abs=1e-6)
    assert explanation.lexical == 0


def test_an_explainer_embeds_each_text_once(student_of, monkeypatch):
    student = student_of("mean", True)
    expected = [student.explain(PAGES[0], other, bf16=False).pairs for other in PAGES]
    embedded = []
    embed = student.embed
    monkeypatch.setattr(
        student, "embed", lambda texts, **options: embedded.extend(texts) or embed(texts, **options)
    )
    explain = student.explainer(bf16=False)
    for other, pairs in zip(PAGES, expected, strict=True):
        np.testing.assert_allclose(explain(PAGES[0], other).pairs, pairs, atol=1e-6)
    assert embedded == PAGES


@pytest.mark.parametrize("pooling", ["first", "cls"])
def test_a_student_that_is_no_mean_is_refused(make_student, refused, pooling):
    student = make_student(windows=[8], pooling=pooling)
    refused(f"pooling '{pooling}' is the state of one token", student.explain, "one", "two")


def test_an_explanation_is_one_line_with_shares_of_positive_parts():
    pairs = np.array([[0.1, 0.02], [0.05, 0.03]])
    spans = (np.array([[0, 9], [9, 20]]),) * 2
    explanation = Explanation(0.25, pairs, spans, {"line": 0.06, "fit": -0.01})
    line = "cosine 0.250: 20 % words, 80 % meaning, of it 50 % between passages 1 and 1"
    assert str(explanation) == line
    assert repr(explanation) == f"<Explanation {line}; 2 × 2 passages, 2 words>"
    assert explanation.strongest_pairs(2) == [(0, 0, 0.1), (1, 0, 0.05)]


def test_parts_of_opposite_signs_are_given_as_they_are():
    pairs = np.array([[0.2, -0.1]])
    explanation = Explanation(0.05, pairs, (np.zeros((1, 2)), np.zeros((2, 2))), {"a": -0.05})
    line = "cosine 0.050: -0.050 words, +0.100 meaning, with +0.200 between passages 1 and 1"
    assert str(explanation) == line


@pytest.mark.parametrize(
    ("meaning", "line"),
    [
        (0.5, "cosine 0.500: of it 100 % between passages 1 and 1"),
        (-0.5, "cosine -0.500: with -0.500 between passages 1 and 1"),
    ],
)
def test_an_explanation_without_words_names_no_share_of_words(meaning, line):
    spans = (np.zeros((1, 2)), np.zeros((1, 2)))
    assert str(Explanation(meaning, np.array([[meaning]]), spans, {})) == line
