"""The run of a notebook: its settings and artefacts in the first output, its parameters, its
record.
"""

from dataclasses import replace

import pytest
from matplotlib import pyplot as plt

from docemb_lib.runs import records
from docemb_lib.runs.run import Run
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.models import Model, StudentForms
from docemb_lib.runs.run import Run, begin
from docemb_lib.runs.stages import Corpus
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import HeadSettings
from docemb_lib.runs.grids import grid
from docemb_lib.thesis.settings_table import all_settings, settings


def test_the_settings_tell_where_the_run_differs_from_the_paper(workspace_root):
    run = begin(
        "05_weighting",
        {"profile": "small", "lam": 0.25, "beta": 0.5, "documents": "profile", "ax": 1},
    )
    table = all_settings(run)
    assert (table.loc["profile", "value"], *table.loc["lam"], "gamma" in table.index) == (
        "small",
        "0.25",
        "",
        False,
    )
    assert tuple(table.loc["documents"]) == ("24", "")
    assert [*table.loc["beta"], *table.loc["delta"]] == [
        "0.5",
        "0.95",
        "0.03",
        "",
    ]  # of the whole thesis
    assert table.loc["student.max_tokens", "in the paper"] == "4096"
    assert table.loc["head.hidden"].tolist() == ["0", "50"]  # Table 4.3
    assert table.loc["training.max_grad_norm"].tolist() == ["1.0", ""]
    assert [name for name in table.index if name.startswith("head.")] == [
        "head.hidden",
        "head.pair_features",
    ]
    assert (
        table.loc["contextual_teachers.DBOW"].iloc[0]
        == "DBOW;8;lowercase;2;epochs=2;dbow_words=False"
    )
    assert table.loc["contextual_teachers.DBOW"].iloc[1] == "DBOW;1024;None;2"  # Table 4.5


def test_the_first_table_shows_what_the_notebook_varies_and_what_differs_from_the_paper():
    run = Run.of("03_structural", Profile.load("tiny"), structural_loss="mse")
    shown = settings(run).listed
    parameters = ["this run", "profile", "seed", "structural_loss", "documents"]
    sections = ["corpus", "structural_teacher", "student", "training", "head"]
    assert shown.index.tolist() == parameters + sections
    assert shown.loc["structural_loss"].tolist() == ["mse", ""]
    assert shown["in the paper"]["training"].startswith("learning_rate 0.0001")
    assert "warmup" not in shown["value"]["training"]  # as in the paper


def test_the_other_settings_are_folded_in_a_notebook_and_named_in_text():
    table = settings(Run.of("03_structural", Profile.load("tiny")))
    page = table._repr_html_()
    folded = page[page.index("<details>") : page.index("</details>")]
    assert "training.warmup" in folded
    assert "training.warmup" not in page.replace(folded, "")
    assert "training.warmup" not in repr(table)
    assert len(repr(table).splitlines()) < 15


@pytest.mark.parametrize(
    ("notebook", "row", "column", "expected"),
    [
        ("05_weighting", "grid", "value", "weighting-cosine, run 3 of 9"),
        ("05_weighting", "grid", "in the paper", "cosine-masked, masked-cosine;λ=0.5"),
        ("07_simde", "grid", "in the paper", ""),
        ("06_evaluation", "training.learning_rate", "in the paper", "3e-05"),
        ("06_evaluation", "corpus.documents", "in the paper", "1030000"),
        ("06_evaluation", "contextual_teacher", "value", "None"),
        ("07_simde", "student.dropout", "value", "0.1"),
        ("07_simde", "head.learning_rate", "in the paper", "0.0003"),
    ],
)
def test_the_settings_stand_beside_those_of_the_paper_and_name_the_grid(
    notebook, row, column, expected
):
    head = {} if notebook == "05_weighting" else {"head": HeadSettings()}  # with a hidden layer
    profile = Profile.load("tiny")
    given = {
        "05_weighting": grid("weighting-cosine", "tiny")[2],
        "06_evaluation": {"contextual_teacher": None},
    }.get(notebook, {})
    training = profile.training.model_copy(update={"precision": "fp32"})
    evaluation = profile.evaluation.model_copy(update=head)
    profile = profile.model_copy(update={"evaluation": evaluation, "training": training})
    assert all_settings(Run.of(notebook, profile, **given)).loc[row, column] == expected


