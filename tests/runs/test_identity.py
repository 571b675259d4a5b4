"""What identifies a run: which runs are the same, what they are called, and what cannot be one."""

import json
import re
import shutil

import pytest
from conftest import with_setting, write_files

from docemb_lib.cli.commands import parse_parameters
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import SimDE
from docemb_lib.thesis.values import published

# Parameters are written as the option -p takes them.
LABELS = """
04_projections structural_loss=None = C (PV), S:8, C:-, 9 docs
05_weighting lam=0.5 = S+PV masked, 384 tokens, λ .5, S:8, C:-, 9 docs
05_weighting lam=0.2 = S+PV masked, λ .2, 384 tokens, S:8, C:-, 9 docs
05_weighting lam=None max_structural_len=None = S+PV, plain sum, S:8, C:-, 9 docs
05_weighting contextual_teacher=None max_structural_len=None = S (cosine), 9 docs
05_weighting weighting=structural = S+PV masked, 384 tokens, λ .5, structural, S:8, C:-, 9 docs
03_structural structural_loss=contrastive temperature=0.05 = S (contrastive), τ .05, 9 docs
03_structural structural_loss=max-margin gamma=0.5 = S (max-margin), mse, γ .5, 9 docs
07_simde = SimDE, 9 docs
07_simde pairs=dropout pair_temperature=0.1 = SimCSE, τ .1, 9 docs
07_simde mlm_weight=0 seed=2 = SimDE, mlm=0.0, 9 docs, seed 2
04_projections delta=0 beta=0 = S+PV, plain sum, S:8, C:-, δ=0.0, β=0.0, 9 docs
04_projections contextual_loss=cca beta=0.5 = S+PV, plain sum, cca, S:8, C:-, 9 docs
"""
OTHERS = """
05_weighting | lam=0.2
05_weighting | lam_by_length=linear:9:100
05_weighting | max_structural_len=9
05_weighting | contextual_teacher=DM
05_weighting | contextual_loss=mse
05_weighting | student_projection=16
05_weighting | contextual_projection=-
05_weighting | weighting=structural
05_weighting | beta=0.5
05_weighting | delta=0.5
05_weighting | documents=9
05_weighting | seed=9
05_weighting contextual_teacher=None | max_structural_len=9
05_weighting contextual_loss=cca | contextual_loss=infonce
03_structural structural_loss=max-margin | gamma=0.5
03_structural structural_loss=contrastive | temperature=0.1
07_simde | pairs=dropout
07_simde | pair_temperature=0.1
07_simde | mlm_weight=0
07_simde | seed=1
"""
SAME = """
03_structural structural_loss=cosine | gamma=0.5
03_structural structural_loss=cosine | distance=cosine temperature=0.1
03_structural structural_loss=max-margin | temperature=0.1
05_weighting contextual_teacher=None | lam=0.2 student_projection=8
05_weighting contextual_teacher=None | lam_by_length=linear:9:100
05_weighting structural_loss=None | lam=0.2 max_structural_len=9
05_weighting contextual_loss=cca | beta=0.5 delta=0.5
05_weighting contextual_loss=mse | beta=0.5 delta=0.5
07_simde | lam=0.9
"""


def run_of(profile, text):
    """The run that a line describes: a notebook and parameters."""
    notebook, *parameters = text.split()
    return Run(notebook, profile.with_parameters(**parse_parameters(parameters)))


@pytest.mark.parametrize("line", LABELS.strip().splitlines())
def test_a_label_begins_with_the_name_of_the_student_and_says_what_it_leaves_out(line):
    text, label = line.split(" = ")
    profile = Profile.load("thesis").with_parameters(student_projection="8", documents=9)
    notebook, *parameters = text.split()
    run = Run.of(notebook, profile, **parse_parameters(parameters))
    assert run.label == label
    assert label.startswith(f"{run.name}, ")


