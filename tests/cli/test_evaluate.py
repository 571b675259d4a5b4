"""`docemb evaluate` tests the student that it is given, as it is."""

import json

import pandas as pd
import pytest
from conftest import labelled_rows, make_workspace, succeed, write_own_task

from docemb_lib.evaluation.uncertainty import holm
from docemb_lib.runs.kinds import Form
from docemb_lib.student import Student

GIVEN = "mine"
REFITTED = "mine, refitted to the task"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A working folder with a task, and a student that is adapted to other texts."""
    folder = make_workspace(tmp_path_factory.mktemp("evaluated") / "workspace")
    write_own_task(folder / "params", labelled_rows(40))
    student = Student.from_encoder("all-MiniLM-L6-v2", layers=[0], attention_window=64)
    student.adapt([" ".join(f"word{n % k}" for k in range(2, 9)) for n in range(40)], dim=4)
    student.save(folder / GIVEN)
    return folder


@pytest.fixture
def evaluated(root, monkeypatch):
    """What `docemb evaluate` prints of the student with these options."""
    monkeypatch.chdir(root)

    def evaluate(*options):
        return succeed("evaluate", GIVEN, "--profile", "mine", *options).stdout

    return evaluate


@pytest.fixture
def tables(evaluated):
    """The tables of the evaluation as frames, by name."""

    def frames(*options):
        found = json.loads(evaluated("--json", *options))
        return {name: pd.DataFrame(rows) for name, rows in found.items() if name != "model"}

    return frames


def test_tests_and_verdict_are_of_the_student_as_it_is_given(evaluated):
    board, found, verdict = evaluated().partition(f"In the mean over 1 task, {GIVEN} (")
    assert found
    assert f"Paired tests of {GIVEN} (" in board
    assert "fitted on: where the words" in board
    assert REFITTED in board
    assert REFITTED not in verdict


def test_a_given_student_is_tested_beside_itself_refitted_and_corrected_for_that(tables):
    found = tables()
    assert found["models"].set_index("model")["form"][REFITTED] == Form.REFITTED
    tests = found["comparison"].query("model == @GIVEN")
    assert REFITTED in set(tests["reference"])
    assert tests["p_holm"].tolist() == pytest.approx(holm(tests["p"].to_numpy()))


def test_a_student_alone_is_not_tested_beside_itself_refitted(tables):
    found = tables("--alone")
    assert REFITTED in set(found["models"]["model"])
    assert found["comparison"].empty
