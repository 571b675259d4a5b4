"""The student that learns from pairs, from a profile: small, on real text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from docemb_lib import Profile, Workspace
from docemb_lib.errors import InputError
from docemb_lib.experiments.check import check
from docemb_lib.experiments.run import fingerprint_of_run
from docemb_lib.experiments.students import SIMDE, SimDEStages
from docemb_lib.losses import MaskedLanguageHead
from docemb_lib.settings import SimDE, Training
from docemb_lib.student import Student

DATA = Path(__file__).resolve().parent.parent / "data"
QUICK = Training(batch_size=6, learning_rate=1e-4, log_every=1, save_every=2, precision="fp32")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A workspace whose corpus all tests share."""
    root = tmp_path_factory.mktemp("simde")
    shutil.copytree(DATA, root / "params")
    return root


def stages_of(root, settings=None, **parameters):
    profile = Profile.load(root / "params" / "small.yaml").for_notebook("07_simde", **parameters)
    simde = SimDE(training=QUICK, **(settings or {}))
    return SimDEStages(profile.model_copy(update={"simde": simde}), Workspace(root))


def test_a_student_learns_from_halves_of_real_documents_and_is_found_again(root):
    stages = stages_of(root)
    artefact = stages.trained_student()
    train, validation = stages.history(artefact)
    left = len(stages.paired_documents(Student.load(artefact.path), "train", 24))
    assert 12 <= left <= 24
    assert train["step"].tolist() == list(range(1, left // 6 + 1))
    assert {"loss", "contrast", "mlm", "norm", "spread"} <= set(validation.columns)
    untrained = Student.load(stages.untrained_student.path)
    student = Student.load(artefact.path)
    assert np.abs(student.embed(["A text."]) - untrained.embed(["A text."])).max() > 1e-4
    head = MaskedLanguageHead(student.dim, student.config.vocab_size)
    head.load_state_dict(load_file(artefact.path / "head.safetensors"))
    again = stages_of(root).trained_student()
    assert again.path == artefact.path
    assert again.fingerprint != stages_of(root, {"symmetric": True}).trained_student().fingerprint


def test_it_learns_beside_its_teachers_and_from_dropout(root):
    both = stages_of(root, beside_teachers=0.5, mlm_weight=0.0)
    artefact = both.trained_student()
    _, validation = both.history(artefact)
    assert {"contrast", "structural", "contextual"} <= set(validation.columns)
    assert "mlm" not in validation
    assert not (artefact.path / "head.safetensors").exists()
    assert "distilled with structure from" in (artefact.path / "README.md").read_text()
    twice = stages_of(root, {"dropout": 0.1, "max_tokens": 16}, pairs="dropout")
    folder = twice.trained_student().path
    assert json.loads((folder / "config.json").read_text())["hidden_dropout_prob"] == 0.1
    assert twice.untrained_student.fingerprint == both.untrained_student.fingerprint  # what it is compared with
    documents = twice.paired_documents(Student.load(folder), "train", 24)
    assert max(documents.pack(range(len(documents)), epoch=0, budget=10_000).sizes) == 16
    assert "under another dropout (SimCSE)" in (folder / "README.md").read_text()


def test_a_centred_student_lacks_the_mean_of_its_training_documents_and_nothing_else(root):
    plain = stages_of(root, mlm_weight=0.0)
    profile = plain.profile
    student = profile.student.model_copy(update={"centre": True})
    centred = SimDEStages(profile.model_copy(update={"student": student}), Workspace(root))
    texts = plain.split("train")["text"][: profile.parameters.documents]
    before = Student.load(plain.trained_student().path).embed(texts)
    after = Student.load(centred.trained_student().path).embed(texts)
    np.testing.assert_allclose(after, before - before.mean(axis=0), atol=1e-5)


def test_pairs_by_dropout_of_a_student_without_any_are_refused_before_anything_is_built(root):
    stages = stages_of(root, pairs="dropout")  # the small profile's student has none
    with pytest.raises(InputError, match=r"set simde\.dropout to 0\.1"):
        check(stages, SIMDE)
    check(stages_of(root, {"dropout": 0.1}, pairs="dropout"), SIMDE)


def test_documents_that_fill_no_batch_are_refused_by_the_settings_that_count(root):
    stages = stages_of(root, documents=5)
    with pytest.raises(InputError, match=r"5 do not fill one batch; ask for simde\.training\.batch_size 6"):
        check(stages, SIMDE)


def test_a_run_is_another_where_its_pairs_are_and_teachers_count_only_beside_them(root):
    profile = Profile.load(root / "params" / "small.yaml")

    def fingerprint(lam=0.5, **parameters):
        return fingerprint_of_run(SIMDE, profile.with_parameters(lam=lam, **parameters))

    base = fingerprint()
    others = ({"pairs": "dropout"}, {"pair_temperature": 0.1}, {"mlm_weight": 0}, {"beside_teachers": 1}, {"seed": 1})
    assert len({base, *(fingerprint(**one) for one in others)}) == 1 + len(others)
    assert fingerprint(lam=0.9) == base
    assert fingerprint(lam=0.9, beside_teachers=1) != fingerprint(beside_teachers=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pair_temperature": 0}, "pair_temperature: input should be greater than 0"),
        ({"pairs": "thirds"}, "pairs: .*'halves' or 'dropout', got 'thirds'"),
        ({"mlm_weight": -1}, "mlm_weight: .*got -1"),
        ({"beside_teachers": "null"}, "beside_teachers: .*write None"),
        ({"temperature": 0.05}, "unknown parameter 'temperature'; did you mean pair_temperature"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(root, changes, message):
    with pytest.raises(InputError, match=message):
        stages_of(root, **changes)
