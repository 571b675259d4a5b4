"""Scored pairs of documents: Spearman's correlation, its interval and its tests, against scipy."""

from itertools import combinations

import numpy as np
import pytest
from conftest import write_files
from scipy import stats

from docemb_lib.evaluation import LabelledPairs, ScoredPairs
from docemb_lib.evaluation.judged import judged_task, read_links
from docemb_lib.evaluation.retrieval import by_cosine, spearman
from docemb_lib.evaluation.uncertainty import bootstrap_over_tasks, differences
from docemb_lib.settings.sections import OwnTask

N = 150
TEXTS = {f"{name}.txt": f"text {name}" for name in "abcdef"}


def judged(*noise):
    """A judge's scores from 0 to 4 of N pairs, and the cosines of models of so much noise."""
    rng = np.random.default_rng(3)
    scores = rng.integers(5, size=N).astype(float)
    return scores, *(scores + level * rng.normal(size=N) for level in noise)


def correlation(x, y):
    return stats.spearmanr(x, y).statistic


def by_scipy(statistic, *columns):
    """Its percentile bootstrap over pairs."""
    return stats.bootstrap(
        columns,
        statistic,
        paired=True,
        vectorized=False,
        n_resamples=999,
        method="percentile",
        rng=0,
    )


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0, 50.0])
def test_the_mean_over_pairs_is_spearmans_correlation_with_ties(noise):
    scores, cosines = judged(noise)
    found = spearman(np.stack([cosines.round(1), scores])).mean()
    assert found == pytest.approx(correlation(cosines.round(1), scores), abs=1e-9)


@pytest.mark.parametrize("noise", [1.0, 2.0, 8.0])
def test_an_interval_is_scipys_bootstrap_of_the_correlation(noise):
    scores, cosines = judged(noise)
    _, low, high = bootstrap_over_tasks([spearman(np.stack([cosines, scores]))[None]])
    expected = by_scipy(correlation, cosines, scores)
    distances = np.ravel(
        [low - expected.confidence_interval.low, high - expected.confidence_interval.high]
    )
    np.testing.assert_allclose(distances / expected.standard_error, 0, atol=0.35)


def test_two_models_are_compared_as_by_scipys_bootstrap_of_the_difference():
    scores, good, bad = judged(1.5, 2.0)
    pairs = LabelledPairs(["a"] * N, list(map(str, range(N))), [*scores])
    task = ScoredPairs("p", {"test": pairs})
    by_model = {}
    for name, cosines in {"good": good, "bad": bad}.items():
        similarities = np.tile([0.0, *cosines], (N + 1, 1))
        by_model[name] = {"p": task.score(similarities.__getitem__)}
    (found,) = differences(by_model, "bad").itertuples()
    expected = by_scipy(lambda x, y, z: correlation(x, z) - correlation(y, z), good, bad, scores)
    assert found.difference == pytest.approx(correlation(good, scores) - correlation(bad, scores))
    assert found.error == pytest.approx(expected.standard_error, rel=0.15)


def test_equal_cosines_of_all_pairs_score_nothing():
    assert spearman(np.stack([np.ones(N), judged()[0]])).tolist() == [0.0] * N


def test_embeddings_and_their_similarities_score_alike():
    pairs = LabelledPairs(["a", "a", "b", "d"], ["b", "c", "c", "a"], [0.1, 0.5, 0.3, 0.9])
    task = ScoredPairs("p", {"test": pairs})
    X = np.random.default_rng(0).normal(size=(4, 3))
    assert task.score(X).by_seed == task.score(by_cosine(X)).by_seed


def test_scores_of_two_values_are_refused(refused):
    pairs = LabelledPairs(["a"] * 4, list("bcde"), [0, 1, 0, 1])
    refused("task 'p', split 'test': .* fewer than three", ScoredPairs, "p", {"test": pairs})


# ---- From files
@pytest.fixture
def folder(tmp_path):
    pairs = enumerate(combinations("abcdef", 2))
    rows = [f"{a},{b}.txt,{place - 5}e-1\n" for place, (a, b) in pairs]
    files = {f"texts/{name}": text for name, text in TEXTS.items()}
    return write_files(tmp_path, {"scores.csv": "".join(["first,second,score\n", *rows]), **files})


def test_a_pair_without_a_score_is_refused(tmp_path, refused):
    file = write_files(tmp_path, {"a.csv": "1,2,.1\n2,3\n"}) / "a.csv"
    refused("row 2: it has 2 values", read_links, file, {"1", "2", "3"}, scored=True)


def task_of(folder, **fields):
    settings = {"kind": "scored-pairs", "path": folder / "texts"} | fields
    return judged_task(OwnTask(name="t", relevance=folder / "scores.csv", **settings))


def test_a_file_of_ids_and_scores_is_a_task_whose_splits_are_drawn_by_first_ids(folder):
    splits = task_of(folder, share=0.2).splits
    (held,) = {*splits["validation"].first_ids}
    found = set()
    for data in splits.values():
        assert data is splits["validation"] or held not in data.first_ids
        assert [TEXTS[id] for id in data.second_ids] == [*data.second]
        found |= {*zip(data.first_ids, data.second_ids, data.labels, strict=True)}
    assert ("a.txt", "c.txt", -0.4) in found
    assert len(found) == 15


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,g,1", "row 17: no document has the id 'a.txt' or 'g'; let"),
        ("c,d,high", "row 17: the score is 'high'; write a number"),
        ("c,d,1e400", "row 17: the score is '1e400'; write a number"),
        ("b,a,0.6", "row 17: 'a.txt' and 'b.txt' have another score in an earlier row; keep one"),
    ],
)
def test_a_bad_row_is_refused_or_left_out(folder, row, message, refused):
    with (folder / "scores.csv").open("a") as file:
        file.write(row)
    refused(message, task_of, folder, share=0.3)
    assert sum(len(data.labels) for data in task_of(folder, skip_bad=True).splits.values()) == 15
