"""What the contextual loss sees: the views of a saved student, against the objective's own."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from docemb_lib.evaluation.probes import principal_plane
from docemb_lib.evaluation.tasks import Classification, Labelled
from docemb_lib.experiments.models import Model
from docemb_lib.losses import Projection, Teaching
from docemb_lib.settings import Parameters
from docemb_lib.widgets import distances as student_distances
from docemb_lib.widgets import projections as projected_spaces
from docemb_lib.widgets.projections import PROJECTIONS, project
from docemb_lib.workspace import Artefact, Workspace


class Split(dict):
    def __len__(self):
        return len(self["text"])


@pytest.mark.parametrize("split", ["validation", "train"])  # some tasks have no validation split
def test_every_collection_is_seen_in_the_spaces_of_student_and_teachers(workspace_root, monkeypatch, split):
    rng = np.random.default_rng(0)
    vectors = defaultdict(lambda: rng.standard_normal(4).astype(np.float32))  # by model and text

    def model(label, *_):
        embed = SimpleNamespace(embed=lambda texts: np.stack([vectors[label, text] for text in texts]))
        return Model(label, label, lambda: embed)

    for module in (projected_spaces, student_distances):
        monkeypatch.setattr(module, "SHOWN", 6)
    monkeypatch.setattr(projected_spaces, "untrained_model", lambda students: model("before"))
    texts = [f"page {row}" for row in range(8)]
    corpus = {"id": texts, "text": texts, "source": ["s"] * 8, "n_structural_tokens": list(range(8))}
    teacher = SimpleNamespace(fingerprint="t", embed=lambda asked: model("structural").load().embed(asked),
                              count_tokens=lambda asked: [len(text) for text in asked])  # fmt: skip
    ordered = Labelled([f"task {row}" for row in range(12)], [0] * 8 + [1] * 4)  # by class, as published
    other = Labelled(["z"] * 2, [0, 1])
    stages = SimpleNamespace(
        corpus=SimpleNamespace(split=lambda name: Split(corpus)),
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
    found = projected_spaces.spaces_of_run(run)
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
    ours, theirs = specs
    teaching = Teaching("contextual", "contextual", nn.Identity(), student_projection=Projection(ours, 6),
                        teacher_projection=Projection(theirs, 3))  # fmt: skip
    saved = {f"contextual.{name}": tensor for name, tensor in teaching.state_dict().items()}
    save_file(saved | {"topics.student_projection.layers.0.weight": torch.zeros(2, 2)}, str(tmp_path / PROJECTIONS))
    parameters = Parameters(contextual_teacher="DM", student_projection=ours, contextual_projection=theirs)
    run = SimpleNamespace(profile=SimpleNamespace(parameters=parameters))
    student, contextual = np.random.default_rng(0).standard_normal((2, 8, 6)).astype(np.float32)
    contextual = contextual[:, :3]
    expected = teaching.views(torch.from_numpy(student), torch.from_numpy(contextual.copy()))
    for side, X, view in zip(("student", "contextual"), (student, contextual), expected, strict=True):
        found = project(run, Artefact("student", "x", tmp_path), side, X)
        np.testing.assert_allclose(found, view.detach().numpy(), atol=1e-6)
