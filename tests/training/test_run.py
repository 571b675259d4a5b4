"""A training run: its number of updates, its history, and what is refused before anything is trained."""

import logging

import pytest

from docemb_lib.errors import InputError
from docemb_lib.settings import Training
from docemb_lib.training.run import compiles, count_updates


def test_the_number_of_updates_is_the_thesis(distil):
    assert count_updates(15_000, Training()) == 2500
    assert count_updates(1_000_000, Training(accumulation=10)) == 16_667  # 16,666 and one for the batches left over
    assert count_updates(50, distil.SETTINGS) == 12


@pytest.mark.parametrize("more", [False, True])
def test_history_has_a_row_per_update_and_validation_from_first_to_last(tmp_path, distil, logged, more):
    _, history = distil.train(tmp_path, more=more)
    assert [row["step"] for row in history.train] == list(range(1, 13))
    steps = [row["step"] for row in history.validation]
    assert (steps[0], steps[-1]) == (0, 12)
    assert steps == sorted(set(steps))  # none twice
    teachers = {"structural", "contextual", *(("far", "topics") if more else ())}
    for rows in history:
        assert all(("far" in row) == more for row in rows)
        assert {"step", "loss", "norm", "spread", *teachers} <= set(rows[0])
    assert {"grad_norm", "learning_rate", "cca"} <= set(history.train[0])
    assert logged(tmp_path) == ({"title": "student", "updates": 12}, list(range(1, 13)))


@pytest.mark.parametrize(
    ("options", "processes", "message"),
    [
        ({"n": 3}, 1, "documents: 3 training documents do not fill one batch"),
        ({"n": 8, "more": True}, 1, "negatives: 5 asked for, but beside a batch of 4 only"),
        ({}, 4, "an update of 2 batches leaves some of 4 processes idle"),
    ],
)
def test_a_run_that_cannot_train_is_refused_before_it_starts(
    distil, tmp_path, monkeypatch, options, processes, message
):
    monkeypatch.setattr("transformers.TrainingArguments.world_size", processes)
    with pytest.raises(InputError, match=message):
        distil.train(tmp_path, **options)
    assert not list(tmp_path.rglob("*.json"))


def test_a_compiler_that_fails_is_reported_and_not_used(distil, monkeypatch, caplog):
    def broken(*_, **__):
        raise RuntimeError("Cannot find a working triton installation\nwith a long explanation")

    student = distil.make_objective().student
    monkeypatch.setattr("docemb_lib.student.longformer._compile", broken)
    with caplog.at_level(logging.WARNING):
        assert not compiles(student, None)
    assert "without torch.compile: Cannot find a working triton installation" in caplog.text
