"""Run: which runs are the same, what they are called, and which combinations are refused."""

import json
import re
import shutil

import pytest
from conftest import write_files

from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import SimDE
from docemb_lib.thesis.values import published

COSINE, MARGIN, CONTRASTIVE = (
    {"structural_loss": loss} for loss in ("cosine", "max-margin", "contrastive")
)
FEW = "5 training documents do not fill one batch"
BY_LENGTH = "linear:9:100"
WEIGHED = {"lam": 0.2, "lam_by_length": BY_LENGTH, "max_structural_len": 9}
CONTEXT = {
    "contextual_teacher": "DM",
    "contextual_loss": "mse",
    "student_projection": "16",
    "contextual_projection": "-",
}
ALONE, CONTEXTUAL = {"contextual_teacher": None}, {"structural_loss": None}


@pytest.mark.parametrize(
    ("notebook", "parameters", "label"),
    [
        (
            "04_projections",
            {"structural_loss": None},
            "only-contextual;PV;S:768(ReLU)x4096(ReLU)x2048;C:-",
        ),
        ("05_weighting", {"lam": 0.5}, "cosine;384;λ=0.5"),
        ("05_weighting", {"lam": None, "max_structural_len": None}, "cosine;no-weighting"),
        (
            "05_weighting",
            {"contextual_teacher": None, "max_structural_len": None},
            "only-structural;cosine",
        ),
        (
            "03_structural",
            {"structural_loss": "contrastive", "temperature": 0.05},
            "contrastive;τ=0.05",
        ),
        (
            "03_structural",
            {"structural_loss": "max-margin", "gamma": 0.5},
            "max-margin;MSE;γ=0.5",
        ),
        ("05_weighting", {"weighting": "structural"}, "cosine;384;λ=0.5;structural"),
        ("07_simde", {"documents": 9}, "SimDE;9 docs"),
        (
            "07_simde",
            {
                "documents": 9,
                "pairs": "dropout",
                "pair_temperature": 0.1,
                "mlm_weight": 0,
                "seed": 2,
            },
            "SimCSE;τ=0.1;mlm=0.0;9 docs;seed 2",
        ),
        (
            "04_projections",
            {"delta": 0, "beta": 0},
            "cosine;PV;S:768(ReLU)x4096(ReLU)x2048;C:-;δ=0.0;β=0.0",
        ),
        (
            "04_projections",
            {"contextual_loss": "cca:5", "beta": 0.5},
            "cosine;cca:5;PV;S:768(ReLU)x4096(ReLU)x2048;C:-",
        ),
    ],
)
def test_labels_are_those_of_the_thesis(notebook, parameters, label):
    assert Run.of(notebook, Profile.load("thesis"), **parameters).label == label


def test_the_labels_of_structural_losses_are_the_published_ones():
    """The figures show the thesis' runs and ours under one name."""
    profile = Profile.load("thesis")
    for row in (
        published("structural_losses")
        .query("kind == 'student' and source == 'figure 4.3'")
        .itertuples()
    ):
        given = {"structural_loss": row.structural_loss}
        if row.structural_loss == "max-margin":
            given |= {"distance": row.distance, "gamma": row.gamma}
        assert Run.of("03_structural", profile, **given).label == row.label


def test_the_labels_of_paragraph_vectors_are_the_published_ones():
    profile = Profile.load("thesis")
    singles = published("paragraph_vectors").query("kind != 'DM+DBOW'")
    assert len(singles) == 36
    for row in singles.itertuples():
        given = {
            "dm": bool(row.dm),
            "vector_size": int(row.vector_size),
            "min_count": row.min_count,
        }
        key = Run.of("02_paragraph_vector", profile, preprocess=row.preprocess, **given)
        assert key.label == row.label


def test_slugs_are_one_safe_path_component_and_tell_runs_apart():
    variations = [
        {},
        {"lam": 0.8},
        {"documents": 7},
        {"seed": 1},
        {"student_projection": "2048"},
        {"contextual_teacher": "DM", "contextual_projection": "2048"},
        {"structural_loss": "contrastive"},
        {"structural_loss": "contrastive", "temperature": 0.05},
        {"weighting": "structural"},
        {"beta": 0.5},
        {"delta": 0.5},
        {"contextual_loss": "cca:5"},
        {"student_projection": "768(ReLU,drop0.1)x2048"},
        {"student_projection": "768(ReLU,norm)x2048"},
    ]
    slugs = [
        Run.of("05_weighting", Profile.load("thesis"), **given).slug for given in variations
    ]
    slugs += [
        Run("05_weighting", Profile(name=name)).slug
        for name in ("文書", "記事", "記事" * 99, "文書" * 99)
    ]
    assert len(set(slugs)) == len(slugs)
    assert all(
        re.fullmatch(r"[\w.=+-]+", slug) and "_" not in slug and len(slug.encode()) <= 200
        for slug in slugs
    )


