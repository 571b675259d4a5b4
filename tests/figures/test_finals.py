"""Figures 5.3 to 5.6: read back from the artists, on the thesis' own numbers and on hand-made ones."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.container import ErrorbarContainer

from docemb_lib.figures.results import plot_by_task, plot_retrieval, plot_retrieval_means, plot_rounds
from docemb_lib.thesis.values import published


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def of_the_thesis():
    """Table 5.7 as if it were ours: its own numbers on both sides."""
    table = published("table_5_7")
    rounds = [
        table[table["round"].isin([name]) | table["round"].isna()].assign(round=name) for name in ("1k", "10k", "all")
    ]
    rows = pd.concat(rounds, ignore_index=True)
    return rows.assign(low=rows["value"] - 0.01, high=rows["value"] + 0.02, thesis=rows["value"])


def marks(ax, marker):
    """Where marks of this kind are, as (x, y)."""
    points = [line.get_xydata() for line in ax.lines if line.get_marker() == marker]
    return np.concatenate(points) if points else np.empty((0, 2))


def spans(ax):
    """The error bars, each as its two ends (2, 2)."""
    bars = [container for container in ax.containers if isinstance(container, ErrorbarContainer)]
    return [segment for container in bars for segment in container[2][0].get_segments()]


def test_rounds_are_those_of_figure_5_3(ax):
    """Orders and means as read off the thesis' figure."""
    assert plot_rounds(of_the_thesis(), ax=ax) is ax
    rows = [label.get_text() for label in ax.get_yticklabels()]
    assert rows[:3] == ["DM;1k", "Longformer;1k", "SBERT;1k"]
    assert rows[7:10] == ["DM;10k", "Longformer;10k", "PV;10k"]
    assert rows[-3:] == ["MSE-contextual;all", "only-MSE;all", "SBERT;all"]
    means = dict(zip(rows, marks(ax, "^")[:, 0], strict=True))
    for row, value in {"DM;1k": 0.6115, "only-MSE;1k": 0.7878, "only-MSE;10k": 0.9067, "SBERT;all": 0.969}.items():
        assert means[row] == pytest.approx(value, abs=4e-4)
    np.testing.assert_allclose(marks(ax, "D"), marks(ax, "^"))
    assert ax.yaxis_inverted()
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["1k", "10k", "all", "mean over tasks", "thesis"]


def test_one_round_is_not_said_and_the_thesis_has_no_mark_on_other_tasks(ax):
    rows = of_the_thesis().query("round == 'all'")
    rows = pd.concat([rows, rows[rows["task"] == "oc"].assign(task="package", thesis=np.nan)])
    plot_rounds(rows, ax=ax)
    assert "PV" in [label.get_text() for label in ax.get_yticklabels()]
    assert np.isnan(marks(ax, "D")[:, 0]).all()
    assert "thesis" not in [t.get_text() for t in ax.get_legend().get_texts()]


def test_bars_by_task_are_scores_with_intervals_and_the_thesis_number_on_each(ax):
    rows = of_the_thesis()
    rows.loc[(rows["task"] == "pan") & (rows["model"] == "DM"), "thesis"] = np.nan
    plot_by_task(rows, name="10k", ax=ax)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["aan", "arxiv", "imdb", "oc", "pan", "s2orc"]
    heights = {(round(bar.get_x() + bar.get_width() / 2), round(bar.get_height(), 6)) for bar in ax.patches}
    expected = rows.query("round == '10k' and metric == 'accuracy'")
    places = {task: place for place, task in enumerate(sorted(expected["task"].unique()))}
    assert heights == {(places[row.task], row.value) for row in expected.itertuples()}
    assert int(np.isnan(marks(ax, "D")[:, 1]).sum()) == 1
    of_task = {round(x): [value for place, value in marks(ax, "D") if round(place) == round(x)] for x in range(6)}
    assert sorted(of_task[1]) == sorted(expected.query("task == 'arxiv'")["value"])
    assert ax.get_legend_handles_labels()[1][-1] == "only-MSE"
    low, high = spans(ax)[0][:, 1]
    assert high - low == pytest.approx(0.03)


def test_retrieval_means_span_the_tasks(ax):
    plot_retrieval_means(of_the_thesis(), ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["MAP", "MRR"]
    widths = [bar.get_width() for bar in ax.patches]
    assert widths[6] == pytest.approx((0.198 + 0.145) / 2)  # only-MSE has the best MAP, so it stands last
    assert max(widths[7:]) == pytest.approx((0.4284 + 0.4051) / 2)  # cosine-masked's MRR
    assert spans(ax)[6][:, 0].tolist() == pytest.approx([0.145, 0.198])
    np.testing.assert_allclose(sorted(marks(ax, "D")[:, 0]), sorted(widths))


def test_retrieval_points_are_in_the_order_of_mean_map_with_the_thesis_hollow(ax):
    rows = of_the_thesis()
    rows.loc[rows["metric"] == "mrr", "thesis"] = np.nan
    plot_retrieval(rows, ax=ax)
    models = [label.get_text() for label in ax.get_yticklabels()]
    assert models == ["DM", "Longformer", "PV", "cosine-masked", "MSE-contextual", "SBERT", "only-MSE"]
    filled = [line for line in ax.lines if line.get_markerfacecolor() != "none"]
    found = {(round(x, 4), models[round(y)]) for line in filled for x, y in line.get_xydata()}
    expected = rows[rows["metric"].isin(["map", "mrr"])]
    assert found == {(row.value, row.model) for row in expected.itertuples()}
    hollow = np.concatenate([line.get_xdata() for line in ax.lines if line.get_markerfacecolor() == "none"])
    assert np.isfinite(hollow).sum() == 14  # MAP of seven models on two tasks


def test_a_model_has_one_colour_in_both_figures_of_a_frame():
    figure, (left, right) = plt.subplots(1, 2)
    plot_by_task(of_the_thesis(), name="1k", ax=left)
    plot_retrieval_means(of_the_thesis(), ax=right)
    bars, names = left.get_legend_handles_labels()
    ours = {name: bar[0].get_facecolor() for name, bar in zip(names, bars, strict=True) if name != "thesis"}
    legend = right.get_legend()
    texts = [text.get_text() for text in legend.get_texts()]
    assert ours == dict(zip(texts, [patch.get_facecolor() for patch in legend.get_patches()], strict=False))
    assert len(set(ours.values())) == 7
    plt.close(figure)
