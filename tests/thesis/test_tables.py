"""Tables of the thesis: sizes of its grids, and means against a plain loop over its rows."""

import pytest

from docemb_lib.thesis import table
from docemb_lib.thesis.tables import COMPUTED, PRINTED
from docemb_lib.thesis.values import published


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        ("dm", "True, False"),
        ("vector_size", "100, 768, 1024"),
        ("min_count", "2, 10%"),
        ("preprocess", "stem, lowercase, none"),
        ("compound", "9 of two models"),
    ],
)
def test_table_4_5_has_the_values_of_the_thesis(parameter, values):
    assert table("4.5").loc[parameter, "values"] == values


@pytest.mark.parametrize(
    ("number", "runs", "teacher", "student", "contextual"),
    [
        ("4.6", 16, "DBOW, 1024", "1024", "768x1024 or 1024 or -"),
        ("4.7", 12, "PV, 2048", "768(ReLU)x4096(ReLU)x2048", "2048(ReLU)x2048 or 2048 or -"),
        ("4.8", 14, "DM, 100", "768", "100(ReLU)x768 or 768"),
    ],
)
def test_tables_of_projections_have_all_runs_of_the_thesis(
    number, runs, teacher, student, contextual
):
    frame = table(number)
    assert frame["runs"].sum() == runs
    assert frame.loc[(teacher, student), "contextual projections"] == contextual


def test_table_4_9_crosses_masks_and_weights():
    assert table("4.9")["values"].to_dict() == {
        "max_structural_len": "384, None (no mask)",
        "lam": "0.95, 0.8, 0.5, 0.2, None (no weighting)",
    }


def test_grids_are_shown_in_the_widths_of_a_profile(small):
    widths = {teacher for teacher, _ in table("4.6", small).index}
    assert widths == {"DM, 8", "DBOW, 8", "PV, 16"}


def test_another_number_is_refused_with_those_that_there_are(refused):
    refused("table 4.4: is none of 4.5, 4.6, 4.7, 4.8, 4.9, 5.7; give one of these", table, "4.4")


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
