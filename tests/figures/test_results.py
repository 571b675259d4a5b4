"""Figures of scores, hand-made and of the thesis: values are read back from the artists."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.container import ErrorbarContainer

from docemb_lib import figures
from docemb_lib.figures import GREY, PALETTE
from docemb_lib.thesis.values import published


def marks(ax, marker):
    points = [line.get_xydata() for line in ax.lines if line.get_marker() == marker]
    return np.concatenate(points) if points else np.empty((0, 2))


def spans(ax):
    bars = [
        container[2][0] for container in ax.containers if isinstance(container, ErrorbarContainer)
    ]
    return [segment for lines in bars for segment in lines.get_segments()]


def tidy(scores, **columns):
    """Scores {model: {task: values over seeds}} as rows, with the given columns by model."""
    frame = pd.DataFrame(
        [
            {
                "model": model,
                "task": task,
                "metric": "map" if task == "find" else "accuracy",
                "seed": seed,
                "value": value,
            }
            for model, tasks in scores.items()
            for task, values in tasks.items()
            for seed, value in enumerate(values)
        ]
    )
    return frame.assign(
        **{name: frame["model"].map(by_model) for name, by_model in columns.items()}
    )


@pytest.mark.parametrize(
    ("columns", "parts"),
    [  # the second: a loss of one part
        ({"loss": 3.0, "structural": 1.0}, ["loss", "structural"]),
        ({"loss": 3.0, "structural": 3.0}, ["loss"]),
        (
            {"contextual": 1.0, "a": 2.0, "loss": 3.0, "structural": 4.0},
            ["loss", "structural", "contextual", "a"],
        ),
    ],
)
def test_history_shows_the_parts_of_the_training_loss_in_colours_of_their_own(
    ax, names_of, columns, parts
):
    train = pd.DataFrame({"step": [1, 2], **columns})
    further = {
        "spread": 0.5,
        "norm": 9.0,
        "epoch": 0.0,
        "contextual": columns.get("contextual", 0.0),
    }
    figures.plot_history(train, train.assign(**further), ax=ax)
    assert names_of(ax.get_legend()) == parts
    validation = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_ydata()[0] for line in validation] == [columns[part] for part in parts]
    assert len({line.get_color() for line in validation}) == len(parts)


@pytest.fixture
def runs():
    """Normalised by the best: DM .5 and 1, SBERT 1 and .8, DBOW .9 ± .1 and .4, exactly."""
    scores = {
        "DM": {"sort": [0.4, 0.4], "find": [0.5]},
        "SBERT": {"sort": [0.8, 0.8], "find": [0.4]},
        "DBOW": {"sort": [0.64, 0.8], "find": [0.2]},
    }
    group = pd.Series({"DM": "DM", "SBERT": "baseline", "DBOW": "DBOW"})
    frame = tidy(
        scores, group=group, thesis=pd.Series({"DM": 0.93, "SBERT": np.nan, "DBOW": np.nan})
    )
    frame["legend"] = "thesis, with other tasks or models"
    frame["group"] = pd.Categorical(frame["group"], categories=["DM", "DBOW", "unused", "baseline"])
    further = frame.iloc[:1].assign(metric="mrr", value=99.0)  # not a main metric
    return pd.concat([frame, further], ignore_index=True)


def points_of(ax):
    """All points of tasks, as (x, y)."""
    clouds = [
        collection.get_offsets()
        for collection in ax.collections
        if isinstance(collection, PathCollection)
    ]
    return {(round(float(x), 6), round(float(y))) for offsets in clouds for x, y in offsets}


def test_runs_stand_in_the_order_of_their_normalised_means_the_best_on_top(ax, names_of, runs):
    assert figures.plot_runs(runs, by="kind", ax=ax) is ax
    assert names_of(ax.get_yticklabels()) == ["SBERT", "DM", "DBOW"]
    assert ax.yaxis_inverted()
    np.testing.assert_allclose(marks(ax, "^"), [[0.9, 0], [0.75, 1], [0.65, 2]])
    # each task is a point
    assert points_of(ax) == {(0.4, 2), (0.9, 2), (0.5, 1), (1.0, 1), (1.0, 0), (0.8, 0)}
    assert not ax.patches


def test_each_task_has_a_marker_that_the_legend_names(ax, runs):
    figures.plot_runs(runs, by="kind", ax=ax)
    drawn = [
        tuple(map(tuple, cloud.get_paths()[0].vertices.round(3)))
        for cloud in ax.collections
        if isinstance(cloud, PathCollection)
    ]
    assert len(set(drawn)) == len(drawn) == 2
    named = {line.get_label(): line.get_marker() for line in ax.get_legend().get_lines()}
    assert len({named["sort"], named["find"], named["mean over tasks"]}) == 3


def test_the_interval_of_a_mean_adds_those_of_its_tasks_in_squares(ax, names_of, runs):
    reach = runs["task"].map({"sort": 0.08, "find": 0.03})
    bounded = runs.assign(low=runs["value"] - reach, high=runs["value"] + 2 * reach)
    bounded.loc[bounded["model"] == "DM", ["low", "high"]] = np.nan
    figures.plot_runs(bounded, by="kind", ax=ax)
    best = {"sort": 0.8, "find": 0.5}
    expected = np.sqrt((0.08 / best["sort"]) ** 2 + (0.03 / best["find"]) ** 2) / 2
    widths = [np.ptp(segment[:, 0]) for segment in spans(ax) if len(segment)]  # DM has none
    np.testing.assert_allclose(widths, [3 * expected] * 2)
    assert "mean over tasks, 95% interval" in names_of(ax.get_legend())


@pytest.mark.parametrize("tasks", [4, 5])
def test_a_row_has_a_box_of_its_quartiles_from_five_tasks_on(ax, tasks):
    values = [1.0, 0.2, 0.4, 0.5, 0.9][:tasks]
    scores = {
        "a": {f"t{n}": [value] for n, value in enumerate(values)},
        "b": {f"t{n}": [1.0] for n in range(tasks)},
    }
    frame = tidy(scores, group=pd.Series("x", list("ab")), thesis=pd.Series(np.nan, list("ab")))
    figures.plot_runs(frame.assign(legend="thesis"), by="kind", ax=ax)
    boxes = [patch.get_path().get_extents().intervalx for patch in ax.patches]
    expected = [np.percentile(values, [25, 75]), [1, 1]] if tasks == 5 else np.empty((0, 2))
    np.testing.assert_allclose(np.reshape(sorted(map(tuple, boxes)), (-1, 2)), expected)


def test_the_published_box_is_hollow_and_at_its_row(ax, names_of, runs):
    box = {"low": 0.6, "q1": 0.7, "median": 0.75, "q3": 0.8, "high": 0.95}
    of_dm = runs["model"] == "DM"
    published_box = {
        f"thesis_{name}": np.where(of_dm, value, np.nan) for name, value in box.items()
    }
    figures.plot_runs(runs.assign(**published_box), by="kind", ax=ax)
    dashed = [line.get_xydata() for line in ax.lines if line.get_linestyle() == "--"]
    ends = {tuple(np.round([xy[:, 0].min(), xy[:, 0].max()], 6)) for xy in dashed}
    assert ends >= {(0.7, 0.8), (0.6, 0.7), (0.8, 0.95), (0.75, 0.75)}
    assert all(0 < y < 2 for xy in dashed for y in xy[:, 1])  # DM is the second of three rows
    assert names_of(ax.get_legend())[-1] == "box in the thesis"


def test_the_thesis_value_is_a_hollow_diamond_and_groups_have_colours_of_their_own(
    ax, names_of, colour_of, runs
):
    figures.plot_runs(runs, by="kind", ax=ax)
    points = marks(ax, "D")
    assert points[~np.isnan(points[:, 0])].tolist() == [[0.93, 1]]
    assert {line.get_markerfacecolor() for line in ax.lines if line.get_marker() == "D"} == {"none"}
    names = names_of(ax.get_legend())
    assert names == [
        "DM",
        "DBOW",
        "baseline",
        "sort",
        "find",
        "mean over tasks",
        "thesis, with other tasks or models",
    ]
    colours = [colour_of(patch) for patch in ax.get_legend().get_patches()]
    assert colours[-1] == PALETTE["untrained"]  # of the baseline
    assert len(set(colours)) == 3
    ax.clear()
    figures.plot_runs(runs.assign(thesis=np.nan), by="kind", ax=ax)
    assert "thesis" not in str(names_of(ax.get_legend()))


def test_lambda_has_a_line_with_intervals_per_mask_and_dots_without_weighting(ax, names_of):
    points = [(0.8, np.nan, 0.2), (0.2, np.nan, 0.1), (0.5, 256, 0.3), (np.nan, np.nan, 0.4)]
    points = pd.DataFrame(points, columns=["lam", "max_structural_len", "value"]).assign(
        metric="accuracy", low=0.05, high=0.95
    )
    points = pd.concat(
        [
            points.assign(task="sort"),
            points.assign(task="mean over tasks", value=points["value"] / 2),
        ]
    )
    for rows, factor in ((points[points["task"] == "sort"], 1), (points, 0.5)):
        ax.clear()
        assert figures.plot_weighting(rows, ax=ax) is ax
        assert names_of(ax.get_legend()) == ["plain sum, no mask", "mask 256", "no mask"]
        lines = [
            line.get_xydata().round(6).tolist() for line in ax.lines if line.get_marker() == "o"
        ]
        assert lines == [
            [[0.494, 0.3 * factor]],
            [[0.206, 0.1 * factor], [0.806, 0.2 * factor]],
        ]  # side by side
        assert [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == ":"] == [
            0.4 * factor
        ]
        np.testing.assert_allclose([span[:, 1] for span in spans(ax)], [[0.05, 0.95]] * 3)
    assert ax.get_title() == "mean over tasks"
    assert ax.get_ylabel() == "accuracy"
    figures.plot_weighting(
        points[points["lam"].isna()], ax=plt.subplots()[1]
    )  # no weighted run is no error


def test_the_share_of_a_gradient_follows_from_both_weighted_norms(ax):
    norms = pd.DataFrame(
        {
            "objective": ["cosine", "cosine", "alone"],
            "at": ["embeddings", "encoder", "embeddings"],
            "structural": [3.0, 1.0, 2.0],
            "contextual": [1.0, 1.0, 0.0],
        }
    )
    figures.plot_gradient_shares(norms, lam=0.5, ax=ax)
    larger, equal, alone, diagonal, mark = ax.lines
    at_half = [np.interp(0.5, *line.get_data()) for line in (larger, equal, alone, diagonal)]
    np.testing.assert_allclose(at_half, [3 / 4, 1 / 2, 1, 1 / 2], atol=1e-4)
    np.testing.assert_allclose(np.interp(0.2, *larger.get_data()), 0.6 / 1.4, atol=1e-3)
    assert larger.get_color() == equal.get_color() != alone.get_color()
    assert larger.get_linestyle() == alone.get_linestyle() != equal.get_linestyle()
    assert list(mark.get_xdata()) == [0.5, 0.5]


def test_a_task_has_a_bar_per_model_in_its_colour_with_its_interval(ax, colour_of):
    rows = [
        ("TF-IDF", "accuracy", 0.5, 0.4, 0.55),
        ("SBERT truncated", "accuracy", 0.8, 0.7, 0.9),
        ("DM;100d", "accuracy", 0.05, 0.04, 0.06),
        ("TF-IDF", "f1_macro", 0.1, 0.1, 0.1),
    ]
    intervals = pd.DataFrame(rows, columns=["model", "metric", "value", "low", "high"]).assign(
        task="halves", kind=["tf-idf", "sbert-truncated", "dm", "tf-idf"]
    )
    figures.plot_task(intervals, task="halves", ax=ax)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.8, 0.5, 0.05])
    assert [(text.get_text(), text.get_color(), text.xy[0]) for text in ax.texts] == [
        ("0.800", GREY, 0.9),
        ("0.500", GREY, 0.55),
        ("0.050", GREY, 0.06),
    ]
    assert colour_of(ax.patches[0]) == PALETTE["structural"]
    assert ax.patches[0].get_alpha() < 1  # the interval is seen on the bar
    assert not len(marks(ax, "D"))
    np.testing.assert_allclose(
        [span[:, 0] for span in spans(ax)], [[0.7, 0.9], [0.4, 0.55], [0.04, 0.06]]
    )
    figures.plot_task(
        intervals.assign(thesis=[0.6, np.nan, 0.1, 0]), task="halves", ax=plt.subplots()[1]
    )
    np.testing.assert_equal(marks(plt.gca(), "D"), [[np.nan, 0], [0.6, 1], [0.1, 2]])


def test_differences_are_filled_where_the_test_shows_them(ax, names_of):
    rows = [
        ("student", "SBERT", -0.1, -0.2, -0.05, "worse"),
        ("TF-IDF", "SBERT", 0.02, -0.1, 0.1, "no difference shown"),
        ("student", "other", 9, 9, 9, "better"),
    ]
    comparison = pd.DataFrame(
        rows, columns=["model", "reference", "difference", "low", "high", "verdict"]
    )
    comparison = comparison.assign(task="find", metric="map", kind=["student", "tf-idf", "student"])
    assert figures.plot_differences(comparison, task="find", reference="SBERT", ax=ax) is ax
    assert names_of(ax.get_yticklabels()) == ["TF-IDF", "student"]
    points = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in points] == [0.02, -0.1]
    assert [line.get_markerfacecolor() for line in points] == ["none", PALETTE["student"]]
    intervals = [
        list(line.get_xdata())
        for line in ax.lines
        if line not in points and np.ptp(line.get_xdata()) > 0
    ]
    assert intervals == [[-0.1, 0.1], [-0.2, -0.05]]
    assert ax.get_xlabel().startswith("MAP, minus that of SBERT")
    assert ax.yaxis_inverted()


def test_differences_say_that_their_tests_are_corrected_and_their_intervals_not(ax):
    row = ("student", "student", "SBERT", 0.1, 0.01, 0.2, "no difference shown", "find", "map")
    names = ["model", "kind", "reference", "difference", "low", "high", "verdict", "task", "metric"]
    figures.plot_differences(pd.DataFrame([row], columns=names), task="find", reference="SBERT")
    assert "corrected for their number (Holm), which the intervals are not" in ax.get_xlabel()


def test_length_has_a_line_with_intervals_per_model_side_by_side(ax, names_of):
    rows = [
        (model, bucket, n, level + n / 100, level, level + 0.5)
        for model, level in (("SBERT truncated", 0.1), ("SBERT over chunks", 0.2))
        for bucket, n in (("1-256", 40), ("> 256", 10))
    ]
    by_length = pd.DataFrame(rows, columns=["model", "bucket", "examples", "value", "low", "high"])
    by_length["kind"] = ["sbert-truncated"] * 2 + ["sbert-chunks"] * 2
    figures.plot_by_length(by_length.assign(task="sort", metric="accuracy"), task="sort", ax=ax)
    lines = [container[0] for container in ax.containers]
    assert [line.get_ydata().tolist() for line in lines] == [[0.5, 0.2], pytest.approx([0.6, 0.3])]
    assert (
        len({line.get_linestyle() for line in lines}) == 2
    )  # two models of one kind, so of one colour
    assert len({line.get_color() for line in lines}) == 1
    np.testing.assert_allclose(
        [low for low, _ in spans(ax)], [(-0.05, 0.1), (0.95, 0.1), (0.05, 0.2), (1.05, 0.2)]
    )
    assert names_of(ax.get_xticklabels()) == ["1-256\n(40)", "> 256\n(10)"]
    assert ax.get_xlabel().endswith("(examples)")


def test_reading_has_a_line_with_intervals_per_model_over_the_document(ax):
    rows = []
    for task in ("moved", "found"):
        for model, level in (("SBERT truncated", 0.5), ("SBERT over chunks", 0.8)):
            for position in (0.25, 0.75):
                rows.append((task, model, position, level - position / 5, 0.3, 0.9))
    readings = pd.DataFrame(rows, columns=["task", "model", "position", "value", "low", "high"])
    readings = readings.assign(kind="sbert-truncated", metric="mrr")
    figures.plot_by_position(readings, task="found", ax=ax)
    lines = [container[0] for container in ax.containers]
    assert [line.get_ydata().tolist() for line in lines] == [
        pytest.approx([0.45, 0.35]),
        pytest.approx([0.75, 0.65]),
    ]
    np.testing.assert_allclose([*lines[0].get_xdata()], [0.245, 0.745])
    assert (ax.get_xlim(), ax.get_ylabel(), ax.get_title()) == ((0, 1), "MRR", "found")


def test_few_shot_is_the_mean_over_draws_of_one_metric(ax):
    rows = [
        (model, number, draw, metric, value + draw / 10 + number / 100 + (metric == "accuracy"))
        for model, value in (("one", 0.2), ("two", 0.5))
        for number in (5, 10)
        for draw in (0, 1)
        for metric in ("accuracy", "f1_macro")
    ]
    scores = pd.DataFrame(rows, columns=["model", "per_class", "draw", "metric", "value"])
    figures.plot_few_shot(scores.assign(kind="student"), ax=ax)
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    deviation = 0.1 / np.sqrt(2)  # of two draws .1 apart
    np.testing.assert_allclose([band.min(), band.max()], [0.3 - deviation, 0.35 + deviation])
    lines = [line for line in ax.lines if len(line.get_xdata())]  # seaborn adds some for its legend
    assert [list(line.get_xdata()) for line in lines] == [[5, 10]] * 2
    np.testing.assert_allclose([line.get_ydata() for line in lines], [[0.3, 0.35], [0.6, 0.65]])
    assert ax.get_ylabel() == "macro-F1"
    assert list(ax.get_xticks()) == [5, 10]


@pytest.fixture(scope="module")
def table_5_7():
    """Table 5.7 as if docemb had measured it: the published numbers as values and as thesis."""
    table = published("table_5_7")
    rounds = [
        table[table["round"].isin([name]) | table["round"].isna()].assign(round=name)
        for name in ("1k", "10k", "all")
    ]
    rows = pd.concat(rounds, ignore_index=True)
    rows["kind"] = "student"
    return rows.assign(low=rows["value"] - 0.01, high=rows["value"] + 0.02, thesis=rows["value"])


def test_rounds_are_those_of_figure_5_3(ax, names_of, table_5_7):
    """Orders and means as read off the thesis' figure."""
    assert figures.plot_rounds(table_5_7, ax=ax) is ax
    rows = names_of(ax.get_yticklabels())
    assert [*rows[:3], *rows[11:14], *rows[-3:]] == [
        "only-MSE;1k",
        "MSE-contextual;1k",
        "cosine-masked;1k",
        "PV;10k",
        "Longformer;10k",
        "DM;10k",
        "PV;all",
        "Longformer;all",
        "DM;all",
    ]
    means = dict(zip(rows, marks(ax, "^")[:, 0], strict=True))
    expected = {
        "DM;1k": 0.6115,
        "only-MSE;1k": 0.7878,
        "only-MSE;10k": 0.9067,
        "Longformer;10k": 0.7884,
        "SBERT;all": 0.969,
    }
    assert {row: means[row] for row in expected} == pytest.approx(expected, abs=4e-4)
    assert len(rows) == 7 * 3
    np.testing.assert_allclose(marks(ax, "D"), marks(ax, "^"))
    assert ax.yaxis_inverted()
    tasks = ["arxiv", "imdb", "aan", "oc", "pan", "s2orc"]
    mean = "mean over tasks, 95% interval"
    assert names_of(ax.get_legend()) == ["1k", "10k", "all", *tasks, mean, "thesis"]
    ax.clear()  # one round is not named, and the thesis has no mark on other tasks
    rows = table_5_7.query("round == 'all'")
    rows = pd.concat([rows, rows[rows["task"] == "oc"].assign(task="package", thesis=np.nan)])
    figures.plot_rounds(rows, ax=ax)
    assert "PV" in names_of(ax.get_yticklabels())
    assert np.isnan(marks(ax, "D")[:, 0]).all()
    assert "thesis" not in names_of(ax.get_legend())


