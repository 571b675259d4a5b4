"""Planes, probes, distances, redundancy and attention against numpy, scikit-learn, scipy and slow
loops.
"""

import logging
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cdist, cosine
from sklearn.metrics import roc_auc_score

from docemb_lib.evaluation import probes
from docemb_lib.losses import MaxMargin

SHIPS = "The ships left the harbour. Two ships stayed in the old harbour. The harbour closed."
TEXT = (
    "The old ships had left the harbour's unfathomable depths early, and nobody "
    "watched the rocky coast (12 km)."
)
WINDOWS = [8, 16]


def test_the_plane_is_spanned_by_the_leading_singular_vectors():
    X = np.random.default_rng(0).standard_normal((20, 6)) * [5, 4, 1, 1, 1, 1] + 3
    U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    plane = probes.principal_plane(X)
    np.testing.assert_allclose(np.abs(plane.points), np.abs(U[:, :2] * s[:2]), atol=1e-9)
    assert plane.explained == pytest.approx((s[:2] ** 2).sum() / (s**2).sum())
    collapsed = probes.principal_plane(np.ones((5, 4)))
    assert np.isnan(collapsed.explained)
    np.testing.assert_allclose(collapsed.points, 0, atol=1e-12)


def spaces(*, seed=0, n=120, wide=8, to=5, noise=0.0):
    """Student embeddings (n, wide), and teacher embeddings that are a linear map of them, an offset
    and noise.
    """
    rng = np.random.default_rng(seed)
    student = rng.standard_normal((n, wide)) * 3 + 1
    teacher = student @ rng.standard_normal((wide, to)) + rng.standard_normal(to)
    return student, teacher + noise * rng.standard_normal(teacher.shape)


def halves(student, teacher):
    n = len(student) // 2
    return (student[:n], teacher[:n]), (student[n:], teacher[n:])


def test_a_linear_map_is_read_whole():
    row = probes.probe(*halves(*spaces()), {}).iloc[0]
    assert row.to_dict() == {"bucket": "all", "documents": 60, "r2": pytest.approx(1, abs=1e-9)}


def test_nothing_is_read_from_noise():
    rng = np.random.default_rng(0)
    student, teacher = rng.standard_normal((400, 6)), rng.standard_normal((400, 4))
    assert probes.probe(*halves(student, teacher), {})["r2"][0] <= 0


def test_the_mean_is_read_from_a_collapsed_student():
    train, validation = halves(np.ones((120, 8)), spaces()[1])
    teacher = validation[1]
    errors = ((teacher - train[1].mean(0)) ** 2).sum()
    r2 = 1 - errors / ((teacher - teacher.mean(0)) ** 2).sum()
    assert probes.probe(train, validation, {})["r2"][0] == pytest.approx(r2)


def test_the_ridge_solves_the_normal_equations_at_the_best_leave_one_out_penalty():
    student, teacher = spaces(n=15, noise=4.0)
    ridge = probes.fit_ridge(student, teacher)
    X = student / np.sqrt(student.var(axis=0).mean())

    def predict(alpha, kept, unseen):
        mean_x, mean_y = X[kept].mean(0), teacher[kept].mean(0)
        centred = X[kept] - mean_x
        weights = np.linalg.solve(
            centred.T @ centred + alpha * np.eye(8), centred.T @ (teacher[kept] - mean_y)
        )
        return (X[unseen] - mean_x) @ weights + mean_y

    def error(alpha):
        return sum(
            ((predict(alpha, np.arange(15) != n, n) - teacher[n]) ** 2).sum() for n in range(15)
        )

    alphas, chosen = ridge[-1].alphas, ridge[-1].alpha_
    assert chosen == min(alphas, key=error)
    assert alphas.min() < chosen < alphas.max()
    everyone = np.arange(15)
    np.testing.assert_allclose(
        ridge.predict(student), predict(chosen, everyone, everyone), atol=1e-8
    )


def test_the_norm_of_the_student_changes_nothing():
    student, teacher = spaces(noise=4.0)
    small, large = (
        probes.probe(*halves(scale * student, teacher), {})["r2"][0] for scale in (1e-3, 1e3)
    )
    assert small == pytest.approx(large)


def test_buckets_are_judged_by_themselves():
    train, validation = halves(*spaces(noise=6.0))
    short = np.arange(60) % 3 == 0
    buckets = {"short": short, "long": ~short, "one": np.arange(60) == 7, "none": short & ~short}
    frame = probes.probe(train, validation, buckets)
    sizes = {"all": 60, "short": 20, "long": 40, "one": 1, "none": 0}
    assert dict(zip(frame["bucket"], frame["documents"], strict=True)) == sizes
    predicted = probes.fit_ridge(*train).predict(validation[0])
    truth = validation[1][short]
    r2 = 1 - ((truth - predicted[short]) ** 2).sum() / ((truth - truth.mean(0)) ** 2).sum()
    assert frame["r2"][1] == pytest.approx(r2)
    assert np.isnan(frame["r2"][3:]).all()


