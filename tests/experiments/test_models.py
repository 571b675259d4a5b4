"""The models that are compared: a compound teacher's embeddings are its members', in the compound's own order."""

from __future__ import annotations

import numpy as np

from docemb_lib.experiments.models import contextual_models
from docemb_lib.experiments.stages import Stages
from docemb_lib.profile import Profile
from docemb_lib.workspace import Workspace


def test_the_concatenation_equals_the_compound_teacher_and_asks_no_member_twice(workspace_root):
    (workspace_root / "texts").mkdir()
    for number in range(30):
        words = f"text {number} " + " ".join(f"word{(number * 7 + k) % 23}" for k in range(40))
        (workspace_root / "texts" / f"{number}.txt").write_text(words, encoding="utf-8")
    (workspace_root / "params" / "mine.yaml").write_text(
        "corpus: {source: local, path: ../texts, validation: 4, tasks: 20}\n"
        "structural_teacher: {model: all-MiniLM-L6-v2, max_tokens: 64}\n"
        "student: {model: all-MiniLM-L6-v2}\n"
        "parameters: {documents: 6}\n"
        "contextual_teachers:\n"
        "  DM: {dm: true, vector_size: 4, epochs: 2}\n"
        "  DBOW: {dm: false, vector_size: 3, epochs: 2, dbow_words: false}\n"
        "  PV: [{dm: false, vector_size: 3, epochs: 2, dbow_words: false}, {dm: true, vector_size: 4, epochs: 2}]\n",
        encoding="utf-8",
    )
    stages = Stages(Profile.load("mine"), Workspace(workspace_root))
    models = contextual_models(stages)
    assert [model.label for model in models] == ["DM;4d", "DBOW;3d", "PV;7d"]
    texts = stages.split("validation")["text"][:]
    found = models[2].load().embed(texts)
    np.testing.assert_array_equal(found, stages.contextual_teacher("PV").embed(texts))
    np.testing.assert_array_equal(found[:, :4], models[0].load().embed(texts))
