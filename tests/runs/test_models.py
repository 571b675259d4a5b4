"""Models that are compared: each text is embedded once, and a centred model subtracts a mean."""

import numpy as np
import pytest
import torch
from conftest import NotingEmbedder

from docemb_lib.base import pretrained
from docemb_lib.runs.run import Run
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.models import (
    Model,
    SBERTModels,
    centred_model,
    fit_once,
    forms_at,
    on_task_models,
    published_model,
    student_model,
)
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.student import Student
from docemb_lib.student.lexical import partially_whitened
from docemb_lib.workspace import Workspace


def test_a_centred_model_loses_the_mean_of_the_texts_of_a_task(workspace):
    embedder = NotingEmbedder()
    centred = centred_model(
        workspace, scored_model(Identity(Kind.STUDENT, name="lengths"), "f", embedder.embed)
    )
    assert (centred.label, centred.fitted_on) == ("lengths, centred", "task")
    for _ in range(2):
        np.testing.assert_allclose(centred.fit(["bb", "bbbb"]), [[-1, 0], [1, 0]])
    assert embedder.asked == [["bb", "bbbb"]]
    with pytest.raises(RuntimeError, match="only its scores on tasks are available"):
        centred.embed(["a text"])


def test_equal_texts_count_once_in_a_fit_and_get_equal_embeddings():
    asked = []

    def fit(texts, fitted):
        asked.append((texts, fitted))
        return np.array([[len(text)] for text in texts])

    assert fit_once(fit, ["aa", "b", "aa"]).tolist() == [[2], [1], [2]]
    assert fit_once(fit, ["aa", "aa", "b"], 2).tolist() == [[2], [2], [1]]
    assert asked == [(["aa", "b"], 2), (["aa", "b"], 1)]


def test_equal_texts_get_equal_similarities():
    table = np.array([[1.0, 0.2], [0.3, 1.0]])
    similarities = fit_once(lambda texts, fitted: lambda rows: table[rows], ["aa", "b", "aa"])
    assert similarities([1, 2]).tolist() == [[0.3, 1.0, 0.3], [1.0, 0.2, 1.0]]


def test_the_beginning_counts_in_the_mean_over_chunks_and_in_that_beside_lsa(workspace):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([f"word{n}" for n in range(50)], size=9)) for _ in range(60)]
    both = rng.normal(size=(2, 60, 3)).astype("float32")
    teachers = [
        scored_model(Identity(kind), kind, lambda few, X=X: X[[texts.index(t) for t in few]])
        for kind, X in zip((Kind.SBERT_TRUNCATED, Kind.SBERT_CHUNKS), both, strict=True)
    ]
    on_task = on_task_models(workspace, SBERTModels(*teachers), None)
    models = {model.label: model for model in on_task}
    lead = models["SBERT over chunks and lead"]
    beside = models["SBERT over chunks and lead ⊕ LSA"]
    expected = sum(X / np.linalg.norm(X, axis=1, keepdims=True) for X in both)
    np.testing.assert_allclose(lead.embed(texts), expected, atol=1e-6)
    assert (lead.fitted_on, beside.fitted_on) == ("", "task")
    dense = beside.fit(texts)[:, :3]
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    np.testing.assert_allclose(dense, partially_whitened(torch.tensor(expected)), atol=1e-5)


def test_a_model_of_others_reads_its_prompt_before_each_text():
    plain = published_model("all-MiniLM-L6-v2")
    prompted = published_model("all-MiniLM-L6-v2", "Represent: ")
    assert plain.fingerprint != prompted.fingerprint
    stock = pretrained.load_stock("all-MiniLM-L6-v2", device="cpu")
    expected = stock.encode(["Represent: a graph", "Represent: a violin plot"])
    np.testing.assert_allclose(prompted.embed(["a graph", "a violin plot"]), expected, atol=1e-6)


def test_a_model_of_others_is_run_as_sentence_transformers_runs_it():
    plain = published_model("all-MiniLM-L6-v2")
    stock = pretrained.load_stock("all-MiniLM-L6-v2", device="cpu")
    long = ["a graph", "Violins show a distribution. " * 80]
    embeddings = plain.embed(long)
    np.testing.assert_allclose(embeddings, stock.encode(long), atol=1e-6)
    norms = np.linalg.norm(embeddings, axis=1)
    np.testing.assert_allclose(norms, 1, atol=1e-5)  # its last module normalises
    assert embeddings.dtype == np.float32
    (same,) = forms_at("all-MiniLM-L6-v2", Workspace()).models
    assert (same.label, same.fingerprint) == ("all-MiniLM-L6-v2", plain.fingerprint)


def test_the_pooling_of_a_model_of_others_can_be_replaced():
    plain = published_model("all-MiniLM-L6-v2")
    stock = pretrained.load_stock("all-MiniLM-L6-v2", device="cpu")
    by_cls = published_model("all-MiniLM-L6-v2", pooling="cls")
    tokens = stock.encode("a graph", output_value="token_embeddings")
    first = tokens[0]  # [CLS], before the model normalises
    np.testing.assert_allclose(by_cls.embed(["a graph"])[0], first / first.norm(), atol=1e-6)
    assert by_cls.fingerprint != plain.fingerprint


def test_models_of_others_are_rows_of_the_final_evaluation_alone(workspace_root):
    """A folder that a profile names, in both notebooks that score test splits."""
    file = workspace_root / "params" / "beside.yaml"
    simde = "simde: {sentence_encoder: simcse}"
    file.write_text(
        f'base: small.yaml\nevaluation: {{beside: {{all-MiniLM-L6-v2: "Represent: "}}}}\n{simde}'
    )
    small, beside = Profile.load("small"), Profile.load("beside")
    for notebook, there in (("05_weighting", 0), ("06_evaluation", 1), ("07_simde", 1)):
        run = Run(notebook, beside)
        assert [model.label for model in run.references].count("all-MiniLM-L6-v2") == there
        assert ("simcse" in run.stages.models) == (
            notebook == "07_simde"
        )  # is asked for before any work
    renamed = beside.model_copy(update={"name": small.name})
    assert (
        Run("06_evaluation", renamed).fingerprint != Run("06_evaluation", small).fingerprint
    )


def test_students_that_differ_in_their_prompt_have_embeddings_of_their_own(tmp_path):
    student = Student.from_encoder("all-MiniLM-L6-v2", layers=[0], max_tokens=64)
    fingerprints = set()
    for name, prompt in {"plain": "", "prompted": "passage: "}.items():
        student.prompt = prompt
        student.save(tmp_path / name)
        fingerprints.add(student_model(name, tmp_path / name).fingerprint)
    assert len(fingerprints) == 2
