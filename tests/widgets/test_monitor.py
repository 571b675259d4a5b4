"""The monitor, and the state of runs and trainings from files as they are written."""

import asyncio
import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from docemb_lib.runs import records
from docemb_lib.sweeps.monitor import runs_on_disk, trainings_on_disk
from docemb_lib.training.trainer import Log
from docemb_lib.widgets import monitor, run_monitor
from docemb_lib.workspace import locked

NOTEBOOK = "05_weighting"


def cell(status, *texts):
    outputs = [{"output_type": "stream", "name": "stderr", "text": text} for text in texts]
    return {
        "cell_type": "code",
        "metadata": {"papermill": {"status": status}},
        "source": "",
        "outputs": outputs,
    }


def record(fingerprint, **further):
    return records.Record(
        notebook=NOTEBOOK,
        label=f"run {fingerprint}",
        fingerprint=fingerprint,
        setting="s",
        profile="small",
        parameters={},
        **further,
    )


@pytest.fixture
def running_notebook(workspace):
    executed = workspace.outputs / "notebooks" / NOTEBOOK / "small-cosine-lam=0.5-seed0.ipynb"
    executed.parent.mkdir(parents=True)
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ""},
        cell("completed", "old\n"),
        cell("running", "training: 10%\rtraining: 20%\n"),
        cell("pending"),
    ]
    started = datetime.now(UTC) - timedelta(seconds=90)
    papermill = {
        "parameters": {"profile": "small", "lam": 0.5},
        "start_time": started.isoformat(),
    }
    content = {"cells": cells, "metadata": {"papermill": papermill}}
    executed.with_name(f".{executed.stem}.running.ipynb").write_text(json.dumps(content))
    return executed


def test_a_running_run_differs_from_an_interrupted_one_by_its_lock_and_records_follow(
    workspace, running_notebook
):
    with locked(running_notebook):
        (running,) = runs_on_disk(workspace).to_dict("records")
    assert running["run"] == "cosine;64;λ=0.5"
    assert running["profile"] == "small"
    assert 90 <= running["took"] < 120
    assert running["notebook"] == NOTEBOOK
    assert running["state"] == "running"
    assert running["at"] == "cell 2 of 3: training: 20%"
    assert runs_on_disk(workspace)["state"].tolist() == ["interrupted"]
    assert runs_on_disk(workspace, "03_structural").empty
    # recorded runs follow, newest first, with their score or error
    records.save(
        workspace, record("a", metrics={"mean": 0.25}, seconds=9.0, finished="2024-01-01T00:00:00")
    )
    records.save(
        workspace,
        record("b", status="failed", error="out of memory", finished="2024-01-02T00:00:00"),
    )
    rows = runs_on_disk(workspace).to_dict("records")
    assert [row["state"] for row in rows] == ["interrupted", "failed", "done"]
    assert rows[1]["at"] == "out of memory"
    assert rows[2]["validation"] == 0.25
    assert rows[2]["took"] == 9.0


def test_a_notebook_that_is_just_being_written_or_was_deleted_breaks_nothing(
    workspace, running_notebook
):
    working = next(running_notebook.parent.glob(".*.running.ipynb"))
    working.write_text(working.read_text()[:40])
    assert runs_on_disk(workspace)["at"].tolist() == [""]
    working.unlink()
    assert runs_on_disk(workspace).empty
    assert trainings_on_disk(workspace).empty


@pytest.fixture
def training(workspace):
    """A training after the fourth of ten updates, resumed after the second."""
    folder = workspace.outputs / "artefacts" / "student" / "abc.partial" / "checkpoints"
    log = Log(folder, "student cosine;λ=0.5", "small")
    state = SimpleNamespace(
        is_world_process_zero=True,
        max_steps=10,
        global_step=2,
        log_history=[{"step": 2, "loss": 9.0, "learning_rate": 1e-3}],
    )
    log.on_train_begin(None, state, None)
    for step in (3, 4):
        row = {
            "step": step,
            "loss": 2.0 / step,
            "structural": 1.0,
            "learning_rate": 1e-3,
            "tokens_per_second": 500.0 * step,
        }
        state.log_history.append(row)
        log.on_log(None, state, None)
    state.log_history.append({"step": 4, "eval_loss": 7.0})
    log.on_log(None, state, None)
    return folder / "log.jsonl"


