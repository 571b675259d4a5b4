"""Paragraph Vectors beside each other; Table 5.7 and Figure 4.12."""

import numpy as np
import pandas as pd
import pytest

from docemb_lib.evaluation.scoreboard import mean_over_tasks
from docemb_lib.runs.grids import grid
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis import (
    beside_paper,
    best_of_chapter_4,
    deviations,
    published,
    recorded_finals,
    scores_of_runs,
    table_5_7,
)
from docemb_lib.thesis.comparison import (
    MEAN,
    NORMALISED,
    beside_thesis,
    short_labels,
)

BASELINE = "SBERT truncated"


def scores_of(label, level):
    """Two tasks, two head seeds; the second task is a ranking, which has one value."""
    rows = [(label, "package", "accuracy", seed, level + seed / 10) for seed in range(2)]
    rows += [
        (label, "see-also-retrieval", "map", 0, level),
        (label, "see-also-retrieval", "mrr", 0, 1.0),
    ]
    rows += [(BASELINE, "package", "accuracy", seed, 0.5 + seed / 10) for seed in range(2)]
    rows += [(BASELINE, "see-also-retrieval", "map", 0, 0.5)]
    scores = pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"])
    kinds = scores["model"].map({label: "student", BASELINE: "sbert-truncated"})
    return scores.assign(kind=kinds, form="saved")


@pytest.fixture
def a_run(make_run):
    def make(level=None, **parameters):
        run = make_run("02_paragraph_vector", **parameters)
        if level is not None:
            run.finish({}, scores=scores_of(run.label, level))
        return run

    return make


def table_of(run):
    return (
        scores_of_runs(run, scores_of(run.label, 0.2)).drop_duplicates("model").set_index("model")
    )


def test_runs_stand_beside_each_other_with_all_their_scores_and_baselines_once(a_run):
    other = a_run(0.3, dm=False)
    run = a_run()
    a_run(0.9)  # an earlier execution of the same run, which takes no part
    frame = scores_of_runs(run, scores_of(run.label, 0.2))
    means = {BASELINE: 0.525, run.label: 0.225, other.label: 0.325}
    assert mean_over_tasks(frame).to_dict() == pytest.approx(means)
    assert frame.groupby("model").size().to_dict() == {BASELINE: 3, run.label: 4, other.label: 4}
    assert table_of(run)["own"].to_dict() == {run.label: True, other.label: True, BASELINE: False}
    assert frame["group"].cat.categories.tolist() == ["DBOW", "DM", "baseline"]


def test_runs_of_another_seed_are_told_apart_and_a_compound_is_a_group(a_run):
    compound = "DM;8;lowercase;2+DBOW;8;None;2"
    other = a_run(0.3, compound=compound, seed=1)
    run = a_run(compound=compound)
    assert [*table_of(run).index] == [run.label, f"{other.label} (seed 1)", BASELINE]
    assert set(table_of(run)["group"]) == {"DM+DBOW", "baseline"}


def test_the_thesis_values_stand_beside_runs(a_run):
    run = a_run(vector_size=100, min_count=2, preprocess="lowercase")
    other = a_run(0.3, vector_size=9)
    values = published("paragraph_vectors").set_index("label")["value"]
    assert table_of(run)["thesis"].dropna().to_dict() == {run.label: values["DM;100;lowercase;2"]}
    assert other.label in table_of(run).index


def scores(*rows):
    return pd.DataFrame(rows, columns=["round", "model", "task", "metric", "value", "low", "high"])


def test_models_stand_by_their_mean_within_rounds_in_the_order_of_the_frame():
    rows = scores(
        ("1k", "a", "t", "accuracy", 0.5, 0, 1),
        ("1k", "b", "t", "accuracy", 0.7, 0, 1),
        ("10k", "a", "t", "accuracy", 0.9, 0, 1),
        ("10k", "b", "t", "accuracy", 0.8, 0, 1),
        ("1k", "a", "find", "map", 0.2, 0, 1),
        ("10k", "a", "find", "map", 0.2, 0, 1),
    )
    table = table_5_7(rows, "accuracy")
    assert list(table.index) == [("1k", "b"), ("1k", "a"), ("10k", "a"), ("10k", "b")]
    assert table[NORMALISED].tolist() == pytest.approx([1, 5 / 7, 1, 8 / 9])
    assert table_5_7(rows, "map").loc["a", MEAN] == 0.2  # retrieval has no rounds
    assert table_5_7(rows[rows["metric"] == "accuracy"], "map").empty


