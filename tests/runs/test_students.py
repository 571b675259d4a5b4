"""The student of a run: every setting reaches the objective, and students learn from teachers and
from pairs.
"""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import make_workspace, with_setting
from torch import nn

from docemb_lib.runs.models import beside_lsa, forms_at, student_forms, student_model
from docemb_lib.runs.run import Run
from docemb_lib.runs.students import Students, make_objective
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import Decorrelation, SimDE, Training
from docemb_lib.student import Student
from docemb_lib.training.batches import Cut
from docemb_lib.training.monitor import validate
from docemb_lib.training.run import autocast_of, precision_of

D, C = 4, 3


class Embeddings(nn.Linear):
    """A student whose documents are its embeddings, seen through one linear layer."""

    dim = D


def objective_of(training=(), **parameters):
    torch.manual_seed(0)
    teachers = SimpleNamespace(of_student={"contextual": SimpleNamespace(dim=C)})
    parameters = {"student_projection": "5(ReLU)x3", "contextual_projection": "-", **parameters}
    profile = Profile(name="invented", parameters=parameters, training=dict(training))
    return make_objective(Embeddings(D, D), Run("05_weighting", profile), teachers)


SDL = "SDL(beta=0.5, reduction='sum', form='covariance')"
CASES = [  # what the representation of an objective says of its settings
    ({"structural_loss": "max-margin", "gamma": 0.7}, {}, "MaxMargin(distance='mse', gamma=0.7)"),
    ({"structural_loss": "contrastive", "temperature": 0.05}, {}, "Contrastive(temperature=0.05)"),
    ({"delta": 0.3}, {}, "SoftCCA(\n        dim=3, delta=0.3"),
    ({"beta": 0.5}, {"sdl": Decorrelation(form="covariance", reduction="sum")}, SDL),
    ({"contextual_loss": "cca"}, {"ridge": 0.1}, "ridge=0.1)"),
    ({"lam": 0.2, "max_structural_len": 64}, {}, "Weighting(lam=0.2, max_structural_len=64,"),
    ({"lam_by_length": "linear:9:100"}, {}, "lam_by_length='linear:9:100'"),
    ({}, {"batch_size": 5}, "group_size=5"),
]


@pytest.mark.parametrize(("parameters", "training", "said"), CASES)
def test_parameters_and_settings_of_training_reach_the_objective(parameters, training, said):
    assert said in repr(objective_of(training, **parameters))


