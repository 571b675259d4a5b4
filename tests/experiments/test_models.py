"""Models that are compared: each text is embedded once, and a centred model subtracts a mean."""

from types import SimpleNamespace

import numpy as np
import pytest

from docemb_lib.experiments import models as models_module
from docemb_lib.experiments.models import Model, centred_model, embed_once
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace


def test_a_centred_model_loses_the_mean_of_a_few_training_documents(workspace_root, monkeypatch):
    monkeypatch.setattr(models_module, "FEW", 5)
    asked = []

    class Lengths:
        def embed(self, texts):
            asked.extend(texts)
            return np.array([[len(text), 1.0] for text in texts])

    train = ["a" * length for length in (1, 2, 3, 4, 5, 600)]
    corpus = SimpleNamespace(
        profile=Profile.load("small"), workspace=Workspace(workspace_root), fingerprint="c",
        split={"train": {"text": train}}.__getitem__,
    )  # fmt: skip
    plain = Model("lengths", "f", Lengths)
    centred = centred_model(corpus, plain)
    assert (centred.label, centred.fingerprint) == ("lengths, centred", "centred/5/c/f")
    for _ in range(2):
        np.testing.assert_allclose(centred.load().embed(["bb", "bbbb"]), [[-1, 0], [1, 0]])
    assert sorted(asked) == sorted([*train[:5], "bb", "bbbb"])


class Noted:
    """Embeds a text as its length and the number of its e's, and remembers what it was asked for."""

    def __init__(self):
        self.asked = []

    def embed(self, texts):
        self.asked.append(list(texts))
        return np.array([[len(text), text.count("e")] for text in texts], dtype="float32")


@pytest.fixture
def embedder():
    return Noted()


def test_only_missing_texts_are_embedded_and_rows_follow_the_question(workspace, embedder):
    model = Model("m", "fp", lambda: embedder)
    assert embed_once(workspace, model, ["one", "three", "one"]).tolist() == [[3, 1], [5, 2], [3, 1]]
    assert embed_once(workspace, model, ["seven", "three"]).tolist() == [[5, 2], [5, 2]]
    assert embed_once(workspace, model, ["seven", "one"]).tolist() == [[5, 2], [3, 1]]
    assert embedder.asked == [["one", "three"], ["seven"]]


def test_nothing_is_loaded_for_what_is_known(workspace, embedder):
    embed_once(workspace, Model("m", "fp", lambda: embedder), ["one"])
    known = Model("renamed", "fp", lambda: pytest.fail("the model was loaded"))
    assert embed_once(workspace, known, ["one"]).tolist() == [[3, 1]]


def test_models_do_not_share_embeddings(workspace, embedder):
    embed_once(workspace, Model("m", "fp", lambda: embedder), ["one"])
    embed_once(workspace, Model("m", "another", lambda: embedder), ["one"])
    assert embedder.asked == [["one"], ["one"]]


def test_a_failed_model_leaves_no_shard(workspace, embedder):
    def fail():
        raise RuntimeError("no weights")

    with pytest.raises(RuntimeError):
        embed_once(workspace, Model("m", "fp", fail), ["one"])
    assert embed_once(workspace, Model("m", "fp", lambda: embedder), ["one"]).tolist() == [[3, 1]]