def test_a_training_reports_its_progress(workspace, training, monkeypatch):
    lines = [json.loads(line) for line in training.read_text().splitlines()]
    assert [line.get("step") for line in lines] == [None, 2, 2, 3, 4, 4]
    for line, at in zip(lines[2:], (100.0, 103.0, 110.0, 112.0), strict=True):
        line["at"] = at
    training.write_text(
        "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 5, "lo'
    )  # being written
    monkeypatch.setattr("docemb_lib.sweeps.monitor.time.time", lambda: 112.0)
    with locked(training.parents[2] / "abc"):
        (row,) = trainings_on_disk(workspace).to_dict("records")
    assert row["training"] == "student cosine;λ=0.5"
    assert row["profile"] == "small"
    assert row["time"] == "00:12"
    assert row["state"] == "running"
    assert row["update"] == "4 of 10"
    assert row["loss"] == 0.5
    assert row["structural"] == 1.0
    left = (112 - 100) / (4 - 2) * (10 - 4)
    assert row["tokens/s"] == 2000.0
    assert row["time left"] == f"00:{left:.0f}"
    assert "learning_rate" not in row
    (row,) = trainings_on_disk(workspace).to_dict("records")
    assert row["state"] == "interrupted"
    assert row["update"] == "4 of 10"
    assert row["time left"] == ""
    # one that has only begun has no time left yet
    training.write_text("".join(training.read_text().splitlines(keepends=True)[:1]))
    (row,) = trainings_on_disk(workspace).to_dict("records")
    assert row["update"] == "0 of 10"
    assert row["time left"] == ""


@pytest.mark.parametrize(
    "line",
    [
        '{"title": "student", "updates": 10}',  # of a version that named no profile
        '["student", 10]',
        '"student"',
        '{"title": "student", "profile": "small", "updates": "ten"}\n{"step": 2, "at": "noon"}',
    ],
)
def test_a_log_of_another_version_or_a_damaged_one_is_passed_over_with_a_line(
    workspace, training, caplog, line
):
    other = training.parents[2] / f"{len(line)}.partial" / "checkpoints" / training.name
    other.parent.mkdir(parents=True)
    other.write_text(f"{line}\n")
    (row,) = trainings_on_disk(workspace).to_dict("records")
    assert row["training"] == "student cosine;λ=0.5"
    assert [record.getMessage() for record in caplog.records] == [
        f"{workspace.relative(other)}: this log is damaged or of another version of docemb; "
        "it is not shown"
    ]


def test_the_monitor_says_what_to_run_and_shows_what_has(workspace, numbers, tables, hostile):
    watching = run_monitor("05_weighting")
    assert "nothing has run yet; docemb run" in watching.answer().html
    folder = records.save(
        workspace, replace(record("a"), label=hostile, status="failed", error="out of <memory>")
    )
    text = watching.answer().html
    assert numbers(text, "failed") == ["1"]
    assert tables(text)["runs"]["state"].tolist() == ["failed"]
    assert "<script" not in text
    assert "out of &lt;memory&gt;" in text
    shutil.rmtree(folder)
    assert "nothing has run yet" in watching.answer().html


def test_the_monitor_refreshes_by_itself_until_it_is_closed(workspace, monkeypatch):
    async def watch():
        monkeypatch.setattr(monitor, "EVERY", 0.01)
        watching = run_monitor()
        watching.live()
        looks = []
        monkeypatch.setattr(watching, "refresh", lambda: looks.append(1))
        while len(looks) < 2:
            await asyncio.sleep(0.01)
        task = watching._watch
        watching.close()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    asyncio.run(asyncio.wait_for(watch(), 20))


def test_the_monitor_finds_notebooks_by_number_and_lists_last_runs(
    workspace, monkeypatch, numbers, tables, refused
):
    records.save(workspace, record("0"))
    assert numbers(run_monitor("05").answer().html, "done") == ["1"]
    assert "nothing has run yet" in run_monitor("03").answer().html
    refused("notebook '9' is unknown", run_monitor, "9")
    monkeypatch.setattr(monitor, "LAST", 2)  # it counts all runs and lists the last
    for number in range(3):
        records.save(workspace, record(str(number), finished=f"2024-01-0{number + 1}T00:00:00"))
    text = run_monitor().answer().html
    assert numbers(text, "done") == ["3"]
    assert tables(text)["runs"]["run"].tolist() == ["run 2", "run 1"]


def test_the_monitor_shows_the_profile_at_work_and_others_if_asked(workspace, training, tables):
    records.save(workspace, replace(record("a"), profile="large"))
    with locked(training.parents[2] / "abc"):
        watching = run_monitor()
        text = watching.answer().html
    assert "profile small; there are also runs of large" in text
    assert tables(text)["trainings"]["training"].tolist() == ["student cosine, λ .5"]
    assert "profile" not in tables(text)["trainings"]
    assert tables(text)["runs"].empty
    text = run_monitor(profile="large").answer().html
    assert tables(text)["runs"]["run"].tolist() == ["run a"]
    assert "trainings" not in tables(text)
    text = run_monitor(profile="all").answer().html
    assert tables(text)["runs"]["profile"].tolist() == ["large"]
    assert tables(text)["trainings"]["profile"].tolist() == ["small"]
    assert "did you mean large?" in run_monitor(profile="larg").answer().html
    # without one at work it is that of the last run
    assert "profile large" in run_monitor().answer().html
