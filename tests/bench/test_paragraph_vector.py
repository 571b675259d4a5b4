"""Words follow Zipf's law, and ours is compared with gensim's loop and by its processes."""

from collections import Counter

import pytest

from docemb_lib.bench import paragraph_vector as module


def test_words_are_as_frequent_as_zipfs_law_has_it():
    texts = module.random_texts(400, types=1000)
    counts = Counter(word for text in texts for word in text.split())
    total = counts.total()
    harmonic = sum(1 / k for k in range(1, 1001))
    assert len(texts) == 400
    assert total / 400 == pytest.approx(0.3 * 1371, rel=0.15)  # the longest are cut
    for rank in (1, 2, 10, 100):
        assert counts[f"word{rank - 1}"] == pytest.approx(total / harmonic / rank, rel=0.15)
    assert texts == module.random_texts(400, types=1000)


@pytest.mark.slow
def test_all_of_it_runs_and_the_number_of_processes_does_not_change_an_embedding(monkeypatch):
    monkeypatch.setattr(module, "cpu_count", lambda: 2)
    seconds = {0: [4, 5, 6], 1: [4, 4, 5], 2: [2, 2, 2]}  # of gensim's loop, and by processes

    def interleaved(runs, repeats):
        for run in runs.values():
            run()
        return {number: seconds[number] for number in runs}

    monkeypatch.setattr(module, "interleaved", interleaved)
    rows = {row.name: row for row in module.bench_paragraph_vector(quick=True).rows}
    for kind in ("DM", "DBOW"):
        alone = rows[f"{kind}, 1 processes"]
        assert (alone.ours, alone.peer) == (10, 8)
        assert (alone.ratio_low, alone.ratio_high) == (1.0, 1.25)
        both = rows[f"{kind}, 2 processes"]
        assert (both.ours, both.peer, both.verdict) == (20, 8, "")
        over = rows[f"{kind}, 2 processes over 1"]
        assert (over.ours, over.budget, over.verdict) == (2, "≥ 1.8", "ok")
        assert rows[f"{kind}, largest difference between numbers of processes"].verdict == "ok"
