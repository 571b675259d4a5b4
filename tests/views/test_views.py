"""Data that notebooks show of a run: corpus, tasks, losses, students, probes."""

import re
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from training import distil

from docemb_lib import views
from docemb_lib.evaluation import Classification, Labelled, benchmarks
from docemb_lib.evaluation.probes import Versions, probe
from docemb_lib.runs.embeddings import Embedder
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import Model, student_model
from docemb_lib.runs.run import Run
from docemb_lib.runs.store import cached, relative
from docemb_lib.runs.students import Students, make_objective
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import Decorrelation

TEXTS = ["one two", "one two three", "a", "b c"]


@pytest.fixture
def make_run(workspace_root):
    def make(notebook, changes=None, **parameters):
        profile = Profile.load("small").model_copy(update=changes)
        return Run.of(notebook, profile, **parameters)

    return make


@pytest.fixture
def described(make_run):
    """A run of 01_corpus with one task of invented documents.

    The structural teacher counts letters.
    """
    evaluation = Profile.load("small").evaluation.model_copy(
        update={"tasks": ["package"], "sweep_tasks": ["package"]}
    )
    run = make_run("01_corpus", changes={"evaluation": evaluation})
    counter = SimpleNamespace(
        count_tokens=lambda texts: [200 * len(text) for text in texts], max_text_tokens=256
    )
    task = Classification(
        "package", {"train": Labelled(TEXTS, list("aabb")), "test": Labelled(TEXTS[:2], ["a", "b"])}
    )
    run.corpus = SimpleNamespace(fingerprint="corpus")
    run.teachers = SimpleNamespace(sbert=lambda long: counter)
    run.scorer = SimpleNamespace(task={"package": task}.get)
    return run


def test_each_task_is_described_once(described, monkeypatch):
    monkeypatch.setattr(
        "docemb_lib.student.count_tokens",
        lambda model, texts: [len(text.split()) for text in texts],
    )
    statistics, lengths = views.described_tasks(described)
    assert lengths.query("split == 'train'")["n_student_tokens"].tolist() == [2, 3, 1, 2]
    assert set(lengths["task"]) == {"package"}
    value = statistics.set_index(["split", "statistic"])["value"]
    assert value["train", "examples"] == 4
    assert value["train", "over_384"] == 75  # 200 tokens a letter: all but "a"
    described.scorer.task = None  # a second count would fail
    monkeypatch.setattr(benchmarks, "task_lengths", None)
    pd.testing.assert_frame_equal(views.described_tasks(described)[0], statistics)


@pytest.mark.parametrize(
    ("notebook", "last", "said"),
    [("05_weighting", 0.6, "did not bring the student nearer to its teachers on")],
)
def test_a_sentence_says_whether_training_lowered_the_validation_loss(
    make_run, notebook, last, said
):
    run = make_run(notebook)
    run.history = lambda: (None, pd.DataFrame({"loss": [0.5, 0.45, last]}))
    assert (
        f"0.5000 before training and {last:.4f} after it:\nby this loss training {said}"
        in views.taught(run)
    )


@pytest.mark.parametrize(
    ("parameters", "structural", "contextual"),
    [  # of 9, 64, 65 and 99 tokens, mask 64
        ({"lam": 0.3}, [0.3, 0.3, 0, 0], [0.7, 0.7, 1, 1]),
        ({"lam": None}, [1, 1, 0, 0], [1, 1, 1, 1]),
        ({"structural_loss": None, "lam": 0.3}, [0] * 4, [1] * 4),
        ({"contextual_teacher": None, "lam": 0.3}, [1, 1, 0, 0], [0] * 4),
    ],
)
def test_weights_by_length_are_those_of_lambda_and_mask(
    make_run, parameters, structural, contextual
):
    run = make_run("05_weighting", documents=4, **parameters)
    # Four of five are trained on.
    run.teachers.structural_lengths = lambda split, rows: np.array([64, 99, 9, 65, 7])[:rows]
    expected = np.transpose([[9, 64, 65, 99], structural, contextual])
    np.testing.assert_allclose(views.weights_by_length(run).to_numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({}, ["cosine, untrained", "max-margin;MSE;γ=1.0, untrained", "cosine, trained"]),
        (
            {"structural_loss": "mse"},
            [
                "MSE, untrained",
                "cosine, untrained",
                "max-margin;MSE;γ=1.0, untrained",
                "MSE, trained",
            ],
        ),
        (
            {"structural_loss": None},
            ["only-contextual, untrained", "only-contextual, trained"],
        ),
    ],
)
def test_the_objectives_of_a_run_have_each_compared_loss(make_run, monkeypatch, parameters, names):
    def objective(stage, *, trained=True):
        parameters = stage.run.parameters
        return trained or (parameters["structural_loss"], parameters["lam"])

    monkeypatch.setattr(Students, "objective", objective)
    objectives = views.objectives_of(make_run("05_weighting", lam=0.3, **parameters))
    assert [*objectives] == names
    first, *_, last = objectives.values()
    assert first == (parameters.get("structural_loss", "cosine"), 0.3)
    assert last is True


