"""The final evaluation: every model on every task, what is shown to differ, and what length does to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from docemb_lib.evaluation.probes import ALL_LENGTHS
from docemb_lib.evaluation.scoreboard import normalised
from docemb_lib.evaluation.uncertainty import OVERALL, VERDICTS
from docemb_lib.figures import PALETTE, SERIES, kind_of, looks_of

# ---- the final evaluation


NAMES = {"map": "MAP", "mean": OVERALL}
NARROW = 0.15  # of what the farthest interval reaches
LEAST = 10  # examples of a bucket: the fewest that a score is drawn of


def each_task(plot: Callable[..., Axes], scores: pd.DataFrame, *, height: float, **options: Any) -> Figure:
    """One of the plots below, a row per task. scores: what it takes; height: of a row, in inches."""
    tasks = list(scores["task"].unique())
    figure, axes = plt.subplots(len(tasks), 1, figsize=(7.2, height * len(tasks)), layout="constrained", squeeze=False)
    for task, ax in zip(tasks, axes[:, 0], strict=True):
        plot(scores, task=task, ax=ax, **options)
    return figure


def plot_task(intervals: pd.DataFrame, *, task: str, ax: Axes | None = None) -> Axes:
    """One task: a bar per model with its 95% interval, in the order of the models' first appearance.

    intervals: columns model, task, metric, value, low, high; the task's main metric comes first.
    """
    ax = plt.gca() if ax is None else ax
    rows = intervals[intervals["task"] == task]
    metric = rows["metric"].iloc[0]
    rows = rows[rows["metric"] == metric]
    colors = [PALETTE[kind_of(str(model))] for model in rows["model"]]
    reach = np.stack([rows["value"] - rows["low"], rows["high"] - rows["value"]]).clip(min=0)
    ax.barh(range(len(rows)), rows["value"], xerr=reach, color=colors, height=0.7, capsize=2)
    narrow = NARROW * rows["high"].max()  # too narrow a bar for its number
    for row, (value, high) in enumerate(zip(rows["value"], rows["high"], strict=True)):
        at, colour = (high, "black") if value < narrow else (0, "white")
        ax.annotate(
            f"{value:.3f}", (at, row), xytext=(4, 0), textcoords="offset points", va="center", color=colour, fontsize=8
        )
    ax.set_yticks(range(len(rows)), list(rows["model"]))
    ax.invert_yaxis()
    ax.set(xlabel=NAMES.get(metric, metric), title=task)
    return ax


def plot_differences(comparison: pd.DataFrame, *, task: str, reference: str, ax: Axes | None = None) -> Axes:
    """One task: how far every model is ahead of the reference, with 95% intervals, in the order of the rows.

    Filled where the paired test finds a difference, hollow where none is shown. comparison: see `compare`.
    """
    ax = plt.gca() if ax is None else ax
    rows = comparison[(comparison["task"] == task) & (comparison["reference"] == reference)]
    for place, (_, row) in enumerate(rows.iterrows()):
        color = PALETTE[kind_of(str(row["model"]))]
        shown = row["verdict"] != VERDICTS[-1]
        ax.plot([row["low"], row["high"]], [place, place], color=color, linewidth=1.6)
        ax.plot(row["difference"], place, "o", color=color, markerfacecolor=color if shown else "white")
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(rows)), list(rows["model"]))
    ax.set(ylim=(len(rows) - 0.4, -0.6), title=task)
    metric = rows["metric"].iloc[0]
    ax.set_xlabel(
        f"{NAMES.get(metric, metric)}, minus that of {reference}\nfilled: difference shown; hollow: none shown"
    )
    return ax


def plot_by_length(by_length: pd.DataFrame, *, task: str, least: int = LEAST, ax: Axes | None = None) -> Axes:
    """One task: the score in buckets of length, a line per model, its 95% interval as a band.

    Buckets of fewer than `least` examples are left out, and the axis says which. by_length: columns model, task,
    metric, bucket (in order), examples, value, low, high.
    """
    ax = plt.gca() if ax is None else ax
    rows = by_length[by_length["task"] == task]
    examples = rows.drop_duplicates("bucket").set_index("bucket")["examples"]
    kept = list(examples.index[examples >= least])
    places = np.arange(len(kept))
    for model, (colour, style) in looks_of(rows["model"]).items():
        values = rows[rows["model"] == model].set_index("bucket").loc[kept]
        ax.plot(places, values["value"], style, marker="o", markersize=4, color=colour, label=model)
        ax.fill_between(places, values["low"], values["high"], color=colour, alpha=0.12, linewidth=0)
    ax.set_xticks(range(len(kept)), [f"{bucket}\n({examples[bucket]})" for bucket in kept])
    few = examples[(examples > 0) & (examples < least)]
    left_out = ", ".join(f"{bucket} ({count})" for bucket, count in few.items())
    note = f"\nleft out, fewer than {least} examples: {left_out}" if left_out else ""
    metric = rows["metric"].iloc[0]
    ax.set(
        xlabel=f"length in tokens of the structural teacher (examples){note}",
        ylabel=NAMES.get(metric, metric),
        title=task,
    )
    ax.grid(axis="y", visible=True)
    ax.legend(fontsize=8, handlelength=3)
    return ax


# ---- several final evaluations together


SERIES_NAMES = {"map": "MAP", "mrr": "MRR"}
MARKERS = {"map": "o", "mrr": "s"}
HOLLOW: dict[str, Any] = {"marker": "D", "markerfacecolor": "none", "color": "black", "linestyle": "", "markersize": 5}
THESIS = "thesis"
WIDE = 100  # letters of a legend in one row


def plot_rounds(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Figure 5.3: box plots of normalised accuracy over tasks, a row per model and round; the lowest mean of a round on
    top. A score is divided by the best of its task over all rounds. Triangles are means; the thesis' hollow diamonds,
    divided by the best of what it has of these models, stand where it has all of a row's tasks.
    """
    ax = plt.gca() if ax is None else ax
    points = normalised(scores[scores["metric"] == "accuracy"], over_rounds=True)
    theirs = normalised(points.assign(value=points["thesis"]).drop(columns="normalised"), over_rounds=True)
    points["theirs"] = theirs["normalised"]
    rounds = list(dict.fromkeys(points["round"]))
    points["row"] = points["model"] + (";" + points["round"] if len(rounds) > 1 else "")
    by_row = points.groupby("row")
    means = pd.DataFrame(
        {
            "mean": by_row["normalised"].mean(),
            "thesis": by_row["theirs"].agg(lambda own: own.mean(skipna=False)),
            "round": by_row["round"].first().map(rounds.index),
        }
    ).sort_values(["round", "mean"], kind="stable")
    colors = dict(zip(rounds, SERIES, strict=False))
    row_of = {"x": "normalised", "y": "row", "order": list(means.index), "hue": "round", "palette": colors, "ax": ax}
    sns.boxplot(
        points,
        **row_of,
        dodge=False,
        legend=False,
        width=0.6,
        showfliers=False,
        linewidth=0.9,
        boxprops={"alpha": 0.55},
    )
    sns.stripplot(points, **row_of, legend=False, jitter=False, size=6, edgecolor="white", linewidth=0.4)
    places = range(len(means))
    ax.plot(means["mean"], places, "^", color="black", markersize=4, zorder=5)
    ax.plot(means["thesis"], places, zorder=6, **HOLLOW)
    handles: list[Any] = [Patch(color=color, alpha=0.7, label=name) for name, color in colors.items()]
    handles.append(Line2D([], [], marker="^", color="black", linestyle="", label="mean over tasks"))
    _legend(ax, handles, title="examples for the heads", thesis=means["thesis"])
    ax.tick_params(axis="y", labelsize=9 if len(means) <= 15 else 8)
    best = "task" if len(rounds) == 1 else "task, of all rounds"
    ax.set(
        xlabel=f"normalised accuracy (1: the best model shown on a {best})", ylabel="", ylim=(len(means) - 0.4, -0.6)
    )
    return ax


