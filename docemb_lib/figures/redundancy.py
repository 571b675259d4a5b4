"""Why halves are a pair: how often words and sentences of a document come back, and what students attend to."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from docemb_lib.evaluation.redundancy import ALL
from docemb_lib.figures import PALETTE, SERIES, looks_of

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
        for part, marker in ((own[own["words"] != ALL], "o-"), (own[own["words"] == ALL], "D")):
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
