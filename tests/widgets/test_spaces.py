"""Distances of several students, the spaces of a training, views of a saved student, and the explorers of them."""

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from docemb_lib import widgets
from docemb_lib.evaluation.probes import measure_distances, mistaken, principal_plane, separation, tidy_distances
from docemb_lib.evaluation.tasks import Classification, Labelled
from docemb_lib.experiments.models import Model
from docemb_lib.losses import Objective, Projection, Teaching
from docemb_lib.widgets import spaces
from docemb_lib.widgets.spaces import Spaces, StudentDistances, distances_to_teacher, project
from docemb_lib.workspace import Workspace


def test_students_are_measured_on_the_same_documents_and_negatives(workspace_root, split_of):
    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((7, 4))
    tables = {name: rng.standard_normal((7, 4)).astype(np.float32) for name in "ab"}
    texts = [f"text {row}" for row in range(7)]
    stages = SimpleNamespace(corpus=SimpleNamespace(workspace=Workspace(workspace_root), split=lambda name: split_of(texts)),
        teachers=SimpleNamespace(structural=None, embeddings=lambda teacher_, split_, rows: teacher[:rows]))  # fmt: skip
    run = SimpleNamespace(stages=stages, label="b")

    def model(name):
        embed = SimpleNamespace(embed=lambda asked: tables[name][[texts.index(text) for text in asked]])
        return Model(name, name, embed.embed)

    found = distances_to_teacher(run, [model("a"), model("b")], negatives=3)
    assert (found.own, list(found.measured["cosine"])) == ("this student: b", ["a", "this student: b"])
    assert found.documents["length"].tolist() == list(range(7))
    for distance in ("cosine", "mse"):
        expected = pd.concat(
            tidy_distances(measure_distances(tables[name], teacher, distance=distance, negatives=3)).assign(model=shown)
            for name, shown in zip("ab", found.measured["cosine"], strict=True))  # fmt: skip
        actual = found.tidy().query("distance == @distance").drop(columns="distance")
        pd.testing.assert_frame_equal(actual.reset_index(drop=True), expected.reset_index(drop=True))


@pytest.fixture
def distances(hostile):
    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((9, 4))
    measured = {distance: {model: measure_distances(
        teacher + noise * rng.standard_normal((9, 4)), teacher, distance=distance, negatives=6)
        for model, noise in (("before", 3.0), ("cosine", 1.0))} for distance in ("cosine", "mse")}  # fmt: skip
    documents = pd.DataFrame({"id": [f"d{n}" for n in range(9)], "text": [hostile] * 9, "source": "s", "length": range(10, 19)})  # fmt: skip
    return StudentDistances(documents, measured, "cosine")


