"""What a notebook shows of its run: its metrics, its students in Figure 4.4's order, probes, weights."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from docemb_lib.evaluation.probes import probe
from docemb_lib.experiments.models import Model, student_model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.experiments.students import weighting_of
from docemb_lib.losses import Objective, Teaching
from docemb_lib.settings import FurtherTeacher
from docemb_lib.settings.profile import Profile
from docemb_lib.views import runs as views
from docemb_lib.views.runs import in_figure_4_4, probes_of_teachers, students_of_runs, weights_by_length
from docemb_lib.workspace import Workspace

BASELINE = "SBERT truncated"


def a_run(root, notebook="05_weighting", further=(), **parameters):
    profile = Profile.load("small").model_copy(update={"further_teachers": [FurtherTeacher(**f) for f in further]})
    return Run(RunKey.of(notebook, profile, **parameters), Workspace(root))


def scores_of(label, level):
    """Two tasks, two head seeds; the second task is a ranking, which has one value."""
    rows = [(label, "package", "accuracy", seed, level + seed / 10) for seed in range(2)]
    rows += [(label, "see-also-retrieval", "map", 0, level), (label, "see-also-retrieval", "mrr", 0, 1.0)]
    rows += [(BASELINE, "package", "accuracy", seed, 0.5 + seed / 10) for seed in range(2)]
    rows += [(BASELINE, "see-also-retrieval", "map", 0, 0.5)]
    return pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"])


def test_a_run_records_its_own_scores_only(workspace_root):
    run = a_run(workspace_root, "02_paragraph_vector")
    metrics = run.metrics(scores_of(run.label, 0.2))
    assert metrics == pytest.approx(
        {"mean": 0.225, "package/accuracy": 0.25, "see-also-retrieval/map": 0.2, "see-also-retrieval/mrr": 1.0}
    )


@pytest.mark.parametrize(
    ("parameters", "kept", "masked"),
    [
        ({"lam": 0.3}, (0.3, 0.7), (0.0, 1.0)),
        ({"lam": None}, (1.0, 1.0), (0.0, 1.0)),
        ({"structural_loss": None}, (0.0, 1.0), (0.0, 1.0)),
        ({"contextual_teacher": None}, (1.0, 0.0), (0.0, 0.0)),
    ],
)
def test_weights_by_length_are_those_of_the_objective(workspace_root, monkeypatch, parameters, kept, masked):
    run = a_run(workspace_root, documents=2, **parameters)
    monkeypatch.setattr(run.stages.corpus, "split", lambda name: {"n_structural_tokens": [65, 64, 9]})
    rows = weights_by_length(run).to_numpy().tolist()
    assert [row[0] for row in rows] == [64, 65]
    assert rows[0][1:] == pytest.approx(kept)
    assert rows[1][1:] == pytest.approx(masked)


class Given(nn.Module):
    """A loss of this value for every document that the mask keeps."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, student, teacher, mask=None):
        return self.value * (torch.ones(len(student)) if mask is None else mask.float())


FAR = {"name": "far", "role": "structural", "model": "all-MiniLM-L6-v2", "loss": "mse"}
TOPICS = {"name": "topics", "role": "contextual", "teacher": "LSA", "loss": "mse", "student_projection": "8"}


@pytest.mark.parametrize("further", [[], [FAR], [TOPICS], [FAR, TOPICS]], ids=lambda f: "+".join(t["name"] for t in f))
@pytest.mark.parametrize(
    "parameters",
    [{"lam": 0.3}, {"lam": None}, {"structural_loss": None, "lam": 0.3}, {"contextual_teacher": None, "lam": 0.3},
     {"contextual_teacher": None, "lam": 0.8, "lam_by_length": "linear:9:100", "form": "contextual_full"}],
)  # fmt: skip
def test_weights_by_length_are_the_share_that_the_objective_gives_each_loss(
    workspace_root, monkeypatch, further, parameters
):
    run = a_run(workspace_root, documents=4, further=further, **parameters)
    lengths = [9, 64, 65, 99]
    monkeypatch.setattr(run.stages.corpus, "split", lambda name: {"n_structural_tokens": lengths})
    p = run.profile.parameters
    roles = {"structural": p.structural_loss, "contextual": p.contextual_teacher, **{f["role"]: 1 for f in further}}

    def loss(length, **of):
        teachings = [Teaching(role, role, Given(of[role])) for role, named in roles.items() if named is not None]
        objective = Objective(nn.Identity(), teachings, weighting=weighting_of(p))
        teachers = {role: torch.zeros(1, 2) for role in roles}
        return float(objective(torch.zeros(1, 2), teachers=teachers, n_structural_tokens=torch.tensor([length])).loss)

    expected = [(n, loss(n, structural=1.0, contextual=0.0), loss(n, structural=0.0, contextual=1.0)) for n in lengths]
    np.testing.assert_allclose(weights_by_length(run).to_numpy(), expected, atol=1e-6)