def plot_by_task(scores: pd.DataFrame, *, name: str, ax: Axes | None = None) -> Axes:
    """Figure 5.4: the accuracy of every model on every task in round `name`, a group of bars per task with 95%
    intervals. scores: with low and high. Panels of a figure share a legend: `ax.get_legend_handles_labels()`."""
    ax = plt.gca() if ax is None else ax
    rows = scores[scores["metric"] == "accuracy"]
    colors, tasks = _colors(scores["model"]), sorted(rows["task"].unique())
    rows = rows[rows["round"] == name]
    models = list(colors)
    width, marks = 0.84 / len(models), []
    for place, model in enumerate(models):
        own = rows[rows["model"] == model].set_index("task").reindex(tasks)
        x = np.arange(len(tasks)) + (place - (len(models) - 1) / 2) * width
        reach = np.stack([own["value"] - own["low"], own["high"] - own["value"]]).clip(min=0)
        marks.append(np.stack([x, own["thesis"]]))
        ax.bar(x, own["value"], width, yerr=reach, color=colors[model], error_kw={"linewidth": 0.8}, label=model)
    if rows["thesis"].notna().any():
        ax.plot(*np.concatenate(marks, axis=1), zorder=6, label=THESIS, **HOLLOW)
    ax.set_xticks(range(len(tasks)), tasks)
    ax.set(ylabel="accuracy", xlabel="", ylim=(0, 1), title=f"heads trained on {name} examples")
    ax.grid(axis="x", visible=False)
    ax.grid(axis="y", visible=True)
    return ax