def test_the_distance_explorer_shows_separation_and_the_most_mistaken_pair(distances, numbers, tables, moved):
    explorer = widgets.distance_explorer(distances)
    text = moved(explorer)
    expected = [separation(found) for found in distances.measured["cosine"].values()]
    assert tables(text)["separation"]["AUC"].tolist() == [f"{auc:.3f}" for auc, _ in expected]
    text = moved(explorer, loss="before", distance="mse", γ=0.3, negatives=4, tokens=(12, 17))
    part = distances.measured["mse"]["before"].part(np.arange(10, 19) // 6 == 2, 4)  # 12 to 17 tokens
    expected = separation(part, gamma=0.3)
    shown = {"student": "before", "AUC": f"{expected[0]:.3f}"}
    shown["max-margin loss, γ = 0.3"] = f"{expected[1]:.4g}"
    assert (tables(text)["separation"].to_dict("records"), numbers(text, "documents")) == ([shown], ["6"])
    pairs = mistaken(part, k=10)
    assert [pair for _, pair in explorer.widgets["pair"].options] == list(zip(pairs["document"], pairs["other"], strict=True))  # fmt: skip
    picked = explorer.widgets["pair"].options[2][1]
    text = moved(explorer, pair=picked)
    assert [f"d{row}, {10 + row} tokens" in text for row in picked] == [True, True]
    assert "<script" not in text
    assert "<img" not in text
    assert text.count("&lt;script&gt;") == 2


def test_the_figure_is_drawn_again_for_other_distances_only(distances):
    explorer = widgets.distance_explorer(distances)
    first = explorer.answer()
    assert explorer.answer(pair=(1, 2)).figure is first.figure
    for changed in ({"γ": 0.2}, {"loss": "before"}, {"distance": "mse"}, {"negatives": 2}, {"tokens": (11, 18)}):
        assert explorer.answer(**changed).figure is not explorer.answer().figure


def test_a_range_of_few_documents_gives_a_line_and_can_be_left_again(distances, numbers, moved):
    distances = distances._replace(documents=distances.documents.assign(length=[10] * 4 + [90] * 5))
    explorer = widgets.distance_explorer(distances)
    assert "only 0 of 9 documents have 20 to 30 tokens" in moved(explorer, tokens=(20, 30))
    assert "only 4 of 9 documents have 10 to 30 tokens" in moved(explorer, tokens=(10, 30))
    assert explorer._picture.value == ""
    assert numbers(moved(explorer, tokens=(30, 90)), "documents") == ["5"]
    assert numbers(moved(explorer, tokens=(10, 90)), "documents") == ["9"]


@pytest.mark.parametrize("split", ["validation", "train"])  # some tasks have no validation split
def test_every_collection_is_seen_in_the_spaces_of_student_and_teachers(workspace_root, monkeypatch, split_of, split):
    rng = np.random.default_rng(0)
    vectors = defaultdict(lambda: rng.standard_normal(4).astype(np.float32))  # by model and text

    def model(label, *_):
        embed = SimpleNamespace(embed=lambda texts: np.stack([vectors[label, text] for text in texts]))
        return Model(label, label, embed.embed)

    monkeypatch.setattr(spaces, "SHOWN", 6)
    monkeypatch.setattr(spaces, "untrained_model", lambda students: model("before"))
    texts = [f"page {row}" for row in range(8)]
    teacher = SimpleNamespace(fingerprint="t", embed=lambda asked: model("structural").embed(asked),
                              count_tokens=lambda asked: [len(text) for text in asked])  # fmt: skip
    ordered = Labelled([f"task {row}" for row in range(12)], [0] * 8 + [1] * 4)  # by class, as published
    other = Labelled(["z"] * 2, [0, 1])
    stages = SimpleNamespace(corpus=SimpleNamespace(split=lambda name: split_of(texts)),
        teachers=SimpleNamespace(structural=teacher, of_student={"structural": teacher},
        embeddings=lambda asked, name, rows: model("structural").embed(texts[:rows])), students=None,
        scores=SimpleNamespace(tasks={"sort": Classification("sort", {"test": other, "train": other, split: ordered})}))  # fmt: skip
    profile = SimpleNamespace(parameters=SimpleNamespace(contextual_teacher=None), evaluation=SimpleNamespace(sweep_tasks=["sort"]))  # fmt: skip
    run = SimpleNamespace(stages=stages, profile=profile, workspace=Workspace(workspace_root), model=model("run"))
    found = spaces.spaces_of_run(run)
    assert found.documents["validation documents"]["length"].tolist() == list(range(6))
    assert found.documents["validation documents"]["title"].tolist() == [f"d{row}" for row in range(6)]
    assert found.documents["task sort"]["title"].tolist()[-1] == "1: task 9"
    assert found.documents["task sort"]["label"].tolist() == ["0"] * 4 + ["1"] * 2  # shares as in the split
    for collection, shown in (("validation documents", texts[:6]), ("task sort", [f"task {row}" for row in (0, 1, 2, 3, 8, 9)])):  # fmt: skip
        labels = {"student": "run", "student before distillation": "before", "structural teacher": "structural"}
        assert list(found.planes[collection]) == list(labels)
        for space, label in labels.items():
            expected = principal_plane(np.stack([vectors[label, text] for text in shown]))
            np.testing.assert_allclose(found.planes[collection][space].points, expected.points, atol=1e-6)


@pytest.mark.parametrize("specs", [("5(ReLU)x4", "4"), ("5x4", "7(ReLU)x4"), ("3", "-")])
def test_views_are_those_of_the_projections_of_the_contextual_loss(specs):
    torch.manual_seed(0)
    projections = dict(zip(("student_projection", "teacher_projection"), map(Projection, specs, (6, 3)), strict=True))
    teachings = [
        Teaching(name, "contextual", nn.Identity(), **own)
        for name, own in (("contextual", projections), ("topics", {}))
    ]
    student, contextual = np.random.default_rng(0).standard_normal((2, 8, 6)).astype(np.float32)
    found = project(Objective(nn.Identity(), teachings), {"student": student, "contextual teacher": contextual[:, :3]})
    for side, X, projection in zip(
        ("student", "contextual"), (student, contextual[:, :3]), projections.values(), strict=True
    ):
        linear = [layer for layer in projection.layers if isinstance(layer, nn.Linear)]
        for layer in linear:  # in plain numpy
            X = X @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
            X = np.maximum(X, 0) if "ReLU" in projection.spec and layer is not linear[-1] else X
        np.testing.assert_allclose(found[f"{side} view"], X, atol=1e-5)


def test_the_projection_explorer_offers_the_colours_of_the_documents_and_their_variance(tables, moved, hostile):
    rng = np.random.default_rng(0)
    frames = {"validation documents": pd.DataFrame({"length": range(1, 9), "source": list("aabbaabb"), "title": list("abcdefgh")}),
              "task t": pd.DataFrame({"length": range(1, 6), "label": list("xyxyx"), "title": [*"abcd", hostile]})}  # fmt: skip
    planes = {name: {
        space: principal_plane(rng.standard_normal((len(frame), 5))) for space in ("student", "contextual teacher")}
        for name, frame in frames.items()}  # fmt: skip
    explorer = widgets.projection_explorer(Spaces(frames, planes))
    text = moved(explorer, documents="task t", colour="label")
    assert [value for _, value in explorer.widgets["colour"].options] == ["label", "length"]
    expected = [[name, f"{plane.explained:.3f}"] for name, plane in planes["task t"].items()]
    assert tables(text)["planes"].to_numpy().tolist() == expected
    picture = explorer._picture.value
    assert picture.count("<title>") == 2 * 5  # each document in both panels
    assert "<title>d, 4 tokens</title>" in picture
    assert "<script" not in picture
    assert tables(moved(explorer, beside="student"))["planes"]["space"].tolist() == ["student"]
    figure = explorer.answer(space="contextual teacher", colour="length").figure
    for ax, space in zip(figure.axes, ("contextual teacher", "student"), strict=False):
        assert ax.get_title() == space
        np.testing.assert_allclose(ax.collections[0].get_offsets(), planes["task t"][space].points)
    assert [value for _, value in explorer.widgets["colour"].options] == ["label", "length"]
