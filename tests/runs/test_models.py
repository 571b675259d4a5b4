"""Models that are compared: what is fitted on the texts of a task, and models of others."""

import numpy as np
import pytest
import torch
from conftest import NotingEmbedder
from sklearn.preprocessing import normalize

from docemb_lib.base import pretrained
from docemb_lib.base.prompts import Prompts
from docemb_lib.runs.embeddings import Embedder
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import (
    Fitted,
    Model,
    SBERTModels,
    centred_model,
    forms_at,
    on_task_models,
    published_model,
    sbert_models,
    scored_model,
    student_model,
)
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.student import Student
from docemb_lib.student.words import partially_whitened

STUDENT = Identity(Kind.STUDENT, name="lengths")


def test_a_centred_model_loses_the_mean_of_the_texts_of_a_task(workspace_root):
    embedder = NotingEmbedder()
    centred = centred_model(Model(STUDENT, Embedder("lengths", "f", embedder.embed)))
    assert (centred.label, centred.identity.fitted_on) == ("lengths, centred", "task")
    for _ in range(2):
        np.testing.assert_allclose(centred.on_texts(["bb", "bbbb"]), [[-1, 0], [1, 0]])
    np.testing.assert_allclose(centred.on_texts(["bb", "bbbb"], 1), [[0, 0], [2, 0]])
    assert embedder.asked == [["bb", "bbbb"]]
    with pytest.raises(TypeError, match="lengths, centred is fitted on the texts of a task"):
        centred.embed(["a text"])
    with pytest.raises(RuntimeError, match="only its scores on tasks are available"):
        scored_model(STUDENT, "g").embed(["a text"])


def test_equal_texts_count_once_in_a_fit_and_get_equal_results():
    asked = []
    table = np.array([[1.0, 0.2], [0.3, 1.0]])

    def fit(texts, fitted):
        asked.append((texts, fitted))
        return np.array([[len(text)] for text in texts])

    model = Model(STUDENT, Fitted("f", fit))
    assert model.on_texts(["aa", "b", "aa"]).tolist() == [[2], [1], [2]]
    assert model.on_texts(["aa", "aa", "b"], 2).tolist() == [[2], [2], [1]]
    assert asked == [(["aa", "b"], 2), (["aa", "b"], 1)]
    ranking = Model(STUDENT, Fitted("f", lambda texts, fitted: lambda rows: table[rows]))
    similarities = ranking.on_texts(["aa", "b", "aa"])
    assert similarities([1, 2]).tolist() == [[0.3, 1.0, 0.3], [1.0, 0.2, 1.0]]


def test_the_beginning_counts_in_the_mean_over_chunks_and_in_that_beside_lsa(workspace_root):
    rng = np.random.default_rng(0)
    words = [f"word{n}" for n in range(50)]
    texts = [" ".join(rng.choice(words, size=9)) for _ in range(60)]
    both = rng.normal(size=(2, 60, 3)).astype("float32")
    teachers = []
    for kind, X in zip((Kind.SBERT_TRUNCATED, Kind.SBERT_CHUNKS), both, strict=True):
        of_text = dict(zip(texts, X, strict=True))
        embedder = Embedder(kind, kind, lambda few, of=of_text: np.stack([of[t] for t in few]))
        teachers.append(Model(Identity(kind), embedder))
    models = {model.label: model for model in on_task_models(SBERTModels(*teachers), None)}
    lead = models["SBERT over chunks and lead"]
    joined = models["SBERT over chunks and lead ⊕ LSA"]
    expected = normalize(both[0]) + normalize(both[1])
    np.testing.assert_allclose(lead.embed(texts), expected, atol=1e-6)
    assert (lead.identity.fitted_on, joined.identity.fitted_on) == ("", "task")
    meaning = normalize(joined.on_texts(texts)[:, :3])
    np.testing.assert_allclose(meaning, partially_whitened(torch.tensor(expected)), atol=1e-5)


class OfLengths(NotingEmbedder):
    """An SBERT, which is told the first chunks of texts if it is not to embed them itself."""

    def __init__(self, long):
        super().__init__()
        self.fingerprint = long

    def embed(self, texts, first=None):
        return super().embed(texts) if first is None else -first


def test_chunks_are_averaged_with_the_first_that_the_truncated_model_has_embedded(workspace_root):
    class Teachers:
        def sbert(self, long):
            return teachers[long]

    teachers = {long: OfLengths(long) for long in ("truncate", "chunks")}
    for texts in (["one"], ["one", "three"]):
        truncated, chunks = (model.embed(texts) for model in sbert_models(Teachers()))
        np.testing.assert_array_equal(truncated, [[3, 1], [5, 2]][: len(texts)])
        np.testing.assert_array_equal(chunks, -truncated)
    assert teachers["truncate"].asked == [["one"], ["three"]]
    assert teachers["chunks"].asked == []


def test_a_model_of_others_is_run_as_sentence_transformers_runs_it(workspace_root):
    plain = published_model("all-MiniLM-L6-v2")
    prompted = published_model("all-MiniLM-L6-v2", "Represent: ")
    assert plain.fingerprint != prompted.fingerprint
    stock = pretrained.load_stock("all-MiniLM-L6-v2", device="cpu")
    texts = ["a graph", "Violins show a distribution. " * 80]
    embeddings = plain.embed(texts)
    np.testing.assert_allclose(embeddings, stock.encode(texts), atol=1e-6)
    assert embeddings.dtype == np.float32
    expected = stock.encode([f"Represent: {text}" for text in texts])
    np.testing.assert_allclose(prompted.embed(texts), expected, atol=1e-6)
    (same,) = forms_at("all-MiniLM-L6-v2").models
    assert (same.label, same.fingerprint) == ("all-MiniLM-L6-v2", plain.fingerprint)


def test_models_of_others_are_rows_of_the_final_evaluation_alone(workspace_root):
    """A folder that a profile names, in both notebooks that score test splits."""
    others = 'evaluation: {beside: {all-MiniLM-L6-v2: "Represent: "}}'
    file = workspace_root / "params" / "others.yaml"
    file.write_text(f"base: small.yaml\nname: small\n{others}")
    profile = Profile.load(file)
    for notebook, there in (("05_weighting", 0), ("06_evaluation", 1), ("07_simde", 1)):
        run = Run(notebook, profile)
        labels = [model.label for model in run.references]
        assert labels.count("all-MiniLM-L6-v2") == there
    small = Profile.load("small")
    assert Run("06_evaluation", profile).key != Run("06_evaluation", small).key


def test_students_that_differ_in_their_prompt_have_embeddings_of_their_own(tmp_path):
    student = Student.from_encoder("all-MiniLM-L6-v2", layers=[0], max_tokens=64)
    fingerprints = set()
    for name, prompts in {"plain": ("", ""), "one": ("a ", ""), "two": ("a ", "b ")}.items():
        student.prompts = Prompts(*prompts)
        student.save(tmp_path / name)
        fingerprints.add(student_model(name, tmp_path / name).fingerprint)
    assert len(fingerprints) == 3


def test_another_student_in_the_same_folder_embeds_anew(workspace_root):
    folder = workspace_root / "student"
    embeddings = []
    for layer in (0, 5):
        Student.from_encoder("all-MiniLM-L6-v2", layers=[layer], max_tokens=64).save(folder)
        embeddings.append(student_model("student", folder).embed(["a text"]))
        expected = Student.load(folder).embed(["a text"])
        np.testing.assert_array_equal(embeddings[-1], expected)
    assert np.abs(embeddings[0] - embeddings[1]).max() > 1e-3