OBJECTIVES: list[dict[str, object]] = [
    {},
    {"lam": 0.2, "max_structural_len": None},
    {"lam": None},
    {"lam_by_length": "linear:5:30"},
    {"structural_loss": None},
    {"contextual_teacher": None},
    {"structural_loss": "mse", "lam": 0.8},
    {"structural_loss": "max-margin"},
    {"structural_loss": "contrastive"},
    {"contextual_loss": "mse"},
    {"contextual_loss": "cca"},
    {"contextual_loss": "infonce"},
    {"contextual_loss": "soft-cca:covariance"},
    {"delta": "balance"},
    {"delta": "balance", "sdl": "sum"},
    {"delta": 0.9, "beta": 0.2},
    {"sdl": "sum"},
    {"student_projection": "1", "contextual_projection": "1"},
]
OF_05 = {"student_projection": "8(ReLU)x4", "contextual_projection": "4", "max_structural_len": 20}


@pytest.mark.parametrize("parameters", OBJECTIVES, ids=str)
def test_the_loss_by_hand_of_05_is_that_of_the_library(make_run, request, capsys, parameters):
    training = Profile.load("small").training.model_copy(
        update={"sdl": Decorrelation(reduction=parameters.get("sdl", "mean"))}
    )
    given = {**OF_05, **{name: value for name, value in parameters.items() if name != "sdl"}}
    run = make_run("05_weighting", {"training": training}, **given)
    torch.manual_seed(0)
    teacher = SimpleNamespace(dim=distil.WIDTHS["contextual"])
    teachers = SimpleNamespace(of_student={"contextual": teacher})
    objective = make_objective(distil.make_student(0.0), run, teachers).train()
    train = distil.make_documents(30, 1)
    validation = distil.make_documents(9, 2)
    documents = {"train": train, "validation": validation}
    batch, targets = train.pack([range(12)])
    objective(batch, **targets._asdict())  # statistics of a training
    run.students = SimpleNamespace(
        objective=objective.eval,
        training_documents=lambda student, split, rows: documents[split],
    )
    run.corpus = SimpleNamespace(split={"validation": range(9)}.__getitem__)
    notebook = request.config.rootpath / "notebooks" / "05_weighting.py"
    script = notebook.read_text(encoding="utf-8")
    names = {"run": run, "views": views, "p": run.profile.parameters, "torch": torch, "pd": pd}
    cells = script.split("# %%")
    (cell,) = (cell for cell in cells if "views.three_documents(run)" in cell)
    for definition in ("def document_weights(", "def decorrelation("):
        for defining in cells:
            if definition in defining:
                exec(defining, names)
    exec(cell, names)
    printed = re.search("by hand (\\S+), by the library (\\S+)", capsys.readouterr().out)
    by_hand, by_library = map(float, printed.groups())
    assert by_hand == pytest.approx(by_library, rel=1e-4)
    three = views.three_documents(run)
    lengths = np.sort(validation.n_structural_tokens)
    assert three.lengths.tolist() == [lengths[0], lengths[4], lengths[8]]
    assert three.y.shape == three.t.shape == (3, 16)


def test_students_are_that_of_the_run_and_recorded_ones_by_label_with_short_names(make_run):
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
        folder = relative(student(str(number)))
        make_run("03_structural", **parameters).finish({}, student=folder)
    make_run("03_structural", structural_loss="contrastive").finish(
        {}, student="outputs/artefacts/student/deleted"
    )
    students = views.students_of_runs(run)
    assert {label: student.label for label, student in students.items()} == {
        "max-margin;MSE;γ=1.0": "S (max-margin)",
        "MSE": "S (mse)",
        "cosine": "S (cosine)",
        "max-margin;MSE;γ=0.7": "max-margin, MSE, γ .7",
        "max-margin;MSE;γ=1.5": "max-margin, MSE, γ 1.5",
    }
    assert [*students] == [run.label, *sorted({*students} - {run.label})]
    assert len({student.fingerprint for student in students.values()}) == len(students)


