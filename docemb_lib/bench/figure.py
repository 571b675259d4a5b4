"""The figure of a benchmark. Student: speed, share of the peak, memory, growth. Paragraph Vector: scaling."""

from __future__ import annotations

from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from docemb_lib.bench.report import Report, Row
from docemb_lib.figures import PALETTE, RC, SERIES

COLOURS = {
    "stock": PALETTE["untrained"],
    "gensim": PALETTE["untrained"],
    "ours": PALETTE["student"],
    "compiled": SERIES[4],
}


@rc_context(RC)
def draw(report: Report) -> Figure:
    """One page: what was measured."""
    return _draw_scaling(report) if report.benchmark == "paragraph-vector" else _draw_student(report)


def _draw_scaling(report: Report) -> Figure:
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots(1, 2)
    plot_scaling(report.points["training"], ax=axes[0], what="training threads", unit="words/s")
    plot_scaling(report.points["inference"], ax=axes[1], what="inference processes", unit="documents/s")
    figure.suptitle(f"{report.benchmark} on {report.machine['name']}, {report.machine['cores']} cores")
    return figure


def plot_scaling(points: list[dict[str, Any]], *, ax: Axes, what: str, unit: str) -> Axes:
    """Rates against the number of workers, a line per kind of model and side."""
    for kind, style in (("DM", "-"), ("DBOW", "--")):
        for side, marker in (("gensim", "s"), ("ours", "o")):
            line = [point for point in points if (point["kind"], point["side"]) == (kind, side)]
            x, y = [point["workers"] for point in line], [point["per_s"] for point in line]
            ax.plot(x, y, style, marker=marker, color=COLOURS[side], label=f"{kind}, {side}")
    ax.set_xscale("log", base=2)
    ax.set_xticks(sorted({point["workers"] for point in points}))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.minorticks_off()
    ax.set_ylim(bottom=0)
    ax.set(xlabel=what, ylabel=unit)
    ax.legend()
    return ax


def _draw_student(report: Report) -> Figure:
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(2, 2)
    plot_speed(report.points["speed"], ax=axes[0, 0], value="tokens_per_s", label="tokens/s, without padding")
    plot_speed(report.points["speed"], ax=axes[0, 1], value="share_of_peak", label="share of the measured matmul peak")
    plot_memory([row for row in report.rows if row.unit == "bytes" and row.ours is not None], ax=axes[1, 0])
    plot_growth(report.points["growth_length"], report.points["growth_number"], ax=axes[1, 1])
    figure.suptitle(f"{report.benchmark} on {report.machine['name']}, {report.machine['threads']} threads")
    return figure


def plot_speed(speeds: list[dict[str, Any]], *, ax: Axes, value: str, label: str) -> Axes:
    """A bar per side, grouped by what was timed and at which precision."""
    groups = list(dict.fromkeys((speed["what"], speed["precision"]) for speed in speeds))
    sides = list(dict.fromkeys(speed["side"] for speed in speeds))
    height = 0.8 / len(sides)
    for k, side in enumerate(sides):
        chosen = [speed for speed in speeds if speed["side"] == side]
        rows = [groups.index((speed["what"], speed["precision"])) + k * height for speed in chosen]
        bars = ax.barh(rows, [speed[value] for speed in chosen], height=height, color=COLOURS[side], label=side)
        texts = [f"{100 * s[value]:.0f} %" if value == "share_of_peak" else f"{s[value]:,.0f}" for s in chosen]
        ax.bar_label(bars, texts, padding=3, fontsize=8)
    ax.set_yticks([row + 0.4 - height / 2 for row in range(len(groups))], [" ".join(group) for group in groups])
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.set(xlabel=label)
    ax.legend()
    return ax


def plot_memory(rows: list[Row], *, ax: Axes) -> Axes:
    """Peaks of both sides, GiB."""
    for k, row in enumerate(rows):
        for offset, side, value in ((0.0, "stock", row.peer), (0.4, "ours", row.ours)):
            bar = ax.barh(k + offset, (value or 0.0) / 2**30, height=0.4, color=COLOURS[side])
            ax.bar_label(bar, fmt="%.2f", padding=3, fontsize=8)
    ax.set_yticks([k + 0.2 for k in range(len(rows))], [row.name.rpartition(", ")[2] for row in rows])
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.set(xlabel="peak memory of forward + backward, GiB", title="; ".join(row.note for row in rows[:1]))
    ax.title.set_fontsize(9)
    return ax


def plot_growth(by_length: list[dict[str, Any]], by_number: list[dict[str, Any]], *, ax: Axes) -> Axes:
    """Microseconds per token of ours, against the length of a document and against the tokens of more documents."""
    total = by_length[0]["documents"] * by_length[0]["tokens_per_document"]
    fixed = by_number[0]["tokens_per_document"]
    for points, x, label, marker in (
        (by_length, [p["tokens_per_document"] for p in by_length], f"documents of x tokens, {total:,} in all", "o"),
        (by_number, [p["documents"] * fixed for p in by_number], f"x tokens in all, documents of {fixed:,}", "s"),
    ):
        ax.plot(x, [1e6 * p["seconds_per_token"] for p in points], marker=marker, label=label)
    ax.set_xscale("log", base=2)
    ax.set_ylim(bottom=0)
    ax.set(xlabel="tokens", ylabel="µs per token, forward + backward, ours")
    ax.legend()
    return ax
