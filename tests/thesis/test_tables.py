"""Tables of the thesis: sizes of its grids, and means against a plain loop over its rows."""

import pytest

from docemb_lib import grid
from docemb_lib.thesis import table
from docemb_lib.thesis.tables import COMPUTED, PRINTED
from docemb_lib.thesis.values import published

GRIDS = {
    "4.6": "projections-contextual",
    "4.7": "projections-cosine",
    "4.8": "projections-max-margin",
}


def test_table_4_5_has_the_values_of_its_grid():
    values = table("4.5")["values"]
    runs = grid("paragraph-vector", "thesis")
    for name in ("dm", "vector_size", "min_count", "preprocess"):
        of_runs = dict.fromkeys(str(run[name]) for run in runs if name in run)
        assert values[name] == ", ".join(of_runs)
    assert values["compound"] == f"{sum('compound' in run for run in runs)} of two models"


@pytest.mark.parametrize("number", GRIDS)
def test_tables_of_projections_have_the_runs_of_their_grids(number):
    frame = table(number).reset_index()
    assert frame["runs"].sum() == len(grid(GRIDS[number], "thesis"))
    rows = set()
    for row in frame.to_dict("records"):
        teacher, _ = row["contextual teacher"].split(", ")
        for projection in row["contextual projections"].split(" or "):
            rows.add((teacher, row["student projection"], projection))
    names = ("contextual_teacher", "student_projection", "contextual_projection")
    assert rows == {tuple(run[name] for name in names) for run in grid(GRIDS[number], "thesis")}


def test_table_4_9_crosses_masks_and_weights():
    assert table("4.9")["values"].to_dict() == {
        "max_structural_len": "384, None (no mask)",
        "lam": "0.95, 0.8, 0.5, 0.2, None (no weighting)",
    }


@pytest.mark.parametrize(
    ("number", "place", "statistic", "value"),
    [
        ("4.2", ("arxiv", "validation"), "examples", 2500),
        ("5.3", ("arxiv", "test"), "classes", 11),
        ("5.4", ("imdb", "train"), "examples", 25000),
        ("5.5", ("games", "test"), "documents", 21228),
    ],
)
def test_tables_of_tasks_have_what_the_thesis_prints(number, place, statistic, value):
    assert table(number).loc[place, statistic] == value


def test_another_number_is_refused_with_those_that_there_are(refused):
    refused(
        "table 4.4: is none of 4.2, 5.3, 5.4, 5.5, 4.5 to 4.9 and 5.7; give one of these",
        table,
        "4.4",
    )


def test_means_and_normalised_means_of_table_5_7_are_those_of_a_loop_over_its_rows():
    frame = table("5.7")
    scores = published("table_5_7").fillna({"round": ""})
    for (round_, model), row in frame.iterrows():
        of_round = scores[(scores["round"] == round_) & scores["metric"].isin(["accuracy", "map"])]
        values = of_round[of_round["model"] == model].set_index("task")["value"]
        best = of_round.groupby("task")["value"].max()
        assert row["mean"] == pytest.approx(values.mean())
        assert row[COMPUTED] == pytest.approx((values / best).mean())
    assert len(frame) == 4 * 7


@pytest.mark.parametrize(
    ("round_", "least", "most"),
    [("1k", 0.012, 0.017), ("all", -0.001, 0.001)],
)
def test_printed_normalised_means_are_lower_in_two_rounds(round_, least, most):
    frame = table("5.7").loc[round_]
    assert (frame[COMPUTED] - frame[PRINTED]).round(3).between(least, most).all()


def test_the_printed_means_are_those_of_the_rows():
    printed = published("means").fillna({"round": ""}).set_index(["round", "model"])["value"]
    assert (table("5.7")["mean"] - printed).abs().max() < 0.001
