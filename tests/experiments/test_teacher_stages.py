"""Words and contextual teachers as artefacts: made once, shared, resumed, and refused before any work."""

from __future__ import annotations

import json

import numpy as np
import pytest

from docemb_lib.corpus import build
from docemb_lib.errors import InputError
from docemb_lib.experiments import sweeps
from docemb_lib.experiments.check import check
from docemb_lib.experiments.models import contextual_models, paragraph_vector_model
from docemb_lib.experiments.plan import resolve_sweep
from docemb_lib.experiments.run import fingerprint_of_run
from docemb_lib.experiments.runkey import label_of
from docemb_lib.experiments.students import Stages
from docemb_lib.experiments.sweeps import execute_sweep
from docemb_lib.settings import members_of
from docemb_lib.settings.profile import Profile
from docemb_lib.teachers import ParagraphVector, paragraph_vector
from docemb_lib.teachers import gensim_models as gensim_training
from docemb_lib.workspace import Workspace

NOTEBOOK = "02_paragraph_vector"
STUDENT = {"documents": 12}
MINE = """
corpus: {source: local, path: ../texts, validation: 4, tasks: 20}
structural_teacher: {model: all-MiniLM-L6-v2, max_tokens: 64}
student: {model: all-MiniLM-L6-v2}
contextual_teachers:
  DM: {dm: true, vector_size: 4, epochs: 2}
  DBOW: {dm: false, vector_size: 3, epochs: 2, dbow_words: false}
  lsa_dim: 3
"""


@pytest.fixture
def make(workspace_root, monkeypatch):
    """Stages of notebook 02 with some parameters, on 40 short texts."""
    monkeypatch.setattr(paragraph_vector, "cpu_count", lambda: 1)  # processes for so little would only cost their start
    (workspace_root / "texts").mkdir()
    for number in range(40):
        words = f"Text {number} " + " ".join(f"Word{(number * 7 + k) % 23}" for k in range(40))
        (workspace_root / "texts" / f"{number}.txt").write_text(words, encoding="utf-8")
    (workspace_root / "params" / "mine.yaml").write_text(MINE, encoding="utf-8")

    def stages(**parameters):
        return Stages(Profile.load("mine").for_notebook(NOTEBOOK, **parameters), Workspace(workspace_root))

    return stages


@pytest.fixture
def trained(monkeypatch):
    """Labels of the models that are trained, in order."""
    labels = []
    original = ParagraphVector._train
    monkeypatch.setattr(ParagraphVector, "_train", lambda m, *a: (labels.append(m.label), original(m, *a))[1])
    return labels


def artefacts(stages, kind):
    return [path for path in (stages.workspace.outputs / "artefacts" / kind).iterdir() if path.is_dir()]


def test_words_are_written_once_for_each_preprocessing(make):
    stages = make()
    lowercase = stages.words("lowercase")
    assert (lowercase.documents, lowercase.vocabulary(1)) == (16, 23 + 1 + 16)
    for given in ({"vector_size": 4}, {"dm": False}):
        paragraph_vector_model(make(**given))
    assert len(artefacts(stages, "paragraph-vector")) == 2
    assert len(artefacts(stages, "words")) == 1
    stages.words("none")
    assert len(artefacts(stages, "words")) == 2
    assert {json.loads((path / "words.json").read_text())["texts"] for path in artefacts(stages, "words")} == {
        lowercase.texts
    }


def test_members_of_a_compound_are_the_single_models_and_not_trained_again(make, trained):
    single = paragraph_vector_model(make(dm=False, vector_size=3, preprocess="none"))
    assert trained == ["DBOW;3;None;2"]
    stages = make(compound="DBOW;3;None;2+DM;4;lowercase;2")
    compound = paragraph_vector_model(stages)
    assert trained == ["DBOW;3;None;2", "DM;4;lowercase;2"]
    assert compound.label == "DM;4;lowercase;2+DBOW;3;None;2"
    texts = stages.split("validation")["text"][:]
    found, dbow = compound.load().embed(texts), single.load().embed(texts)
    assert (found.shape, compound.load().dim) == ((4, 7), 7)
    np.testing.assert_array_equal(found[:, 4:], dbow)
    other = paragraph_vector_model(make(vector_size=4))
    assert len(trained) == 2
    np.testing.assert_array_equal(found[:, :4], other.load().embed(texts))
    paragraph_vector_model(make(vector_size=4, seed=1))
    assert trained[2:] == ["DM;4;lowercase;2"]


