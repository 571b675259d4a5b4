"""Ranking by cosine and its metrics against plain loops, scikit-learn and trec_eval."""

import numpy as np
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from docemb_lib.evaluation import Ranking, Retrieval
from docemb_lib.evaluation.retrieval import METRICS, by_cosine, rank_documents, score_queries


def test_of_the_first_hits_alone_those_count_that_are_relevant():
    ranked = [np.array([4, 2, 0, 1, 3]), np.array([0, 1, 2, 3])]
    scores = score_queries(ranked, [[2, 1], [3]], top=3)
    assert scores["map"].tolist() == [1 / 2, 0]  # of the one that is met
    assert scores["mrr"].tolist() == [1 / 2, 1 / 3]


def test_equal_cosines_are_ordered_by_row_and_a_zero_embedding_is_as_far_from_all():
    same = np.tile(np.random.default_rng(0).normal(size=7).astype(np.float32), (37, 1))
    (order,) = rank_documents(by_cosine(same), [20], candidates=np.arange(37))
    assert order.tolist() == [row for row in range(37) if row != 20]
    embeddings = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [1.0, 1.0]])
    orders = rank_documents(by_cosine(embeddings), [0, 1], candidates=np.arange(4))
    assert [order.tolist() for order in orders] == [[3, 1, 2], [0, 2, 3]]


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
    for metric, values in expected.items():
        np.testing.assert_allclose(score.per_example[metric][0], values, atol=1e-9)
