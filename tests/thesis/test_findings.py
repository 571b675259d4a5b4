"""What notebooks conclude, on invented answers to a hundred examples of each of two tasks."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from docemb_lib import views
from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import over_seeds
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import StudentForms, scored_model
from docemb_lib.runs.scores import Scorer
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis import conclusion, in_figure, over_recorded_seeds

UNTRAINED = "start"
SBERT_TRUNCATED = "SBERT-64"
# Right answers of 100 on package and on halves. Models are right on the first examples, so that a
# difference of 20 has a p-value of 2 / 2^20 by McNemar's exact test, one of 2 has .5.
PROJECTED = "S:16(ReLU)x16, C:16, 24 docs"
RIGHT = {
    UNTRAINED: (60, 70),
    SBERT_TRUNCATED: (60, 50),
    "S (cosine), 24 docs": (60, 70),
    f"S+PV, λ .5, {PROJECTED}": (80, 50),
    f"S+PV, λ .2, {PROJECTED}": (78, 52),
    f"S+PV, plain sum, {PROJECTED}": (79, 51),
    "S (max-margin), mse, γ 1, 24 docs": (40, 30),
    f"C (PV), {PROJECTED}": (60, 30),
    "C (PV), S:16, C:16, 24 docs": (80, 50),
    "TF-IDF": (90, 90),
    "DM": (70, 30),
}
OTHERS = (70, 70)
COSINE = {"notebook": "03_structural", "structural_loss": "cosine"}
MARGIN = {"notebook": "03_structural", "structural_loss": "max-margin"}
BOTH = {"structural_loss": "cosine", "contextual_teacher": "PV", "max_structural_len": None}
PV_ALONE = {"notebook": "04_projections", "structural_loss": None}
HALF = {"notebook": "05_weighting", "lam": 0.5, **BOTH}
FIFTH = {"notebook": "05_weighting", "lam": 0.2, **BOTH}


def student(label, fingerprint):
    """A student in one form, of which only scores can be read."""
    return StudentForms(scored_model(Identity(Kind.STUDENT, name=label), fingerprint))


@pytest.fixture
def last_run(make_run, monkeypatch):
    """The last of some runs; the others are recorded."""

    def score(right):
        answers = (np.arange(100) < right).astype(np.float32)[None]
        return Score({"accuracy": answers})

    def by_round(_, models):
        names = ("package", "halves")
        scores = {}
        for model in models:
            # A model has the answers that belong to its fingerprint, whatever it is called.
            right = RIGHT.get(model.fingerprint, OTHERS)
            scores[model.label] = dict(zip(names, map(score, right), strict=True))
        return {"all": scores}

    monkeypatch.setattr(Scorer, "by_round", by_round)
    monkeypatch.setattr(Scorer, "is_scored", lambda _, model: True)

    def last(*runs, note=""):
        for place, parameters in enumerate(runs, 1):
            run = make_run(**parameters)
            run.references = [scored_model(Identity(Kind.SBERT_TRUNCATED), SBERT_TRUNCATED)]
            if run.trains:
                run._forms = student(run.label, run.label)
                run.references.append(scored_model(Identity(Kind.UNTRAINED), UNTRAINED))
            else:
                run.model = scored_model(Identity(Kind.PARAGRAPH_VECTOR, name=run.label), "DM")
                run.references.append(scored_model(Identity(Kind.TFIDF), "TF-IDF"))
            run.collapse_note = note
            if place < len(runs):
                run.finish({}, scores=run.scores(), tables=run.evaluation.tables)
        return run

    return last


@pytest.fixture
def concluded(last_run):
    """The conclusion of the last of some runs, as one line; the others are recorded."""

    def conclude(*runs, final=False, note=""):
        run = last_run(*runs, note=note)
        return " ".join(conclusion(run, run.evaluation if final else None).split())

    return conclude


def test_recorded_models_have_short_names_and_are_compared_by_paired_tests(last_run):
    scores = views.recorded(last_run({**COSINE, "documents": 30}, MARGIN, COSINE, HALF))
    sbert = f"SBERT-{Profile.load('small').structural_teacher.max_tokens}"
    assert {*scores} == {"S+PV", "S (cosine)", "S (max-margin)", "start", sbert}
    said = " ".join(views.compared(scores, "S+PV", "S (cosine)").split())
    means = re.findall(r"\((\.\d+) \[", said)
    assert means == [".650", ".650"]
    assert "better on package (+.200, p < .001); worse on halves (-.200, p < .001)" in said
    missing = "Not compared, because it is not recorded: S (mse)."
    assert views.compared(scores, "S (mse)", "start") == missing


def test_a_figure_has_the_run_itself_beside_recorded_runs_of_its_size(last_run):
    figure = in_figure(last_run(COSINE, MARGIN), "figure 4.3")
    assert {"cosine", "max-margin;MSE;γ=1.0"} <= {*figure.scores}
    figure = in_figure(last_run({**COSINE, "documents": 30}, {**MARGIN, "seed": 1}), "figure 4.3")
    assert "max-margin;MSE;γ=1.0" not in figure.scores


def test_students_stand_at_their_weights_if_they_differ_in_nothing_else(last_run, monkeypatch):
    alone = {"notebook": "04_projections", "structural_loss": None, "contextual_teacher": "PV"}
    for width in ("16(ReLU)x16", "16"):
        monkeypatch.setitem(RIGHT, f"C (PV), S:{width}, C:16, 24 docs", (50, 40))
    monkeypatch.setitem(RIGHT, f"S+PV masked, 64 tokens, λ .5, {PROJECTED}", (70, 60))
    masked = {**HALF, "max_structural_len": 64}
    linear = {**alone, "student_projection": "16"}
    others = [alone, linear, {**COSINE, "documents": 30}, MARGIN, COSINE, masked, FIFTH]
    run = last_run(*others, HALF)
    run.students = SimpleNamespace(trained=Path("student"))
    students = views.by_weighting(run)
    assert {name: each[:2] for name, each in students.items()} == {
        "S+PV": (0.5, None),
        "C (PV)": (0, None),
        "S+PV, λ .2": (0.2, None),
        "S+PV masked": (0.5, 64),
        "S (cosine)": (1, None),
    }
    assert next(iter(students)) == "S+PV"
    assert students["S+PV, λ .2"].model.fingerprint == f"S+PV, λ .2, {PROJECTED}"
    assert students["C (PV)"].model.fingerprint.endswith(PROJECTED)


def test_students_of_one_name_differ_by_their_projection_or_the_label_of_their_run(last_run):
    linear = {**PV_ALONE, "student_projection": "16"}
    scores = views.recorded(last_run(linear, PV_ALONE, {**HALF, "lam": None}, HALF))
    students = {name: by_task["package"].mean for name, by_task in scores.items()}
    assert students == pytest.approx(
        students
        | {"S+PV": 0.8, f"S+PV, plain sum, {PROJECTED}": 0.79, "C (PV)": 0.6}
        | {"C (PV), S:16": 0.8}
    )
    assert len(students) == 4 + 2  # the start and SBERT


def test_a_student_of_pairs_stands_beside_final_students_of_any_number_of_documents(last_run):
    distilled = {"notebook": "06_evaluation", "contextual_teacher": None, "documents": 30}
    other_seed = {**distilled, "structural_loss": "mse", "seed": 1}
    pairs = {"notebook": "07_simde", "pairs": "dropout"}
    run = last_run(distilled, other_seed, pairs, {"notebook": "07_simde", "pairs": "halves"})
    assert run.profile.parameters.documents != distilled["documents"]
    scores = views.recorded(run, run.evaluation)
    assert {name for name in scores if name.startswith("S")} >= {
        "SimDE",
        "SimCSE",
        "S (cosine) masked",
    }
    assert not any("mse" in name for name in scores)


def test_a_run_is_compared_with_its_start_on_each_task(concluded):
    assert (
        f"Beside {UNTRAINED} it is better on package (+.200, p < .001); worse on halves (-.200, "
        "p < .001)."
    ) in concluded(HALF)


def test_a_final_evaluation_ends_with_the_model_to_take(concluded):
    text = concluded(MARGIN, final=True)
    assert f" Take {SBERT_TRUNCATED}: it is shown to be better than this student (.550 " in text
    assert "max-margin" not in text


def test_a_conclusion_begins_with_the_collapse_of_the_student(concluded):
    note = "The student has collapsed."
    assert concluded(COSINE, note=note).startswith(f"{note} In the mean over 2 tasks")


ALONE = {"notebook": "05_weighting", "structural_loss": "cosine", "contextual_teacher": None}


@pytest.fixture
def over_seeds_of(make_run, monkeypatch):
    """What 05 shows over seeds, where answers depend on the run's name, its seed and the task."""

    def by_round(_, models):
        scores = {}
        for model in models:
            label, _, seed = model.fingerprint.rpartition(" ")
            rng = np.random.default_rng([len(label), int(seed)])
            shift = 0.3 if "PV" in label else 0.0
            by_task = {}
            for task in ("package", "halves"):
                answers = rng.random((1, 50)).astype(np.float32) + np.float32(shift)
                by_task[task] = Score({"accuracy": answers})
            scores[model.label] = by_task
        return {"all": scores}

    monkeypatch.setattr(Scorer, "by_round", by_round)
    monkeypatch.setattr(Scorer, "is_scored", lambda _, model: True)

    def shown(*runs):
        for parameters in runs:
            run = make_run(**parameters)
            labels[run.roles == {"structural"}] = run.name
            named = f"{run.name} {run.parameters['seed']}"
            run._forms = student(run.label, named)
            run.references = []
            run.finish({}, scores=run.scores(), tables=run.evaluation.tables)
        return over_recorded_seeds(run), labels, by_round

    labels = {}
    return shown


