"""Words and contextual teachers as artefacts: made once, shared, resumed, and refused before any
work.
"""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import write_files

from docemb_lib.corpus import build
from docemb_lib.losses import Weighting
from docemb_lib.runs import stages
from docemb_lib.runs.run import Run
from docemb_lib.runs.kinds import Kind
from docemb_lib.runs.models import contextual_models, paragraph_vector_model
from docemb_lib.runs.stages import Teachers
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
def make(workspace_root, workspace, infer_in_process):
    """Stages of notebook 02 with some parameters, on 40 short texts."""
    words = {n: " ".join(f"Word{(n * 7 + k) % 23}" for k in range(40)) for n in range(40)}
    texts = {f"texts/{n}.txt": f"Text {n} {own}" for n, own in words.items()}
    write_files(workspace_root, {**texts, "params/mine.yaml": MINE})

    def stages(**parameters):
        return Stages(Run.of(NOTEBOOK, Profile.load("mine"), **parameters), workspace)

    return stages


@pytest.fixture
def trained(monkeypatch):
    """Labels of the models that are trained, in order."""
    labels = []
    original = ParagraphVector.fit_words
    monkeypatch.setattr(
        ParagraphVector, "fit_words", lambda m, *a: (labels.append(m.label), original(m, *a))[1]
    )
    return labels


def model_of(stages):
    key = stages.key
    return paragraph_vector_model(
        run.teachers, key.paragraph_vectors, seed=key.profile.parameters.seed
    )


def artefacts(stages, kind):
    return [
        path for path in (stages.workspace.outputs / "artefacts" / kind).iterdir() if path.is_dir()
    ]


def test_words_are_written_once_for_each_preprocessing(make):
    stages = make()
    lowercase = run.teachers.words("lowercase")
    assert (lowercase.documents, lowercase.kept_words(1)) == (16, 23 + 1 + 16)
    for given in ({"vector_size": 4}, {"dm": False}):
        model_of(make(**given))
    assert (len(artefacts(stages, "paragraph-vector")), len(artefacts(stages, "words"))) == (2, 1)
    run.teachers.words("none")
    assert len(artefacts(stages, "words")) == 2
    texts = {
        json.loads((path / "words.json").read_text())["texts"]
        for path in artefacts(stages, "words")
    }
    assert texts == {lowercase.texts}


def test_members_of_a_compound_are_the_single_models_and_not_trained_again(make, trained):
    single = model_of(make(dm=False, vector_size=3, preprocess="none"))
    assert trained == ["DBOW;3;None;2"]
    stages = make(compound="DBOW;3;None;2+DM;4;lowercase;2")
    compound = model_of(stages)
    assert (trained, compound.label) == (
        ["DBOW;3;None;2", "DM;4;lowercase;2"],
        "DM;4;lowercase;2+DBOW;3;None;2",
    )
    texts = run.corpus.split("validation")["text"][:]
    found, dbow = compound.embed(texts), single.embed(texts)
    assert found.shape == (4, 7)
    np.testing.assert_array_equal(found[:, 4:], dbow)
    np.testing.assert_array_equal(found[:, :4], model_of(make(vector_size=4)).embed(texts))
    assert len(trained) == 2
    model_of(make(vector_size=4, seed=1))
    assert trained[2:] == ["DM;4;lowercase;2"]


def test_pv_is_the_compound_teacher_and_asks_no_member_twice(make, trained):
    stages = make()
    models = contextual_models(run.teachers)
    assert ([model.label for model in models.values()], len(trained)) == (
        ["DM;4d", "DBOW;3d", "PV;7d", "LSA;3d"],
        2,
    )
    texts = run.corpus.split("validation")["text"][:]
    found = models[Kind.PV].embed(texts)
    np.testing.assert_array_equal(found, run.teachers.contextual("PV").embed(texts))
    np.testing.assert_array_equal(found[:, :4], models[Kind.DM].embed(texts))