@pytest.mark.parametrize(
    ("name", "differ"),
    [
        ("simde", {}),
        (
            "tiny",
            {
                "student.model": "allenai/longformer-base-4096",
                "student.pooling": "cls",
                "training.batch_size": "12",
                "training.learning_rate": "5e-05",
                "mlm_weight": "0.1",
            },
        ),
    ],
)
def test_beside_a_self_supervised_run_stands_only_what_the_simde_paper_gives(name, differ):
    beside = all_settings(Run.of("07_simde", Profile.load(name), pair_temperature=0.1))[
        "in the paper"
    ]
    assert beside[beside != ""].to_dict() == {
        "pair_temperature": "0.05",
        "corpus.documents": "6218825",
        **differ,
    }


def test_a_run_takes_its_notebooks_parameters_from_the_namespace(workspace_root):
    run = begin(
        "03_structural",
        {"profile": "small", "gamma": 0.5, "structural_loss": "max-margin", "lam": 7, "x": 1},
    )
    assert run.parameters["gamma"] == 0.5
    assert (
        run.same_but() == Run.of("03_structural", run.profile, **run.parameters).same_but()
    )


@pytest.mark.parametrize(
    ("notebook", "given", "said"),
    [
        (
            "03_structural",
            {"gamma": -1},
            "gamma: input should be greater than or equal to 0, got -1",
        ),
        ("05_weighting", {"lam": "null"}, "write None"),
        ("05_weighting", {"student_projection": "16x17"}, "16 → 17"),
        (
            "05_weighting",
            {"In": ["", "# Parameters\nlam = 0.5\nlamb = 0.4\n", "lamc = 1"]},
            "unknown parameter 'lamb'; did you mean lam",
        ),
        ("08_more", {}, "notebook '08_more' is unknown"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_work(
    workspace_root, refused, notebook, given, said
):
    refused(said, begin, notebook, {"profile": "small", **given})
    assert not (workspace_root / "outputs").exists()


def test_an_identical_run_keeps_the_seconds_and_the_end_of_its_first_record(workspace_root):
    key, found = Run("01_corpus", Profile.load("small")), []
    for seconds, failed in ((5.0, True), (60.0, False), (2.0, False)):
        run = Run(key)
        run.started -= seconds
        run.finish({"documents": seconds})
        found.append(records.find(run.workspace, run.notebook, run.key))
        if failed:
            records.save(run.workspace, replace(found[0], status="failed"))
    assert 60 <= found[2].seconds < 62
    assert found[0].finished < found[1].finished == found[2].finished
    assert found[2].metrics == {"documents": 2.0}
    shown = run.finish({"documents": 3, "mean": 0.25}).iloc[:, 0]
    assert [str(shown[name]) for name in ("documents", "mean")] == [
        "3",
        "0.25",
    ]  # a count is an integer


def test_a_saved_figure_keeps_its_own_resolution(workspace_root):
    run, (figure, ax) = (
        Run("01_corpus", Profile.load("small")),
        plt.subplots(figsize=(2, 2), dpi=70),
    )
    run.save_figure(ax, "drawn")
    height, _, _ = plt.imread(workspace_root / run.figures[0]).shape
    assert (figure.dpi, 300 < height < 350) == (
        70,
        True,
    )  # that of the file: 2 inches and a margin, 150 dots each
    plt.close(figure)


@pytest.mark.parametrize(
    ("notebook", "forms", "shown"),
    [
        ("06_evaluation", 1, ["s", "s, centred"]),
        ("06_evaluation", 3, ["s", "s", "s"]),
        ("05_weighting", 1, ["s"]),
    ],
)
def test_a_final_student_without_halves_is_shown_centred_too(
    workspace_root, monkeypatch, notebook, forms, shown
):
    run = Run(notebook, Profile.load("small"))
    run._student = StudentForms(
        *[scored_model(Identity(Kind.STUDENT, name="s"), "f", lambda: pytest.fail("loaded"))] * forms
    )
    run.references = [
        scored_model(Identity(Kind.PUBLISHED, name="SBERT"), "g", lambda: pytest.fail("loaded"))
    ]
    monkeypatch.setattr(Corpus, "fingerprint", "c")
    assert [model.label for model in run.models()] == [*shown, "SBERT"]
