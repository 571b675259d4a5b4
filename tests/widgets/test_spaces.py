"""Distances of several students, spaces, projected views, and their explorers."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from torch import nn

from docemb_lib import widgets
from docemb_lib.evaluation.probes import measure_distances, principal_plane, tidy_distances
from docemb_lib.losses import Objective, Projection, Teaching
from docemb_lib.runs.embeddings import Embedder
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import Model
from docemb_lib.widgets import spaces
from docemb_lib.widgets.spaces import Spaces


def split_of(texts):
    columns = {"source": ["s"] * len(texts), "n_structural_tokens": range(len(texts))}
    return Dataset.from_dict({"text": texts, **columns})


@pytest.fixture
def model():
    """A model of random embeddings, equal ones for equal texts."""
    vectors = defaultdict(lambda: np.random.default_rng(len(vectors)).standard_normal(4))

    def make(name, kind=Kind.STUDENT):
        def embed(texts):
            return np.stack([vectors[name, text] for text in texts]).astype(np.float32)

        name_of = "" if kind == Kind.UNTRAINED else name
        return Model(Identity(kind, name=name_of), Embedder(name, name, embed))

    return make


def test_students_are_measured_on_the_same_documents_and_negatives(workspace_root, model):
    teacher = np.random.default_rng(0).standard_normal((7, 4))
    texts = [f"text {row}" for row in range(7)]
    teachers = SimpleNamespace(structural=None, embeddings=lambda *asked: teacher)
    corpus = SimpleNamespace(split=lambda name: split_of(texts))
    run = SimpleNamespace(corpus=corpus, teachers=teachers)
    distances = widgets.distances_to_teacher(run, [model("a"), model("b;c")], negatives=3)
    for name in ("a", "b;c"):
        student = model(name).embed(texts)
        for distance, rows in distances[distances["model"] == name].groupby("distance"):
            measured = measure_distances(student, teacher, distance=distance, negatives=3)
            expected = tidy_distances(measured)
            np.testing.assert_allclose(rows["value"], expected["value"])
            assert rows["kind"].tolist() == expected["kind"].tolist()


def test_the_distance_explorer_shows_the_means_and_the_loss_of_what_is_chosen(opened):
    rows = []
    for distance, factor in (("cosine", 1.0), ("mse", 10.0)):
        for model, value in (("start", 3.0), ("S (cosine)", 1.0)):
            rows += [(distance, model, "positive", factor * value)] * 4
            rows += [(distance, model, "negative", factor * n) for n in (2, 6)]
    distances = pd.DataFrame(rows, columns=["distance", "model", "kind", "value"])
    move = opened(widgets.distance_explorer, distances)
    assert move().pictures == 1
    assert "S (cosine)" in move().html
    answer = move(loss="start", distance="mse", γ=0.5)
    row = [cell.get_text() for cell in answer.page.find("tbody").find_all("td")]
    assert row == ["30.0", "40.0", "10.0"]
    assert "S (cosine)" not in answer.html


@pytest.mark.parametrize("specs", [None, ("4(ReLU)x3", "3"), ("3", "-")])
def test_documents_of_both_splits_are_seen_in_the_spaces_of_student_and_teachers(
    workspace_root, monkeypatch, model, specs
):
    monkeypatch.setattr(spaces, "SHOWN", 6)
    monkeypatch.setattr(spaces, "TRAINING", 3)
    texts_of = {name: [f"{name} {row}" for row in range(8)] for name in ("train", "validation")}
    texts = texts_of["train"][:3] + texts_of["validation"][:6]

    def of_documents(split, rows):
        embeddings = model("teacher").embed(texts_of[split][:rows])
        return {"structural": embeddings, "contextual": embeddings[:, :3]}

    contextual = Teaching("contextual", "contextual", nn.Identity())
    if specs is not None:
        sides = [Projection(spec, width) for spec, width in zip(specs, (4, 3), strict=True)]
        options = {"student_projection": sides[0], "teacher_projection": sides[1]}
        contextual = Teaching("contextual", "contextual", nn.Identity(), **options)
    further = Teaching("topics", "contextual", nn.Identity())
    objective = Objective(nn.Identity(), [contextual, further])
    teacher = None if specs is None else "PV"
    of_run = widgets.spaces_of_run(
        SimpleNamespace(
            corpus=SimpleNamespace(split=lambda name: split_of(texts_of[name])),
            teachers=SimpleNamespace(of_documents=of_documents),
            profile=SimpleNamespace(
                parameters=SimpleNamespace(contextual_teacher=teacher, documents=5)
            ),
            students=SimpleNamespace(objective=lambda: objective),
            model=model("run"),
            untrained=model("before", Kind.UNTRAINED),
        )
    )
    documents = of_run.documents
    assert documents["text"].tolist() == texts
    assert documents["length"].tolist() == [*range(3), *range(6)]
    assert documents["split"].tolist() == ["train"] * 3 + ["validation"] * 6
    y = model("run").embed(texts)
    t = model("teacher").embed(texts)
    expected = {"student": y, "start": model("before").embed(texts)}
    expected |= {"structural teacher": t, "contextual teacher": t[:, :3]}
    if specs is not None:
        with torch.no_grad():
            expected["student view"] = sides[0](torch.tensor(y)).numpy()
            expected["contextual view"] = sides[1](torch.tensor(t[:, :3])).numpy()
    assert list(of_run.planes) == list(expected)
    for space, X in expected.items():
        np.testing.assert_allclose(
            of_run.planes[space].points, principal_plane(X).points, atol=1e-6
        )


def test_the_projection_explorer_draws_two_spaces_coloured_by_a_column(opened, monkeypatch):
    rng = np.random.default_rng(0)
    names = ["student", "student view", "contextual view"]
    planes = {name: principal_plane(rng.standard_normal((5, 5))) for name in names}
    columns = {"source": list("xyxyx"), "length": range(1, 6), "split": "train"}
    drawn = []
    monkeypatch.setattr(
        spaces,
        "plot_plane",
        lambda points, *, colour, legend, ax: drawn.append((points["first"].tolist(), colour)),
    )
    move = opened(widgets.projection_explorer, Spaces(pd.DataFrame(columns), planes))
    first = [planes[name].points[:, 0].tolist() for name in names]
    assert drawn == [(first[1], "source"), (first[2], "source")]
    drawn.clear()
    assert move(beside="student", colour="length").pictures == 1
    assert drawn[-2:] == [(first[1], "length"), (first[0], "length")]
