"""Corpora, words and contextual teachers: built once, shared, resumed, and refused before any
work.
"""

import numpy as np
import pytest
import torch
from conftest import write_files

from docemb_lib.losses import Weighting
from docemb_lib.runs import stages
from docemb_lib.runs.kinds import Kind
from docemb_lib.runs.models import contextual_models
from docemb_lib.runs.run import Run
from docemb_lib.runs.store import shelf_of
from docemb_lib.settings.profile import Profile
from docemb_lib.teachers import SBERT, ParagraphVector, paragraph_vector

NOTEBOOK = "02_paragraph_vector"
MINE = """
corpus: {source: local, path: ../texts, validation: 4, tasks: 20}
structural_teacher: {model: all-MiniLM-L6-v2, max_tokens: 64}
student: {model: all-MiniLM-L6-v2}
parameters: {student_projection: "7"}  # as wide as PV
contextual_teachers:
  DM: {dm: true, vector_size: 4, epochs: 2}
  DBOW: {dm: false, vector_size: 3, epochs: 2, dbow_words: false}
  PV:
  - {dm: false, vector_size: 3, epochs: 2, dbow_words: false}
  - {dm: true, vector_size: 4, epochs: 2}
  lsa_dim: 3
"""


@pytest.fixture
def make(workspace_root, infer_in_process):
    """A run of notebook 02 with some parameters, on 40 short texts."""
    files = {"params/mine.yaml": MINE}
    for n in range(40):
        words = " ".join(f"Word{(n * 7 + k) % 23}" for k in range(40))
        files[f"texts/{n}.txt"] = f"Text {n} {words}"
    write_files(workspace_root, files)

    def run(**parameters):
        return Run.of(NOTEBOOK, Profile.load("mine"), **parameters)

    return run


@pytest.fixture
def trained(monkeypatch):
    """Labels of the models that are trained, in order."""
    labels = []
    fit_words = ParagraphVector.fit_words

    def noted(model, *given):
        labels.append(model.label)
        return fit_words(model, *given)

    monkeypatch.setattr(ParagraphVector, "fit_words", noted)
    return labels


def folders(kind):
    return [path for path in shelf_of(kind).glob("*") if path.is_dir()]


def test_words_are_written_once_for_each_preprocessing(make, trained):
    words = make().teachers.words("lowercase")
    assert (words.documents, words.kept_words(1)) == (16, 23 + 1 + 16)
    for given in ({"vector_size": 4}, {"dm": False}):
        make(**given).model  # noqa: B018
    assert len(folders("paragraph-vector")) == len(trained) == 2
    assert len(folders("words")) == 1
    assert make().teachers.words("none").texts == words.texts
    assert len(folders("words")) == 2


def test_members_of_a_compound_are_the_single_models_and_not_trained_again(make, trained):
    texts = make().corpus.texts("validation")[:]
    dbow = make(dm=False, vector_size=3, preprocess="none").model
    compound = make(compound="DBOW;3;None;2+DM;4;lowercase;2").model
    assert compound.label == "DM;4;lowercase;2+DBOW;3;None;2"
    rows = compound.embed(texts)
    np.testing.assert_array_equal(rows[:, 4:], dbow.embed(texts))
    np.testing.assert_array_equal(rows[:, :4], make(vector_size=4).model.embed(texts))
    assert trained == ["DBOW;3;None;2", "DM;4;lowercase;2"]
    make(vector_size=4, seed=1).model  # noqa: B018
    assert trained[2:] == ["DM;4;lowercase;2"]


def test_pv_is_the_compound_teacher_and_asks_no_member_twice(make, monkeypatch):
    run = make()
    models = contextual_models(run.teachers)
    labels = [model.label for model in models.values()]
    assert labels == ["DM;4d", "DBOW;3d", "PV;7d", "LSA;3d"]
    texts = run.corpus.texts("validation")[:]
    rows = models[Kind.PV].embed(texts)
    np.testing.assert_array_equal(rows, run.teachers.contextual("PV").embed(texts))
    monkeypatch.setattr(ParagraphVector, "embed", lambda *_: pytest.fail("it is embedded"))
    np.testing.assert_array_equal(rows[:, :4], models[Kind.DM].embed(texts))


