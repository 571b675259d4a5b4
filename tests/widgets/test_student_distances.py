"""Distances of several students, each measured as if alone."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd

from docemb_lib.evaluation.probes import measure_distances, tidy_distances
from docemb_lib.experiments.models import Model
from docemb_lib.widgets.distances import distances_to_teacher
from docemb_lib.workspace import Workspace


class _Split(dict):
    def __len__(self):
        return len(self["text"])


def test_students_are_measured_on_the_same_documents_and_negatives(workspace_root):
    rng = np.random.default_rng(0)
    teacher, tables = (
        rng.standard_normal((7, 4)),
        {name: rng.standard_normal((7, 4)).astype(np.float32) for name in "ab"},
    )
    texts = [f"text {row}" for row in range(7)]
    split = _Split(id=[f"d{row}" for row in range(7)], text=texts, source=["s"] * 7, n_structural_tokens=list(range(7)))
    stages = SimpleNamespace(
        corpus=SimpleNamespace(workspace=Workspace(workspace_root), split=lambda name: split),
        teachers=SimpleNamespace(structural=None, embeddings=lambda teacher_, split_, rows: teacher[:rows]),
    )
    run = SimpleNamespace(stages=stages, label="b")

    def model(name):
        embed = SimpleNamespace(embed=lambda asked: tables[name][[texts.index(text) for text in asked]])
        return Model(name, name, lambda: embed)

    found = distances_to_teacher(run, [model("a"), model("b")], negatives=3)
    assert (found.own, list(found.measured["cosine"])) == ("b", ["a", "b"])
    assert found.documents["length"].tolist() == list(range(7))
    for distance in ("cosine", "mse"):
        expected = pd.concat(
            tidy_distances(measure_distances(tables[name], teacher, distance=distance, negatives=3)).assign(model=name)
            for name in "ab"
        )
        told = found.tidy().query("distance == @distance").drop(columns="distance")
        pd.testing.assert_frame_equal(told.reset_index(drop=True), expected.reset_index(drop=True))
