"""Both sides build the same corpus, and what is measured of them is judged as it should be."""

from __future__ import annotations

import json

import pytest
from datasets import load_from_disk

from docemb_lib.bench import bench_corpus
from docemb_lib.bench.corpus import (
    COPIES,
    CorpusWorkload,
    Measured,
    anonymous_memory,
    build_ours,
    build_with_datasets,
    memory_rows,
    speed_rows,
    write_documents,
)
from docemb_lib.errors import InputError

GIB = 2**30


def test_both_sides_keep_the_same_documents_with_the_same_counts(tmp_path):
    file = tmp_path / "documents.jsonl"
    write_documents(file, 2 * COPIES + 30, 6, seed=1)
    workload = CorpusWorkload(held_out=20)
    found = []
    for name, build in (("ours", build_ours), ("peer", build_with_datasets)):
        build(file, tmp_path / name, workload)
        corpus = load_from_disk(str(tmp_path / name / "corpus"))
        assert {split: len(rows) for split, rows in corpus.items()} == {"train": 188, "validation": 20, "tasks": 20}
        columns = ("text", "n_words", "n_student_tokens", "n_structural_tokens")
        found.append(sorted(tuple(row[name] for name in columns) for rows in corpus.values() for row in rows))
    assert found[0] == found[1]
    assert len(found[0]) == 2 * COPIES + 30 - 2  # two copies


def test_documents_are_as_long_as_asked_or_as_the_thesis(tmp_path):
    write_documents(tmp_path / "short.jsonl", COPIES, 7, seed=0)
    texts = [json.loads(line)["text"] for line in (tmp_path / "short.jsonl").open()]
    assert {len(text.split()) for text in texts} == {7}
    assert texts[-1] == texts[-2]
    assert len(set(texts)) == COPIES - 1
    write_documents(tmp_path / "long.jsonl", 400, None, seed=0)
    lengths = [len(json.loads(line)["text"].split()) for line in (tmp_path / "long.jsonl").open()]
    assert 900 < sum(lengths) / 400 < 1500
    assert max(lengths) > 3000


def pairs(*seconds_busy_peak):
    return [
        [Measured("datasets", 100, 4.0, 0.5, 3 * GIB), Measured("ours", size, seconds, busy, peak)]
        for size, seconds, busy, peak in seconds_busy_peak
    ]


def test_the_cores_are_judged_by_our_share_and_the_speed_by_no_budget():
    speed, busy = speed_rows(pairs((100, 1.0, 0.93, 0), (100, 2.0, 0.95, 0), (100, 2.5, 0.8, 0)))
    assert (speed.ours, speed.peer, speed.spread, speed.verdict) == (50, 25, (1.6, 4.0), "")
    assert (busy.ours, busy.verdict, busy.must_reach) == (0.93, "ok", "≥ 90 %")
    assert busy.note.startswith("datasets: 50 %")
    assert speed_rows(pairs((100, 1.0, 0.89, 0)))[1].verdict == "below"


def test_growth_is_the_largest_peak_over_the_smallest():
    rows = memory_rows(pairs((100, 1, 1, GIB), (1000, 1, 1, 1.1 * GIB), (10_000, 1, 1, 1.3 * GIB)))
    assert [row.ratio for row in rows[:3]] == pytest.approx([1 / 3, 1.1 / 3, 1.3 / 3])
    assert (rows[3].ours, rows[3].verdict) == (pytest.approx(1.3), "below")
    assert memory_rows(pairs((100, 1, 1, GIB), (1000, 1, 1, 1.19 * GIB)))[-1].verdict == "ok"
    assert [row.ours for row in memory_rows(pairs((100, 1, 1, None)))] == [None]


def test_memory_without_a_file_behind_it_is_seen(fresh_memory):
    before = anonymous_memory()
    with fresh_memory(64 * 2**20):
        assert before is not None
        assert 60 * 2**20 < anonymous_memory() - before < 80 * 2**20


@pytest.mark.slow
def test_both_sides_are_measured_in_processes_of_their_own():
    report = bench_corpus(quick=True)
    assert [(p["side"], p["documents"]) for p in report.points["speed"]] == [("datasets", 300), ("ours", 300)]
    assert [p["documents"] for p in report.points["memory"]] == [2000, 2000, 4000, 4000]
    assert all(p["seconds"] > 0 and 0 < p["busy"] <= 1.2 and p["peak"] > 10 * 2**20 for p in report.points["memory"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeats": 0}, r"repeats: got 0, give at least 1"),
        ({"largest": 100_000}, r"documents: got 100000, give more than 100000, the smallest corpus"),
    ],
)
def test_what_cannot_be_measured_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        bench_corpus(**options)