def test_an_interrupted_training_leaves_its_state_for_the_next_call(make, monkeypatch):
    def interrupted(folder, *, but=None):
        if but is None:  # after training, while tidying up
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(paragraph_vector, "remove_states", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make(seed=1).model  # noqa: B018
    (partial,) = folders("paragraph-vector")
    assert partial.suffix == ".partial"
    assert list(partial.glob("state-*-2"))
    train = "gensim.models.doc2vec.Doc2Vec.train"
    monkeypatch.setattr(train, lambda *_, **__: pytest.fail("trained again"))
    make(seed=1).model  # noqa: B018
    (folder,) = folders("paragraph-vector")
    assert not list(folder.glob("*state-*"))


def test_lsa_is_compared_where_it_takes_seconds(make, monkeypatch):
    teachers = make().teachers
    lsa = teachers.contextual("LSA")
    expected = lsa.embed(teachers.corpus.texts("train", 9))
    np.testing.assert_allclose(teachers.embeddings(lsa, "train", 9), expected)
    monkeypatch.setattr("docemb_lib.runs.models.MAX_LSA_DOCUMENTS", 15)
    assert [*contextual_models(teachers)] == [Kind.DM, Kind.DBOW, Kind.PV]


@pytest.fixture
def with_another_corpus(make, workspace_root):
    """Fits contextual teachers on another spelling of the texts, and thirty others."""

    def write():
        corpus = "  corpus: {source: local, path: ../more}\n  DM:"
        files = {"params/mine.yaml": MINE.replace("  DM:", corpus)}
        for file in (workspace_root / "texts").iterdir():
            files[f"more/copy-of-{file.name}"] = file.read_text().upper()
        for n in range(30):
            files[f"more/{n}.txt"] = f"Another text {n} " + "about words " * 20
        return write_files(workspace_root, files)

    return write


def test_teachers_with_a_corpus_of_their_own_never_see_held_out_documents(
    make, with_another_corpus
):
    with_another_corpus()
    corpus = make().corpus
    spelled = {}
    for name in ("train", "validation", "tasks"):
        spelled[name] = {" ".join(text.upper().split()) for text in corpus.texts(name)}
    words = make().teachers.words("none")
    lines = set(words.file.read_text(encoding="utf-8").splitlines())
    held_out = spelled["validation"] | spelled["tasks"]
    assert (len(held_out), len(lines), words.documents) == (24, 46, 46)
    assert not lines & held_out
    assert spelled["train"] <= lines  # what students learn from, in the other spelling


def test_teachers_of_different_corpora_are_never_mixed(make, with_another_corpus, trained):
    run = make()
    rows = run.teachers.embeddings(run.teachers.contextual("DM"), "train", 9)
    root = with_another_corpus()
    other = make()
    others = other.teachers.embeddings(other.teachers.contextual("DM"), "train", 9)
    assert np.abs(others - rows).max() > 0
    assert len(folders("corpus")) == 1  # the students'
    assert other.key != run.key
    (root / "more" / "0.txt").write_text("It has changed, and is read again. " * 9)
    runs = (run, other, make())
    for name in ("DM", "LSA"):
        assert len({each.teachers.contextual(name).fingerprint for each in runs}) == 3
    assert len(trained) == 3


def test_a_teachers_corpus_that_is_not_there_is_refused_before_any_work(
    make, with_another_corpus, refused
):
    path = with_another_corpus() / "params" / "mine.yaml"
    path.write_text(path.read_text().replace("../more", "../moore"))
    refused(r"corpus.path: .*/moore does not exist", make().check)
    assert not (path.parents[1] / "outputs").exists()


def test_a_model_or_documents_that_are_not_there_are_refused(
    make, workspace_root, monkeypatch, refused
):
    file = workspace_root / "params" / "mine.yaml"
    with monkeypatch.context() as patch:
        patch.setattr(stages, "read_documents", lambda *_, **__: pytest.fail("read too early"))
        file.write_text(MINE.replace("model: all-MiniLM-L6-v2}", "model: no/where}", 2))
        said = "no/where: there is no such folder, it was not downloaded .* HF_HUB_OFFLINE switches"
        refused(said, lambda: make().corpus.folder)
    file.write_text(MINE)
    assert len(make().corpus.split("train")) == 16
    for given, documents, said in (
        ("pooling: mean", 999, "documents: 999 are .* the corpus has 16 documents; ask for fewer"),
        ("words: 17", 9, "student.words: 17 are asked for"),
        ("layers: [6]", 9, "layers 0 to 5; name"),
    ):
        file.write_text(MINE.replace("L6-v2}\nparam", f"L6-v2, {given}}}\nparam"))
        refused(said, Run.of("06_evaluation", Profile.load("mine"), documents=documents).check)


def test_the_mask_keeps_exactly_the_documents_that_the_teacher_reads_whole(make, monkeypatch):
    """Documents around the limit: their embeddings change by truncation or they do not."""
    run = make()
    texts = [" ".join(["word"] * n) for n in range(58, 68)]
    sbert = run.teachers.sbert("truncate")
    counts = sbert.count_tokens(texts)
    assert counts == list(range(58, 68))
    columns = {"n_structural_tokens": [*counts, 3, 3]}
    monkeypatch.setattr(run.corpus, "split", lambda name: columns)
    lengths = run.teachers.structural_lengths("train", len(texts))
    whole = SBERT(sbert.model, bf16=False).embed(texts)
    cut = SBERT(sbert.model, max_tokens=sbert.max_tokens, bf16=False).embed(texts)
    keep = Weighting(max_structural_len=sbert.max_tokens).keep(torch.from_numpy(lengths))
    assert keep.tolist() == np.isclose(whole, cut, atol=1e-6).all(axis=1).tolist()
    assert keep.tolist() == [True] * 5 + [False] * 5
