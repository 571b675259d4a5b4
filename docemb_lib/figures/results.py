"""Runs and models side by side: training curves, scores over tasks, λ, length, retrieval."""

from collections.abc import Iterable, Mapping
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.typing import ColorType
from pandas.core.groupby import DataFrameGroupBy

from docemb_lib.evaluation.scoreboard import (
    MAIN_METRICS,
    METRIC_NAMES,
    best_means,
    mean_over_tasks,
)
from docemb_lib.evaluation.uncertainty import OVERALL, VERDICTS
from docemb_lib.figures import (
    BESIDE,
    GREY,
    PALETTE,
    SERIES,
    STYLES,
    colour_of,
    label,
    looks_of,
    series_colors,
)
from docemb_lib.settings.labels import typeset
from docemb_lib.thesis.values import BASELINE, PUBLISHED_BOX

# The names in a history that are neither the loss nor a part of it. A balanced delta is a weight.
NOT_LOSSES = {
    "step",
    "epoch",
    "learning_rate",
    "grad_norm",
    "norm",
    "spread",
    "collapsed",
    "cca",
    "cca_embeddings",
    "delta",
    "documents_per_second",
    "tokens_per_second",
}
BOXED = 5  # tasks from which a row has a box, as in the thesis, whose boxes are over six
MARKERS = ("o", "s", "v", "P", "X", "*", "p", "<", ">", "h")  # of tasks; ^ is the mean
MEAN: dict[str, Any] = {"marker": "^", "color": GREY, "linestyle": ""}
HOLLOW: dict[str, Any] = {
    "marker": "D",
    "markerfacecolor": "none",
    "color": GREY,
    "linestyle": "",
    "markersize": 5,
}