def test_each_score_finds_the_thesis_number_of_its_model_task_and_round():
    student = "student after"
    rows = scores(
        ("1k", student, "arxiv", "accuracy", 0.7, 0.6, 0.8),
        ("all", student, "arxiv", "accuracy", 0.7, 0.6, 0.75),
        ("500", student, "arxiv", "accuracy", 0.7, 0.6, 0.8),
        ("all", student, "games", "map", 0.2, 0.198, 0.3),
        ("all", student, "games", "mrr", 0.2, 0.1, 0.3),
        ("all", "SBERT over chunks", "arxiv", "accuracy", 0.7, 0.6, 0.8),
        ("all", "SBERT truncated", "package", "accuracy", 0.7, 0.6, 0.8),
    )
    rows_beside = beside_thesis(rows, {"student after": "only-MSE", "SBERT truncated": "SBERT"})
    np.testing.assert_equal(
        rows_beside["thesis"].to_numpy(), [0.642, 0.773, np.nan, 0.198, 0.461, np.nan, np.nan]
    )
    table = deviations(rows_beside)
    assert table["in the thesis"].tolist() == ["only-MSE"] * 4
    assert table_5_7(rows_beside, "accuracy").loc[("all", student), "in the thesis"] == "only-MSE"
    assert table["within interval"].tolist() == [
        True,
        False,
        True,
        False,
    ]  # a bound belongs to the interval
    assert table["difference"].tolist() == pytest.approx([0.058, -0.073, 0.002, -0.261])
    assert table["here"].tolist()[0] == ".700 [.60, .80]"
    assert deviations(rows_beside[rows_beside["task"] == "package"]).empty


def test_students_that_differ_beyond_projections_have_short_labels(make_run):
    both = {"contextual_teacher": "PV", "lam": None, "max_structural_len": None}
    runs = [make_run(**both, documents=30), make_run(**both, documents=40), make_run(seed=1)]
    named = short_labels({run.label: run for run in runs})
    first, second, third = (named[run.label] for run in runs)
    assert first == "S+PV;30 docs"
    assert second == "S+PV;40 docs"
    assert third.endswith("docs;seed 1")
    assert all("S:" not in name for name in named.values())


def test_students_that_differ_in_projections_alone_keep_their_labels(make_run):
    runs = []
    for spec in ("8", "8(ReLU)x8"):
        projections = {"student_projection": spec, "contextual_projection": "8"}
        runs.append(make_run(contextual_teacher="PV", **projections))
    assert short_labels({run.label: run for run in runs}) == {}


def test_comparable_evaluations_stand_together_each_model_once(
    make_run, evaluated, recorded, students
):
    other = recorded(0.8, **students["only-MSE"], documents=40)
    recorded(
        0.9,
        profile=Profile.load("small", seed=0).with_tasks(["halves"], source="test"),
        structural_loss="mse",
    )
    run = make_run(**students["cosine-masked"])
    final = evaluated(run.label)
    finals = finals_of(run, final)
    rows = finals.scores
    assert list(dict.fromkeys(rows["model"])) == [*final.models["model"], other.label]
    assert not rows.duplicated(["round", "model", "task", "metric"]).any()
    assert set(rows["metric"]) == {"accuracy", "map", "mrr"}
    assert set(rows["task"]) == {"package", "halves", "find"}
    assert rows["round"].unique().tolist() == ["all"]
    assert rows["thesis"].isna().all()
    assert rows.set_index(["model", "task"]).loc[(other.label, "package"), "value"] == 0.8
    assert {name: model.label for name, model in finals.models.items()} == {
        "Longformer": "student before distillation",
        "SBERT": "SBERT truncated",
        "DM": "DM;8d",
        "PV": "PV;16d",
        "cosine-masked": run.label,
        "only-MSE": other.label,
    }
    assert finals.models["only-MSE"].fingerprint == f"f/{other.label}"