def plot_retrieval_means(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Figure 5.5: mean MAP and MRR over the retrieval tasks, a bar per model from their smallest to their largest."""
    ax = plt.gca() if ax is None else ax
    rows = _retrieval(scores)
    models, colors = _by_map(rows), _colors(scores["model"])
    height = 0.84 / len(models)
    for group, metric in enumerate(SERIES_NAMES):
        for place, model in enumerate(models):
            own = rows[(rows["metric"] == metric) & (rows["model"] == model)]
            mean, y = own["value"].mean(), group + (place - (len(models) - 1) / 2) * height
            span = [[mean - own["value"].min()], [own["value"].max() - mean]]
            ax.barh(y, mean, height, xerr=span, color=colors[model], error_kw={"linewidth": 0.8})
            ax.plot(own["thesis"].mean(skipna=False), y, zorder=6, **HOLLOW)
    _legend(ax, [Patch(color=colors[model], label=model) for model in models[::-1]], thesis=rows["thesis"])
    ax.set_yticks(range(len(SERIES_NAMES)), list(SERIES_NAMES.values()))
    ax.set(xlabel=f"mean over {rows['task'].nunique()} tasks; lines: from the lowest to the highest", ylabel="")
    return ax


def plot_retrieval(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Figure 5.6 on its side: MAP (circles) and MRR (squares) of every model on every retrieval task, a row per model,
    the lowest mean MAP on top."""
    ax = plt.gca() if ax is None else ax
    rows = _retrieval(scores)
    models = _by_map(rows)
    colors = _colors(rows["task"].sort_values())
    for (task, metric), own in rows.groupby(["task", "metric"]):
        style = {"marker": MARKERS[str(metric)], "color": colors[str(task)], "linestyle": ""}
        places = own["model"].map(models.index)
        ax.plot(own["value"], places, **style, alpha=0.9)
        ax.plot(own["thesis"], places, **style, markerfacecolor="none", markersize=9)
    handles: list[Any] = [Patch(color=color, label=task) for task, color in colors.items()]
    for metric, marker in MARKERS.items():
        handles.append(Line2D([], [], marker=marker, color="black", linestyle="", label=SERIES_NAMES[metric]))
    if rows["thesis"].notna().any():
        handles.append(Line2D([], [], marker="o", color="black", markerfacecolor="none", linestyle="", label=THESIS))
    _legend(ax, handles)
    ax.set_yticks(range(len(models)), models)
    ax.set(xlabel="score", ylabel="", xlim=(0, None), ylim=(len(models) - 0.4, -0.6))
    return ax


def _retrieval(scores: pd.DataFrame) -> pd.DataFrame:
    """Rankings train nothing and are the same in every round."""
    return scores[scores["metric"].isin(SERIES_NAMES)].drop_duplicates(["model", "task", "metric"])


def _by_map(rows: pd.DataFrame) -> list[str]:
    means = rows[rows["metric"] == "map"].groupby("model", sort=False)["value"].mean()
    return list(means.sort_values(kind="stable").index)


def _colors(names: pd.Series) -> dict[str, Any]:
    """A colour for each name, in the order of first appearance: the same in all figures of one frame."""
    unique = list(dict.fromkeys(names))
    more = sns.color_palette("tab20" if len(unique) <= 20 else "husl", len(unique))
    hues = SERIES if len(unique) <= len(SERIES) else more
    return dict(zip(unique, hues, strict=False))


def _legend(ax: Axes, handles: list[Any], *, title: str = "", thesis: pd.Series | None = None) -> None:
    """Above the axes, in as many columns as the longest name leaves; with the hollow mark where one is drawn."""
    if thesis is not None and thesis.notna().any():
        handles = [*handles, Line2D([], [], label=THESIS, **HOLLOW)]
    longest = max(len(handle.get_label()) for handle in handles)
    ax.legend(
        handles=handles, title=title, loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, title_fontsize=8,
        ncols=max(1, min(len(handles), WIDE // (longest + 5))), alignment="left", columnspacing=1.2,
    )  # fmt: skip


# ---- why halves are a pair


KINDS = {"inside": ("of one document", PALETTE["positive"]), "across": ("of two documents", PALETTE["negative"])}
PARTS = {"noun": "nouns", "verb": "verbs", "adjective": "adjectives", "other": "other words"}


def plot_redundancy(rows: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Nouns and verbs for each distinct one against the length of the documents, a line per data set; all documents of
    one together are a diamond (Table 4).

    rows: columns data, words (bins in their order), redundancy; a bin of no document, NaN, is left out.
    """
    ax = plt.gca() if ax is None else ax
    bins = list(dict.fromkeys(rows["words"]))
    for number, (name, own) in enumerate(rows.dropna(subset="redundancy").groupby("data", sort=False)):
        colour = SERIES[number % len(SERIES)]
        for part, marker in ((own[own["words"] != ALL_LENGTHS], "o-"), (own[own["words"] == ALL_LENGTHS], "D")):
            at = [bins.index(one) for one in part["words"]]
            ax.plot(at, part["redundancy"], marker, color=colour, label=str(name) if marker == "o-" else None)
    ax.set_xticks(range(len(bins)), bins)
    ax.set(xlabel="words of the document", ylabel="nouns and verbs for each distinct one")
    ax.legend(fontsize=8)
    return ax


def plot_sentence_similarity(pairs: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """How often sentences of one document, and of two, are how similar, with the means (Table 5).

    pairs: columns kind ("inside" or "across"), cosine; a row per pair.
    """
    ax = plt.gca() if ax is None else ax
    for kind, (label, colour) in KINDS.items():
        own = pairs.loc[pairs["kind"] == kind, "cosine"]
        sns.histplot(
            x=own, stat="percent", binwidth=0.05, binrange=(-1, 1), color=colour, alpha=0.5, ax=ax,
            label=f"{label}, mean {own.mean():.2f}",
        )  # fmt: skip
        ax.axvline(own.mean(), color=colour, linestyle="--")
    low, high = pairs["cosine"].min(), pairs["cosine"].max()
    ax.set(xlabel="cosine of two sentences", ylabel="pairs (%)", xlim=(low - 0.05, high + 0.05))
    ax.legend(fontsize=8)
    return ax


def plot_attention(parts: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """What a word of each part of speech gets of the attention, beside a word of any; mean over documents (Figure 3).

    parts: columns model, part, relative; a row per model, document and part. Models of one kind look alike.
    """
    ax = plt.gca() if ax is None else ax
    palette = {model: colour for model, (colour, _) in looks_of(parts["model"]).items()}
    sns.barplot(
        parts, x="part", y="relative", hue="model", order=list(PARTS), hue_order=list(palette), ax=ax,
        palette=palette, saturation=1, errorbar=("ci", 95), seed=0, err_kws={"linewidth": 1},
    )  # fmt: skip
    ax.axhline(1, color="black", linewidth=0.8, linestyle="--")
    ax.set_xticks(range(len(PARTS)), list(PARTS.values()))
    ax.set(xlabel="", ylabel="attention to a word\n(1: as to any word)")
    ax.legend(title="", fontsize=8)
    return ax


def plot_few_shot(scores: pd.DataFrame, *, metric: str = "f1_macro", ax: Axes | None = None) -> Axes:
    """A metric against the examples of each class that heads learn from: mean and deviation over draws (Figure 2).

    scores: columns model, per_class, draw, metric, value.
    """
    ax = plt.gca() if ax is None else ax
    shown = scores[scores["metric"] == metric]
    for model, (colour, style) in looks_of(shown["model"]).items():
        draws = shown[shown["model"] == model].groupby("per_class")["value"].agg(["mean", "std"])
        ax.plot(draws.index, draws["mean"], style, marker="o", markersize=4, color=colour, label=model)
        low, high = draws["mean"] - draws["std"], draws["mean"] + draws["std"]
        ax.fill_between(draws.index, low, high, color=colour, alpha=0.12, linewidth=0)
    ax.set_xticks(sorted(shown["per_class"].unique()))
    ax.set(xlabel="training examples of each class", ylabel={"f1_macro": "macro-F1"}.get(metric, metric))
    ax.legend(fontsize=8, handlelength=3)
    return ax