def plot_history(train: pd.DataFrame, validation: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Losses over updates: training as thin smoothed lines, validation as points on lines.

    train, validation: see `training.run.History`.
    """
    ax = ax or plt.gca()
    spare = cycle(["#0072B2", "#E69F00", "#CC79A7", "#56B4E9", "#F0E442", "#999999"])
    known = {"loss": GREY, "structural": PALETTE["structural"], "contextual": PALETTE["contextual"]}
    parts = [part for part in known if part in train] + sorted({*train} - NOT_LOSSES - {*known})
    for part in parts:
        # A part that is the whole loss is left out.
        if part not in validation or (part != "loss" and train[part].equals(train["loss"])):
            continue
        color = known.get(part) or next(spare)
        smooth = train[part].rolling(window=max(1, len(train) // 20), min_periods=1).mean()
        ax.plot(train["step"], smooth, color=color, linewidth=0.9, alpha=0.7)
        ax.plot(validation["step"], validation[part], "o-", color=color, linewidth=1.8, label=part)
    ax.set(xlabel="updates", ylabel="loss")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(**BESIDE, title="validation\n(thin: training)")
    return ax


def plot_runs(runs: pd.DataFrame, *, by: str, ax: Axes | None = None) -> Axes:
    """Normalised scores over tasks, a row per model, best mean on top (Figures 4.2 to 4.12).

    Each score is divided by the best score shown on its task. From five tasks on a row has a box,
    as in the thesis, with the tasks as points over it. The triangle is the mean with its 95%
    interval, see `_intervals_of_means`. runs: tidy scores (model, task, metric, seed, value, and
    perhaps low and high, the bounds of the interval) with `group`, a category that gives the
    colour ("baseline": grey), `thesis`, the mean in the thesis (hollow diamond) or NaN, perhaps the
    columns `PUBLISHED_BOX` (hollow box), and `legend`, the name of this mean. `by` is the title of
    the legend.
    """
    scores = _normalised(runs[runs["metric"].isin(MAIN_METRICS)])
    of_model = [name for name in ("group", "thesis", *PUBLISHED_BOX) if name in scores]
    rows = scores.groupby("model")[of_model].first()
    rows["mean"] = mean_over_tasks(scores)
    rows = rows.sort_values("mean", ascending=False, kind="stable")

    over_seeds = scores.groupby(["model", "task"], sort=False)[["value", "low", "high"]]
    points = over_seeds.mean().reset_index()
    points["group"] = points["model"].map(rows["group"].astype(str))
    present = set(points["group"])
    groups = [group for group in pd.Categorical(rows["group"]).categories if group in present]
    colors = series_colors((group for group in groups if group != BASELINE), more="viridis")
    if BASELINE in groups:
        colors[BASELINE] = PALETTE["untrained"]
    legend = runs["legend"].iloc[0]
    ax = _draw_rows(points, rows, hue="group", colors=colors, title=by, thesis=legend, ax=ax)
    ax.set_xlabel("normalised score (1: the best model shown on a task)")
    return ax


def plot_contextual_losses(losses: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Scores of students by their contextual loss, with the spread of each beside its row.

    The best mean is on top, the triangle is the mean over tasks. The spread is the mean cosine
    distance of two documents; a student that has collapsed is called so. losses: see
    `views.contextual_losses`.
    """
    points = losses[losses["metric"].isin(MAIN_METRICS)].assign(low=np.nan, high=np.nan)
    by_loss = points.groupby("loss", sort=False)
    rows = by_loss[["spread", "collapsed"]].first()
    rows = rows.assign(mean=by_loss["value"].mean(), thesis=np.nan)
    rows = rows.sort_values("mean", ascending=False, kind="stable")
    states = np.where(points["collapsed"].astype(bool), "collapsed", "has not collapsed")
    points["student"] = states
    colors = {"has not collapsed": SERIES[0], "collapsed": PALETTE["structural"]}
    colors = {state: color for state, color in colors.items() if state in set(states)}
    ax = _draw_rows(points, rows, y="loss", hue="student", colors=colors, title="student", ax=ax)
    for place, row in enumerate(rows.itertuples()):
        text = f"spread {row.spread:.2g}" + (", collapsed" if row.collapsed else "")
        color = PALETTE["structural"] if row.collapsed else GREY
        # At the right edge of the axes, at the height of the row.
        label(ax, text, (1.01, place), xycoords=ax.get_yaxis_transform(), color=color)
    ax.set_xlabel("score on validation documents")
    return ax


def plot_correlations(validation: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Canonical correlations of student and contextual teacher over updates.

    One line is that of the projected views, the other that of the embeddings before projection.
    validation: see `training.run.History`.
    """
    ax = ax or plt.gca()
    lines = {"cca": "views", "cca_embeddings": "embeddings"}
    for (column, name), color in zip(lines.items(), SERIES, strict=False):
        ax.plot(validation["step"], validation[column], "o-", color=color, label=name)
    ax.set(xlabel="updates", ylabel="mean canonical correlation")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(**BESIDE)
    return ax


def plot_rounds(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Normalised accuracy over tasks, a row per model and round (thesis, Figure 5.3).

    The best mean of a round is on top. A score is divided by the best score on its task over all
    rounds; scores of the thesis are divided by the best score of the thesis for these models. A row
    has a diamond if the thesis has all tasks of the row. Boxes and intervals: see `plot_runs`.
    """
    points = _normalised(scores[scores["metric"] == "accuracy"], over_rounds=True)
    in_thesis = points.assign(value=points["thesis"])
    points["thesis"] /= best_means(in_thesis, over_rounds=True)
    rounds = list(points["round"].unique())
    points["row"] = points["model"]
    best = "task"
    if len(rounds) > 1:
        points["row"] += ";" + points["round"]
        best = "task, of all rounds"
    by_row = points.groupby("row")
    rows = _means(by_row).assign(round=by_row["round"].first().map(rounds.index))
    rows = rows.sort_values(["round", "mean"], ascending=[True, False], kind="stable")
    title = "examples for the heads"
    colors = series_colors(rounds)
    ax = _draw_rows(points, rows, y="row", hue="round", colors=colors, title=title, ax=ax)
    ax.set_xlabel(f"normalised accuracy (1: the best model shown on a {best})")
    return ax


def plot_retrieval(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """MAP and MRR in retrieval, a bar per metric and model (thesis, Figures 5.5 and 5.6).

    A bar is the mean over tasks, the best on top; a line joins the tasks, which are points. A
    hollow diamond is the mean in the thesis, if the thesis has all tasks.
    """
    ax = ax or plt.gca()
    # Rankings are equal in all rounds.
    unique = scores.drop_duplicates(["model", "task", "metric"])
    metrics = [metric for metric in ("map", "mrr") if metric in set(unique["metric"])]
    markers = _markers_of(unique.loc[unique["metric"].isin(metrics), "task"].sort_values())
    labels = {}
    place = 0.0
    for metric in metrics:
        points = unique[unique["metric"] == metric]
        means = _means(points.groupby("model")).sort_values("mean", ascending=False, kind="stable")
        label(ax, METRIC_NAMES[metric], (0, place), (4, 0), weight="bold")
        for model, row in means.iterrows():
            place += 1
            of_model = points[points["model"] == model]
            labels[place] = str(model)
            color = colour_of(of_model["kind"].iloc[0])
            ax.barh(place, row["mean"], color=color, alpha=0.6, height=0.7)
            ends = [of_model["value"].min(), of_model["value"].max()]
            ax.plot(ends, [place, place], color=GREY, linewidth=1.2)
            for task, value in zip(of_model["task"], of_model["value"], strict=True):
                ax.plot(value, place, markers[task], color=GREY, markersize=4.5)
            ax.plot(row["thesis"], place, zorder=6, **HOLLOW)
        place += 1.4
    ax.set_yticks([*labels], [*labels.values()])
    ax.set(xlabel="mean over tasks", ylim=(place - 0.9, -0.6))
    handles = _task_handles(markers)
    if unique["thesis"].notna().any():
        handles.append(Line2D([], [], label="mean in the thesis", **HOLLOW))
    ax.legend(handles=handles, **BESIDE)
    return ax


def _means(groups: DataFrameGroupBy) -> pd.DataFrame:
    """The mean of `value` in each group, and of `thesis` where it has all values of the group."""
    thesis = groups["thesis"].agg(lambda values: values.mean(skipna=False))
    return pd.DataFrame({"mean": groups["value"].mean(), "thesis": thesis})


def _normalised(scores: pd.DataFrame, *, over_rounds: bool = False) -> pd.DataFrame:
    """The scores with normalised `value`, `low` and `high`; without bounds these are NaN."""
    columns = ["value", "low", "high"]
    numbers = scores.reindex(columns=columns).astype(float)
    best = best_means(scores, over_rounds=over_rounds)
    return scores.assign(**numbers.div(best, axis=0))


def _intervals_of_means(points: pd.DataFrame, y: str) -> pd.DataFrame:
    """How far the 95% interval of the mean over tasks reaches below and above it, by row.

    The examples of the K tasks are independent, so the reaches of their intervals add in squares:
    sqrt(sum of squares) / K. NaN where a task has no interval.
    """
    reaches = pd.DataFrame(
        {"below": points["value"] - points["low"], "above": points["high"] - points["value"]}
    )
    squares = reaches.clip(lower=0).astype(float).pow(2).groupby(points[y])
    sums = squares.sum().where(squares.count().eq(squares.size(), axis=0))
    return sums.pow(0.5).div(squares.size(), axis=0)


def _markers_of(tasks: Iterable[Any]) -> dict[Any, str]:
    """A marker per task in order of first appearance."""
    return dict(zip(dict.fromkeys(tasks), cycle(MARKERS), strict=False))


def _task_handles(markers: Mapping[Any, str]) -> list[Any]:
    look: dict[str, Any] = {"color": GREY, "linestyle": "", "markersize": 5}
    return [Line2D([], [], marker=marker, label=task, **look) for task, marker in markers.items()]


def _draw_rows(
    points: pd.DataFrame,
    rows: pd.DataFrame,
    *,
    y: str = "model",
    hue: str,
    colors: Mapping[str, ColorType],
    ax: Axes | None,
    title: str = "",
    thesis: str = "thesis",
) -> Axes:
    """A point per task for each row, a box from `BOXED` tasks on, a triangle for the mean.

    A diamond is the mean in the thesis, which the legend above calls `thesis`; a hollow box is the
    box there.
    """
    ax = ax or plt.gca()
    places = {name: place for place, name in enumerate(rows.index)}
    box: dict[str, Any] = {"orientation": "horizontal", "manage_ticks": False, "showfliers": False}
    for name, of_row in points.groupby(y, sort=False):
        if len(of_row) >= BOXED:
            color = colors[of_row[hue].iloc[0]]
            line = {"color": color, "linewidth": 1}
            look: dict[str, Any] = dict.fromkeys(("medianprops", "whiskerprops", "capprops"), line)
            look["boxprops"] = {"facecolor": to_rgba(color, 0.3), "edgecolor": color}
            values = [of_row["value"].to_numpy()]
            ax.boxplot(
                values, positions=[places[name]], widths=0.55, patch_artist=True, **box, **look
            )
    published = rows.reindex(columns=[*PUBLISHED_BOX]).dropna()
    if len(published):
        dashed = {"color": GREY, "linewidth": 0.7, "linestyle": "--"}
        parts = dict.fromkeys(("boxprops", "medianprops", "whiskerprops", "capprops"), dashed)
        drawn: dict[str, Any] = {**box, **parts}
        drawn["bxpstats"] = published.rename(columns=PUBLISHED_BOX).to_dict("records")
        ax.bxp(
            positions=[places[name] for name in published.index],
            widths=0.8,
            **drawn,
        )

    markers = _markers_of(points["task"])
    for task, marker in markers.items():
        of_task = points[points["task"] == task]
        ax.scatter(
            of_task["value"],
            of_task[y].map(places),
            c=[colors[group] for group in of_task[hue]],
            marker=marker,
            s=34,
            edgecolors="white",
            linewidths=0.4,
            zorder=4,
        )
    reach = _intervals_of_means(points, y).reindex(rows.index)
    ax.errorbar(
        rows["mean"],
        range(len(rows)),
        xerr=reach[["below", "above"]].to_numpy().T,
        markersize=4,
        capsize=2.5,
        linewidth=1.1,
        zorder=5,
        **MEAN,
    )
    ax.plot(rows["thesis"], range(len(rows)), zorder=6, **HOLLOW)
    ax.set_yticks(range(len(rows)), list(rows.index))
    ax.tick_params(axis="y", labelsize=9 if len(rows) <= 15 else 8)
    ax.set(ylabel="", ylim=(len(rows) - 0.4, -0.6))

    handles: list[Any] = [Patch(color=color, label=name) for name, color in colors.items()]
    handles += _task_handles(markers)
    short = len(handles)
    names = max(len(str(handle.get_label())) for handle in handles)
    has_intervals = reach["below"].notna().any()
    mean = f"{OVERALL}, 95% interval" if has_intervals else OVERALL
    handles.append(Line2D([], [], label=mean, **MEAN))
    if rows["thesis"].notna().any():
        handles.append(Line2D([], [], label=thesis, **HOLLOW))
    if len(published):
        hollow = Patch(facecolor="none", edgecolor=GREY, linestyle="--", label="box in the thesis")
        handles.append(hollow)
    # The long texts are last; all of them fit into the last column.
    longest = max(len(str(handle.get_label())) for handle in handles)
    columns = min(1 + (100 - longest) // (names + 5), len(handles) // (len(handles) - short), 5)
    ax.legend(
        handles=handles,
        title=title,
        ncols=max(1, columns),
        fontsize=8,
        title_fontsize=8,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        alignment="left",
        columnspacing=1.2,
    )
    return ax


def plot_weighting(points: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Score on the last task against λ, a line per mask with 95% intervals; dotted: the plain sum.

    `points` come from `widgets.weighting_points`. The last task is the mean if there are several.
    """
    ax = ax or plt.gca()
    rows = points[points["task"] == points["task"].iloc[-1]]
    masks = rows["max_structural_len"].map("mask {:.0f}".format).replace("mask nan", "no mask")
    shifts = _dodged(masks.nunique(), 0.012)
    groups = rows.groupby(masks)
    for (mask, group), color, shift in zip(groups, cycle(SERIES), shifts, strict=False):
        line = group.dropna(subset="lam").sort_values("lam")
        _draw_intervals(ax, line["lam"] + shift, line, fmt="o-", color=color, label=mask)
        for value in group.loc[group["lam"].isna(), "value"]:
            ax.axhline(value, color=color, linestyle=":", linewidth=1.2, label=f"plain sum, {mask}")
    ax.legend(**BESIDE)
    ax.set(xlabel="λ (weight of the structural loss)", ylabel=_metric(rows))
    ax.set(xlim=(-0.03, 1.03), title=rows["task"].iloc[0])
    return ax


def plot_gradient_shares(
    norms: pd.DataFrame, *, lam: float | None = None, ax: Axes | None = None
) -> Axes:
    """The share of the structural loss in the sum of both weighted gradient norms, against λ.

    norms: columns objective, at, structural, contextual, the last two of gradients of the
    unweighted losses. An objective has a colour, a place of `at` a line style. `lam` is marked.
    """
    ax = ax or plt.gca()
    weights = np.linspace(0.001, 0.999, 101)  # with one loss, neither end has a gradient
    colors = series_colors(norms["objective"].unique())
    styles = dict(zip(norms["at"].unique(), STYLES, strict=False))
    for row in norms.to_dict("records"):
        structural = weights * row["structural"]
        share = structural / (structural + (1 - weights) * row["contextual"])
        look = {"color": colors[row["objective"]], "linestyle": styles[row["at"]]}
        ax.plot(weights, share, **look, label=f"{typeset(row['objective'])}, {row['at']}")
    ax.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1, label="equal gradients")
    if lam is not None:
        ax.axvline(lam, color=GREY, linewidth=0.8)
    ax.legend(**BESIDE)
    ax.set(xlabel="λ (weight of the structural loss)", ylabel="its share of the gradient")
    ax.set(xlim=(0, 1), ylim=(-0.03, 1.03))
    return ax


def plot_by_length(by_length: pd.DataFrame, *, task: str, ax: Axes | None = None) -> Axes:
    """The score on one task by document length, a line per model with 95% intervals.

    `by_length` has the columns model, kind, task, metric, bucket (in order), examples, value, low
    and high.
    """
    ax = ax or plt.gca()
    rows = by_length[by_length["task"] == task]
    examples = rows.drop_duplicates("bucket").set_index("bucket")["examples"]
    _draw_models(ax, rows, rows["bucket"].map(list(examples.index).index), gap=0.1)
    names = [f"{bucket}\n({count})" for bucket, count in examples.items()]
    ax.set_xticks(range(len(examples)), names, fontsize="small")  # seven buckets side by side
    ax.set_xlabel("length in tokens of the structural teacher (examples)")
    ax.set(ylabel=_metric(rows), title=task)
    return ax


def plot_by_position(readings: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """`views.readings` by the place of a passage, a line per model with intervals."""
    ax = ax or plt.gca()
    _draw_models(ax, readings, readings["position"], gap=0.01)
    ax.set(xlabel="place of the passage in its document", ylabel=_metric(readings), xlim=(0, 1))
    return ax


def _draw_models(ax: Axes, rows: pd.DataFrame, places: pd.Series, *, gap: float) -> None:
    """A line with intervals for each model. places: of the rows; gap: between lines."""
    looks = looks_of(rows)
    for (model, (color, style)), shift in zip(looks.items(), _dodged(len(looks), gap), strict=True):
        line = rows[rows["model"] == model]
        look = {"fmt": f"o{style}", "color": color, "markersize": 4, "label": model}
        _draw_intervals(ax, places[line.index] + shift, line, **look)
    ax.legend(**BESIDE, handlelength=3)


def _draw_intervals(ax: Axes, places: pd.Series, rows: pd.DataFrame, **look: Any) -> None:
    ax.errorbar(places, rows["value"], yerr=_reach(rows), elinewidth=1, capsize=2, **look)


def plot_task(intervals: pd.DataFrame, *, task: str, ax: Axes | None = None) -> Axes:
    """The first metric of one task, a bar per row with the 95% interval (thesis, Figure 5.4).

    The best stands on top.
    `intervals` has the columns model, kind, task, metric, value, low, high, and perhaps `thesis`,
    the score in the thesis, which is drawn as a hollow diamond.
    """
    ax = ax or plt.gca()
    rows = intervals[intervals["task"] == task]
    rows = rows[rows["metric"] == rows["metric"].iloc[0]]
    rows = rows.sort_values("value", ascending=False, kind="stable")
    places = range(len(rows))
    ax.barh(
        places,
        rows["value"],
        xerr=_reach(rows),
        color=rows["kind"].map(colour_of),
        ecolor=GREY,
        alpha=0.6,  # so that the interval is visible on its bar
        height=0.7,
        capsize=2,
    )
    for place, value, high in zip(places, rows["value"], rows["high"], strict=True):
        label(ax, f"{value:.3f}", (high, place), (4, 0))
    if "thesis" in rows:
        ax.plot(rows["thesis"], places, zorder=6, **HOLLOW)
    ax.set_yticks(places, list(rows["model"]))
    ax.invert_yaxis()
    ax.set(xlabel=_metric(rows), title=task)
    return ax


def plot_differences(
    comparison: pd.DataFrame, *, task: str, reference: str, ax: Axes | None = None
) -> Axes:
    """The difference of each model to the reference on one task, with its 95% interval.

    The best stands on top. A point is filled if the paired test shows a
    difference. comparison: see `runs.scores.Final`.
    """
    ax = ax or plt.gca()
    rows = comparison[(comparison["task"] == task) & (comparison["reference"] == reference)]
    rows = rows.sort_values("difference", ascending=False, kind="stable")
    for place, row in enumerate(rows.to_dict("records")):
        color = colour_of(row["kind"])
        ax.plot([row["low"], row["high"]], [place, place], color=color, linewidth=1.6)
        fill = "none" if row["verdict"] == VERDICTS[-1] else color
        ax.plot(row["difference"], place, "o", color=color, markerfacecolor=fill)
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_yticks(range(len(rows)), list(rows["model"]))
    ax.set(ylim=(len(rows) - 0.4, -0.6), title=task)
    fills = "filled: difference shown; hollow: none shown"
    tests = "by tests corrected for their number (Holm), which the intervals are not"
    ax.set_xlabel(f"{_metric(rows)}, minus that of {reference}\n{fills},\n{tests}")
    return ax


def plot_few_shot(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Macro-F1 against training examples per class, by model (SimDE paper, Figure 2).

    A line is the mean over draws, a band the deviation.
    """
    import seaborn as sns

    ax = ax or plt.gca()
    rows = scores[scores["metric"] == "f1_macro"]
    sns.lineplot(
        rows,
        x="per_class",
        y="value",
        hue="model",
        style="model",
        markers=True,
        palette={model: color for model, (color, _) in looks_of(rows).items()},
        errorbar="sd",
        ax=ax,
    )
    ax.legend(**BESIDE)
    ax.set_xticks(sorted(rows["per_class"].unique()))
    ax.set(xlabel="training examples of each class", ylabel=_metric(rows))
    return ax


def _metric(rows: pd.DataFrame) -> str:
    metric = str(rows["metric"].iloc[0])
    return METRIC_NAMES.get(metric, metric)


def _dodged(count: int, gap: float) -> np.ndarray:
    """Shifts that put `count` marks of one place side by side, so that each interval is visible."""
    return gap * (np.arange(count) - (count - 1) / 2)


def _reach(rows: pd.DataFrame) -> np.ndarray:
    """How far the intervals reach below and above the values: (2, N)."""
    return np.stack([rows["value"] - rows["low"], rows["high"] - rows["value"]]).clip(min=0)