def test_a_probe_is_fitted_on_few_documents_of_tasks_and_measured_by_length(make_run, monkeypatch):
    """Texts are numbers: every model and teacher is a table of embeddings."""
    rng = np.random.default_rng(0)
    tables = {
        name: rng.standard_normal((100, 6))
        for name in ("before", "after", "structural", "contextual")
    }
    tokens = [9, 10, 11, 500] * 10
    splits = {
        "validation": Dataset.from_dict(
            {"text": [str(i) for i in range(60, 100)], "n_structural_tokens": tokens}
        ),
    }
    embedded = []

    def rows(name, texts):
        return tables[name][[int(text) for text in texts]]

    def model(name, kind):
        def embed(texts):
            embedded.extend((name, int(text)) for text in texts)
            return rows(name, texts)

        return named(name, embed, kind)

    def teacher(name):
        return SimpleNamespace(fingerprint=name, label=name, embed=partial(rows, name))

    run = make_run("04_projections", documents=50)
    run.model = model("after", Kind.STUDENT)
    run.untrained = model("before", Kind.UNTRAINED)
    run.corpus = SimpleNamespace(split=splits.__getitem__)
    run.teachers = SimpleNamespace(
        structural=SimpleNamespace(max_text_tokens=10),
        of_student={name: teacher(name) for name in ("structural", "contextual")},
        embeddings=lambda teacher, _, n: tables[teacher.fingerprint][60 : 60 + n],
    )
    run.scorer = SimpleNamespace(texts=lambda: [str(i) for i in range(60)])
    monkeypatch.setattr(views.students, "PROBED", 30)
    frame = views.probes_of_teachers(run)
    assert list(frame.columns) == ["model", "kind", "teacher", "bucket", "documents", "r2"]
    pairs = [
        (model, f"{role} teacher")
        for model in ("before", "after")
        for role in ("structural", "contextual")
    ]
    assert list(frame.groupby(["model", "teacher"], sort=False).groups) == pairs
    short = np.array(tokens) <= 10
    for (name, teacher), rows in frame.groupby(["model", "teacher"]):
        x = tables[name]
        t = tables[teacher.split()[0]]
        expected = probe(
            (x[:30], t[:30]), (x[60:], t[60:]), {"up to 10 tokens": short, "longer": ~short}
        )
        pd.testing.assert_frame_equal(rows[list(expected.columns)].reset_index(drop=True), expected)
    r2 = frame[frame["bucket"] == "all"].set_index(["teacher", "model"])["r2"]
    text = " ".join(views.kept_of_teachers(frame).split())
    for teacher in ("structural teacher", "contextual teacher"):
        values = f"{r2[teacher]['before']:.2f} (before) and {r2[teacher]['after']:.2f} (after)"
        assert f"predicts the {teacher} on held-out documents with R² {values}." in text
    assert sorted(embedded) == sorted(
        (m, i) for m in ("before", "after") for i in [*range(30), *range(60, 100)]
    )
    pd.testing.assert_frame_equal(views.probes_of_teachers(run), frame)
    assert len(embedded) == 2 * 70  # each embedded once


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


def test_the_hypotheses_of_drafts_are_measured_on_each_student(
    make_run, monkeypatch, of_beginnings, of_both
):
    run = make_run("05_weighting")
    give_documents(run, list(map(nine_words, NAMES)))
    monkeypatch.setattr(run, "models", lambda: [of_beginnings, of_both])
    means = {"of beginnings": 0.3, "of both": 0.4}
    scores = pd.DataFrame({"model": [*means], "value": [*means.values()]})
    scores = scores.assign(task="package", metric="accuracy", seed=0)
    measured = views.hypotheses_of_students(run, scores)[["ending", "spread", "mean"]]
    expected = [[0, 1, 0.3], [1, 1, 0.4]]
    np.testing.assert_allclose(measured.loc[[*means]].to_numpy(), expected, atol=1e-6)


def test_readings_have_the_distances_by_position(of_beginnings):
    versions = Versions.of(list(map(nine_words, NAMES)), 3)
    frame = views.readings([of_beginnings], versions)
    assert list(frame["position"]) == pytest.approx([1 / 6, 1 / 2, 5 / 6])
    assert list(frame["value"]) == pytest.approx([1, 0, 0])


