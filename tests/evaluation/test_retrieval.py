"""Ranking by cosine and its metrics against plain loops, scikit-learn and trec_eval."""

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score
from sklearn.metrics.pairwise import cosine_similarity

from docemb_lib.evaluation import Ranking, Retrieval, retrieval
from docemb_lib.evaluation.retrieval import METRICS, by_cosine, rank_documents, score_queries


def test_the_first_hits_alone_count_as_in_a_plain_loop(monkeypatch):
    monkeypatch.setattr(retrieval, "BLOCK", 5)
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(60, 5)).astype(np.float32)
    similarities = cosine_similarity(embeddings.astype(np.float64))
    relevant = []
    precisions = []
    reciprocals = []
    for query in range(12):
        others = np.delete(np.arange(60), query)
        wanted = rng.permutation(others)[: rng.integers(1, 7)].tolist()
        ranked = sorted(others, key=similarities[query].__getitem__, reverse=True)
        hits = [row in wanted for row in ranked[:20]]
        relevant.append(wanted)
        precisions.append(average_precision_score(hits, range(20, 0, -1)) if any(hits) else 0)
        reciprocals.append(1 / (hits.index(True) + 1 if any(hits) else 20))
    ranked = rank_documents(by_cosine(embeddings), range(12))
    scores = score_queries(ranked, relevant, top=20).by_metric
    np.testing.assert_allclose(scores["map"], precisions, atol=1e-12)
    np.testing.assert_allclose(scores["mrr"], reciprocals, atol=1e-12)
    assert 0 in precisions


def test_equal_cosines_are_ordered_by_row_and_a_zero_embedding_is_as_far_from_all():
    same = np.tile(np.random.default_rng(0).normal(size=7).astype(np.float32), (37, 1))
    (order,) = rank_documents(by_cosine(same), [20])
    assert order.tolist() == [row for row in range(37) if row != 20]
    embeddings = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [1.0, 1.0]])
    orders = [order.tolist() for order in rank_documents(by_cosine(embeddings), [0, 1])]
    assert orders == [[3, 1, 2], [0, 2, 3]]


TREC = dict(zip(METRICS, ("map", "recip_rank", "ndcg_cut_10", "recall_100"), strict=True))
QUERIES = 3


@st.composite
def judged_pools(draw: st.DrawFn) -> tuple[Ranking, np.ndarray]:
    """Documents, queries among and beside them, grades, missing documents; similarities (N, N)."""
    size = draw(st.integers(5, 150))
    beside = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    texts = size + QUERIES * beside
    queries = range(size, texts) if beside else rng.permutation(size)[:QUERIES].tolist()
    relevant, grades, missing = [], [], []
    for query in queries:
        rows = np.setdiff1d(rng.permutation(size)[: rng.integers(0, size)], [query]).tolist()
        absent = rng.integers(1, 4, size=rng.integers(0, 3) + (not rows)).tolist()
        relevant.append(rows)
        grades.append(rng.integers(1, 4, size=len(rows)).tolist())
        missing.append(absent)
    ids = [f"é{n}" if n % 3 else f"Z{n}" for n in rng.permutation(texts)]
    pool = Ranking(ids, queries, relevant, ids, grades, missing, size if beside else None)
    levels = draw(st.sampled_from([1, 3, 1000]))  # one level: all documents are tied
    return pool, rng.integers(levels, size=(texts, texts)) / 1024


def by_trec_eval(pool: Ranking, similarities: np.ndarray) -> dict[str, np.ndarray]:
    judgements, runs = {}, {}
    for number, query in enumerate(pool.queries):
        named = [pool.ids[row] for row in pool.relevant[number]]
        named += [f"missing {n}" for n in range(len(pool.missing[number]))]
        values = [*pool.grades[number], *pool.missing[number]]
        judgements[str(number)] = dict(zip(named, values, strict=True))
        found = zip(pool.ids[: pool.candidates], similarities[query], strict=False)
        scores = {id: float(value) for id, value in found if id != pool.ids[query]}
        runs[str(number)] = scores
    results = pytrec_eval.RelevanceEvaluator(judgements, {*TREC.values()}).evaluate(runs)
    of_queries = [results[str(number)] for number in range(len(pool.queries))]
    return {ours: np.array([row[name] for row in of_queries]) for ours, name in TREC.items()}


@given(judged_pools())
@settings(max_examples=200, deadline=None)
def test_all_metrics_are_trec_evals_with_grades_ties_and_missing_documents(case) -> None:
    pool, similarities = case
    expected = by_trec_eval(pool, similarities)
    score = Retrieval("r", {"test": pool}).score(similarities.__getitem__)
    means = {score.metric: score.mean, **score.extra}
    assert means == pytest.approx({m: v.mean() for m, v in expected.items()}, abs=1e-9)
    for metric, values in expected.items():
        np.testing.assert_allclose(score.per_example[metric][0], values, atol=1e-6)  # float32


def test_the_precision_of_each_relevant_document_is_in_the_order_that_was_given() -> None:
    found = score_queries([np.array([4, 2, 0, 1])], [[1, 7, 4]])
    assert found.precision.tolist() == [2 / 4, 0, 1]
    assert found.by_metric["map"].tolist() == [pytest.approx((2 / 4 + 0 + 1) / 3)]
