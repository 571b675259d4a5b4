"""Texts are embedded once per model, whatever asks for them and in whatever order."""

from __future__ import annotations

import numpy as np
import pytest

from docemb_lib.experiments.scores import Model, embed_once
from docemb_lib.workspace import Workspace


class Lengths:
    """Embeds a text as its length and the number of its e's, and remembers what it was asked for."""

    def __init__(self):
        self.asked = []

    def embed(self, texts):
        self.asked.append(list(texts))
        return np.array([[len(text), text.count("e")] for text in texts], dtype="float32")


@pytest.fixture
def embedder():
    return Lengths()


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