def test_an_interrupted_training_leaves_its_state_for_the_next_call(make, monkeypatch):
    undisturbed = model_of(make()).fingerprint
    stages = make(seed=1)

    def interrupted(folder, *, but=None):
        if but is None:  # after training, while tidying up
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(paragraph_vector, "remove_states", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model_of(stages)
    (partial,) = stages.workspace.outputs.glob("artefacts/paragraph-vector/*.partial")
    assert list(partial.glob("state-*-2"))
    monkeypatch.setattr(
        "gensim.models.doc2vec.Doc2Vec.train", lambda *_, **__: pytest.fail("trained again")
    )
    assert model_of(make(seed=1)).fingerprint != undisturbed
    assert not list(stages.workspace.outputs.glob("artefacts/paragraph-vector/*.partial"))
    assert not list(stages.workspace.outputs.glob("artefacts/paragraph-vector/*/*state-*"))


def test_lsa_is_compared_where_it_takes_seconds(make, monkeypatch):
    stages = make()
    lsa, texts = run.teachers.contextual("LSA"), run.corpus.split("train")["text"][:9]
    np.testing.assert_allclose(run.teachers.embeddings(lsa, "train", 9), lsa.embed(texts))
    monkeypatch.setattr("docemb_lib.runs.models.MAX_LSA_DOCUMENTS", 15)
    assert [*contextual_models(make().teachers)] == [Kind.DM, Kind.DBOW, Kind.PV]


def with_a_corpus_of_the_teachers_own(workspace_root):
    """The profile `mine` with contextual teachers fitted on another spelling of its texts, and
    thirty others.
    """
    copies = {
        f"more/copy-of-{file.name}": file.read_text().upper()
        for file in (workspace_root / "texts").iterdir()
    }
    others = {f"more/{n}.txt": f"Another text {n} " + "about words " * 20 for n in range(30)}
    own = MINE.replace("  DM:", "  corpus: {source: local, path: ../more}\n  DM:")
    write_files(workspace_root, {**copies, **others, "params/mine.yaml": own})


def test_teachers_with_a_corpus_of_their_own_never_see_held_out_documents(make, workspace_root):
    with_a_corpus_of_the_teachers_own(workspace_root)
    stages = make()
    words = run.teachers.words("none")
    lines = set(words.file.read_text(encoding="utf-8").splitlines())

    def spelled(*splits):
        return {
            " ".join(text.upper().split())
            for name in splits
            for text in run.corpus.split(name)["text"]
        }

    held_out, trained_on = spelled("validation", "tasks"), spelled("train")
    assert (len(held_out), len(trained_on), len(lines), words.documents) == (24, 16, 46, 46)
    assert not lines & held_out
    assert trained_on <= lines  # what students learn from, in the other spelling
    assert len(run.corpus.split("train")) == 16  # theirs stays as it is


def test_teachers_of_different_corpora_are_never_mixed(make, workspace_root):
    stages = make()
    one = run.teachers.contextual("DM")
    rows = run.teachers.embeddings(one, "train", 9)
    before = stages.key.fingerprint
    with_a_corpus_of_the_teachers_own(workspace_root)
    stages = make()
    other = run.teachers.contextual("DM")
    assert other.fingerprint != one.fingerprint
    assert np.abs(run.teachers.embeddings(other, "train", 9) - rows).max() > 0
    assert len(artefacts(stages, "corpus")) == 1  # the students'
    assert stages.key.fingerprint != before
    teachers = run.profile.contextual_teachers.model_copy(update={"corpus": None})
    without = Stages(
        Run(NOTEBOOK, run.profile.model_copy(update={"contextual_teachers": teachers}))
    )
    assert (
        run.teachers.contextual("LSA").fingerprint
        != without.teachers.contextual("LSA").fingerprint
    )
    (workspace_root / "more" / "0.txt").write_text(
        "It has changed, and is read again. " * 9, encoding="utf-8"
    )
    assert make().teachers.contextual("DM").fingerprint != other.fingerprint


def test_a_killed_build_of_the_teachers_corpus_goes_on_after_its_last_part(
    make, workspace_root, monkeypatch
):
    with_a_corpus_of_the_teachers_own(workspace_root)
    monkeypatch.setattr(build, "PART", 8)
    stages = make()
    run.corpus.artefact  # noqa: B018, not what is killed
    write, written = build._write, []

    def killed_at_the_fourth(file, *given):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(file.name)
        write(file, *given)

    with monkeypatch.context() as patch:
        patch.setattr(build, "_write", killed_at_the_fourth)
        with pytest.raises(KeyboardInterrupt):
            run.teachers.words("none")
    monkeypatch.setattr(
        build, "_write", lambda file, *given: (written.append(file.name), write(file, *given))
    )
    assert make().teachers.words("none").documents == 46  # as of an unbroken build, see above
    assert written == [f"{number:05}.arrow" for number in range(6)]
    assert not list(stages.workspace.outputs.glob("artefacts/teacher-corpus/*.partial"))


def test_a_teachers_corpus_that_is_not_there_is_refused_before_any_work(
    make, workspace_root, refused
):
    with_a_corpus_of_the_teachers_own(workspace_root)
    path = workspace_root / "params" / "mine.yaml"
    path.write_text(path.read_text().replace("../more", "../moore"), encoding="utf-8")
    refused(r"corpus.path: .*/moore does not exist", make().check)
    assert not (workspace_root / "outputs").exists()


def test_a_model_or_documents_that_are_not_there_are_refused(
    make, workspace_root, monkeypatch, refused
):
    with monkeypatch.context() as patch:
        patch.setattr(
            stages,
            "read_documents",
            lambda *_, **__: pytest.fail("the corpus was read before its models"),
        )
        file = workspace_root / "params" / "mine.yaml"
        file.write_text(MINE.replace("model: all-MiniLM-L6-v2}", "model: no/where}", 2))
        said = (
            "no/where: there is no such folder, it was not downloaded .* HF_HUB_OFFLINE switches it"
        )
        refused(said, lambda: make().corpus.artefact)
    file.write_text(MINE)
    assert len(make().corpus.split("train")) == 16
    run = Stages(Run.of("03_structural", Profile.load("mine"), documents=999))
    refused(
        "documents: 999 are asked for, but .* the corpus has 16 documents; ask for fewer", run.check
    )
    for given, said in {
        "lexical: 17": "student.lexical: 17 are asked for",
        "layers: [6]": "layers 0 to 5; name",
    }.items():
        file.write_text(MINE.replace("L6-v2}\nparam", f"L6-v2, {given}}}\nparam"))
        refused(said, Stages(Run.of("06_evaluation", Profile.load("mine"), documents=9)).check)


def test_the_mask_keeps_exactly_the_documents_that_the_teacher_reads_whole(make, monkeypatch):
    """Documents around the limit: their embeddings change by truncation or they do not."""
    stages = make()
    texts = [" ".join(["word"] * n) for n in range(58, 68)]
    sbert = run.teachers.sbert("truncate")
    counts = sbert.count_tokens(texts)
    monkeypatch.setattr(
        run.corpus, "split", lambda name: {"n_structural_tokens": [*counts, 3, 3]}
    )
    lengths = run.teachers.structural_lengths("train", len(texts))
    whole = SBERT(sbert.model, bf16=False).embed(texts)
    cut = SBERT(sbert.model, max_tokens=sbert.max_tokens, bf16=False).embed(texts)
    keep = Weighting(max_structural_len=sbert.max_tokens).keep(torch.from_numpy(lengths))
    assert counts == list(range(58, 68))
    assert keep.tolist() == [
        bool(np.allclose(a, b, atol=1e-6)) for a, b in zip(whole, cut, strict=True)
    ]
    assert keep.tolist() == [True] * 5 + [False] * 5


class Numbering:
    """A teacher that embeds a text as its number."""

    dim = 1

    def __init__(self, fingerprint):
        self.fingerprint = fingerprint
        self.asked = []

    def embed(self, texts):
        self.asked.append(len(texts))
        return np.array([[int(text)] for text in texts], dtype=np.float32)


@pytest.fixture
def numbers(workspace):
    """Embeddings of numbers by a teacher of this fingerprint, and the teacher."""
    corpus = SimpleNamespace(
        fingerprint="corpus", texts=lambda split, rows: [str(n) for n in range(rows)]
    )
    stage = Teachers(Profile(name="made up"), workspace, corpus)

    def embed(rows, split="train", fingerprint="teacher"):
        teacher = Numbering(fingerprint)
        return stage.embeddings(teacher, split, rows)[:, 0].tolist(), teacher.asked

    return embed


def test_embeddings_of_more_documents_serve_fewer_of_the_same_split(numbers):
    assert numbers(9) == ([*range(9)], [9])
    assert numbers(4) == ([*range(4)], [])
    assert numbers(4, split="validation") == ([*range(4)], [4])


def test_embeddings_of_fewer_documents_or_another_teacher_do_not_serve(numbers):
    numbers(4)
    assert numbers(9) == ([*range(9)], [9])
    assert numbers(9, fingerprint="another") == ([*range(9)], [9])
