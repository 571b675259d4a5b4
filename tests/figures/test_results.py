"""Figures of scores, hand-made and of the thesis: values are read back from the artists."""

import numpy as np
import pandas as pd
import pytest

from docemb_lib import figures
from docemb_lib.evaluation.scoreboard import best_means
from docemb_lib.figures import PALETTE
from docemb_lib.thesis.values import published


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ({"loss": 3.0, "structural": 1.0, "sdl": 2.0}, ["loss", "structural", "sdl"]),
        ({"loss": 3.0, "structural": 3.0}, ["loss"]),
    ],
)
def test_history_shows_the_parts_of_the_training_loss_in_colours_of_their_own(
    ax, names_of, columns, parts
):
    train = pd.DataFrame({"step": [1, 2], **columns})
    further = {"spread": 0.5, "norm": 9.0, "epoch": 0.0, "contextual": 0.0}
    figures.plot_history(train, train.assign(**further), ax=ax)
    assert names_of(ax.get_legend()) == parts
    validation = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_ydata()[0] for line in validation] == [columns[part] for part in parts]
    assert len({line.get_color() for line in validation}) == len(parts)


ROWS = [
    ("SBERT", "sbert-chunks", "sort", "accuracy", 0, 0.8),
    ("SBERT", "sbert-chunks", "find", "map", 0, 0.4),
    ("student", "student", "sort", "accuracy", 0, 0.6),
    ("student", "student", "sort", "accuracy", 1, 0.4),
    ("student", "student", "find", "map", 0, 0.9),
    ("student", "student", "find", "mrr", 0, 9.0),
]
REACH = {"sort": 0.08, "find": 0.03}


@pytest.fixture
def scores():
    rows = pd.DataFrame(ROWS, columns=["model", "kind", "task", "metric", "seed", "value"])
    reach = rows["task"].map(REACH)
    return rows.assign(low=rows["value"] - reach, high=rows["value"] + 2 * reach)


def marks(ax, marker):
    return [line.get_xydata() for line in ax.lines if line.get_marker() == marker]


def test_a_row_is_the_mean_over_tasks_the_best_on_top_with_a_mark_per_task(
    scores, names_of, intervals_of
):
    figure = figures.plot_rows(scores)
    (ax,) = figure.axes
    assert names_of(ax.get_yticklabels()) == ["student", "SBERT"]
    assert ax.yaxis_inverted()
    points, spans = intervals_of(ax)
    np.testing.assert_allclose([point.get_xydata()[0] for point in points], [[0.7, 0], [0.6, 1]])
    assert [point.get_color() for point in points] == [PALETTE["student"], PALETTE["structural"]]
    assert names_of(ax.texts) == ["0.700", "0.600"]
    assert names_of(figure.legends[0]) == ["sort", "find"]
    np.testing.assert_allclose(marks(ax, "s")[0], [[0.5, 0], [0.8, 1]])
    # The reaches of the tasks add in squares.
    reach = np.hypot(*REACH.values()) / 2
    np.testing.assert_allclose(spans[0][:, 0], [0.7 - reach, 0.7 + 2 * reach])


def test_a_row_beside_the_thesis_has_its_mean_and_quartiles(scores, names_of):
    by_model = {"thesis": 0.5, "thesis_q1": 0.4, "thesis_q3": 0.7}
    of_student = scores["model"] == "student"
    for name, value in by_model.items():
        scores[name] = np.where(of_student, value, np.nan)
    figure = figures.plot_rows(scores)
    np.testing.assert_equal(marks(figure.axes[0], "D")[0], [[0.5, 0], [np.nan, 1]])
    (first, *_) = figure.axes[0].collections[-1].get_segments()
    assert first.tolist() == [[0.4, 0], [0.7, 0]]
    assert names_of(figure.legends[0])[-1] == "in the thesis"


def test_a_model_without_a_task_has_no_mean(scores, names_of):
    figure = figures.plot_rows(scores.drop(index=1))
    assert names_of(figure.axes[0].texts) == ["0.700", "nan"]


def test_each_task_has_a_panel_of_the_metric_that_decides(scores, names_of):
    figure = figures.plot_rows(scores, panel="task")
    assert [(ax.get_title(), ax.get_xlabel()) for ax in figure.axes] == [
        ("sort", "accuracy"),
        ("find", "MAP"),
    ]
    assert [names_of(ax.texts) for ax in figure.axes] == [["0.800", "0.500"], ["0.900", "0.400"]]
    assert not figure.legends