@pytest.mark.parametrize(
    ("off", "left"), [("structural_loss", "contextual"), ("contextual_teacher", "structural")]
)
def test_a_teacher_that_is_switched_off_is_not_in_the_objective(off, left):
    assert [teaching.name for teaching in objective_of(**{off: None}).teachings] == [left]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder whose corpus, teachers and students the tests share."""
    return make_workspace(tmp_path_factory.mktemp("students") / "workspace")


@pytest.fixture(autouse=True)
def in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)


TAUGHT = {
    "structural_loss": "max-margin",
    "contextual_teacher": "LSA",
    "student_projection": "8",
    "contextual_projection": "-",
    "max_structural_len": None,
}


@pytest.mark.slow
def test_a_student_learns_from_both_teachers(monkeypatch):
    run_of = partial(Run.of, "06_evaluation", Profile.load("small"))
    run = run_of(**TAUGHT)
    run.check()
    assert list(run.teachers.of_student) == ["structural", "contextual"]
    for frame in run.history():
        assert np.isfinite(frame[["structural", "contextual", "l2", "sdl"]].to_numpy()).all()
        expected = 0.5 * frame["structural"] + 0.5 * frame["contextual"]  # lam is 0.5
        np.testing.assert_allclose(frame["loss"], expected, rtol=1e-5)
    # All that was trained and accumulated is there again.
    _, validations = run.history()
    rows = len(run.corpus.split("validation"))
    autocast = autocast_of(precision_of(None), torch.device("cpu"))
    for trained, row in ((False, validations.iloc[0]), (True, validations.iloc[-1])):
        objective = run.students.objective(trained=trained)
        assert not objective.training
        assert (objective.teachings[1].loss.student_decorrelation.normaliser > 1) == trained
        documents = run.students.training_documents(objective.student, "validation", rows)
        for name, value in validate(objective, documents, Cut(6, 8192), autocast).items():
            assert value == pytest.approx(row[name], rel=1e-3)
    assert "| `contextual_teacher` | LSA |" in (run.student / "README.md").read_text()
    monkeypatch.setattr(Students, "_train", lambda *_: None)
    assert run_of(**TAUGHT).student == run.student  # found again
    assert run_of(**TAUGHT, lam=0.2).student != run.student


QUICK = Training(batch_size=6, learning_rate=1e-4, log_every=1, save_every=3, precision="fp32")


def from_pairs(settings=None, **parameters):
    simde = SimDE(training=QUICK, **(settings or {}))
    profile = Profile.load("small").model_copy(update={"simde": simde})
    return Run.of("07_simde", profile, **parameters)


def test_a_student_learns_from_halves_of_real_documents_and_is_found_again(monkeypatch):
    run = from_pairs()
    train, validation = run.history()
    student = Student.load(run.student)
    left = len(run.students.training_documents(student, "train", 24))
    assert 12 <= left <= 24
    assert train["step"].tolist() == list(range(1, left // 6 + 1))
    assert {"loss", "contrast", "mlm", "norm", "spread"} <= set(validation.columns)
    untrained = Student.load(run.students.untrained)
    assert np.abs(student.embed(["A text."]) - untrained.embed(["A text."])).max() > 1e-4
    initial, learnt = (run.students.objective(trained=trained).head for trained in (False, True))
    assert not torch.equal(learnt.dense.weight, initial.dense.weight)
    monkeypatch.setattr(Students, "_train", lambda *_: None)
    assert from_pairs().student == run.student
    assert from_pairs({"language": "de"}).student != run.student


def test_it_learns_from_dropout_without_a_head():
    settings = {"dropout": 0.1, "max_tokens": 16}
    run = from_pairs(settings, pairs="dropout", mlm_weight=0.0)
    _, validation = run.history()
    assert "contrast" in validation
    assert "mlm" not in validation
    assert run.students.objective().head is None
    assert json.loads((run.student / "config.json").read_text())["hidden_dropout_prob"] == 0.1
    # What it is compared with has no dropout of pairs.
    assert run.students.untrained == from_pairs().students.untrained
    documents = run.students.training_documents(Student.load(run.student), "train", 24)
    packed = documents.pack(range(len(documents)), epoch=0, budget=10_000)
    assert max(size for part in packed.parts for size in part.texts.sizes) == 16
    assert "| `pairs` | dropout |" in (run.student / "README.md").read_text()


def test_a_final_student_gets_its_half_of_words_after_training(tmp_path):
    plain = from_pairs()
    run = Run("06_evaluation", with_setting(plain.profile, "student", words=8))
    run.students.without_words = plain.student  # trained above
    texts = run.corpus.split("train")["text"][:]
    few = texts[:30]
    student = Student.load(plain.student)
    student.adapt(texts, dim=8)
    saved, meaning, adapted = student_forms("s", run.student)
    np.testing.assert_allclose(saved.embed(texts[:9]), student.embed(texts[:9]), atol=1e-5)
    student.adapt(few, dim=8)
    np.testing.assert_allclose(adapted.on_texts(few), student.embed(few), atol=1e-4)
    without_words = ["alone", "single"]
    rows = adapted.on_texts(without_words)
    np.testing.assert_array_equal(rows, meaning.embed(without_words))
    assert meaning.fingerprint == student_model("s", plain.student).fingerprint
    expected = [saved.fingerprint, meaning.fingerprint, beside_lsa(meaning, 8).fingerprint]
    assert [model.fingerprint for model in forms_at(str(run.student)).models] == expected
    fitted_on = [model.identity.fitted_on for model in (saved, meaning, adapted)]
    assert fitted_on == ["corpus", "corpus", "task"]
    student.adapt(few, weight=0.9)  # a weight that was chosen is kept where words are fitted anew
    student.save(tmp_path / "elsewhere")
    chosen = forms_at(str(tmp_path / "elsewhere")).adapted
    np.testing.assert_allclose(chosen.on_texts(few), student.embed(few), atol=1e-4)
    assert (run.student / "history.json").is_file()
    card = (run.student / "README.md").read_text()
    assert "trust_remote_code=True" in card
    assert f"fitted on {len(texts)} documents of installed-docs" in card
