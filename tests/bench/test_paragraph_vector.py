"""Paragraph Vector's benchmark: text as frequent as Zipf's law has it, rates compared with the right ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from docemb_lib.bench import Report, bench_paragraph_vector, write_report
from docemb_lib.bench.paragraph_vector import TextWorkload, scaling_rows, workers_up_to
from docemb_lib.errors import InputError


@pytest.mark.parametrize(("cores", "numbers"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (16, [1, 2, 4, 8, 16])])
def test_numbers_of_workers_double_up_to_all_cores(cores, numbers):
    assert workers_up_to(cores) == numbers


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


def point(side, workers, *seconds):
    return {"side": side, "workers": workers, "per_s": 60 / sorted(seconds)[1], "repeats": list(seconds)}


def test_ours_is_compared_with_gensim_at_as_many_workers_and_with_itself_at_one():
    points = [
        point("gensim", 1, 4, 5, 6),
        point("gensim", 2, 3, 3, 4),
        point("ours", 1, 4, 4, 5),
        point("ours", 2, 2, 2, 2),
    ]
    one, two, scaling = scaling_rows("training", points, "workers", "words/s", 1.7)
    assert (one.name, one.ours, one.peer, one.spread) == ("training, 1 workers", 15, 12, (1.0, 1.25))
    assert (two.name, two.ours, two.peer, two.verdict) == ("training, 2 workers", 30, 20, "")
    assert (scaling.name, scaling.ours, scaling.must_reach, scaling.verdict) == (
        "training, 2 workers over 1", 2.0, "≥ 1.7", "ok",
    )  # fmt: skip
    (below,) = scaling_rows("training", [*points[:3], point("ours", 2, 3, 3, 3)], "workers", "words/s", 1.7)[2:]
    assert below.verdict == "below"


def test_a_loop_has_one_process_and_more_than_two_are_not_judged():
    points = [point("gensim", 1, 4, 4, 4), *(point("ours", n, 4 / n, 4 / n, 4 / n) for n in (1, 2, 4))]
    rows = scaling_rows("inference", points, "processes", "documents/s", 1.8)
    assert [row.peer for row in rows] == [15, 15, 15, None, None]
    assert [row.must_reach for row in rows] == ["", "", "", "≥ 1.8", ""]
    assert rows[-1].ours == 4


def test_numbers_that_cannot_be_measured_are_refused():
    with pytest.raises(InputError, match="documents: got 0, give at least 1"):
        bench_paragraph_vector(documents=0)
    command = [sys.executable, "-m", "docemb_lib.cli", "bench", "paragraph-vector", "--repeats", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: repeats: got 0, give at least 1\n"


def test_a_report_is_drawn_and_written(tmp_path):
    points = [
        {"kind": kind, **point(side, n, 3, 3, 3)}
        for kind in ("DM", "DBOW")
        for side in ("gensim", "ours")
        for n in (1, 2)
    ]
    rows = scaling_rows("training DM", [p for p in points if p["kind"] == "DM"], "workers", "words/s", 1.7)
    report = Report(
        "paragraph-vector",
        "gensim",
        {"name": "chip", "cores": 2},
        {},
        {},
        rows,
        {"training": points, "inference": points},
    )
    written = write_report(report, tmp_path)
    assert [path.name for path in written] == [f"paragraph-vector.{kind}" for kind in ("json", "csv", "png", "svg")]
    assert all(path.stat().st_size for path in written)


@pytest.mark.slow
def test_all_of_it_runs_and_the_number_of_processes_does_not_change_an_embedding():
    report = bench_paragraph_vector(quick=True, documents=20, cores=3)
    verdicts = {row.name: row.verdict for row in report.rows}
    for kind in ("DM", "DBOW"):
        assert verdicts[f"inference {kind}, largest difference between numbers of processes"] == "ok"
        assert {f"training {kind}, {n} workers" for n in (1, 2, 3)} <= set(verdicts)
    assert len(report.points["training"]) == 2 * 2 * 3
    assert len(report.points["inference"]) == 2 * (1 + 3)
    assert all(p["per_s"] > 0 for points in report.points.values() for p in points)
    assert json.loads(report.json())["settings"]["workers"] == [1, 2, 3]
