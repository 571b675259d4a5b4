"""The run of a notebook: its parameters, and what a person's execution leaves."""

import pickle
import time
from dataclasses import replace

import pytest
from conftest import with_setting
from matplotlib import pyplot as plt

from docemb_lib.runs.execution import NOTEBOOK, record_of
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import StudentForms, scored_model
from docemb_lib.runs.run import Run, begin
from docemb_lib.settings.profile import Profile


def test_a_run_takes_its_notebooks_parameters_from_the_namespace(workspace_root):
    given = {"gamma": 0.5, "structural_loss": "max-margin", "lam": 7, "x": 1}
    run = begin("03_structural", {"profile": "small", **given})
    assert run.parameters["gamma"] == 0.5
    assert run.key == Run.of("03_structural", run.profile, **run.parameters).key


INJECTED = {"In": ["", "# Parameters\nlam = 0.5\nlamb = 0.4\n", "lamc = 1"]}


@pytest.mark.parametrize(
    ("notebook", "given", "said"),
    [
        ("03_structural", {"gamma": -1}, "gamma: input should be greater than or equal to 0"),
        ("05_weighting", {"lam": "null"}, "write None"),
        ("05_weighting", {"student_projection": "16x17"}, "16 → 17"),
        ("05_weighting", INJECTED, "unknown parameter 'lamb'; did you mean lam"),
        ("08_more", {}, "notebook '08_more' is unknown"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(
    workspace_root, refused, notebook, given, said
):
    refused(said, begin, notebook, {"profile": "small", **given})
    refused("notebook '08_more' is unknown", Run, "08_more", Profile.load("small"))
    assert not (workspace_root / "outputs").exists()


def test_a_run_by_hand_is_published_by_itself_but_not_over_an_executed_one(workspace_root):
    run = begin("01_corpus", {"profile": "small"})
    _, ax = plt.subplots(figsize=(2, 2), dpi=70)
    run.save_figure(ax, "drawn")
    assert not run.folder.exists()
    row = run.finish({"documents": 3, "mean": 0.25}).iloc[:, 0]
    assert [str(value) for value in row[["documents", "mean"]]] == ["3", "0.25"]
    assert run.record.metrics == {"documents": 3, "mean": 0.25}
    height, _, _ = plt.imread(run.folder / "drawn.png").shape
    assert ax.figure.dpi == 70
    assert 300 < height < 350  # 2 inches and a margin at 150 dots
    plt.close(ax.figure)
    assert not run.is_done  # it has no executed notebook
    (run.folder / NOTEBOOK).touch()
    begin("01_corpus", {"profile": "small"}).finish({"documents": 4})
    assert run.record.metrics["documents"] == 3
    assert [path.name for path in run.folder.parent.glob("[!.]*")] == [run.slug]


def test_the_seconds_of_a_run_are_those_of_its_own_process(workspace_root):
    start = time.process_time()
    run = begin("01_corpus", {"profile": "small"})
    end = time.process_time() + 0.2
    while time.process_time() < end:
        pass
    time.sleep(1 + end - start)  # a pause, or the runs of a sweep
    seconds = run.finish({})["corpus"]["seconds"]
    assert 0.2 <= seconds <= time.process_time() - start + 0.1  # as it is rounded


def test_comparable_runs_are_the_finished_ones_of_the_setting_and_the_same_code(small):
    run = Run("05_weighting", small)
    others = [Run.of("05_weighting", small, lam=lam) for lam in (0.1, 0.2, 0.3, 0.4)]
    others.append(Run("05_weighting", with_setting(small, "training", epochs=9)))
    for other in (run, *others):
        record_of(other).write(other.folder, {})
    of_other_code = replace(record_of(others[0]), sources={"my_losses.py": "0" * 64})
    of_other_code.write(others[0].folder, {})
    record_of(others[1], status="failed").write(others[1].folder, {})
    assert [record.parameters["lam"] for record in run.comparable()] == [0.4, 0.3]
    assert run.of_record(others[2].record).key == others[2].key


def test_a_run_travels_to_another_process_without_what_was_computed(small):
    run = Run.of("05_weighting", small, lam=0.2)
    run.beside = ("a key",)
    run.corpus  # noqa: B018, a stage
    received = pickle.loads(pickle.dumps(run))
    assert "corpus" not in vars(received)
    assert (received.key, received.beside) == (run.key, run.beside)


@pytest.mark.parametrize(
    ("notebook", "forms", "labels"),
    [
        ("06_evaluation", 1, ["s", "s, centred"]),
        ("06_evaluation", 3, ["s", "s", "s"]),
        ("05_weighting", 1, ["s"]),
    ],
)
def test_a_final_student_without_halves_is_shown_centred_too(small, notebook, forms, labels):
    run = Run(notebook, small)
    student = scored_model(Identity(Kind.STUDENT, name="s"), "f")
    run._forms = StudentForms(*[student] * forms)
    run.references = [scored_model(Identity(Kind.TFIDF), "g")]
    assert [model.label for model in run.models()] == [*labels, "TF-IDF"]