RANKED = {  # orders as printed, the best first
    "map": ["only-MSE", "SBERT", "MSE-contextual", "cosine-masked", "PV", "Longformer", "DM"],
    "mrr": ["cosine-masked", "only-MSE", "MSE-contextual", "SBERT", "PV", "Longformer", "DM"],
}


def test_retrieval_is_one_picture_of_both_metrics_in_the_order_of_the_means(
    ax, names_of, table_5_7
):
    assert figures.plot_retrieval(table_5_7, ax=ax) is ax
    assert names_of(ax.get_yticklabels()) == [*RANKED["map"], *RANKED["mrr"]]
    assert ax.yaxis_inverted()
    assert names_of(ax.texts) == ["MAP", "MRR"]
    widths = [bar.get_width() for bar in ax.patches]
    best = {0: (0.198 + 0.145) / 2, 7: (0.4284 + 0.4051) / 2}
    assert {place: widths[place] for place in best} == pytest.approx(best)
    np.testing.assert_allclose(marks(ax, "D")[:, 0], widths)


def test_retrieval_joins_the_tasks_of_each_bar(ax, names_of, table_5_7):
    figures.plot_retrieval(table_5_7, ax=ax)
    expected = []
    for metric, models in RANKED.items():
        of_metric = table_5_7[table_5_7["metric"] == metric].drop_duplicates(["model", "task"])
        table = of_metric.pivot(index="model", columns="task", values="value").loc[models]
        expected += table.apply(sorted, axis=1).tolist()
    spans = [line.get_xdata().tolist() for line in ax.lines if line.get_marker() == "None"]
    assert spans == expected
    assert names_of(ax.get_legend()) == ["games", "wines", "mean in the thesis"]
    points = {
        (value, round(place, 3))
        for marker in ("o", "s")
        for value, place in marks(ax, marker).tolist()
    }
    assert len(points) == 2 * 2 * 7