def test_a_run_of_a_compound_does_not_depend_on_the_parameters_of_single_models(make):
    compound = "DM;4;stem;10%+DBOW;3;None;2"
    profiles = [
        make(**given).profile
        for given in (
            {"compound": compound},
            {"compound": " DBOW;3;None;2 + DM;4;stem;10% ", "dm": False, "vector_size": 9},
            {"compound": compound, "min_count": 7, "preprocess": "none"},
        )
    ]
    assert {label_of(NOTEBOOK, profile.parameters) for profile in profiles} == {compound}
    assert len({fingerprint_of_run(NOTEBOOK, profile) for profile in profiles}) == 1
    assert fingerprint_of_run(NOTEBOOK, make().profile) != fingerprint_of_run(NOTEBOOK, profiles[0])
    assert make(compound=None, vector_size=9).profile.parameters.vector_size == 9


@pytest.mark.parametrize(
    "compound",
    ["DM;4;stem;2", "DM;4;stem;2+", "DM;4;stem;2+DBOW;3;lemma;2", "DM;4;stem;2+DM;4;stem;2", "DM;4;stem;5%+DM;4;stem;2",
     "DM;1;stem;2+DBOW;3;stem;2", "PV;4;stem;2+DBOW;3;stem;2", "DM;4;stem;0+DBOW;3;stem;2", ""],
)  # fmt: skip
def test_a_compound_of_another_form_is_refused_with_the_form(make, compound):
    with pytest.raises(
        InputError, match=r"compound: must be two or more different labels ARCH;.*, e\.g\. DM;1024;stem"
    ):
        make(compound=compound)


def test_the_members_of_the_thesis_best_compound():
    assert members_of("DBOW;1024;None;10%+DM;768;stem;2") == [
        {"dm": True, "vector_size": 768, "preprocess": "stem", "min_count": 2},
        {"dm": False, "vector_size": 1024, "preprocess": "none", "min_count": "10%"},
    ]


def test_a_run_that_would_keep_no_word_is_refused_once_the_words_are_counted(make):
    for given in ({"min_count": 5000}, {"compound": "DM;4;lowercase;5000+DBOW;3;lowercase;2"}):
        check(make(**given), NOTEBOOK)  # nothing is known yet
    make().words("lowercase")
    for given in ({"min_count": 5000}, {"compound": "DM;4;lowercase;5000+DBOW;3;lowercase;2"}):
        with pytest.raises(InputError, match=r"min_count: none of the .* words in 16 training .* 5000 times"):
            check(make(**given), NOTEBOOK)
    check(make(min_count=2), NOTEBOOK)
    assert not (make().workspace.outputs / "artefacts" / "paragraph-vector").exists()


def test_a_student_is_refused_whose_teachers_would_keep_no_word(make, workspace_root):
    path = workspace_root / "params" / "mine.yaml"
    path.write_text(MINE.replace("vector_size: 3,", "vector_size: 3, min_count: 5000,"))
    students = [Profile.load("mine").for_notebook(name, **STUDENT) for name in ("03_structural", "05_weighting")]
    for profile in students:
        check(Stages(profile), "05_weighting")  # nothing is known yet
    make().words("lowercase")
    check(Stages(students[0]), "03_structural")  # it has no contextual teacher
    with pytest.raises(InputError, match=r"min_count: none of the .* words in 16 training .* 5000 times"):
        check(Stages(students[1]), "05_weighting")


class Told(list):
    def prepares(self, what):
        self.append(what)