def a_student(workspace, name):
    return workspace.artefact("student", {"name": name}, lambda folder: (folder / "weights").write_text(name))


def test_students_stand_in_the_order_of_figure_4_4_and_others_behind(workspace_root, monkeypatch):
    monkeypatch.setattr(views, "untrained_model", lambda students: Model(views.UNTRAINED, "0", list))
    others = [
        {"structural_loss": "cosine"}, {"structural_loss": "max-margin", "gamma": 0.7},
        {"structural_loss": "max-margin", "gamma": 1.5}, {"structural_loss": "mse"},
        {"structural_loss": "mse", "documents": 30}, {"structural_loss": "mse", "seed": 1},
    ]  # fmt: skip
    for number, parameters in enumerate(others):
        other = a_run(workspace_root, "03_structural", **parameters)
        folder = a_student(other.workspace, str(number)).path
        other.finish({}, student=str(folder.relative_to(workspace_root)))
    gone = a_run(workspace_root, "03_structural", structural_loss="contrastive")
    gone.finish({}, student="outputs/artefacts/student/gone")
    run = a_run(workspace_root, "03_structural", structural_loss="max-margin", gamma=1.0)
    run.model = student_model(run.label, a_student(run.workspace, "own"))
    models = students_of_runs(run)
    labels = [model.label for model in models]
    assert labels == [
        views.UNTRAINED, "MSE", "max-margin;MSE;γ=1.0", "max-margin;MSE;γ=1.5", "cosine", "max-margin;MSE;γ=0.7",
    ]  # fmt: skip
    assert len({model.fingerprint for model in models}) == len(models)
    shown = in_figure_4_4(run, pd.DataFrame({"model": labels}))
    assert shown["model"].tolist() == labels[:-1]


@pytest.fixture
def small_world(workspace_root, monkeypatch):
    """A run over texts that are numbers: every model and teacher is a table of their embeddings."""
    rng = np.random.default_rng(0)
    tables = {name: rng.standard_normal((100, 6)) for name in ("before", "after", "structural", "contextual")}
    splits = {
        "train": {"text": [str(i) for i in range(60)]},
        "validation": {"text": [str(i) for i in range(60, 100)], "n_structural_tokens": [9, 10, 11, 500] * 10},
    }
    first = {"train": 0, "validation": 60}
    rows = SimpleNamespace(asked=[])

    class Table:
        def __init__(self, name):
            self.name = name

        def embed(self, texts):
            rows.asked += [(self.name, int(text)) for text in texts]
            return tables[self.name][[int(text) for text in texts]]

    run = a_run(workspace_root, "04_projections", documents=50)
    stages = SimpleNamespace(
        corpus=SimpleNamespace(workspace=run.workspace, split=lambda name: _Split(splits[name])),
        teachers=SimpleNamespace(
            structural=SimpleNamespace(max_text_tokens=10),
            of_student={"structural": "structural", "contextual": "contextual"},
            embeddings=lambda teacher, split, n: tables[teacher][first[split] : first[split] + n],
        ),
        students=None,
    )
    run.stages = stages
    monkeypatch.setattr(views, "untrained_model", lambda students: Model("before", "b", lambda: Table("before")))
    run.model = Model("after", "a", lambda: Table("after"))
    monkeypatch.setattr(views, "PROBED", 30)
    return run, tables, rows


class _Split(dict):
    """Columns, and as many rows as they have."""

    def __len__(self):
        return len(self["text"])


def test_a_probe_is_fitted_on_few_training_documents_and_measured_by_length(small_world):
    run, tables, rows = small_world
    frame = probes_of_teachers(run)
    assert list(frame.columns) == ["model", "teacher", "bucket", "documents", "r2", "overlap"]
    assert frame["model"].unique().tolist() == ["before", "after"]
    assert frame["teacher"].unique().tolist() == ["structural teacher", "contextual teacher"]
    short = np.array([True, True, False, False] * 10)
    for (model, teacher), found in frame.groupby(["model", "teacher"]):
        x, t = tables[model], tables[teacher.split()[0]]
        expected = probe((x[:30], t[:30]), (x[60:], t[60:]), {"up to 10 tokens": short, "longer": ~short})
        pd.testing.assert_frame_equal(found[list(expected.columns)].reset_index(drop=True), expected)
    assert sorted(rows.asked) == sorted((m, i) for m in ("before", "after") for i in [*range(30), *range(60, 100)])
    again = probes_of_teachers(run)
    pd.testing.assert_frame_equal(again, frame)
    assert len(rows.asked) == 2 * 70  # each embedded once
