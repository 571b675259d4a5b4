"""The thesis' numbers: complete, and consistent with each other and with what the thesis says of them."""

import pandas as pd
import pytest

from docemb_lib.errors import InputError
from docemb_lib.evaluation import normalised
from docemb_lib.thesis.values import NAMES, published


def figure(name: str, number: str) -> pd.DataFrame:
    frame = published(name)
    return frame[frame["source"] == f"figure {number}"].set_index("label")


def test_normalised_means_of_table_5_7_over_all_rounds_are_those_of_figure_5_3() -> None:
    table = published("table_5_7").query("source == 'table 5.7a'")
    runs = table.assign(model=table["model"] + ";" + table["round"])
    means = normalised(runs, over_rounds=True).groupby("model")["normalised"].mean()
    assert len(means) == 7 * 3
    assert means["only-MSE;1k"] == pytest.approx(0.7878, abs=5e-5)
    assert means["SBERT;all"] == pytest.approx(0.9691, abs=5e-5)
    assert means["Longformer;10k"] == pytest.approx(0.7884, abs=5e-5)


def test_every_student_beats_every_baseline_with_few_examples_and_only_sbert_is_ahead_with_all() -> None:
    means = published("table_5_7").query("metric == 'accuracy'").groupby(["round", "model"])["value"].mean()
    students, baselines = ["cosine-masked", "MSE-contextual", "only-MSE"], ["Longformer", "DM", "PV", "SBERT"]
    for examples in ("1k", "10k"):
        assert means[examples][students].min() > means[examples][baselines].max()
    ahead = means["all"][baselines] > means["all"][students].min()
    assert ahead[ahead].index.tolist() == ["SBERT"]


def test_retrieval_has_map_and_mrr_of_seven_models_on_two_tasks() -> None:
    table = published("table_5_7").query("metric != 'accuracy'")
    assert table.groupby(["metric", "task"]).size().to_dict() == {
        (metric, task): 7 for metric in ("map", "mrr") for task in ("games", "wines")
    }
    best = table.groupby(["metric", "model"])["value"].mean().groupby("metric").idxmax()
    assert best["map"] == ("map", "only-MSE")
    assert best["mrr"] == ("mrr", "cosine-masked")


@pytest.mark.parametrize(
    ("name", "number", "students", "best"),
    [
        ("structural_losses", "4.2", 2, "cosine"),
        ("structural_losses", "4.3", 11, "max-margin;MSE;γ=1.0"),
        ("projections", "4.7", 16 + 1, "only-structural;cosine"),
        ("projections", "4.8", 12 + 1, "2048d;S:768(ReLU)x4096(ReLU)x2048;C:-"),
        ("projections", "4.9", 14 + 1, "only-structural;mm-MSE"),
        ("weighting", "4.10", 9 + 1, "384;λ=0.5"),
        ("weighting", "4.11", 9 + 1, "only-structural;mm-MSE"),
        ("weighting", "4.12", 4, "only-structural;mm-MSE"),
    ],
)
def test_each_figure_has_its_runs_and_its_winner(name: str, number: str, students: int, best: str) -> None:
    rows = figure(name, number)
    assert (rows["kind"] == "student").sum() == students
    assert rows["value"].idxmax() == best


def test_the_45_paragraph_vectors_are_a_full_grid_and_nine_compounds() -> None:
    frame = published("paragraph_vectors")
    single = frame[frame["kind"] != "DM+DBOW"]
    assert len(single) == 36
    assert len(frame) == 45
    assert not single.duplicated(["dm", "vector_size", "min_count", "preprocess"]).any()
    assert frame.loc[frame["value"].idxmax(), "label"] == "DM;1024;stem;2+DBOW;1024;None;2"


def test_a_label_says_what_its_parameters_say() -> None:
    for number in ("4.10", "4.11"):
        rows = figure("weighting", number)
        for label, row in rows[rows["lam"].notna()].iterrows():
            limit = "None" if pd.isna(row["max_structural_len"]) else f"{row['max_structural_len']:.0f}"
            assert label == f"{limit};λ={row['lam']:g}"
    dims = {"DM": 100, "DBOW": 1024, "PV": 2048}
    projections = published("projections").dropna(subset="contextual_teacher")
    for _, row in projections.iterrows():
        teacher = f"{dims[row['contextual_teacher']]}d"
        assert row["label"] == f"{teacher};S:{row['student_projection']};C:{row['contextual_projection']}"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in {"table_5_7", "corpora", "simde"}])
def test_every_box_is_in_order(name: str) -> None:
    frame = published(name)
    boxes = frame.dropna(subset="median")
    assert len(boxes) >= len(frame) - 4  # Figure 4.2 shows whiskers only
    for lower, upper in [("low", "q3"), ("q1", "median"), ("median", "q3"), ("q1", "high"), ("low", "high")]:
        assert (boxes[lower] <= boxes[upper]).all(), f"{lower} above {upper}"
    assert frame["value"].between(0.5, 1.0).all()


def test_the_corpora_have_as_many_tokens_as_their_documents_and_means_say() -> None:
    corpora = published("corpora")
    assert corpora.groupby("source")["corpus"].unique().map(list).to_dict() == {
        "table 4.1": ["VAL-500K"], "table 5.1": ["TRAIN-1M"],
    }  # fmt: skip
    assert (corpora["documents"] * corpora["mean"]).tolist() == pytest.approx(corpora["tokens"].tolist(), rel=0.005)
    assert (corpora["over_384"] > corpora["over_512"]).all()


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"'table_5_8' is not one of table_5_7, "):
        published("table_5_8")
