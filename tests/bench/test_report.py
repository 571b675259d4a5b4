"""Rows are judged at their bounds, and every form of a report holds every row."""

from __future__ import annotations

import csv
import json
import sys

import pytest
from rich.console import Console

from docemb_lib.bench import Report, Row, write_report
from docemb_lib.errors import InputError

ROWS = [
    Row("speed", 30.0, "tokens/s", peer=3.0, at_least=10, spread=(9.0, 11.0)),
    Row("memory", 3 * 2**30, "bytes", peer=8 * 2**30, at_most=0.25, note="2 documents"),
    Row("gone", None, "bytes", peer=None, at_most=0.25, note="not to be had"),
]
POINT = {"documents": 2, "tokens_per_document": 4, "seconds_per_token": 1e-5, "flops_per_token": 7.0}
SPEED = {"what": "forward", "side": "ours", "precision": "fp32", "tokens_per_s": 30.0, "share_of_peak": 0.3}
POINTS = {"speed": [SPEED], "growth_length": [POINT], "growth_number": [POINT]}
REPORT = Report(
    "student", "stock", {"name": "chip", "threads": 2}, {"torch": "2"}, {"size": "small"}, ROWS, POINTS, ["x"]
)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row("", 10.0, "", peer=1.0, at_least=10), "ok"),
        (Row("", 9.99, "", peer=1.0, at_least=10), "below"),
        (Row("", 1.0, "", peer=4.0, at_most=0.25), "ok"),
        (Row("", 1.01, "", peer=4.0, at_most=0.25), "below"),
        (Row("", 0.4, "%", at_least=0.4), "ok"),
        (Row("", 0.0, "", at_most=1e-5), "ok"),
        (Row("", 5.0, "", peer=1.0), ""),
        (Row("", None, "", at_most=1e-5), ""),
        (Row("", float("nan"), "", at_most=1e-5), "below"),
    ],
)
def test_a_row_is_judged_by_its_ratio_or_by_ours(row, verdict):
    assert row.verdict == verdict


def test_json_and_csv_hold_every_row(tmp_path):
    written = write_report(REPORT, tmp_path / "new" / "folder")
    assert {path.name for path in written} >= {"student.json", "student.csv", "student.png", "student.svg"}
    content = json.loads(written[0].read_text(encoding="utf-8"))
    assert content["results"][0] == {
        "name": "speed", "peer": 3.0, "ours": 30.0, "unit": "tokens/s", "ratio": 10.0, "ratio_low": 9.0,
        "ratio_high": 11.0, "must_reach": "≥ 10", "verdict": "ok", "note": "",
    }  # fmt: skip
    assert content["speed"] == [SPEED]
    assert content["machine"] == {"name": "chip", "threads": 2}
    assert not {"rows", "points"} & set(content)
    with written[1].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["ratio"], row["verdict"]) for row in rows] == [
        ("speed", "10.0", "ok"),
        ("memory", "0.375", "below"),
        ("gone", "", ""),
    ]


def test_the_table_says_what_is_reached_and_what_is_not_measured():
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(REPORT.table())
    lines = [line.split() for line in console.export_text().splitlines()]
    assert ["speed", "3", "tokens/s", "30", "tokens/s", "10×", "≥", "10", "ok"] in lines
    assert ["memory", "8.00", "GiB", "3.00", "GiB", "0.375×", "≤", "0.25", "below"] in lines
    assert ["gone", "not", "measured", "≤", "0.25"] in lines
    assert REPORT.remarks() == ["memory: 2 documents", "gone: not to be had", "x"]


def test_without_matplotlib_there_is_no_figure_but_the_rest(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "docemb_lib.bench.figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert [path.name for path in write_report(REPORT, tmp_path)] == ["student.json", "student.csv"]


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match=r"out: .*file is a file, give a folder"):
        write_report(REPORT, tmp_path / "file")
