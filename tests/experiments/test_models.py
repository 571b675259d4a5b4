"""Models that are compared: each text is embedded once, a compound through its members, a centred one minus a mean."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from docemb_lib.experiments import models as models_module
from docemb_lib.experiments.models import Model, centred_model, contextual_models, embed_once
from docemb_lib.experiments.run import Stages
from docemb_lib.experiments.runkey import RunKey
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
    stages = Stages(RunKey("06_evaluation", Profile.load("mine")), Workspace(workspace_root))
    models = contextual_models(stages.teachers)
    assert [model.label for model in models] == ["DM;4d", "DBOW;3d", "PV;7d"]
    texts = stages.corpus.split("validation")["text"][:]
    found = models[2].load().embed(texts)
    np.testing.assert_array_equal(found, stages.teachers.contextual("PV").embed(texts))
    np.testing.assert_array_equal(found[:, :4], models[0].load().embed(texts))


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


# ---- embeddings, each computed once


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


@pytest.fixture
def workspace(tmp_path):
    return Workspace(tmp_path)


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
