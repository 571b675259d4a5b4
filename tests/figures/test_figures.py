"""Figures draw what the frame says on the Axes they are given: read back from the artists, not looked at."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.container import ErrorbarContainer

from docemb_lib.figures import PALETTE, kind_of, rows_axes
from docemb_lib.figures.corpus import plot_cumulative, plot_lengths, plot_weights
from docemb_lib.figures.results import each_task, plot_by_length, plot_differences, plot_task
from docemb_lib.figures.student import TEACHERS, plot_distances, plot_max_margin, plot_probe
from docemb_lib.figures.sweeps import plot_history, plot_runs, plot_weighting
from docemb_lib.losses import MaxMargin


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_lengths_stack_to_a_hundred_percent_and_the_share_beyond_is_named(ax):
    documents = pd.DataFrame({"source": ["a"] * 6 + ["b"] * 4, "tokens": [10, 20, 30, 40, 50, 5000, 15, 25, 35, 45]})
    assert plot_lengths(documents, limit=28, longest=60, ax=ax) is ax
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(100)
    assert "60% are longer" in ax.texts[0].get_text()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]


def test_panels_of_lengths_share_colours_and_height_and_need_no_limit():
    figure, (left, right) = plt.subplots(1, 2, sharey=True)
    train = pd.DataFrame({"source": ["a", "b", "b", "b"], "tokens": [5, 15, 25, 35]})
    plot_lengths(train, longest=40, sources=["a", "b"], ax=left)
    plot_lengths(train[train["source"] == "b"].head(1), longest=40, sources=["a", "b"], ax=right)
    (red, blue), (same_red, same_blue) = (
        [handle.patches[0].get_facecolor() for handle in ax.containers] for ax in (left, right)
    )
    assert (red, blue) == (same_red, same_blue)
    assert red != blue
    assert left.get_ylim()[1] > 100  # the right one's only bar
    assert not left.texts
    plt.close(figure)


def test_cumulative_lines_end_at_one_and_pass_the_share_of_shorter_documents(ax):
    lengths = pd.DataFrame({"data": ["a"] * 4 + ["b"] * 2, "split": ["train"] * 3 + ["test"] + ["train"] * 2,
                            "tokens": [10, 20, 40, 30, 100, 5000]})  # fmt: skip
    assert plot_cumulative(lengths, ax=ax) is ax
    first, second, third = ax.lines
    x, y = first.get_data()
    assert y[x <= 20].max() == pytest.approx(2 / 3)
    assert y.max() == 1
    assert first.get_color() == second.get_color() != third.get_color()
    assert first.get_linestyle() == third.get_linestyle() != second.get_linestyle()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "train", "test"]
    assert (ax.get_xlim(), ax.get_xscale()) == ((8, 4096), "log")


def test_weights_are_drawn_against_length(ax):
    plot_weights(np.array([1, 5, 9]), np.array([0.5, 0.5, 0.0]), ax=ax)
    assert ax.lines[0].get_xydata().tolist() == [[1, 0.5], [5, 0.5], [9, 0.0]]


def test_distances_have_a_row_per_model_and_its_auc(ax):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"model": ["a"] * 40 + ["b"] * 40, "kind": ["positive", "negative"] * 40,
                          "value": rng.random(80), "auc": [0.75] * 40 + [0.5] * 40})  # fmt: skip
    plot_distances(frame, distance="cosine", ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert {text.get_text() for text in ax.texts} >= {"AUC 0.750", "AUC 0.500"}
    assert (ax.get_xlabel(), ax.get_xscale()) == ("cosine distance", "linear")
    own, others = (text.get_text() for text in ax.get_legend().get_texts())
    assert "own" in own
    assert "other" in others


def test_squared_differences_have_a_logarithmic_axis(ax):
    values = np.random.default_rng(0).lognormal(size=40)
    values[3] = 0.0  # a perfect match
    frame = pd.DataFrame({"model": "a", "kind": ["positive", "negative"] * 20, "value": values, "auc": 0.5})
    plot_distances(frame, distance="mse", ax=ax)
    assert (ax.get_xlabel(), ax.get_xscale()) == ("squared L2 distance per dimension", "log")


def tidy(scores, **columns):
    """Scores {model: {task: values over seeds}} as rows, with the given columns by model."""
    rows = [
        {"model": model, "task": task, "metric": "map" if task == "find" else "accuracy", "seed": seed, "value": value}
        for model, tasks in scores.items()
        for task, values in tasks.items()
        for seed, value in enumerate(values)
    ]
    frame = pd.DataFrame(rows)
    return frame.assign(**{name: frame["model"].map(by_model) for name, by_model in columns.items()})


@pytest.fixture
def runs():
    """Normalised by the best: DM .5 and 1, SBERT 1 and .8, DBOW .9 ± .1 and .4; hand-made so that halves are exact."""
    scores = {
        "DM": {"sort": [0.4, 0.4], "find": [0.5]},
        "SBERT": {"sort": [0.8, 0.8], "find": [0.4]},
        "DBOW": {"sort": [0.64, 0.8], "find": [0.2]},
    }
    group = pd.Series({"DM": "DM", "SBERT": "baseline", "DBOW": "DBOW"})
    frame = tidy(scores, group=group, thesis=pd.Series({"DM": 0.93, "SBERT": np.nan, "DBOW": np.nan}))
    frame["group"] = pd.Categorical(frame["group"], categories=["DM", "DBOW", "unused", "baseline"])
    further = frame.iloc[:1].assign(metric="mrr", value=99.0)  # takes no part
    return pd.concat([frame, further], ignore_index=True)


def test_runs_stand_in_the_order_of_their_normalised_means_the_lowest_on_top(ax, runs):
    assert plot_runs(runs, by="kind", ax=ax) is ax
    assert [label.get_text() for label in ax.get_yticklabels()] == ["DBOW", "DM", "SBERT"]
    assert ax.yaxis_inverted()
    (means,) = [c for c in ax.containers if isinstance(c, ErrorbarContainer)]
    line, _, (bars,) = means
    assert line.get_marker() == "^"
    np.testing.assert_allclose(line.get_xydata(), [[0.65, 0], [0.75, 1], [0.9, 2]])
    widths = [np.ptp(segment[:, 0]) for segment in bars.get_segments()]
    np.testing.assert_allclose(widths, [2 * np.std([0.6, 0.7], ddof=1), 0, 0], atol=1e-12)


def test_a_box_spans_the_tasks_each_of_which_is_a_point(ax, runs):
    plot_runs(runs, by="kind", ax=ax)
    points = {
        (round(float(x), 6), round(float(y)))
        for collection in ax.collections
        if isinstance(collection, plt.matplotlib.collections.PathCollection)
        for x, y in collection.get_offsets()
    }
    assert points == {(0.4, 0), (0.9, 0), (0.5, 1), (1.0, 1), (1.0, 2), (0.8, 2)}
    boxes = sorted(patch.get_path().get_extents().intervalx.tolist() for patch in ax.patches)
    np.testing.assert_allclose(boxes, sorted([[0.525, 0.775], [0.625, 0.875], [0.85, 0.95]]))


def test_the_thesis_value_is_a_hollow_diamond_in_the_row_of_its_run(ax, runs):
    plot_runs(runs, by="kind", ax=ax)
    (thesis,) = [line for line in ax.lines if line.get_marker() == "D"]
    x, y = thesis.get_xydata().T
    assert (x[~np.isnan(x)].tolist(), y[~np.isnan(x)].tolist()) == ([0.93], [1])
    assert thesis.get_markerfacecolor() == "none"
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["DM", "DBOW", "baseline", "mean over tasks", "thesis, on other tasks with other models"]


def test_groups_have_colours_of_their_own_and_baselines_are_grey(ax, runs):
    plot_runs(runs.assign(thesis=np.nan), by="kind", ax=ax)
    handles = dict(
        zip([t.get_text() for t in ax.get_legend().get_texts()], ax.get_legend().get_patches(), strict=False)
    )
    colors = {name: plt.matplotlib.colors.to_hex(patch.get_facecolor()).upper() for name, patch in handles.items()}
    assert colors["baseline"] == PALETTE["untrained"]
    assert len({colors["DM"], colors["DBOW"], colors["baseline"]}) == 3
    assert "thesis" not in str(handles)


def test_more_groups_than_colours_still_differ(ax):
    models = [f"λ={number}" for number in range(12)]
    frame = tidy(
        {m: {"sort": [0.5]} for m in models}, group=pd.Series(models, models), thesis=pd.Series(np.nan, models)
    )
    plot_runs(frame, by="λ", ax=ax)
    patches = ax.get_legend().get_patches()
    assert len({patch.get_facecolor() for patch in patches}) == 12


def test_rows_make_a_figure_high_and_columns_share_their_rows():
    few, (left, right) = rows_axes(2)[0], rows_axes(45, columns=2)
    assert few.figure.get_figheight() < 2 < 14 < left.figure.get_figheight()
    assert left.get_shared_y_axes().joined(left, right)
    for axes in (few, left):
        plt.close(axes.figure)


def test_history_shows_the_parts_that_there_are(ax):
    train = pd.DataFrame({"step": [1, 2], "loss": [3.0, 2.0], "structural": [1.0, 0.5]})
    validation = pd.DataFrame({"step": [0, 2], "loss": [4.0, 2.5], "structural": [1.5, 0.7], "contextual": [0.0, 0.0]})
    plot_history(train, validation, ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["loss", "structural"]


def test_history_shows_further_teachers_behind_the_thesis_two(ax):
    validation = pd.DataFrame({"contextual": [1.0], "a": [2.0], "loss": [3.0], "structural": [4.0], "step": [0],
                               "spread": [0.5], "norm": [9.0], "epoch": [0.0]})  # fmt: skip
    plot_history(validation.drop(columns=["spread", "norm", "epoch"]), validation, ax=ax)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["loss", "structural", "contextual", "a"]
    colors = [line.get_color() for line in ax.lines if line.get_marker() == "o"]
    assert len(set(colors)) == 4


def test_a_loss_of_one_part_is_drawn_once(ax):
    train = pd.DataFrame({"step": [1, 2], "loss": [3.0, 2.0], "structural": [3.0, 2.0]})
    plot_history(train, train, ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["loss"]


def test_lambda_has_a_line_per_mask_and_dots_without_weighting(ax):
    lam = pd.Series({"a": 0.2, "b": 0.5, "c": 0.5, "d": np.nan, "e": np.nan})
    longest = pd.Series({"a": np.nan, "b": np.nan, "c": 256, "d": np.nan, "e": np.nan})
    scores = {"a": {"sort": [0.0], "find": [0.2]}, "b": {"sort": [0.2, 0.4], "find": [0.2]},
              "c": {"sort": [0.3], "find": [0.3]}, "d": {"sort": [0.5], "find": [0.3]}}  # fmt: skip
    scores = {model: {task: (values * 2)[:2] for task, values in tasks.items()} for model, tasks in scores.items()}
    by_length = pd.Series({"e": "linear:256:2048"})
    scores["e"] = {"sort": [0.9, 0.9], "find": [0.9, 0.9]}  # weighed by length alone: neither a point nor a line
    plot_weighting(tidy(scores, lam=lam, lam_by_length=by_length, max_structural_len=longest), ax=ax)
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"no mask", "mask 256"}
    assert [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == ":"] == pytest.approx([0.4])
    drawn = [
        line.get_xydata().tolist() for line in ax.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 2
    ]
    assert [[0.2, pytest.approx(0.1)], [0.5, pytest.approx(0.25)]] in drawn


@pytest.mark.parametrize("rows", [0, 1])
def test_lambda_alone_without_any_weighting_is_no_error(ax, rows):
    frame = tidy(
        {"a": {"sort": [0.4]}},
        lam=pd.Series({"a": None}),
        lam_by_length=pd.Series({"a": None}),
        max_structural_len=pd.Series({"a": None}),
    )
    plot_weighting(frame[:rows], ax=ax)
    assert ax.get_xlim() == (-0.03, 1.03)


def test_a_probe_has_a_bar_per_model_and_bucket_with_its_number(ax):
    rows = [("student before distillation", "all", 0.1), ("student before distillation", "longer", -0.2),
            ("cosine", "all", 0.4), ("cosine", "longer", 0.3)]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["model", "bucket", "r2"]).assign(
        teacher="structural", documents=12, overlap=0.5
    )
    frame = pd.concat([frame, frame.assign(teacher="contextual", r2=9.0)])
    assert plot_probe(frame, teacher="structural", measure="r2", ax=ax) is ax
    assert [bar.get_height() for bar in ax.patches] == [0.1, -0.2, 0.4, 0.3]
    colors = [plt.matplotlib.colors.to_hex(bar.get_facecolor()).upper() for bar in ax.patches]
    assert colors == [PALETTE["untrained"]] * 2 + [PALETTE["student"]] * 2
    assert {text.get_text() for text in ax.texts} == {"0.10", "-0.20", "0.40", "0.30"}
    assert [label.get_text() for label in ax.get_xticklabels()] == ["all\n12 documents", "longer\n12 documents"]
    assert (ax.get_ylabel(), ax.get_title()) == ("R²", "structural")


def test_an_empty_bucket_of_a_probe_is_left_blank(ax):
    frame = pd.DataFrame({"model": ["cosine"] * 2, "bucket": ["all", "longer"], "r2": [0.5, np.nan],
                          "teacher": "structural", "documents": [9, 0]})  # fmt: skip
    plot_probe(frame, teacher="structural", measure="r2", ax=ax)
    assert [text.get_text() for text in ax.texts] == ["0.50"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["all\n9 documents", "longer\n0 documents"]


def test_a_task_has_a_bar_per_model_in_its_colour_with_its_interval(ax):
    rows = [("TF-IDF", "accuracy", 0.5, 0.4, 0.55), ("SBERT truncated", "accuracy", 0.8, 0.7, 0.9),
            ("DM;100d", "accuracy", 0.05, 0.04, 0.06), ("TF-IDF", "f1_macro", 0.1, 0.1, 0.1)]  # fmt: skip
    intervals = pd.DataFrame(rows, columns=["model", "metric", "value", "low", "high"]).assign(task="halves")
    plot_task(intervals, task="halves", ax=ax)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.5, 0.8, 0.05])
    assert [(text.get_text(), text.get_color(), text.xy[0]) for text in ax.texts] == [
        ("0.500", "white", 0), ("0.800", "white", 0), ("0.050", "black", 0.06),
    ]  # fmt: skip
    assert plt.matplotlib.colors.to_hex(ax.patches[1].get_facecolor()).upper() == PALETTE["structural"]
    (errors,) = [container for container in ax.containers if isinstance(container, ErrorbarContainer)]
    (bars,) = errors[2]
    np.testing.assert_allclose([s[:, 0] for s in bars.get_segments()], [[0.4, 0.55], [0.7, 0.9], [0.04, 0.06]])


def test_each_task_has_a_row_of_its_own_in_the_order_of_the_scores():
    rows = [("halves", 0.5), ("package", 0.7)]
    scores = pd.DataFrame(rows, columns=["task", "value"]).assign(model="TF-IDF", metric="accuracy", low=0.4, high=0.8)
    figure = each_task(plot_task, scores, height=2)
    try:
        assert [ax.get_title() for ax in figure.axes] == ["halves", "package"]
        assert [ax.patches[0].get_width() for ax in figure.axes] == [0.5, 0.7]
        assert list(figure.get_size_inches()) == [7.2, 4]
    finally:
        plt.close(figure)


def test_differences_are_filled_where_they_are_shown(ax):
    rows = [("student", "SBERT", -0.1, -0.2, -0.05, "worse"), ("TF-IDF", "SBERT", 0.02, -0.1, 0.1, "no difference shown"),
            ("student", "other", 9, 9, 9, "better")]  # fmt: skip
    comparison = pd.DataFrame(rows, columns=["model", "reference", "difference", "low", "high", "verdict"])
    comparison = comparison.assign(task="find", metric="map")
    assert plot_differences(comparison, task="find", reference="SBERT", ax=ax) is ax
    assert [label.get_text() for label in ax.get_yticklabels()] == ["student", "TF-IDF"]
    points = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in points] == [-0.1, 0.02]
    assert [line.get_markerfacecolor() for line in points] == [PALETTE["student"], "white"]
    intervals = [
        list(line.get_xdata()) for line in ax.lines if line.get_marker() != "o" and len(set(line.get_xdata())) > 1
    ]
    assert intervals == [[-0.2, -0.05], [-0.1, 0.1]]
    assert ax.get_xlabel().startswith("MAP, minus that of SBERT")
    assert ax.yaxis_inverted()


def test_length_has_a_line_and_a_band_per_model_and_leaves_out_what_few_examples_say(ax):
    rows = [(model, bucket, n, level + n / 100, level, level + 0.5) for model, level in (("SBERT truncated", 0.1), ("SBERT over chunks", 0.2))
            for bucket, n in (("≤ 256", 40), ("257-384", 10), ("385-512", 9), ("> 512", 0))]  # fmt: skip
    by_length = pd.DataFrame(rows, columns=["model", "bucket", "examples", "value", "low", "high"])
    plot_by_length(by_length.assign(task="sort", metric="accuracy"), task="sort", ax=ax)
    assert [line.get_ydata().tolist() for line in ax.lines] == [[0.5, 0.2], pytest.approx([0.6, 0.3])]
    assert len({line.get_linestyle() for line in ax.lines}) == 2  # of one kind, so of one colour
    assert len({line.get_color() for line in ax.lines}) == 1
    bands = [band.get_paths()[0].get_extents() for band in ax.collections]
    assert [(band.y0, band.y1) for band in bands] == [(0.1, 0.6), (0.2, 0.7)]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["≤ 256\n(40)", "257-384\n(10)"]
    assert ax.get_xlabel().endswith("left out, fewer than 10 examples: 385-512 (9)")


def test_the_arrows_of_max_margin_at_gamma_one_are_all_alike(ax):
    plot_max_margin(gamma=1.0, ax=ax)
    plain, margin = ax.collections[:2]
    expected = TEACHERS[0] - TEACHERS[1:].mean(axis=0)
    np.testing.assert_allclose(np.c_[margin.U, margin.V], np.tile(expected, (len(margin.U), 1)))
    assert np.ptp(plain.U) > 1


@pytest.mark.parametrize("gamma", [0.5, 1.5])
def test_the_arrows_are_the_steps_of_the_loss_itself(ax, gamma):
    plot_max_margin(gamma=gamma, ax=ax)
    drawn = ax.collections[1]
    teachers = torch.from_numpy(TEACHERS)
    for place, arrow in zip(drawn.get_offsets(), np.c_[drawn.U, drawn.V], strict=True):
        y = torch.tensor([[*place], [0, 0], [0, 0]], dtype=torch.float64, requires_grad=True)  # ours is the first
        (gradient,) = torch.autograd.grad(MaxMargin("mse", gamma)(y, teachers)[0], y)
        np.testing.assert_allclose(arrow, -gradient[0], atol=1e-12)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("SBERT truncated", "structural"),
        ("DM;100d", "contextual"),
        ("PV;200d", "contextual"),
        ("TF-IDF", "floor"),
        ("student before distillation", "untrained"),
        ("cosine;256;λ=0.5", "student"),
        ("cosine;PV;S:384;C:-", "student"),
    ],
)
def test_every_kind_of_model_has_its_colour(model, kind):
    assert kind_of(model) == kind