def noisy(n=12, d=5, noise=1.0):
    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((n, d))
    return teacher + noise * rng.standard_normal((n, d)), teacher


@pytest.mark.parametrize("distance", ["cosine", "mse"])
def test_every_distance_is_that_of_the_pair_it_names(distance):
    student, teacher = noisy()
    frame = probes.tidy_distances(
        probes.measure_distances(student, teacher, distance=distance, negatives=4, seed=1)
    )
    assert len(frame) == 12 + 12 * 4
    for row in frame.itertuples():
        a, b = student[row.document], teacher[row.other]
        assert row.value == pytest.approx(
            cosine(a, b) if distance == "cosine" else ((a - b) ** 2).mean()
        )
        assert (row.kind == "positive") == (row.document == row.other)
    assert frame["auc"].nunique() == 1
    assert frame["auc"][0] == pytest.approx(
        roc_auc_score(frame["kind"] == "negative", frame["value"])
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ties", [False, True])
def test_auc_is_that_of_scikit_learn(seed, ties):
    rng = np.random.default_rng(seed)
    found = probes.measure_distances(*noisy(), distance="mse", negatives=7, seed=seed)
    if ties:
        found = found._replace(
            positive=rng.integers(0, 4, 12), negative=rng.integers(1, 5, (12, 7))
        )
    labels, values = (
        np.repeat([0, 1], [12, 84]),
        np.concatenate([found.positive, found.negative.ravel()]),
    )
    assert probes.separation(found)[0] == pytest.approx(roc_auc_score(labels, values))


def test_no_auc_is_above_1_where_many_float32_distances_are_ranked():
    own, others = np.zeros(5000, dtype=np.float32), np.ones((5000, 9), dtype=np.float32)
    assert (
        probes.separation(probes.Distances(np.arange(5000), own, np.zeros((5000, 9), int), others))[
            0
        ]
        == 1.0
    )


@pytest.mark.parametrize("distance", ["cosine", "mse"])
@pytest.mark.parametrize("gamma", [0.0, 0.4, 1.5])
def test_with_all_others_as_negatives_the_loss_is_max_margin(distance, gamma):
    student, teacher = noisy()
    found = probes.measure_distances(student, teacher, distance=distance, negatives=11)
    loss = MaxMargin(distance=distance, gamma=gamma)(
        torch.from_numpy(student), torch.from_numpy(teacher)
    )
    assert probes.separation(found, gamma=gamma)[1] == pytest.approx(loss.mean().item())


def test_a_part_has_the_chosen_documents():
    whole = probes.measure_distances(*noisy(), distance="mse", negatives=6)
    part = whole.part(np.arange(12) % 3 == 0, 2)
    rows = [0, 3, 6, 9]
    expected = rows, whole.positive[rows], whole.others[rows, :2], whole.negative[rows, :2]
    for values, wanted in zip(part, expected, strict=True):
        np.testing.assert_array_equal(values, wanted)


def test_negatives_are_distinct_others_and_all_of_them_where_fewer_exist():
    perfect = probes.measure_distances(np.eye(4), np.eye(4), distance="cosine", negatives=20)
    others = [sorted(row) for row in perfect.others.tolist()]
    assert others == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


@pytest.mark.parametrize(("student", "auc"), [(np.eye(4), 1), (np.ones((4, 2)), 0.5)])
def test_the_auc_of_a_perfect_student_is_1_and_of_a_collapsed_one_at_chance(student, auc):
    distances = probes.measure_distances(student, student, distance="cosine", negatives=20)
    assert probes.separation(distances)[0] == auc


def test_the_most_mistaken_pairs_are_those_of_a_loop_over_all():
    student, teacher = noisy(noise=3.0)
    found = probes.measure_distances(student, teacher, distance="mse", negatives=6).part(
        np.arange(12) > 2, 4
    )
    D = cdist(student, teacher, "sqeuclidean") / 5
    drawn = zip(found.documents, found.others, strict=True)
    expected = sorted(
        [(D[n, n] - D[n, other], n, other) for n, others in drawn for other in others], reverse=True
    )[:5]
    result = probes.mistaken(found, k=5)
    assert result[["document", "other"]].to_numpy().tolist() == [
        [document, other] for _, document, other in expected
    ]
    np.testing.assert_allclose(result["ahead"], [ahead for ahead, _, _ in expected])


def test_redundancy_is_nouns_and_verbs_for_each_distinct_one():
    frame = probes.redundancy([SHIPS, "He is very old.", "", "And 3 of 4!"])
    # ships left harbour ships stayed harbour harbour closed: eight, and five of them differ
    assert frame["words"].tolist() == [15, 4, 0, 4]
    np.testing.assert_equal(frame["redundancy"].to_numpy(), [8 / 5, 1, np.nan, np.nan])


@pytest.mark.parametrize(
    "text", ["Ships sail. ships Sail.", "Ships sail. The ship sailed."], ids=["capitals", "lemmas"]
)
def test_redundancy_counts_lemmas_whatever_their_capitals(text):
    assert probes.redundancy([text])["redundancy"].tolist() == [2]


def test_the_redundancy_of_a_repeated_text_is_twice_that_of_the_text():
    doc = str(logging.__doc__)
    once, twice = probes.redundancy([doc, f"{doc} " * 2])["redundancy"]
    assert twice == pytest.approx(2 * once, rel=0.02)


def test_lengths_are_divided_as_in_table_4():
    words = [1, 50, 51, 100, 101, 200, 201, 300, 301, 10_000]
    documents = pd.DataFrame({"words": [*words, 7], "redundancy": [*np.arange(1.0, 11.0), np.nan]})
    table = probes.redundancy_by_length(documents)
    assert table.index.tolist() == ["0-50", "51-100", "101-200", "201-300", "over 300", "All"]
    assert table["redundancy"].tolist() == [1.5, 3.5, 5.5, 7.5, 9.5, 5.5]


# Two sentences a document and a document a topic, but for one of a single sentence and one of the
# same sentence twice.
DOCUMENTS = [
    f"The {topic} is here now. We like the {topic} there." for topic in ("cat", "ship", "tree")
]
ODD = [
    "Only one sentence here.",
    "Twice the same sentence. Twice the same sentence.",
    "",
    "No. Yes. Oh.",
]


def by_topic(sentences: list[str]) -> np.ndarray:
    """Sentences of a topic are the same up to their length, those of two topics at right angles."""
    rows = np.array(
        [[(topic in s) * len(s) for topic in ("cat", "ship", "tree")] for s in sentences],
        dtype=float,
    )
    assert (rows.sum(axis=1) > 0).all(), "a sentence of a document that has no two"
    return rows


def test_every_two_sentences_are_compared_as_in_a_loop_over_all():
    rng = np.random.default_rng(0)
    documents = [
        " ".join(f"This is {n} {one}." for one in ("apples", "pears", "plums")[: 2 + n % 2])
        for n in range(4)
    ]
    vectors: dict[str, np.ndarray] = {}

    def embed(sentences: list[str]) -> np.ndarray:
        return np.array(
            [vectors.setdefault(sentence, rng.normal(size=4)) for sentence in sentences]
        )

    found = probes.sentence_similarity(documents, embed)
    units = {sentence: vector / np.linalg.norm(vector) for sentence, vector in vectors.items()}
    for kind, same in (("inside", True), ("across", False)):
        of_kind = [
            units[a] @ units[b]
            for a, b in combinations(units, 2)
            if (a.split()[2] == b.split()[2]) == same
        ]
        assert found[kind] == pytest.approx(np.mean(of_kind), abs=1e-6)


def test_sentences_of_a_topic_are_equal_and_of_two_topics_unrelated():
    similarity = probes.sentence_similarity([*DOCUMENTS, *ODD], by_topic)
    assert similarity == pytest.approx({"inside": 1, "across": 0})


def test_a_single_document_has_no_sentences_across_documents():
    similarity = probes.sentence_similarity(DOCUMENTS[:1], by_topic)
    assert similarity["inside"] == pytest.approx(1)
    assert np.isnan(similarity["across"])


def test_sentences_are_split_in_scripts_without_spaces():
    def embed(sentences: list[str]) -> np.ndarray:
        return np.eye(2)[: len(sentences)]

    assert probes.sentence_similarity(["我们去公园散步。你明天来吗？"], embed)["inside"] < 1


def test_documents_without_two_sentences_have_no_similarity():
    assert np.isnan([*probes.sentence_similarity(ODD, by_topic).values()]).all()


def test_the_spread_is_the_mean_distance_of_every_two_documents():
    X = np.random.default_rng(0).standard_normal((7, 5))
    pairs = [(i, j) for i in range(7) for j in range(i)]
    distances = [cosine(X[i], X[j]) for i, j in pairs]
    assert probes.spread(X) == pytest.approx(np.mean(distances))


def test_embeddings_that_are_all_alike_have_no_spread():
    assert probes.spread(np.ones((4, 3))) == pytest.approx(0)