@pytest.mark.parametrize(
    ("notebook", "given", "change", "same"),
    [
        ("03_structural", COSINE, {"gamma": 0.5}, True),
        ("03_structural", MARGIN, {"gamma": 0.5}, False),
        ("03_structural", COSINE, {"distance": "cosine", "temperature": 0.1}, True),
        ("03_structural", MARGIN, {"temperature": 0.1}, True),
        ("03_structural", CONTRASTIVE, {"temperature": 0.1}, False),
        ("05_weighting", COSINE, {"weighting": "structural"}, False),
        ("05_weighting", ALONE, {"lam": 0.2, "student_projection": "8"}, True),
        ("05_weighting", ALONE, {"max_structural_len": 9}, False),
        *(("05_weighting", COSINE, {name: value}, False) for name, value in WEIGHED.items()),
        *(("05_weighting", COSINE, {name: value}, False) for name, value in CONTEXT.items()),
        ("05_weighting", CONTEXTUAL, WEIGHED, True),
        ("05_weighting", ALONE, {"lam_by_length": BY_LENGTH}, True),
        ("05_weighting", COSINE, {"beta": 0.5}, False),
        ("04_projections", COSINE, {"delta": 0.5}, False),
        *(
            ("05_weighting", {"contextual_loss": loss}, {"beta": 0.5, "delta": 0.5}, True)
            for loss in ("cca:5", "mse")
        ),
        ("05_weighting", {"contextual_loss": "cca"}, {"contextual_loss": "cca:5"}, False),
        ("06_evaluation", COSINE, {"documents": 9}, False),
        ("06_evaluation", COSINE, {"seed": 9}, False),
    ],
)
def test_runs_have_one_record_and_one_slug_where_what_counts_is_the_same(
    small, notebook, given, change, same
):
    first = Run.of(notebook, small, **given)
    second = Run.of(notebook, small, **given | change)
    assert (first.fingerprint == second.fingerprint) == same
    assert (first.same_but() == second.same_but()) == same
    assert (first.slug == second.slug) == same


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
    assert final.fingerprint != chapter.fingerprint


def test_settings_that_no_result_depends_on_do_not_count(small):
    def fingerprint(**changes):
        training = small.training.model_copy(update=changes)
        return Run("05_weighting", small.model_copy(update={"training": training})).fingerprint

    unimportant = {
        "save_every": 7,
        "log_every": 3,
        "report_to": ["wandb"],
        "batch_tokens": 9,
        "checkpointing": True,
    }
    assert fingerprint(**unimportant, compile=False) == fingerprint()
    assert fingerprint(precision="fp32") != fingerprint()


@pytest.mark.parametrize(
    ("section", "change", "notebooks"),
    [
        ("simde", {"language": "de"}, ["07_simde"]),
        ("evaluation", {"few_shot": [3]}, ["07_simde"]),
        ("evaluation", {"seeds": 9}, ["06_evaluation", "07_simde"]),
    ],
)
def test_the_settings_of_simde_count_in_its_notebook_alone(small, section, change, notebooks):
    settings = getattr(small, section).model_copy(update=change)
    changed = small.model_copy(update={section: settings})
    different = [
        notebook
        for notebook in ("06_evaluation", "07_simde")
        if Run(notebook, changed).fingerprint != Run(notebook, small).fingerprint
    ]
    assert different == notebooks


def test_a_run_in_a_precision_that_is_asked_for_is_another_run(small, monkeypatch):
    def fingerprint(asked):
        monkeypatch.setenv("DOCEMB_PRECISION", asked)
        return Run("05_weighting", small).fingerprint

    assert len({fingerprint(asked) for asked in ("auto", "bf16", "fp32")}) == 3
    monkeypatch.delenv("DOCEMB_PRECISION")
    assert Run("05_weighting", small).fingerprint == fingerprint("auto")


