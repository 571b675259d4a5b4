"""What diagrams show of a run: the widths of its embeddings, the words of its first document."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings.profile import Profile
from docemb_lib.views.runs import opening_words, widths_of
from docemb_lib.workspace import Workspace


def a_run(root, notebook, **parameters):
    return Run(RunKey.of(notebook, Profile.load("small"), **parameters), Workspace(root))


@pytest.mark.parametrize(
    ("teacher", "width"),
    [("PV", {"contextual": 16}), ("DM", {"contextual": 8}), ("LSA", {"contextual": 8}), (None, {})],
)
def test_widths_are_those_of_the_student_and_of_the_contextual_teacher_there_is(workspace_root, teacher, width):
    run = a_run(workspace_root, "05_weighting", contextual_teacher=teacher)
    (workspace_root / "config.json").write_text(json.dumps({"hidden_size": 32}))
    run.stages.students.untrained = SimpleNamespace(path=workspace_root)  # as if built
    assert widths_of(run) == {"student": 32, **width}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"preprocess": "none"}, ["Nodes", "of", "Graphs,"]),
        ({"preprocess": "lowercase"}, ["nodes", "of", "graphs,"]),
        ({"preprocess": "stem"}, ["node", "of", "graphs,"]),
        ({"compound": "DBOW;8;None;2+DM;8;lowercase;2"}, ["nodes", "of", "graphs,"]),  # DM comes first
    ],
)
def test_opening_words_are_read_as_the_model_reads_them(workspace_root, monkeypatch, parameters, words):
    run = a_run(workspace_root, "02_paragraph_vector", **parameters)
    monkeypatch.setattr(
        run.stages.corpus, "split", lambda name: {"train": {"text": ["Nodes of\nGraphs, and edges", "Else"]}}[name]
    )
    assert opening_words(run, 3) == words
    assert len(opening_words(run)) == 5
