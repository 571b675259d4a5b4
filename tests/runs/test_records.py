"""Records: read from the folders of runs, and shown as one frame."""

import json

import pandas as pd
import pytest

from docemb_lib.runs import records
from docemb_lib.runs.records import Record


@pytest.fixture
def write(workspace_root):
    """Write a record, with tables, into the folder of a run of this name."""

    def written(name, tables=(), **changes):
        values = {
            "notebook": "05_weighting",
            "label": "cosine;256;λ=0.5",
            "key": name,
            "setting": "s",
            "profile": "tiny",
            "parameters": {"seed": 0, "lam": 0.5},
            "metrics": {"mean": 0.7},
            **changes,
        }
        record = Record(**values)
        folder = workspace_root / "outputs" / "runs" / record.notebook / name
        record.write(folder, dict(tables))
        return folder

    return written


def test_records_of_an_unknown_notebook_are_refused(write, refused):
    write("k1")
    assert len(records.frame("5")) == len(records.frame(5)) == 1
    refused("notebook 'nope' is unknown", records.frame, "nope")


def test_a_record_comes_back_as_it_was_written_with_its_tables(write, workspace_root):
    score = {"model": "m", "task": "t", "metric": "map", "seed": 0, "value": 0.5}
    interval = {"low": None, "high": 0.6}
    tables = {"scores": pd.DataFrame([score]), "intervals": pd.DataFrame([interval])}
    folder = write("k1", tables, student="outputs/students/a", seconds=3.0)
    record = records.read(folder)
    assert (record.key, record.metrics, record.seconds) == ("k1", {"mean": 0.7}, 3.0)
    assert record.folder == folder
    assert record.table().to_dict("records") == [score]
    assert record.table("intervals").to_dict("records") == [interval]
    assert record.table("models").empty  # there is none of this name
    assert record.student_folder is None
    student = workspace_root / "outputs" / "students" / "a"
    student.mkdir(parents=True)
    assert record.student_folder == student


def test_the_frame_has_a_row_per_finished_run_with_parameters_and_metrics(write):
    for name in ("k2", "k1"):  # two runs that end in one second
        write(name, metrics={"mean": 0.8, "package/accuracy": 0.9})
    write("k3", notebook="02_paragraph_vector", parameters={"seed": 0, "dm": True})
    write("k5", notebook="06_evaluation")
    write("k4.failed", status="failed", error="ValueError: no")
    frame = records.frame("05_weighting")
    columns = frame[["key", "lam", "validation", "package/accuracy"]]
    assert columns.to_numpy().tolist() == [["k2", 0.5, 0.8, 0.9], ["k1", 0.5, 0.8, 0.9]]
    means = records.frame().set_index("key")[["validation", "test"]].fillna(0)
    expected = {"k1": [0.8, 0], "k2": [0.8, 0], "k3": [0.7, 0], "k5": [0, 0.7]}
    assert means.T.to_dict("list") == expected
    with_failed = records.frame("05_weighting", failed=True)
    assert set(with_failed["error"].dropna()) == {"ValueError: no"}


def test_what_is_being_written_or_of_another_version_is_left_out(write, caplog):
    assert records.frame().empty
    write("k1")
    write("k1.partial")
    damaged = write("k2") / records.RECORD
    damaged.write_text(damaged.read_text()[:-9])
    others = []
    for key, changed in {"k3": {"version": 1}, "k4": {"notebook": "03_structurbl"}}.items():
        others.append(write(key) / records.RECORD)
        content = json.loads(others[-1].read_text())
        others[-1].write_text(json.dumps({**content, **changed}))
    assert records.frame()["key"].tolist() == ["k1"]
    for file in (damaged, *others):
        assert f"{file} is left out: it is not a record of this version" in caplog.text
        assert records.read(file.parent) is None


def test_a_kernel_sees_the_record_of_the_run_that_it_fills(write, monkeypatch):
    write("k0")
    write("k1")  # of an earlier execution
    partial = write("k1.partial", metrics={"mean": 0.9})
    monkeypatch.setenv(records.EXECUTED, str(partial))
    assert records.filled_here() == partial
    assert records.frame()["validation"].tolist() == [0.7, 0.9]


def test_a_collapsed_student_is_said_with_what_to_change():
    note = records.collapse_note({"collapsed": 1, "spread": 0.0003, "spread_before": 0.22})
    assert "has collapsed" in note
    assert "is 0.0003, and was 0.2 before training" in note
    assert note.endswith(records.COLLAPSE_MEND)
    for metrics in ({}, {"collapsed": 0, "spread": 0.7, "spread_before": 0.2}):
        assert records.collapse_note(metrics) == ""