def test_a_run_stays_what_it_is_where_its_texts_and_tasks_are_copied_to(tmp_path):
    task = {
        "name": "own",
        "kind": "retrieval",
        "path": "texts.jsonl",
        "relevance": {"test": "links/links.tsv"},
    }
    evaluation = {"tasks": ["own"], "own_tasks": [task]}
    profile = json.dumps(
        {"corpus": {"source": "local", "path": ["texts.jsonl", "more"]}, "evaluation": evaluation}
    )
    files = {
        "texts.jsonl": [{"id": "a", "text": "one"}],
        "more/b.txt": "two",
        "links/links.tsv": "a\ta\n",
    }
    there = write_files(tmp_path / "there", {**files, "my.yaml": profile})
    here = shutil.copytree(there, tmp_path / "here", copy_function=shutil.copyfile)
    first, copied = (
        Run.of("06_evaluation", Profile.load(place / "my.yaml")) for place in (there, here)
    )
    assert first.fingerprint == copied.fingerprint
    (here / "links" / "links.tsv").write_text("a\tother\n")
    assert (
        Run.of("06_evaluation", Profile.load(here / "my.yaml")).fingerprint != first.fingerprint
    )


def test_pairs_count_where_a_student_learns_from_them_and_teachers_do_not(small):
    def fingerprint(lam=0.5, **parameters):
        return Run("07_simde", small.with_parameters(lam=lam, **parameters)).fingerprint

    base = fingerprint()
    others = (
        {"pairs": "dropout"},
        {"pair_temperature": 0.1},
        {"mlm_weight": 0},
        {"seed": 1},
    )
    assert len({base, *(fingerprint(**given) for given in others)}) == 1 + len(others)
    assert fingerprint(lam=0.9) == base


def test_a_run_of_a_compound_does_not_depend_on_the_parameters_of_single_models(small):
    compound = "DM;4;stem;10%+DBOW;3;None;2"
    turned = {"compound": " DBOW;3;None;2 + DM;4;stem;10% ", "dm": False, "vector_size": 9}
    given = (
        {"compound": compound},
        turned,
        {"compound": compound, "min_count": 7, "preprocess": "none"},
    )
    keys = [Run.of("02_paragraph_vector", small, **parameters) for parameters in given]
    assert {key.label for key in keys} == {compound}
    assert len({key.fingerprint for key in keys}) == 1
    single = Run.of("02_paragraph_vector", small, compound=None, vector_size=9)
    assert single.fingerprint != keys[0].fingerprint
    assert single.profile.parameters.vector_size == 9
    members = keys[1].paragraph_vectors
    assert [(m.dm, m.vector_size, m.epochs) for m in members] == [(True, 4, 2), (False, 3, 2)]


@pytest.mark.parametrize(
    "compound",
    [
        "DM;4;stem;2",
        "DM;4;stem;2+DBOW;3;lemma;2",
        "DM;4;stem;2+DM;4;stem;2",
        "PV;4;stem;2+DBOW;3;stem;2",
        "",
    ],
)
def test_a_compound_of_another_form_is_refused_with_the_form(small, refused, compound):
    said = r"compound: must be two or more different labels architecture;.*, as in DM;1024;stem"
    refused(said, Run.of, "02_paragraph_vector", small, compound=compound)


@pytest.mark.parametrize(
    ("notebook", "parameters", "message"),
    [
        (
            "06_evaluation",
            {"contextual_teacher": "LSA", "student_projection": "-", "contextual_projection": "-"},
            "student 384; contextual 8; let student_projection ('-') end in 8",
        ),
        (
            "03_structural",
            {"documents": 5},
            f"{FEW}; give 6 or more, or lower training.batch_size",
        ),
        (
            "07_simde",
            {"documents": 5},
            f"{FEW}; give 6 or more, or lower simde.training.batch_size",
        ),
        (
            "05_weighting",
            {"contextual_loss": "cca:9"},
            "the 5 of a batch of 6; raise training.batch_size",
        ),
        ("07_simde", {"pairs": "dropout"}, "set simde.dropout to 0.1"),
    ],
)
def test_combinations_that_cannot_fit_are_refused(small, refused, notebook, parameters, message):
    simde = SimDE(training=small.simde.training)  # the student's dropout, 0
    profile = small.model_copy(update={"simde": simde})
    refused(re.escape(message), Run.of(notebook, profile, **parameters).check)


def test_pairs_by_dropout_fit_a_student_with_dropout(small):
    Run.of("07_simde", small, pairs="dropout").check()
