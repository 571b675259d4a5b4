"""Data that notebooks show of a run: losses, students, probes."""

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from docemb_lib import views
from docemb_lib.evaluation.probes import Versions
from docemb_lib.runs.embeddings import Embedder
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import Model, student_model
from docemb_lib.runs.run import Run
from docemb_lib.runs.store import cached, relative
from docemb_lib.settings.profile import Profile

TEXTS = ["one two", "one two three", "a", "b c"]


@pytest.fixture
def make_run(workspace_root):
    def make(notebook, changes=None, **parameters):
        profile = Profile.load("small").model_copy(update=changes)
        return Run.of(notebook, profile, **parameters)

    return make


def test_a_sentence_says_whether_training_lowered_the_validation_loss(make_run):
    run = make_run("05_weighting")
    run.history = lambda: (None, pd.DataFrame({"loss": [0.5, 0.45, 0.6]}))
    said = "by this loss training did not bring the student nearer to its teachers on"
    assert f"0.5000 before training and 0.6000 after it:\n{said}" in views.taught(run)


@pytest.fixture
def finished(make_run):
    """Record a run whose student lies in a folder."""

    def finish(notebook, folder, **parameters):
        run = make_run(notebook, **parameters)
        row = {"kind": Kind.STUDENT, "form": "saved", "name": run.label, "fingerprint": folder}
        table = pd.DataFrame([{"model": run.label, **row}])
        run.finish({}, student=folder, tables={"models": table})

    return finish


def test_students_are_that_of_the_run_and_recorded_ones_by_label_with_short_names(
    make_run, finished
):
    def student(name):
        return cached(
            "student", {"name": name}, lambda folder: (folder / "a.json").write_text(f'"{name}"')
        )

    run = make_run("03_structural", structural_loss="max-margin", gamma=1.0)
    run.model = student_model(run.label, student("own"))
    others = [
        {"structural_loss": "cosine"},
        {"structural_loss": "max-margin", "gamma": 0.7},
        {"structural_loss": "max-margin", "gamma": 1.5},
        {"structural_loss": "mse"},
        {"structural_loss": "mse", "documents": 30},
        {"structural_loss": "mse", "seed": 1},
    ]
    for number, parameters in enumerate(others):
        finished("03_structural", relative(student(str(number))), **parameters)
    deleted = "outputs/artefacts/student/deleted"
    finished("03_structural", deleted, structural_loss="contrastive")
    students = views.students_of_runs(run)
    assert {label: student.label for label, student in students.items()} == {
        "S (max-margin), mse, γ 1, 24 docs": "S (max-margin)",
        "S (mse), 24 docs": "S (mse)",
        "S (cosine), 24 docs": "S (cosine)",
        "S (max-margin), mse, γ .7, 24 docs": "S (max-margin), mse, γ .7, 24 docs",
        "S (max-margin), mse, γ 1.5, 24 docs": "S (max-margin), mse, γ 1.5, 24 docs",
    }
    assert [*students] == [run.label, *sorted({*students} - {run.label})]
    assert len({student.fingerprint for student in students.values()}) == len(students)


def give_documents(run, texts, tokens=None):
    """Validation documents for a run, and a structural teacher that reads 256 tokens."""
    documents = {"text": texts, "n_structural_tokens": tokens or [300] * len(texts)}
    teacher = SimpleNamespace(max_text_tokens=256)
    run.corpus = SimpleNamespace(split=lambda _: documents)
    run.teachers = SimpleNamespace(sbert=lambda _: teacher)


def nine_words(name):
    return " ".join(f"{name}{number}" for number in range(9))


@pytest.fixture
def of_beginnings():
    """A student that reads the first word."""
    words = [f"{name}0" for name in NAMES]
    return by_text("of beginnings", lambda text: [text.startswith(word) for word in words])


@pytest.fixture
def of_both():
    """A student that reads the first and the last word."""
    return by_text("of both", lambda text: [name in text[:5] + text[-6:] for name in NAMES])


def test_read_are_documents_of_about_twice_what_the_teacher_reads(make_run, monkeypatch):
    monkeypatch.setattr(views.students, "READ", 2)
    run = make_run("05_weighting")
    texts = list(map(nine_words, [*NAMES, "four"]))
    give_documents(run, texts, [100, 600, 3000, 500])
    assert {*views.documents_to_read(run).documents} == {texts[1], texts[3]}


def test_readings_have_the_distances_by_position(of_beginnings):
    versions = Versions.of(list(map(nine_words, NAMES)), 3)
    frame = views.readings([of_beginnings], versions)
    assert list(frame["position"]) == pytest.approx([1 / 6, 1 / 2, 5 / 6])
    assert list(frame["value"]) == pytest.approx([1, 0, 0])


def test_endings_are_measured_with_their_intervals(of_beginnings, of_both):
    versions = Versions.of(list(map(nine_words, NAMES)))
    endings = views.endings([of_beginnings, of_both], versions)
    assert endings.loc["of beginnings"].tolist() == pytest.approx([0, 0, 0])
    assert endings.loc["of both"].tolist() == pytest.approx([1, 1, 1])


def test_held_out_documents_are_embedded_by_recorded_students_that_are_still_there(
    make_run, finished, monkeypatch
):
    def student_at(name, folder):
        return by_text(name, lambda text: [len(folder.name), len(text)])

    there = cached("student", {}, lambda folder: (folder / "a.json").write_text("1"))
    finished("03_structural", relative(there))
    finished("03_structural", "outputs/artefacts/student/deleted", structural_loss="mse")
    finished("03_structural", relative(there), documents=30)
    monkeypatch.setattr(import_module("docemb_lib.views.compared"), "student_model", student_at)
    run = make_run("04_projections", contextual_teacher="DM")
    run.untrained = named("", lambda texts: np.zeros((len(texts), 2)), Kind.UNTRAINED)
    run.model = by_text(run.label, lambda text: [1, 1])
    run.scorer = SimpleNamespace(texts=lambda: ["a", "b b"])
    run.teachers = SimpleNamespace(
        contextual=lambda name: SimpleNamespace(
            fingerprint=name, embed=lambda texts: np.array([[len(name)]] * len(texts))
        )
    )
    students, teacher = views.held_out_embeddings(run)
    assert {name: X.tolist() for name, X in students.items()} == {
        "start": [[0, 0], [0, 0]],
        "S+DM": [[1, 1], [1, 1]],
        "S (cosine)": [[len(there.name), 1], [len(there.name), 3]],
    }
    assert teacher.tolist() == [[2], [2]]


NAMES = ("alpha", "beta", "gamma")


def named(name, embed, kind=Kind.STUDENT):
    """A model that embeds texts by a function."""
    return Model(Identity(kind, name=name), Embedder(name, name, embed))


def by_text(name, embed):
    """A student that embeds single texts by a function."""
    return named(name, lambda texts: np.array([embed(text) for text in texts], dtype=np.float32))