def test_a_sweep_counts_words_before_its_first_run_and_refuses_a_run_that_would_keep_none(make, monkeypatch):
    monkeypatch.setattr(sweeps, "local_workers", lambda count: pytest.fail("workers were started"))
    runs = [{"min_count": 2}, {"compound": "DM;4;stem;5000+DBOW;3;lowercase;2"}]
    workspace = make().workspace
    planned = resolve_sweep("02", runs, workspace, profile="mine", parameters={})  # nothing is known yet
    told = Told()
    with pytest.raises(InputError, match=r"^02_paragraph_vector \(DM;4;stem;5000\+.*: min_count: none of the"):
        execute_sweep(planned, workspace, told)
    assert told == ["the words of the corpus, lowercase", "the words of the corpus, stem"]
    assert len(artefacts(make(), "words")) == 2
    assert not (workspace.outputs / "records").exists()


def test_an_interrupted_training_leaves_its_state_for_the_next_call(make, monkeypatch):
    undisturbed = paragraph_vector_model(make()).fingerprint
    stages = make(seed=1)

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(gensim_training, "remove_states", killed)  # in this process: after training, while tidying up
        with pytest.raises(KeyboardInterrupt):
            paragraph_vector_model(stages)
    (partial,) = stages.workspace.outputs.glob("artefacts/paragraph-vector/*.partial")
    assert list(partial.glob("state-*-2"))
    monkeypatch.setattr(ParagraphVector, "_train", lambda *_: pytest.fail("trained again"))
    assert paragraph_vector_model(make(seed=1)).fingerprint != undisturbed
    assert not list(stages.workspace.outputs.glob("artefacts/paragraph-vector/*.partial"))
    assert not list(stages.workspace.outputs.glob("artefacts/paragraph-vector/*/*state-*"))


def test_lsa_is_compared_where_it_takes_seconds(make, monkeypatch):
    stages = make()
    assert [model.label for model in contextual_models(stages)][-1] == "LSA;3d"
    embeddings = stages.teacher_embeddings(stages.contextual_teacher("LSA"), "train", 9)
    np.testing.assert_allclose(embeddings, stages.contextual_teacher("LSA").embed(stages.split("train")["text"][:9]))
    monkeypatch.setattr("docemb_lib.experiments.stages.LSA_BY_THE_WAY", 15)
    assert [model.label for model in contextual_models(make())][-1].startswith("PV")


def test_workers_and_a_cap_reach_the_model(make):
    settings = make().profile.contextual_teachers.DBOW.model_copy(update={"min_count": 1})
    capped = settings.model_copy(update={"workers": 2, "max_vocab_size": 20})
    model = make().paragraph_vector(capped, seed=0)
    assert (model.workers, model.max_vocab_size) == (2, 20)
    assert model.fitted.vocabulary < make().paragraph_vector(settings, seed=0).fitted.vocabulary == 40


def with_a_corpus_of_the_teachers_own(workspace_root, *, more=30):
    """The profile `mine` with contextual teachers fitted on its texts, another spelling of them, and `more` others."""
    texts = workspace_root / "more"
    texts.mkdir()
    for file in (workspace_root / "texts").iterdir():
        (texts / f"copy-of-{file.name}").write_text(file.read_text(encoding="utf-8").upper(), encoding="utf-8")
    for number in range(more):
        (texts / f"{number}.txt").write_text(f"Another text {number} " + "about words " * 20, encoding="utf-8")
    own = MINE.replace("  DM:", "  corpus: {source: local, path: ../more}\n  DM:")
    (workspace_root / "params" / "mine.yaml").write_text(own, encoding="utf-8")


def test_teachers_with_a_corpus_of_their_own_never_see_what_the_students_corpus_holds_out(make, workspace_root):
    with_a_corpus_of_the_teachers_own(workspace_root)
    stages = make()
    words = stages.words("none")
    lines = set(words.file.read_text(encoding="utf-8").splitlines())
    held_out = {
        " ".join(text.upper().split()) for name in ("validation", "tasks") for text in stages.split(name)["text"]
    }
    trained_on = {" ".join(text.upper().split()) for text in stages.split("train")["text"]}
    assert (len(held_out), len(trained_on), len(lines), words.documents) == (24, 16, 46, 46)
    assert not lines & held_out
    assert trained_on <= lines  # what students learn from, in the other spelling
    assert len(stages.split("train")) == 16  # theirs stays as it is


