"""The benchmark's own checks: they notice a wrong rank, and its peer is a plain search."""

from __future__ import annotations

import time

import numpy as np
import pytest

from docemb_lib.bench import bench_retrieval, retrieval
from docemb_lib.bench.retrieval import (
    differing_ranks,
    faiss_search,
    measure,
    memory_row,
    own_memory,
    precision_difference,
    random_case,
)
from docemb_lib.errors import InputError
from docemb_lib.evaluation.retrieval import relevant_ranks


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.setattr(retrieval, "WIDTH", 12)
    monkeypatch.setattr(retrieval, "RELEVANT", 3)
    return random_case(tmp_path / "embeddings.npy", 500, 10)


def test_all_that_a_query_needs_lies_in_the_first_tenth_and_no_row_serves_twice(case):
    rows = np.column_stack([case.queries, case.relevant])
    assert rows.shape == (10, 4)
    assert len(np.unique(rows)) == 40
    assert rows.max() < 50
    assert case.embeddings.shape == (500, 12)
    assert np.isfinite(case.embeddings).all()


def test_a_rank_that_is_off_by_one_is_noticed(case):
    ranks = relevant_ranks(*case)
    assert differing_ranks(case, ranks) == 0
    ranks[2][1] += 1
    ranks[5][0] -= 1
    assert differing_ranks(case, ranks) == 2


def test_the_peer_finds_what_sorting_cosines_finds_without_the_query(case):
    hits = faiss_search()(case.embeddings, case.queries, 20)
    X = case.embeddings / np.linalg.norm(case.embeddings, axis=1, keepdims=True)
    for query, found in zip(case.queries, hits, strict=True):
        order = [row for row in np.argsort(-(X @ X[query])) if row != query]
        assert found.tolist() == order[:20]


def test_a_missed_hit_is_a_difference_of_precision(case):
    ranks, hits = relevant_ranks(*case), faiss_search()(case.embeddings, case.queries, 499)
    assert precision_difference(case, ranks, hits) == pytest.approx(0, abs=1e-12)
    q = 0
    first = ranks[q][0] - 1
    hits[q, [first, -1]] = hits[q, [-1, first]]  # the best of the relevant now stands last
    places = sorted([*ranks[q][1:].tolist(), 499])
    moved = np.mean([n / place for n, place in enumerate(places, 1)])
    best = np.mean([n / place for n, place in enumerate(ranks[q], 1)])
    assert precision_difference(case, ranks, hits) == pytest.approx(best - moved)


@pytest.mark.skipif(own_memory() is None, reason="this system does not tell a process its memory")
def test_memory_at_the_peak_is_that_of_the_run(fresh_memory):
    def run():
        with fresh_memory(300 * 2**20):
            time.sleep(0.3)
        return "done"

    found = measure(run)
    assert found.result == "done"
    assert 290 * 2**20 < found.peak < 400 * 2**20
    assert found.seconds >= 0.3


def test_where_memory_is_not_known_the_row_says_so():
    assert memory_row("memory", None, 3).ours is None
    assert memory_row("memory", 2, 1, at_most=1.2).verdict == "below"


def test_all_sides_are_measured(monkeypatch):
    monkeypatch.setattr(retrieval, "WIDTH", 8)
    report = bench_retrieval(quick=True, documents=6000)
    assert [row.verdict for row in report.rows[-2:]] == ["ok", "ok"]
    assert all(row.ours is not None for row in report.rows)
    assert report.settings["documents"] == 6000
    assert report.notes[-1].startswith("quick")


def test_too_few_documents_and_a_missing_peer_are_refused(monkeypatch):
    with pytest.raises(InputError, match=r"^documents: got 100, give at least 110000$"):
        bench_retrieval(documents=100)
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    with pytest.raises(InputError, match=r'^faiss is not installed; run pip install -e "\.\[bench\]"$'):
        bench_retrieval(quick=True)