def test_the_sentence_on_endings_has_their_intervals(of_beginnings, of_both):
    versions = Versions.of(list(map(nine_words, NAMES)))
    said = views.counted_endings(views.endings([of_beginnings, of_both], versions), versions)
    of_both = "of beginnings .000 [.00, .00], of both 1.000 [1.00, 1.00]."
    assert " ".join(said.split()).endswith(f"exchanging the first (mean of 3): {of_both}")


def test_the_hypotheses_of_drafts_are_measured_on_students_of_the_contextual_loss_alone(
    make_run, monkeypatch
):
    run = make_run("05_weighting", contextual_teacher="PV", documents=40)
    give_documents(run, list(NAMES))
    student = by_text("a model card", lambda text: [name in text for name in NAMES])
    runs = {
        "with DM": make_run("04_projections", structural_loss=None, contextual_teacher="DM"),
        "with both": make_run("04_projections", contextual_teacher="PV"),
        "alone": make_run(
            "04_projections", structural_loss=None, contextual_teacher="PV", documents=30
        ),
    }
    records = [
        SimpleNamespace(label=label, student_folder="folder", metrics={"mean": 0.5})
        for label in runs
    ]
    monkeypatch.setattr(run, "comparable", lambda notebook=None: records if notebook else [])
    monkeypatch.setattr(run, "of_record", lambda record: runs[record.label])
    monkeypatch.setattr(run, "models", list)
    monkeypatch.setattr(views.students, "structural_only", lambda run, keys: [])
    monkeypatch.setattr(views.students, "student_model", lambda label, _: student.called(label))
    scores = pd.DataFrame(columns=["model", "task", "metric", "seed", "value"])
    measured = views.hypotheses_of_students(run, scores)
    assert measured["mean"].to_dict() == {"alone;30 docs": 0.5}


NAMES = ("alpha", "beta", "gamma")


def named(name, embed, kind=Kind.STUDENT):
    """A model that embeds texts by a function."""
    return Model(Identity(kind, name=name), Embedder(name, name, embed))


def by_text(name, embed):
    """A student that embeds single texts by a function."""
    return named(name, lambda texts: np.array([embed(text) for text in texts], dtype=np.float32))


def test_contextual_losses_stand_in_groups_of_what_else_their_students_share(make_run):
    def finished(**parameters):
        run = make_run("04_projections", **parameters)
        scores = pd.DataFrame(
            {"model": [run.label], "task": "package", "metric": "accuracy", "value": 0.5}
        )
        run.metrics = lambda _: {"spread": 0.3, "spread_before": 0.2, "collapsed": 0}
        run.finish(run.metrics(scores), scores=scores)
        return run, scores

    for loss in ("mse", "cosine"):
        finished(structural_loss=None, contextual_loss=loss, documents=6)
    finished(structural_loss=None, contextual_loss="infonce", documents=7)
    finished(contextual_loss="mse", seed=1)
    finished(contextual_loss="mse")
    losses = views.contextual_losses(*finished())
    groups = losses.groupby("group", sort=False)["loss"].agg(list).to_dict()
    projections = "S:16(ReLU)x16, C:16"
    assert groups == {
        f"PV beside cosine, 24 documents, {projections}": ["soft-cca;δ=0.03;β=0.95", "mse"],
        f"PV alone, 6 documents, {projections}": ["cosine", "mse"],
    }


@pytest.mark.parametrize(("given", "teacher"), [("LSA", "LSA"), (None, "PV")])
def test_embeddings_before_are_of_the_untrained_student_and_contextual_teacher(
    make_run, given, teacher
):
    run = make_run("04_projections", contextual_teacher=given, documents=3)
    texts = {"text": ["a", "b b", "c c c", "not read"]}
    run.corpus = SimpleNamespace(split=lambda _: Dataset.from_dict(texts))
    run.untrained = by_text("f1", lambda text: [len(text)])
    run.teachers = SimpleNamespace(
        contextual=lambda name: name,
        embeddings=lambda name, split, rows: np.full((rows, 2), len(name + split)),
    )
    y, c = views.embeddings_before(run)
    assert y.tolist() == [[1], [3], [5]]
    assert c.tolist() == [[len(teacher) + 5] * 2] * 3
    assert c.dtype == np.float32