def test_teachers_of_different_corpora_are_never_mixed(make, workspace_root):
    stages = make()
    one = stages.contextual_teacher("DM")
    rows = stages.teacher_embeddings(one, "train", 9)
    before = fingerprint_of_run(NOTEBOOK, stages.profile)
    with_a_corpus_of_the_teachers_own(workspace_root)
    stages = make()
    other = stages.contextual_teacher("DM")
    assert other.fingerprint != one.fingerprint
    assert np.abs(stages.teacher_embeddings(other, "train", 9) - rows).max() > 0
    assert len(artefacts(stages, "corpus")) == 1  # the students'
    assert fingerprint_of_run(NOTEBOOK, stages.profile) != before
    assert (
        stages.contextual_teacher("LSA").fingerprint
        != Stages(without_its_own(stages)).contextual_teacher("LSA").fingerprint
    )
    newest = workspace_root / "more" / "0.txt"
    newest.write_text("It has changed, and is read again. " * 9, encoding="utf-8")
    assert make().contextual_teacher("DM").fingerprint != other.fingerprint


def test_the_teachers_corpus_is_that_of_its_texts_and_of_what_is_held_out_alone(make, workspace_root):
    with_a_corpus_of_the_teachers_own(workspace_root)
    stages = make()
    changed = {  # what is changed in the profile, and whether the teachers read other texts
        "tokens of the structural teacher": (
            {"structural_teacher": {"model": str(stages.untrained_student.path)}},
            False,
        ),
        "held out": ({"corpus": {"validation": 5}}, True),
        "their own": ({"contextual_teachers": {"corpus": {"documents": 20}}}, True),
    }
    for what, (given, expected) in changed.items():
        profile = Profile.model_validate(_laid_over(stages.profile.model_dump(), given))
        other = Stages(profile, stages.workspace)
        assert (other.teacher_corpus.fingerprint != stages.teacher_corpus.fingerprint) is expected, what
        assert other.corpus.fingerprint != stages.corpus.fingerprint or what == "their own"


def _laid_over(base, given):
    return {**base, **{k: _laid_over(base[k], v) if isinstance(v, dict) else v for k, v in given.items()}}


def without_its_own(stages):
    teachers = stages.profile.contextual_teachers.model_copy(update={"corpus": None})
    return stages.profile.model_copy(update={"contextual_teachers": teachers})


def test_a_killed_build_of_the_teachers_corpus_goes_on_and_ends_in_the_same_texts(make, workspace_root, monkeypatch):
    with_a_corpus_of_the_teachers_own(workspace_root)
    monkeypatch.setattr(build, "PART", 8)
    stages = make()
    stages.corpus  # noqa: B018, not what is killed
    write, written = build._write, []

    def killed_at_the_fourth(file, *given):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(file.name)
        write(file, *given)

    with monkeypatch.context() as patch:
        patch.setattr(build, "_write", killed_at_the_fourth)
        with pytest.raises(KeyboardInterrupt):
            stages.words("none")
    monkeypatch.setattr(build, "_write", lambda file, *given: (written.append(file.name), write(file, *given)))
    words = make().words("none")
    assert written == [f"{number:05}.arrow" for number in range(6)]
    assert not list(stages.workspace.outputs.glob("artefacts/teacher-corpus/*.partial"))
    monkeypatch.undo()
    monkeypatch.chdir(workspace_root)
    (workspace_root / "outputs").rename(workspace_root / "earlier")
    monkeypatch.setattr(paragraph_vector, "cpu_count", lambda: 1)
    assert make().words("none").texts == words.texts


def test_a_teachers_corpus_that_is_not_there_is_refused_before_any_work(make, workspace_root):
    with_a_corpus_of_the_teachers_own(workspace_root)
    path = workspace_root / "params" / "mine.yaml"
    path.write_text(path.read_text().replace("../more", "../moore"), encoding="utf-8")
    with pytest.raises(InputError, match=r"corpus.path: .*/moore does not exist"):
        check(make(), NOTEBOOK)
    assert not (workspace_root / "outputs").exists()
