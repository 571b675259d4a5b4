"""The student stage: every setting reaches the objective, and students learn from teachers and from
pairs.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from docemb_lib.losses import (
    CCA,
    MSE,
    Contrastive,
    Cosine,
    InfoNCE,
    MaskedLanguageHead,
    MaxMargin,
    SoftCCA,
    Weighting,
)
from docemb_lib.runs.run import Run
from docemb_lib.runs.models import beside_lsa, forms_at, lexical_models, student_model
from docemb_lib.runs.students import Students, make_objective
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import Decorrelation, SimDE, Training
from docemb_lib.student import Student
from docemb_lib.training.monitor import validate
from docemb_lib.training.run import AUTOCAST, precision_of
from docemb_lib.workspace import Workspace

DATA = Path(__file__).resolve().parent.parent / "data"
D, C = 4, 3


class Embeddings(nn.Linear):
    """A student whose documents are its embeddings, seen through one linear layer."""

    dim = D


def make(training=(), **parameters):
    torch.manual_seed(0)
    widths = {"structural": D, "contextual": C}
    parameters = {"student_projection": "5(ReLU)x3", "contextual_projection": "-", **parameters}
    profile = Profile(name="made up", parameters=parameters, training=dict(training))
    return make_objective(Embeddings(D, D), Run("05_weighting", profile), widths)


@pytest.mark.parametrize(
    ("parameters", "kind", "settings"),
    [
        ({"structural_loss": "mse"}, MSE, {}),
        ({"structural_loss": "cosine"}, Cosine, {}),
        (
            {"structural_loss": "max-margin", "distance": "cosine", "gamma": 0.7},
            MaxMargin,
            {"distance": "cosine", "gamma": 0.7},
        ),
        ({"structural_loss": "contrastive"}, Contrastive, {"temperature": None}),
        (
            {"structural_loss": "contrastive", "temperature": 0.05},
            Contrastive,
            {"temperature": 0.05},
        ),
        (
            {"contextual_loss": "soft-cca", "delta": 0.3, "beta": 0.5},
            SoftCCA,
            {"dim": 3, "delta": 0.3},
        ),
        ({"contextual_loss": "cca"}, CCA, {"ridge": 0.1, "components": None}),
        ({"contextual_loss": "mse"}, MSE, {}),
        ({"contextual_loss": "infonce"}, InfoNCE, {"temperature": 0.05}),
        ({"delta": "balance", "beta": 0.5}, SoftCCA, {"dim": 3, "delta": "balance"}),
        ({"contextual_loss": "cca:2"}, CCA, {"ridge": 0.1, "components": 2}),
    ],
)
def test_losses_have_their_own_parameters_and_the_settings_of_training(parameters, kind, settings):
    objective = make(**parameters, training={"ridge": 0.1, "batch_size": 5})
    assert [(t.name, t.role) for t in objective.teachings] == [
        (role, role) for role in ("structural", "contextual")
    ]
    loss = objective.teachings[not parameters.keys() & {"structural_loss"}].loss
    assert type(loss) is kind
    assert ({name: getattr(loss, name) for name in settings}, objective.group_size) == (settings, 5)
    if kind is SoftCCA:
        assert (loss.student_decorrelation.beta, loss.student_decorrelation.reduction) == (
            0.5,
            "mean",
        )


def test_the_objective_has_the_decorrelation_and_the_weighting_of_the_settings():
    weighting = {"lam": 0.2, "max_structural_len": 64, "lam_by_length": "linear:9:100"}
    objective = make(
        training={"sdl": Decorrelation(form="covariance", reduction="sum")}, **weighting
    )
    decorrelation = objective.teachings[1].loss.teacher_decorrelation
    assert (decorrelation.form, decorrelation.reduction) == ("covariance", "sum")
    assert objective.weighting == Weighting(**weighting)


@pytest.mark.parametrize(
    ("off", "left"), [("structural_loss", "contextual"), ("contextual_teacher", "structural")]
)
def test_a_teacher_that_is_switched_off_is_not_in_the_objective(off, left):
    assert [teaching.name for teaching in make(**{off: None}).teachings] == [left]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("simde")
    shutil.copytree(DATA, root / "params")
    return root


def small(root, **parameters):
    profile = Profile.load(root / "params" / "small.yaml")
    return Stages(Run.of("06_evaluation", profile, **parameters), Workspace(root))


@pytest.mark.slow
def test_a_student_learns_from_both_teachers(root, monkeypatch):
    options = {
        "structural_loss": "max-margin",
        "contextual_teacher": "LSA",
        "student_projection": "8",
        "contextual_projection": "-",
        "max_structural_len": None,
    }
    stages = small(root, **options)
    stages.check()
    student = run.students.trained
    assert list(run.teachers.of_student) == ["structural", "contextual"]
    for frame in run.students.history():
        parts = frame[["loss", "structural", "contextual", "l2", "sdl"]]
        assert np.isfinite(parts.to_numpy()).all()
        # lam is 0.5
        np.testing.assert_allclose(
            frame["loss"], 0.5 * frame["structural"] + 0.5 * frame["contextual"], rtol=1e-5
        )
    with safe_open(student.path / "projections.safetensors", "numpy") as saved:
        assert saved.get_tensor("contextual.student_projection.layers.0.weight").shape == (8, 384)
        assert saved.get_tensor("contextual.loss.student_decorrelation.normaliser") > 1
    objective = run.students.objective()
    rows = len(run.corpus.split("validation"))
    documents = run.students.training_documents(objective.student, "validation", rows)
    settings = {"batch_size": objective.group_size, "dtype": AUTOCAST[precision_of(None)]}
    validations = run.students.history()[1]
    last = validations.iloc[-1]  # all that was trained and accumulated is there again
    for name, value in validate(objective, documents, **settings).items():
        assert value == pytest.approx(last[name], rel=1e-3)
    first = validations.iloc[0]
    initial = run.students.initial_objective()
    assert not initial.training
    for name, value in validate(initial, documents, **settings).items():
        assert value == pytest.approx(first[name], rel=1e-3)
    card = (student.path / "README.md").read_text(encoding="utf-8")
    assert "| `contextual_teacher` | LSA |" in card
    again = small(root, **options).students.trained
    assert again.fingerprint == student.fingerprint  # found again
    monkeypatch.setattr(Students, "_train", lambda *_: None)
    other = small(root, **options, lam=0.2).students.trained
    assert other.fingerprint != student.fingerprint


QUICK = Training(batch_size=6, learning_rate=1e-4, log_every=1, save_every=3, precision="fp32")


def stages_of(root, settings=None, **parameters):
    simde = SimDE(training=QUICK, **(settings or {}))
    profile = Profile.load(root / "params" / "small.yaml").model_copy(update={"simde": simde})
    return Stages(Run.of("07_simde", profile, **parameters), Workspace(root))


def test_a_student_learns_from_halves_of_real_documents_and_is_found_again(root, monkeypatch):
    stages = stages_of(root).students
    artefact = stages.trained
    train, validation = stages.history()
    left = len(stages.paired_documents(Student.load(artefact.path), "train", 24))
    assert 12 <= left <= 24
    assert train["step"].tolist() == list(range(1, left // 6 + 1))
    assert {"loss", "contrast", "mlm", "norm", "spread"} <= set(validation.columns)
    untrained, student = Student.load(stages.untrained.path), Student.load(artefact.path)
    assert np.abs(student.embed(["A text."]) - untrained.embed(["A text."])).max() > 1e-4
    head = MaskedLanguageHead(student.dim, student.config.vocab_size)
    head.load_state_dict(load_file(artefact.path / "head.safetensors"))
    again = stages_of(root).students.trained
    assert again.path == artefact.path
    monkeypatch.setattr(Students, "_train", lambda *_: None)
    assert again.fingerprint != stages_of(root, {"language": "de"}).students.trained.fingerprint


def test_it_learns_from_dropout_without_a_head(root):
    settings = {"dropout": 0.1, "max_tokens": 16}
    twice = stages_of(root, settings, pairs="dropout", mlm_weight=0.0).students
    folder = twice.trained.path
    _, validation = twice.history()
    assert "contrast" in validation
    assert "mlm" not in validation
    assert not (folder / "head.safetensors").exists()
    assert json.loads((folder / "config.json").read_text())["hidden_dropout_prob"] == 0.1
    # what it is compared with
    assert twice.untrained.fingerprint == stages_of(root).students.untrained.fingerprint
    documents = twice.paired_documents(Student.load(folder), "train", 24)
    packed = documents.pack(range(len(documents)), epoch=0, budget=10_000)
    assert max(size for part in packed.parts for size in part.texts.sizes) == 16
    assert "| `pairs` | dropout |" in (folder / "README.md").read_text()


def with_lexical_half(stages, notebook="06_evaluation", dim=8):
    student = run.profile.student.model_copy(update={"lexical": dim})
    return Stages(
        Run(notebook, run.profile.model_copy(update={"student": student})),
        stages.workspace,
    )


def test_a_final_student_gets_its_lexical_half_after_training_and_others_none(root):
    plain = stages_of(root)
    final, chapter = with_lexical_half(plain), with_lexical_half(plain, "07_simde")
    assert (final.key.has_lexical_half, chapter.key.has_lexical_half) == (True, False)
    final.students.dense = plain.students.trained  # trained above
    texts = final.corpus.split("train")["text"][:]
    student = Student.load(plain.students.trained.path)
    student.adapt(texts, dim=8)
    folder = final.students.trained.path
    own, dense, adapted = lexical_models("s", final.students.trained.path, final.workspace)
    np.testing.assert_allclose(own.embed(texts[:9]), student.embed(texts[:9]), atol=1e-5)
    student.adapt(texts[:30], dim=8)
    np.testing.assert_allclose(adapted.fit(texts[:30]), student.embed(texts[:30]), atol=1e-4)
    without_words = ["alone", "single"]
    np.testing.assert_array_equal(
        adapted.fit(without_words), embed_once(final.workspace, dense, without_words)
    )
    assert (
        dense.fingerprint == student_model("s", final.students.dense.path).fingerprint
    )  # whose embeddings may be there
    forms = [one.fingerprint for one in forms_at(str(folder), final.workspace).models]
    on_texts = beside_lsa(final.workspace, dense, 8)
    assert forms == [own.fingerprint, dense.fingerprint, on_texts.fingerprint]
    assert [one.fitted_on for one in (own, dense, adapted)] == ["corpus", "corpus", "task"]
    elsewhere = root / "elsewhere"
    assert student.trained_on == "24 documents of installed-docs"
    for trained_on, seen in ((None, ""), (student.trained_on, "corpus")):  # None: converted
        student.trained_on = trained_on
        student.save(elsewhere)
        assert [one.fitted_on for one in forms_at(str(elsewhere), final.workspace).models] == [
            "corpus",
            seen,
            "task",
        ]
    student.adapt(
        texts[:30], weight=0.9
    )  # a weight that was chosen is kept where words are fitted anew
    student.save(elsewhere)
    chosen = forms_at(str(elsewhere), final.workspace).adapted
    np.testing.assert_allclose(chosen.fit(texts[:30]), student.embed(texts[:30]), atol=1e-4)
    assert (folder / "history.json").is_file()
    card = (folder / "README.md").read_text()
    assert "trust_remote_code=True" in card
    assert f"fitted on {len(texts)} documents of installed-docs" in card