def test_of_several_runs_of_one_student_that_of_most_documents_represents_it(
    make_run, evaluated, recorded, students
):
    few, many = (recorded(documents=documents, **students["only-MSE"]) for documents in (20, 60))
    run = make_run(documents=30, **students["only-MSE"])
    finals = finals_of(run, evaluated(run.label))
    assert finals.models["only-MSE"].label == many.label
    assert {few.label, run.label} < set(finals.scores["model"])
    same = make_run(documents=60, seed=1, **students["only-MSE"])
    assert finals_of(same, evaluated(same.label)).models["only-MSE"].label == same.label


def test_without_a_record_the_notebook_to_execute_is_named(make_run, refused, students):
    said = "06_evaluation: no final evaluation of profile small is recorded; execute 06_evaluation"
    refused(said, recorded_finals, make_run(**students["only-MSE"]))


def finals_of(run, final):
    """The recorded final evaluations when this one of the run is recorded."""
    run.finish({}, tables=final.tables)
    return recorded_finals(run)


def test_figure_4_12_is_the_recorded_runs_of_table_4_10_with_its_baselines(
    make_run, validated, small
):
    assert best_of_chapter_4(make_run()).empty
    weighted = {(p["lam"], p["max_structural_len"]): p for p in grid("weighting-cosine", small)}
    validated("05_weighting", 0.61, **weighted[None, None])
    validated("05_weighting", 0.1, **weighted[0.8, None])  # not among the four
    structural = {"structural_loss": "max-margin", "distance": "mse", "gamma": 1.0}
    validated("03_structural", 0.64, **structural)
    validated("03_structural", 0.2, **structural, documents=12)  # fewer documents
    validated("05_weighting", 0.62, **weighted[0.5, 64])
    rows = best_of_chapter_4(make_run())
    assert not rows.duplicated(["model", "task", "seed"]).any()
    by_model = rows.drop_duplicates("model").set_index("model")
    values = published("weighting").query("source == 'figure 4.12'").set_index("label")["value"]
    students = ["cosine;no-weighting", "only-structural;mm-MSE", "masked-cosine;λ=0.5"]
    baselines = {
        "student before distillation": "Longformer",
        "SBERT truncated": "SBERT",
        "DM;8d": "DM;100d",
        "PV;16d": "PV;2048d",
    }
    expected = {name: ("student", values[name]) for name in students}
    expected |= {model: ("baseline", values[name]) for model, name in baselines.items()}
    assert {model: (row["group"], row["thesis"]) for model, row in by_model.iterrows()} == expected
    assert by_model.loc[students, "value"].tolist() == [0.61, 0.64, 0.62]


def test_scores_stand_beside_the_papers_where_it_has_the_task():
    rows = [("ours", "20news", "accuracy", seed, 0.6 + seed / 10) for seed in range(2)]
    rows += [("ours", "20news", "mrr", 0, 0.3), ("ours", "package", "accuracy", 0, 0.9)]
    scores = pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"])
    table = beside_paper(scores)
    assert list(table.columns) == [("20news", "accuracy")]
    assert table.loc[("here", "ours")].item() == pytest.approx(0.65)
    assert table.loc[("paper", "SimDE_bert")].item() == pytest.approx(0.7689)
    assert len(table) == 1 + 9
    assert beside_paper(scores[scores["task"] == "package"]).empty
    rows = [
        ("ours", task, "accuracy", n, n / 100)
        for task in ("20news", "fakenews")
        for n in (2, 5, 10)
    ]
    table = beside_paper(
        pd.DataFrame(rows, columns=["model", "task", "metric", "per_class", "value"]),
        {"other": 5, "fakenews": 10},
    )
    assert table.loc[("here", "ours")].to_dict() == {
        ("20news", "accuracy"): 0.05,
        ("fakenews", "accuracy"): 0.1,
    }
    assert table.loc[("paper", "BERT"), ("20news", "accuracy")] == 0.1994
