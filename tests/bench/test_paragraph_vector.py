"""Words follow Zipf's law, and rates are compared with those of as many workers."""

import json
from collections import Counter

import pytest

from docemb_lib.bench.paragraph_vector import TextWorkload, bench_paragraph_vector, scaling_rows, worker_numbers


def test_words_are_as_frequent_as_zipfs_law_has_it():
    texts = TextWorkload(documents=400, types=1000).texts()
    counts = Counter(word for text in texts for word in text.split())
    total, harmonic = counts.total(), sum(1 / k for k in range(1, 1001))
    assert len(texts) == 400
    assert total / 400 == pytest.approx(0.3 * 1371, rel=0.15)  # the longest are cut
    for rank in (1, 2, 10, 100):
        assert counts[f"word{rank - 1}"] == pytest.approx(total / harmonic / rank, rel=0.15)
    assert texts == TextWorkload(documents=400, types=1000).texts()
    assert texts != TextWorkload(documents=400, types=1000, seed=1).texts()


def test_ours_is_compared_with_gensim_at_as_many_workers_and_with_itself_at_one():
    seconds = {("gensim", 1): [4, 5, 6], ("gensim", 2): [3, 3, 4], ("ours", 1): [4, 4, 5], ("ours", 2): [2, 2, 2]}
    one, two, scaling = scaling_rows("training", seconds, 60, "workers", "words/s", 1.7)
    assert (one.name, one.ours, one.peer, one.spread) == ("training, 1 workers", 15, 12, (1.0, 1.25))
    assert (two.name, two.ours, two.peer, two.verdict) == ("training, 2 workers", 30, 20, "")
    found = (scaling.name, scaling.ours, scaling.budget, scaling.verdict)
    assert found == ("training, 2 workers over 1", 2.0, "≥ 1.7", "ok")
    slow = {**seconds, ("ours", 2): [3, 3, 3]}
    assert scaling_rows("training", slow, 60, "workers", "words/s", 1.7)[2].verdict == "below"


def test_gensims_loop_has_one_process_and_more_than_two_are_not_judged():
    seconds = {("gensim", 1): [4.0], **{("ours", n): [4 / n] for n in (1, 2, 4)}}
    rows = scaling_rows("inference", seconds, 60, "processes", "documents/s", 1.8)
    assert [row.peer for row in rows] == [15, 15, 15, None, None]
    assert ([row.budget for row in rows], rows[-1].ours) == (["", "", "", "≥ 1.8", ""], 4)


@pytest.mark.parametrize(("most", "numbers"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8])])
def test_workers_are_doubled_up_to_all_cores(most, numbers):
    assert worker_numbers(most) == numbers


@pytest.mark.slow
def test_all_of_it_runs_and_the_number_of_processes_does_not_change_an_embedding(monkeypatch):
    monkeypatch.setattr("docemb_lib.bench.paragraph_vector.WARM_UP", 0.2)  # seconds
    monkeypatch.setattr("docemb_lib.bench.paragraph_vector.machine", lambda: {"cores": 2})
    report = bench_paragraph_vector(quick=True, documents=20)
    verdicts = {row.name: row.verdict for row in report.rows}
    for kind in ("DM", "DBOW"):
        assert verdicts[f"inference {kind}, largest difference between numbers of processes"] == "ok"
        assert {f"training {kind}, {n} workers" for n in (1, 2)} <= set(verdicts)
    assert all(row.ours > 0 for row in report.rows if row.unit)
    assert json.loads(report.json())["settings"]["workers"] == [1, 2]