def test_seeds_of_both_students_are_compared_over_seeds_and_examples(over_seeds_of):
    runs = [{**kind, "seed": seed} for seed in (0, 1, 2) for kind in (ALONE, HALF)]
    frame, labels, by_round = over_seeds_of({**ALONE, "seed": 7}, *runs)
    assert frame["task"].tolist() == ["package", "halves", "mean over tasks"]
    assert frame[["seeds", "examples"]].to_numpy().tolist() == [[3, 50], [3, 50], [3, 100]]

    def answers(label, task, seed):
        model = scored_model(Identity(Kind.STUDENT, name="m"), f"{label} {seed}")
        return by_round(None, [model])["all"]["m"][task].per_example["accuracy"][0]

    differences = []
    for task in ("package", "halves"):
        rows = []
        for seed in (0, 1, 2):
            with_teacher = answers(labels[False], task, seed)
            rows.append(with_teacher - answers(labels[True], task, seed))
        differences.append(np.array(rows, dtype=np.float64))
    expected = over_seeds(differences)
    found = frame.iloc[2][["difference", "low", "high", "p"]].astype(float)
    assert found.tolist() == pytest.approx(list(expected), abs=1e-6)


@pytest.mark.parametrize(
    "runs",
    [[ALONE, HALF], [{**ALONE, "seed": 1}, {**HALF, "seed": 1}, {**ALONE, "documents": 30}, HALF]],
)
def test_without_two_seeds_of_both_students_nothing_is_shown_over_seeds(over_seeds_of, runs):
    assert over_seeds_of(*runs)[0].empty
