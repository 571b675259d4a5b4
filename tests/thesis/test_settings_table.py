"""The first table of each notebook: the settings of a run beside those of its paper."""

import pytest
from conftest import with_setting

from docemb_lib.runs.grids import grid
from docemb_lib.runs.run import Run, begin
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import HeadSettings
from docemb_lib.thesis.tables import settings


def test_the_settings_tell_where_the_run_differs_from_the_paper(workspace_root):
    given = {"profile": "small", "lam": 0.25, "beta": 0.5, "documents": "profile", "ax": 1}
    table = settings(begin("05_weighting", given)).every.T.to_dict("list")
    assert table["lam"] == ["0.25", ""]
    assert "gamma" not in table
    assert table["documents"] == ["24", ""]
    assert table["beta"] == ["0.5", "0.95"]  # of the whole thesis
    assert table["head.hidden"] == ["0", "50"]  # Table 4.3
    expected = ["DBOW;8;lowercase;2;epochs=2;dbow_words=False", "DBOW;1024;None;2"]  # Table 4.5
    assert "head.dropout" not in table  # a head without a hidden layer has none
    assert table["contextual_teachers.DBOW"] == expected


def test_the_first_table_lists_what_varies_or_differs_and_folds_the_rest():
    table = settings(Run.of("03_structural", Profile.load("tiny"), structural_loss="mse"))
    parameters = ["this run", "profile", "seed", "documents", "structural_loss"]
    parameters.append("max_structural_len")
    sections = ["corpus", "structural_teacher", "contextual_teachers", "student"]
    sections += ["training", "head"]
    assert table.listed.index.tolist() == parameters + sections
    assert table.listed["in the thesis"]["training"].startswith("learning_rate 0.0001")
    assert "warmup" not in table.listed["value"]["training"]  # as in the paper
    page = table._repr_html_()
    assert page.startswith("<details><summary>S (mse), 2000 docs: ")
    folded = page[page.rindex("<details>") :]
    assert "training.warmup" in folded
    assert "training.warmup" not in page.replace(folded, "") + repr(table)


@pytest.mark.parametrize(
    ("notebook", "row", "expected"),
    [
        ("05_weighting", "this run", ["S+PV masked, 256 tokens, λ .5,", "cosine-masked"]),
        ("06_evaluation", "training.learning_rate", ["0.0003", "3e-05"]),
        ("06_evaluation", "corpus.documents", ["", "1030000"]),
        ("07_simde", "student.dropout", ["0.1", ""]),
        ("07_simde", "head.learning_rate", ["0.0001", "0.0003"]),
    ],
)
def test_the_settings_stand_beside_those_of_the_paper_and_name_the_grid(notebook, row, expected):
    profile = Profile.load("tiny")
    given = {
        "05_weighting": grid("weighting-cosine", "tiny")[2],
        "06_evaluation": {"contextual_teacher": None},
    }
    if notebook != "05_weighting":  # a head with a hidden layer
        profile = with_setting(profile, "evaluation", head=HeadSettings())
    run = Run.of(notebook, profile, **given.get(notebook, {}))
    for text, wanted in zip(settings(run).every.loc[row], expected, strict=True):
        assert wanted in text


OF_SIMDE = {"pair_temperature": "0.05", "corpus.documents": "6218825"}
OF_TINY = {
    "student.model": "google-bert/bert-base-uncased",
    "student.pooling": "first",
    "training.batch_size": "36",
    "training.learning_rate": "5e-05",
    "mlm_weight": "0.1",
}


@pytest.mark.parametrize(("name", "differ"), [("simde", {}), ("tiny", OF_TINY)])
def test_beside_a_self_supervised_run_stands_only_what_the_simde_paper_gives(name, differ):
    run = Run.of("07_simde", Profile.load(name), pair_temperature=0.1)
    paper = settings(run).every["in the paper"]
    assert paper[paper != ""].to_dict() == {**OF_SIMDE, **differ}
