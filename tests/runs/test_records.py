"""Records: published whole, found by fingerprint, shown as one frame."""

import json
import subprocess

import pytest

from docemb_lib.runs import records
from docemb_lib.runs.records import Record
from docemb_lib.workspace import publish, revision, write_text


def record(fingerprint="f1", **changes):
    values = {
        "notebook": "05_weighting",
        "label": "cosine;256;λ=0.5",
        "fingerprint": fingerprint,
        "setting": "s",
        "profile": "tiny",
        "parameters": {"seed": 0, "lam": 0.5},
        "metrics": {"mean": 0.7},
        "seconds": 3.0,
    }
    return Record(**{**values, **changes})


def test_a_record_comes_back_as_it_was_saved_with_its_tables(workspace):
    saved = record(figures=["outputs/figures/a.png"], student="outputs/students/a")
    score = {"model": "m", "task": "t", "metric": "map", "seed": 0, "value": 0.5}
    records.save(workspace, saved, [score], {"intervals": [{"low": None, "high": 0.6}]})
    assert records.find(workspace, "05_weighting", "f1") == saved
    assert saved.table().to_dict("records") == [score]
    intervals = saved.table("intervals")
    assert intervals.to_dict("records") == [{"low": None, "high": 0.6}]
    assert saved.table("models").empty  # there is none of this name


def test_a_record_is_that_of_its_notebook_and_fingerprint(workspace):
    records.save(workspace, record())
    assert records.find(workspace, "05_weighting", "f2") is None
    assert records.find(workspace, "04_projections", "f1") is None


def test_the_frame_has_a_row_per_finished_run_with_parameters_and_metrics(workspace):
    for saved in (
        record("f1", finished="2026-01-01T00:00:00+00:00"),
        record("f2", finished="2026-01-02T00:00:00+00:00", metrics={"mean": 0.8}),
        record("f3", notebook="02_paragraph_vector", parameters={"seed": 0, "dm": True}),
        record("f5", notebook="06_evaluation"),
        record("f4", status="failed", error="ValueError: no"),
    ):
        records.save(workspace, saved)
    frame = records.frame("05_weighting", workspace=workspace)
    assert frame[["fingerprint", "lam", "validation"]].to_numpy().tolist() == [
        ["f1", 0.5, 0.7],
        ["f2", 0.5, 0.8],
    ]
    everything = records.frame(workspace=workspace).set_index("fingerprint")
    means = everything[["validation", "test"]].fillna(0)
    assert means.T.to_dict("list") == {
        "f1": [0.7, 0],
        "f2": [0.8, 0],
        "f3": [0.7, 0],
        "f5": [0, 0.7],
    }
    with_failed = records.frame("05_weighting", workspace=workspace, failed=True)
    assert set(with_failed["error"].dropna()) == {"ValueError: no"}


def test_of_two_runs_that_end_in_one_second_the_later_one_is_the_newest(workspace):
    for fingerprint in ("f2", "f1"):
        records.save(workspace, record(fingerprint))
    oldest_first = records.all_records("05_weighting", workspace=workspace)
    assert [saved.fingerprint for saved in oldest_first] == ["f2", "f1"]


def test_a_record_that_is_being_written_or_of_another_version_is_left_out(workspace, caplog):
    assert records.frame(workspace=workspace).empty
    folder = records.save(workspace, record("f1"))
    other = records.save(workspace, record("f2"))
    partial = folder.with_name("f9.partial")
    partial.mkdir()
    (partial / records.RECORD).write_text((folder / records.RECORD).read_text())
    content = json.loads((other / records.RECORD).read_text())
    text = json.dumps({**content, "version": 1})
    publish(
        other, lambda folder: write_text(folder / records.RECORD, text), inputs={}, replace=True
    )
    assert records.frame(workspace=workspace)["fingerprint"].tolist() == ["f1"]
    assert records.find(workspace, "05_weighting", "f2") is None
    assert "not a record of this version" in caplog.text


def test_the_revision_is_that_of_git_and_marks_changed_trees(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments], capture_output=True, text=True
        )
        return done.stdout.strip()

    assert revision(tmp_path) is None
    git("init", "--quiet")
    (tmp_path / "file").write_text("one")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    assert revision(tmp_path) == git("rev-parse", "--short", "HEAD")
    (tmp_path / "file").write_text("two")
    assert revision(tmp_path) == git("rev-parse", "--short", "HEAD") + "+"


def test_a_collapsed_student_is_said_with_what_to_change():
    note = records.collapse_note({"collapsed": 1, "spread": 0.0003, "spread_before": 0.22})
    assert "has collapsed" in note
    assert "is 0.0003, and was 0.2 before training" in note
    assert note.endswith(records.COLLAPSE_MEND)


@pytest.mark.parametrize("metrics", [{}, {"collapsed": 0, "spread": 0.7, "spread_before": 0.2}])
def test_nothing_is_said_of_a_student_that_has_not_collapsed(metrics):
    assert records.collapse_note(metrics) == ""