def test_groups_have_colours_of_their_own_and_baselines_are_grey(scores, names_of, intervals_of):
    scores["group"] = scores["model"].replace("SBERT", "baseline")
    figure = figures.plot_runs(scores, by="loss")
    points, _ = intervals_of(figure.axes[0])
    assert [point.get_color() for point in points] == ["#0072B2", PALETTE["untrained"]]
    np.testing.assert_allclose(
        [point.get_xdata()[0] for point in points], [(0.5 / 0.8 + 1) / 2, (1 + 0.4 / 0.9) / 2]
    )
    assert names_of(figure.legends[0]) == ["sort", "find", "student", "baseline"]
    assert figure.legends[0].get_title().get_text() == "loss"


def test_long_names_take_a_third_of_the_width(scores):
    scores["model"] = scores["model"] + ", max-margin, MSE, γ 1, S:384(ReLU)x512(ReLU)x384, C:384"
    figure = figures.plot_rows(scores)
    figure.canvas.draw()
    (ax,) = figure.axes
    assert ax.get_position().x0 < 0.37
    heights = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert heights[0].y0 > heights[1].y1


def test_differences_are_filled_where_the_test_shows_them(names_of, intervals_of):
    rows = [
        ("student", "SBERT", -0.1, -0.2, -0.05, "worse"),
        ("TF-IDF", "SBERT", 0.02, -0.1, 0.1, "no difference shown"),
        ("student", "other", 9, 9, 9, "better"),
    ]
    columns = ["model", "reference", "difference", "low", "high", "verdict"]
    comparison = pd.DataFrame(rows, columns=columns)
    comparison = comparison.assign(task="find", metric="map", kind=["student", "tf-idf", "student"])
    beside = comparison[comparison["reference"] == "SBERT"]
    (ax,) = figures.plot_rows(beside.assign(value=beside["difference"]), panel="task").axes
    assert names_of(ax.get_yticklabels()) == ["TF-IDF", "student"]
    points, spans = intervals_of(ax)
    assert [point.get_markerfacecolor() for point in points] == ["none", PALETTE["student"]]
    np.testing.assert_allclose([span[:, 0] for span in spans], [[-0.1, 0.1], [-0.2, -0.05]])
    assert ax.get_xlabel() == "MAP"


def test_lines_have_intervals_side_by_side_and_the_colour_of_their_kind(ax, names_of, intervals_of):
    rows = [
        (model, bucket, level + n / 100, level, level + 0.5)
        for model, level in (("SBERT-256", 0.1), ("SBERT-chunks", 0.2))
        for bucket, n in (("1-256", 40), ("> 256", 10))
    ]
    by_length = pd.DataFrame(rows, columns=["model", "bucket", "value", "low", "high"])
    figures.plot_lines(by_length.assign(metric="map", kind="sbert-chunks"), x="bucket", ax=ax)
    lines, spans = intervals_of(ax)
    assert [line.get_ydata().tolist() for line in lines] == [[0.5, 0.2], pytest.approx([0.6, 0.3])]
    assert len({line.get_linestyle() for line in lines}) == 2
    assert {line.get_color() for line in lines} == {PALETTE["structural"]}
    lows = [(-0.04, 0.1), (0.96, 0.1), (0.04, 0.2), (1.04, 0.2)]
    np.testing.assert_allclose([low for low, _ in spans], lows)
    assert names_of(ax.get_xticklabels()) == ["1-256", "> 256"]


@pytest.fixture(scope="module")
def table_5_7():
    """Table 5.7 as if docemb had measured it: the published numbers as values and as thesis."""
    table = published("table_5_7")
    rounds = []
    for name in ("1k", "10k", "all"):
        rows = table[table["round"].isin([name]) | table["round"].isna()]
        rounds.append(rows.assign(round=name))
    rows = pd.concat(rounds, ignore_index=True)
    return rows.assign(kind="student", low=rows["value"] - 0.01, high=rows["value"] + 0.02)


MEANS = {
    "1k": {"only-MSE": 0.7878, "DM": 0.6115},
    "10k": {"only-MSE": 0.9067, "Longformer": 0.7884},
    "all": {"SBERT": 0.969},
}


def test_rounds_are_those_of_figure_5_3(table_5_7, names_of):
    """Orders and means as read off the thesis' figure."""
    accuracy = table_5_7[table_5_7["metric"] == "accuracy"]
    best = best_means(accuracy, over_rounds=True)
    relative = accuracy.assign(thesis=accuracy["value"] / best)
    figure = figures.plot_runs(relative, panel="round", hue=None)
    first = names_of(figure.axes[0].get_yticklabels())
    assert first[:3] == ["only-MSE", "MSE-contextual", "cosine-masked"]
    for ax in figure.axes:
        rows = names_of(ax.get_yticklabels())
        means = dict(zip(rows, marks(ax, "D")[0][:, 0], strict=True))
        expected = MEANS[ax.get_title()]
        assert {row: means[row] for row in expected} == pytest.approx(expected, abs=4e-4)
        shown = [float(text) for text in names_of(ax.texts)]
        assert shown == pytest.approx([*means.values()], abs=6e-4)
