"""What notebooks conclude, on invented answers to a hundred examples of each of two tasks."""

import re

import numpy as np
import pytest

from docemb_lib import views
from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import over_seeds
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import StudentForms, scored_model
from docemb_lib.runs.scores import Scorer
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis import conclusion, over_recorded_seeds

UNTRAINED = "student before distillation"
SBERT_TRUNCATED = "SBERT truncated"
# Right answers of 100 on package and on halves. Models are right on the first examples, so that a
# difference of 20 has a p-value of 2 / 2^20 by McNemar's exact test, one of 2 has .5.
RIGHT = {
    UNTRAINED: (60, 70),
    SBERT_TRUNCATED: (60, 50),
    "cosine": (60, 70),
    "cosine;None;λ=0.5": (80, 50),
    "cosine;None;λ=0.2": (78, 52),
    "max-margin;MSE;γ=1.0": (40, 30),
    "MSE": (80, 50),
    "TF-IDF": (90, 90),
    "DM": (70, 30),
}
OTHERS = (70, 70)
COSINE = {"notebook": "03_structural", "structural_loss": "cosine"}
MARGIN = {"notebook": "03_structural", "structural_loss": "max-margin"}
BOTH = {"structural_loss": "cosine", "contextual_teacher": "PV", "max_structural_len": None}
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


def test_a_contextual_teacher_may_give_to_one_task_what_it_takes_from_another(concluded):
    assert (
        "Beside the same student without the contextual teacher (only-structural, cosine) it is "
        "better on package (+.200, p < .001); worse on halves (-.200, p < .001); not shown to "
        "differ in the mean (+.000, p 1.000; 200 examples show differences from .089 on): what the "
        "contextual teacher gives to package, it takes from halves."
    ) in concluded(COSINE, HALF)


@pytest.mark.parametrize("runs", [(COSINE, MARGIN), (MARGIN, HALF)])
def test_only_a_run_with_the_same_structural_loss_shows_what_is_added(concluded, runs):
    assert "without the contextual teacher" not in concluded(*runs)


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        (
            (MARGIN, COSINE, {"notebook": "03_structural", "structural_loss": "mse"}),
            "has the best mean, the same as cosine; by paired tests it is better than cosine and "
            "“max-margin, MSE, γ 1” on package; better than “max-margin, MSE, γ 1” on halves and "
            "in the mean; worse than cosine on halves; not shown to differ from cosine in the "
            "mean; 200 examples show differences from .089 on.",
        )
    ],
)
def test_the_best_run_is_compared_with_the_others_on_each_task(concluded, runs, said):
    text = concluded(*runs)
    assert f"Of {len(runs)} recorded runs from " in text
    assert said in text


@pytest.mark.parametrize(
    ("worse", "same", "named", "rest"),
    [(5, 0, 5, "”"), (6, 1, 4, "” and 2 others")],
)
def test_of_many_runs_four_are_named_with_the_number_of_the_rest(
    concluded, monkeypatch, worse, same, named, rest
):
    runs = []
    for number in range(worse + same):
        lam = round(0.1 + number / 20, 2)
        right = (40, 10) if number < worse else RIGHT["cosine;None;λ=0.5"]
        monkeypatch.setitem(RIGHT, f"cosine;None;λ={lam}", right)
        runs.append({**HALF, "lam": lam})
    monkeypatch.setitem(RIGHT, "cosine;None;λ=0.99", RIGHT["cosine;None;λ=0.5"])
    text = concluded(*runs, {**HALF, "lam": 0.99})
    better = text.partition("by paired tests it is better than ")[2].partition(" on package")[0]
    assert better.count("cosine, no mask, λ ") == named
    assert better.endswith(rest)


def test_runs_from_other_numbers_of_documents_are_named_and_not_compared(concluded):
    text = concluded({**MARGIN, "documents": 30}, {**COSINE, "documents": 40})
    assert text.endswith(" Not compared: 1 recorded run with other numbers of documents or seeds.")
    text = concluded({**MARGIN, "documents": 30}, MARGIN, COSINE)
    assert " documents (not compared: 1 with other numbers of documents or seeds), " in text


def test_the_first_run_says_that_there_is_no_other(concluded):
    assert " It is the first recorded run: make another, and" in concluded(COSINE)


def test_runs_whose_answers_are_gone_are_not_compared(concluded, monkeypatch):
    kept = "cosine"
    monkeypatch.setattr(Scorer, "is_scored", lambda _, model: model.fingerprint == kept)
    text = concluded(MARGIN, {"notebook": "03_structural", "structural_loss": "mse"}, COSINE)
    assert "recorded runs from" not in text


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
    """What 05 shows over seeds, where answers depend on the run's label, its seed and the task."""

    def by_round(_, models):
        scores = {}
        for model in models:
            label, _, seed = model.fingerprint.rpartition(" ")
            rng = np.random.default_rng([len(label), int(seed)])
            shift = 0.3 if "λ" in label else 0.0
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
            labels[run.roles == {"structural"}] = run.label
            named = f"{run.label} {run.parameters['seed']}"
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
