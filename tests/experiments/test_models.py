"""The models that are compared: a compound's embeddings are its members'; a centred one's lose their mean."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from docemb_lib.experiments import models as models_module
from docemb_lib.experiments.models import centred_model, contextual_models
from docemb_lib.experiments.scores import Model
from docemb_lib.experiments.students import Stages
from docemb_lib.settings.profile import Profile
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


def test_a_centred_model_loses_the_mean_of_a_few_training_documents(workspace_root, monkeypatch):
    monkeypatch.setattr(models_module, "FEW", 5)
    asked = []

    class Lengths:
        def embed(self, texts):
            asked.extend(texts)
            return np.array([[len(text), 1.0] for text in texts])

    train = ["a" * length for length in (1, 2, 3, 4, 5, 600)]
    stages = SimpleNamespace(
        profile=Profile.load("small"), workspace=Workspace(workspace_root), corpus=SimpleNamespace(fingerprint="c"),
        split={"train": {"text": train}}.__getitem__,
    )  # fmt: skip
    plain = Model("lengths", "f", Lengths)
    centred = centred_model(stages, plain)
    assert (centred.label, centred.fingerprint) == ("lengths, centred", "centred/5/c/f")
    for _ in range(2):
        np.testing.assert_allclose(centred.load().embed(["bb", "bbbb"]), [[-1, 0], [1, 0]])
    assert sorted(asked) == sorted([*train[:5], "bb", "bbbb"])