def test_the_labels_of_paragraph_vectors_are_the_published_ones():
    names = ["dm", "vector_size", "min_count", "preprocess", "label"]
    rows = published("paragraph_vectors").query("kind != 'DM+DBOW'")[names].to_dict("records")
    assert len(rows) == 36
    for given in rows:
        given |= {"dm": bool(given["dm"]), "vector_size": int(given["vector_size"])}
        label = given.pop("label")
        assert Run.of("02_paragraph_vector", Profile.load("thesis"), **given).label == label


def test_slugs_are_one_safe_path_component_and_tell_profiles_and_projections_apart():
    names = ("文書", "記事", "記事" * 99, "文書" * 99)
    runs = [Run("05_weighting", Profile(name=name)) for name in names]
    for projection in ("768(ReLU)x2048", "768(ReLU,drop0.1)x2048", "768(ReLU,norm)x2048"):
        profile = Profile.load("thesis").with_parameters(student_projection=projection)
        runs.append(Run("05_weighting", profile))
    slugs = {run.slug for run in runs}
    assert len(slugs) == len(runs)
    for slug in slugs:
        assert re.fullmatch(r"([\w.=+-](?<!_))+", slug)
        assert len(slug.encode()) <= 200


@pytest.mark.parametrize("line", [*OTHERS.split("\n")[1:-1], *SAME.split("\n")[1:-1]])
def test_runs_have_one_key_and_one_folder_where_the_parameters_that_count_are_equal(small, line):
    same = line in SAME
    given, change = line.split("|")
    first = run_of(small, given)
    second = run_of(first.profile, f"{first.notebook} {change}")
    assert (first.key == second.key) == same
    assert (first.same_but() == second.same_but()) == same
    assert (first.folder == second.folder) == same


def test_runs_are_compared_but_for_some_parameters_and_by_some_alone(small):
    first = Run.of("05_weighting", small, lam=0.2, max_structural_len=9)
    second = Run.of("05_weighting", small, lam=0.8, max_structural_len=None)
    names = ("lam", "max_structural_len")
    assert first.same_but("lam") != second.same_but("lam")
    assert first.same_but(*names) == second.same_but(*names)
    assert first.only("lam") != second.only("lam")
    assert first.only("seed", "documents", "gamma") == second.only("seed", "documents", "gamma")


def test_runs_of_two_notebooks_may_train_the_same_student(small):
    given = {"lam": 0.2, "max_structural_len": 9}
    chapter = Run.of("05_weighting", small, **given)
    final = Run.of("06_evaluation", small, structural_loss="cosine", **given)
    assert final.same_but() == chapter.same_but()
    assert final.key != chapter.key


@pytest.mark.parametrize(
    ("section", "change", "notebooks"),
    [
        ("training", {"precision": "fp32"}, ["06_evaluation", "07_simde"]),
        ("training", {"save_every": 7, "log_every": 3, "report_to": ["wandb"]}, []),
        ("training", {"batch_tokens": 9, "checkpointing": True, "compile": False}, []),
        ("simde", {"language": "de"}, ["07_simde"]),
        ("evaluation", {"seeds": 9}, ["06_evaluation", "07_simde"]),
    ],
)
def test_settings_count_in_the_notebooks_whose_results_depend_on_them(
    small, section, change, notebooks
):
    other = with_setting(small, section, **change)
    names = ("06_evaluation", "07_simde")
    different = [name for name in names if Run(name, other).key != Run(name, small).key]
    assert different == notebooks


def test_a_run_in_a_precision_that_is_asked_for_is_another_run(small, monkeypatch):
    keys = {}
    for asked in ("auto", "bf16", "fp32"):
        monkeypatch.setenv("DOCEMB_PRECISION", asked)
        keys[asked] = Run("05_weighting", small).key
    assert len({*keys.values()}) == 3
    monkeypatch.delenv("DOCEMB_PRECISION")
    assert Run("05_weighting", small).key == keys["auto"]


