"""The spaces of a training, the views of a saved student against the objective's own, and the explorer of them."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from docemb_lib import widgets
from docemb_lib.evaluation.probes import principal_plane
from docemb_lib.evaluation.tasks import Classification, Labelled
from docemb_lib.experiments.models import Model
from docemb_lib.losses import Projection, Teaching
from docemb_lib.settings import Parameters
from docemb_lib.widgets import distances, projections
from docemb_lib.widgets.projections import PROJECTIONS, Spaces, project
from docemb_lib.workspace import Artefact, Workspace


@pytest.mark.parametrize("split", ["validation", "train"])  # some tasks have no validation split
def test_every_collection_is_seen_in_the_spaces_of_student_and_teachers(workspace_root, monkeypatch, split_of, split):
    rng = np.random.default_rng(0)
    vectors = defaultdict(lambda: rng.standard_normal(4).astype(np.float32))  # by model and text

    def model(label, *_):
        embed = SimpleNamespace(embed=lambda texts: np.stack([vectors[label, text] for text in texts]))
        return Model(label, label, lambda: embed)

    for module in (projections, distances):
        monkeypatch.setattr(module, "SHOWN", 6)
    monkeypatch.setattr(projections, "untrained_model", lambda students: model("before"))
    texts = [f"page {row}" for row in range(8)]
    teacher = SimpleNamespace(fingerprint="t", embed=lambda asked: model("structural").load().embed(asked),
                              count_tokens=lambda asked: [len(text) for text in asked])  # fmt: skip
    ordered = Labelled([f"task {row}" for row in range(12)], [0] * 8 + [1] * 4)  # by class, as published
    other = Labelled(["z"] * 2, [0, 1])
    stages = SimpleNamespace(
        corpus=SimpleNamespace(split=lambda name: split_of(texts)),
        teachers=SimpleNamespace(
            structural=teacher,
            of_student={"structural": teacher},
            embeddings=lambda asked, name, rows: model("structural").load().embed(texts[:rows]),
        ),
        students=None,
        scores=SimpleNamespace(tasks={"sort": Classification("sort", {"test": other, "train": other, split: ordered})}),
    )
    profile = SimpleNamespace(
        parameters=SimpleNamespace(contextual_teacher=None), evaluation=SimpleNamespace(sweep_tasks=["sort"])
    )
    run = SimpleNamespace(stages=stages, profile=profile, workspace=Workspace(workspace_root), model=model("run"))
    found = projections.spaces_of_run(run)
    assert found.documents["validation documents"]["length"].tolist() == list(range(6))
    assert found.documents["task sort"]["label"].tolist() == ["0"] * 4 + ["1"] * 2  # shares as in the split
    for collection, shown in (("validation documents", texts[:6]),
                              ("task sort", [f"task {row}" for row in (0, 1, 2, 3, 8, 9)])):  # fmt: skip
        spaces = {"student": "run", "student before distillation": "before", "structural teacher": "structural"}
        assert list(found.planes[collection]) == list(spaces)
        for space, label in spaces.items():
            expected = principal_plane(np.stack([vectors[label, text] for text in shown]))
            np.testing.assert_allclose(found.planes[collection][space].points, expected.points, atol=1e-6)


@pytest.mark.parametrize("specs", [("5(ReLU)x4", "4"), ("5x4", "7(ReLU)x4"), ("3", "-")])
def test_views_are_those_of_the_projections_that_were_saved_with_the_student(tmp_path, specs):
    torch.manual_seed(0)
    student_spec, teacher_spec = specs
    teaching = Teaching("contextual", "contextual", nn.Identity(), student_projection=Projection(student_spec, 6),
                        teacher_projection=Projection(teacher_spec, 3))  # fmt: skip
    saved = {f"contextual.{name}": tensor for name, tensor in teaching.state_dict().items()}
    save_file(saved | {"topics.student_projection.layers.0.weight": torch.zeros(2, 2)}, str(tmp_path / PROJECTIONS))
    parameters = Parameters(
        contextual_teacher="DM", student_projection=student_spec, contextual_projection=teacher_spec
    )
    run = SimpleNamespace(profile=SimpleNamespace(parameters=parameters))
    student, contextual = np.random.default_rng(0).standard_normal((2, 8, 6)).astype(np.float32)
    contextual = contextual[:, :3]
    expected = teaching.views(torch.from_numpy(student), torch.from_numpy(contextual.copy()))
    for side, X, view in zip(("student", "contextual"), (student, contextual), expected, strict=True):
        found = project(run, Artefact("student", "x", tmp_path), side, X)
        np.testing.assert_allclose(found, view.detach().numpy(), atol=1e-6)


def test_the_projection_explorer_offers_the_colours_of_the_documents_and_their_variance(numbers, moved):
    rng = np.random.default_rng(0)
    frames = {"validation documents": pd.DataFrame({"length": range(1, 9), "source": list("aabbaabb")}),
              "task t": pd.DataFrame({"length": range(1, 6), "label": list("xyxyx")})}  # fmt: skip
    planes = {
        name: {
            space: principal_plane(rng.standard_normal((len(frame), 5))) for space in ("student", "contextual teacher")
        }
        for name, frame in frames.items()
    }
    probes = pd.DataFrame(
        [("after", "structural teacher", "all", 8, 0.25, 0.5), ("after", "structural teacher", "longer", 4, 0.9, 0.9)],
        columns=["model", "teacher", "bucket", "documents", "r2", "overlap"],
    )
    explorer = widgets.projection_explorer(Spaces(frames, planes), probes)
    text = moved(explorer, documents="task t", colour="label")
    assert [value for _, value in explorer.widgets["colour"].options] == ["label", "length"]
    assert numbers(text, "explained") == [f"{plane.explained:.3f}" for plane in planes["task t"].values()]
    assert (numbers(text, "r2"), numbers(text, "common")) == (["0.250"], ["0.500"])
    assert numbers(moved(explorer, beside="student"), "space") == ["student"]
    figure = explorer.answer(space="contextual teacher", colour="length").figure
    for ax, space in zip(figure.axes, ("contextual teacher", "student"), strict=False):
        assert ax.get_title() == space
        np.testing.assert_allclose(ax.collections[0].get_offsets(), planes["task t"][space].points)
    assert [value for _, value in explorer.widgets["colour"].options] == ["label", "length"]
