"""Models that are compared: each text is embedded once, and a centred model subtracts a mean."""

from types import SimpleNamespace

import numpy as np
import pytest

from docemb_lib.experiments import models as models_module
from docemb_lib.experiments.models import Model, centred_model, embed_once
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace


class Noted:
    """Embeds a text as its length and the number of its e's, and remembers what it was asked for."""

    def __init__(self):
        self.asked = []

    def embed(self, texts):
        self.asked.append(list(texts))
        return np.array([[len(text), text.count("e")] for text in texts], dtype="float32")


def test_a_centred_model_loses_the_mean_of_a_few_training_documents(workspace_root, monkeypatch):
    monkeypatch.setattr(models_module, "FEW", 5)
    embedder = Noted()
    train = ["a" * length for length in (1, 2, 3, 4, 5, 600)]
    corpus = SimpleNamespace(
        profile=Profile.load("small"), workspace=Workspace(workspace_root), fingerprint="c",
        split={"train": {"text": train}}.__getitem__)  # fmt: skip
    centred = centred_model(corpus, Model("lengths", "f", lambda: embedder))
    assert (centred.label, centred.fingerprint) == ("lengths, centred", "centred/5/c/f")
    for _ in range(2):
        np.testing.assert_allclose(centred.load().embed(["bb", "bbbb"]), [[-1, 0], [1, 0]])
    assert sorted(text for texts in embedder.asked for text in texts) == sorted([*train[:5], "bb", "bbbb"])


def test_only_missing_texts_are_embedded_once_for_each_model_and_rows_follow_the_question(workspace):
    embedder = Noted()
    model = Model("m", "fp", lambda: embedder)
    assert embed_once(workspace, model, ["one", "three", "one"]).tolist() == [[3, 1], [5, 2], [3, 1]]
    assert embed_once(workspace, model, ["seven", "three"]).tolist() == [[5, 2], [5, 2]]
    assert embed_once(workspace, model, ["seven", "one"]).tolist() == [[5, 2], [3, 1]]
    known = Model("renamed", "fp", lambda: pytest.fail("the model was loaded"))
    assert embed_once(workspace, known, ["one"]).tolist() == [[3, 1]]
    embed_once(workspace, Model("m", "another", lambda: embedder), ["one"])
    assert embedder.asked == [["one", "three"], ["seven"], ["one"]]