def test_a_run_stays_what_it_is_where_its_files_are_copied_to(workspace_root, tmp_path):
    links = {"test": "links/links.tsv"}
    task = {"name": "mine", "kind": "retrieval", "path": "texts.jsonl", "relevance": links}
    evaluation = {"tasks": ["mine"], "own_tasks": [task]}
    corpus = {"source": "local", "path": ["texts.jsonl", "more"]}
    files = {
        "texts.jsonl": [{"id": "a", "text": "one"}],
        "more/b.txt": "two",
        "links/links.tsv": "a\ta\n",
        "encoder/config.json": json.dumps({"hidden_size": 384}),
        "my.yaml": json.dumps(
            {
                "corpus": corpus,
                "evaluation": evaluation,
                "student": {"model": "./encoder"},
                "structural_teacher": {"model": "all-MiniLM-L6-v2"},
            }
        ),
    }
    there = write_files(tmp_path / "there", files)
    here = shutil.copytree(there, tmp_path / "here", copy_function=shutil.copyfile)
    first, copied = (Run("06_evaluation", Profile.load(at / "my.yaml")) for at in (there, here))
    assert first.key == copied.key
    keys = {first.key}
    for changed in ("links/links.tsv", "encoder/config.json"):
        with (here / changed).open("a") as file:
            file.write("\n")
        keys.add(Run("06_evaluation", Profile.load(here / "my.yaml")).key)
    assert len(keys) == 3


def test_a_run_of_a_compound_does_not_depend_on_the_parameters_of_single_models(small):
    compound = "DM;4;stem;10%+DBOW;3;None;2"
    turned = {"compound": " DBOW;3;None;2 + DM;4;stem;10% ", "dm": False, "vector_size": 9}
    further = {"compound": compound, "min_count": 7, "preprocess": "none"}
    runs = []
    for given in ({"compound": compound}, turned, further):
        runs.append(Run.of("02_paragraph_vector", small, **given))
    assert {run.label for run in runs} == {compound}
    assert len({run.key for run in runs}) == 1
    assert Run.of("02_paragraph_vector", small, compound=None, vector_size=9).key != runs[0].key
    members = runs[1].paragraph_vectors
    assert [(m.dm, m.vector_size, m.epochs) for m in members] == [(True, 4, 2), (False, 3, 2)]


@pytest.mark.parametrize(
    "compound", ["DM;4;stem;2", "DM;4;stem;2+DBOW;3;lemma;2", "DM;4;stem;2+DM;4;stem;2"]
)
def test_a_compound_of_another_form_is_refused_with_the_form(small, refused, compound):
    said = r"compound: must be two or more different labels architecture;.*, as in DM;1024;stem"
    refused(said, Run.of, "02_paragraph_vector", small, compound=compound)


UNPROJECTED = {"student_projection": "-", "contextual_projection": "-"}
FEW = "5 training documents do not fill one batch; give 6 or more, or lower "


@pytest.mark.parametrize(
    ("notebook", "parameters", "message"),
    [
        (
            "06_evaluation",
            {"contextual_teacher": "LSA", **UNPROJECTED},
            "contextual teacher 8; let both",
        ),
        ("03_structural", {"documents": 5}, f"{FEW}training.batch_size"),
        ("07_simde", {"documents": 5}, f"{FEW}simde.training.batch_size"),
        ("07_simde", {"pairs": "dropout"}, "set simde.dropout to 0.1"),
    ],
)
def test_combinations_that_cannot_fit_are_refused(small, refused, notebook, parameters, message):
    simde = SimDE(training=small.simde.training)  # the student's dropout, 0
    profile = small.model_copy(update={"simde": simde})
    refused(re.escape(message), Run.of(notebook, profile, **parameters).check)
    if "pairs" in parameters:
        Run.of(notebook, small, **parameters).check()  # simde.dropout is above 0
