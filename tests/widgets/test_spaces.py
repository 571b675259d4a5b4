"""Distances of several students, spaces, projected views, and their explorers."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from docemb_lib import widgets
from docemb_lib.evaluation.probes import (
    measure_distances,
    principal_plane,
    separation,
    tidy_distances,
)
from docemb_lib.losses import Objective, Projection, Teaching
from docemb_lib.runs.embeddings import Embedder
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import Model
from docemb_lib.widgets import spaces
from docemb_lib.widgets.spaces import Spaces, StudentDistances, distances_to_teacher, project


def test_students_are_measured_on_the_same_documents_and_negatives(workspace_root, split_of):
    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((7, 4))
    tables = {name: rng.standard_normal((7, 4)).astype(np.float32) for name in "ab"}
    texts = [f"text {row}" for row in range(7)]
    run = SimpleNamespace(
        corpus=SimpleNamespace(split=lambda name: split_of(texts)),
        teachers=SimpleNamespace(
            structural=None, embeddings=lambda teacher_, split_, rows: teacher[:rows]
        ),
        label="b",
    )

    def model(name):
        def embed(asked):
            return tables[name][[texts.index(text) for text in asked]]

        return Model(Identity(Kind.STUDENT, name=name), Embedder(name, name, embed))

    distances = distances_to_teacher(run, [model("a"), model("b")], negatives=3)
    assert list(distances.measured["cosine"]) == ["a", "this student: b"]
    assert distances.lengths.tolist() == list(range(7))
    for distance in ("cosine", "mse"):
        expected = pd.concat(
            tidy_distances(
                measure_distances(tables[name], teacher, distance=distance, negatives=3)
            ).assign(model=label)
            for name, label in zip("ab", distances.measured["cosine"], strict=True)
        )
        actual = distances.tidy().query("distance == @distance").drop(columns="distance")
        pd.testing.assert_frame_equal(
            actual.reset_index(drop=True), expected.reset_index(drop=True)
        )


@pytest.fixture
def distances():
    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((9, 4))
    measured = {
        distance: {
            model: measure_distances(
                teacher + noise * rng.standard_normal((9, 4)),
                teacher,
                distance=distance,
                negatives=6,
            )
            for model, noise in (("before", 3.0), ("cosine", 1.0))
        }
        for distance in ("cosine", "mse")
    }
    return StudentDistances(np.arange(10, 19), measured)


def test_the_distance_explorer_shows_the_separation_of_what_is_chosen(
    distances, numbers, tables, moved
):
    explorer = widgets.distance_explorer(distances)
    text = moved(explorer)
    expected = [separation(of_model) for of_model in distances.measured["cosine"].values()]
    assert tables(text)["separation"]["AUC"].tolist() == [f"{auc:.3f}" for auc, _ in expected]
    text = moved(explorer, loss="before", distance="mse", γ=0.3, negatives=4, tokens=(12, 17))
    chosen = np.arange(10, 19) // 6 == 2  # 12 to 17 tokens
    expected = separation(distances.measured["mse"]["before"][chosen, :5], gamma=0.3)
    row = {"student": "before", "AUC": f"{expected[0]:.3f}"}
    row["max-margin MSE, γ = 0.3"] = f"{expected[1]:.4g}"
    assert tables(text)["separation"].to_dict("records") == [row]
    assert numbers(text, "documents") == ["6"]


def test_a_range_of_few_documents_gives_a_line_and_can_be_left_again(distances, numbers, moved):
    explorer = widgets.distance_explorer(distances)
    assert "only 4 of 9 documents have 10 to 13 tokens" in moved(explorer, tokens=(10, 13))
    assert explorer._picture.value == ""
    assert numbers(moved(explorer, tokens=(14, 18)), "documents") == ["5"]


def test_documents_of_both_splits_are_seen_in_the_spaces_of_student_and_teachers(
    workspace_root, monkeypatch, split_of
):
    rng = np.random.default_rng(0)
    vectors = defaultdict(lambda: rng.standard_normal(4).astype(np.float32))  # by model and text

    def model(label, kind=Kind.STUDENT):
        def embed(texts):
            return np.stack([vectors[label, text] for text in texts])

        name = "" if kind == Kind.UNTRAINED else label
        return Model(Identity(kind, name=name), Embedder(label, label, embed))

    monkeypatch.setattr(spaces, "SHOWN", 6)
    monkeypatch.setattr(spaces, "TRAINING", 3)
    texts_of = {name: [f"{name} {row}" for row in range(8)] for name in ("train", "validation")}

    def of_documents(split, rows):
        return {"structural": model("structural").embed(texts_of[split][:rows])}

    profile = SimpleNamespace(parameters=SimpleNamespace(contextual_teacher=None, documents=5))
    of_run = spaces.spaces_of_run(
        SimpleNamespace(
            corpus=SimpleNamespace(split=lambda name: split_of(texts_of[name])),
            teachers=SimpleNamespace(of_documents=of_documents),
            profile=profile,
            model=model("run"),
            untrained=model("before", Kind.UNTRAINED),
        )
    )
    assert of_run.documents["length"].tolist() == [*range(3), *range(6)]
    assert of_run.documents["split"].tolist() == ["train"] * 3 + ["validation"] * 6
    texts = texts_of["train"][:3] + texts_of["validation"][:6]
    assert of_run.documents["text"].tolist() == texts
    labels = {
        "student": "run",
        "student before distillation": "before",
        "structural teacher": "structural",
    }
    assert list(of_run.planes) == list(labels)
    for space, label in labels.items():
        expected = principal_plane(np.stack([vectors[label, text] for text in texts]))
        np.testing.assert_allclose(of_run.planes[space].points, expected.points, atol=1e-6)


@pytest.mark.parametrize("specs", [("5(ReLU)x4", "4"), ("5x4", "7(ReLU)x4"), ("3", "-")])
def test_views_are_those_of_the_projections_of_the_contextual_loss(specs):
    torch.manual_seed(0)
    of_student, of_teacher = map(Projection, specs, (6, 3))
    projections = {"student_projection": of_student, "teacher_projection": of_teacher}
    contextual = Teaching("contextual", "contextual", nn.Identity(), **projections)
    further = Teaching("topics", "contextual", nn.Identity())
    y = torch.randn(8, 6)
    c = torch.randn(8, 3)
    embeddings = {"student": y.numpy(), "contextual teacher": c.numpy()}
    views = project(Objective(nn.Identity(), [contextual, further]), embeddings)
    np.testing.assert_allclose(views["student view"], of_student(y).detach(), atol=1e-6)
    np.testing.assert_allclose(views["contextual view"], of_teacher(c).detach(), atol=1e-6)


@pytest.fixture
def planes():
    rng = np.random.default_rng(0)
    return {
        space: principal_plane(rng.standard_normal((5, 5)))
        for space in ("student", "contextual teacher")
    }


DOCUMENTS = pd.DataFrame(
    {"id": list("abcde"), "text": list("vwxyz"), "source": list("xyxyx"), "length": range(1, 6)}
)


@pytest.mark.parametrize("views", [(), ("student view", "contextual view")])
def test_the_first_spaces_are_the_views_or_the_student_and_its_teacher(planes, views):
    planes |= dict.fromkeys(views, planes["student"])
    settings = widgets.projection_explorer(Spaces(DOCUMENTS, planes)).settings
    first = views or ("student", "contextual teacher")
    assert (settings["space"], settings["beside"]) == first


@pytest.mark.parametrize("spaces", [["contextual teacher", "student"], ["student"]])
def test_the_projection_explorer_draws_the_chosen_spaces_with_their_variance(planes, spaces):
    explorer = widgets.projection_explorer(Spaces(DOCUMENTS, planes))
    figure = explorer.answer(space=spaces[0], beside=spaces[-1], colour="source").figure
    assert [ax.get_title() for ax in figure.axes] == spaces
    for space, ax in zip(spaces, figure.axes, strict=True):
        assert ax.get_xlabel() == f"{planes[space].explained:.0%} of the variance"
        np.testing.assert_allclose(ax.collections[0].get_offsets(), planes[space].points)