def test_retrieval_has_no_diamond_without_all_tasks_in_the_thesis(ax, table_5_7):
    rows = table_5_7.assign(thesis=table_5_7["thesis"].mask(table_5_7["task"] == "games"))
    figures.plot_retrieval(rows, ax=ax)
    assert np.isnan(marks(ax, "D")[:, 0]).all()


@pytest.fixture
def losses():
    rows = []
    for loss, value, spread in (("soft-cca", 0.2, 0.0003), ("infonce", 0.6, 0.79)):
        for task, metric, more in (
            ("find", "map", 0.1),
            ("sort", "accuracy", 0),
            ("find", "mrr", 9),
        ):
            collapsed = int(spread < 0.01)
            rows.append((loss, task, metric, value + more, spread, 0.22, collapsed))
    names = ["loss", "task", "metric", "value", "spread", "spread_before", "collapsed"]
    return pd.DataFrame(rows, columns=names)


def test_contextual_losses_stand_beside_their_spread(ax, names_of, losses):
    assert figures.plot_contextual_losses(losses, ax=ax) is ax
    assert names_of(ax.get_yticklabels()) == ["infonce", "soft-cca"]
    np.testing.assert_allclose(marks(ax, "^"), [[0.65, 0], [0.25, 1]])
    texts = {text.get_text(): text.xy[1] for text in ax.texts}
    assert texts == {"spread 0.0003, collapsed": 1, "spread 0.79": 0}


def test_correlations_of_views_and_embeddings_are_lines(ax, names_of):
    validation = pd.DataFrame({"step": [0, 5], "cca": [0.1, 0.7], "cca_embeddings": [0.2, 0.3]})
    figures.plot_correlations(validation, ax=ax)
    assert names_of(ax.get_legend()) == ["views", "embeddings"]
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.1, 0.7], [0.2, 0.3]]


def test_correlations_that_are_not_measured_are_said(ax):
    figures.plot_correlations(pd.DataFrame({"step": [0]}), ax=ax)
    assert "not measured" in ax.texts[0].get_text()
