"""The methods on examples small enough to draw: Paragraph Vector's windows, gradients of the losses, SoftCCA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from docemb_lib.evaluation.heads import one_thread
from docemb_lib.figures import PALETTE, SERIES, label, rows_axes, short
from docemb_lib.losses import MSE, Cosine, MaxMargin, SoftCCA


def inputs_of_predictions(words: int, *, dm: bool, window: int = 5) -> np.ndarray:
    """The inputs of each prediction, bool (N, N + 1): row i predicts word i; column 0 is the document vector.

    The other columns are the words in order: up to `window` words on each side for DM, none for DBOW.
    """
    distance = np.abs(np.subtract.outer(np.arange(words), np.arange(words)))
    return np.column_stack([np.ones(words, dtype=bool), (distance >= 1) & (distance <= window) & dm])


def plot_windows(words: Sequence[str], *, dm: bool, window: int = 5, ax: Axes | None = None) -> Axes:
    """The inputs (filled) and the predicted word (outlined) of each prediction, a row per word of a document.

    gensim draws the size of each word's window from 1 to `window`; the figure shows the largest.
    """
    ax = plt.gca() if ax is None else ax
    labels = [short(word, 16) for word in words]
    inputs = inputs_of_predictions(len(words), dm=dm, window=window)
    shades = inputs * [1.0, *[0.4] * len(words)]  # the document vector is darker
    table = pd.DataFrame(shades, index=labels, columns=["document vector", *labels])
    cells: dict[str, Any] = {"cbar": False, "linewidths": 3, "xticklabels": True, "yticklabels": True}
    cells["cmap"] = sns.light_palette(PALETTE["contextual"], as_cmap=True)
    sns.heatmap(table, mask=~inputs, vmin=0, vmax=1, **cells, ax=ax)
    for row in range(len(words)):
        ax.add_patch(Rectangle((row + 1.05, row + 0.05), 0.9, 0.9, facecolor="none", edgecolor="black", linestyle="--"))
    ax.set(ylabel="predicted word")
    ax.tick_params(axis="x", labeltop=True, labelbottom=False, length=0)
    ax.tick_params(axis="y", rotation=0, length=0)
    ax.grid(visible=False)
    plt.setp(ax.get_xticklabels(), rotation=35, ha="left", rotation_mode="anchor")
    return ax


# ---- structural losses in the plane

TEACHERS = np.array([[1.0, 0.6], [-0.8, 0.9], [0.1, -1.0]])  # of three documents; the first is the student's
TOPIC = 10  # documents of each of two topics
DESCENT_STEPS, DESCENT_RATE = 40, 0.1
FASTER = 10  # factor of the rate for cosine, whose gradient falls with the norm of the embedding
LOSSES: dict[str, nn.Module] = {"MSE": MSE(), "cosine": Cosine()}
LOSSES |= {f"max-margin MSE, γ = {gamma:g}": MaxMargin("mse", gamma) for gamma in (0.5, 1.0, 1.5)}


def plot_max_margin(*, gamma: float = 1.0, ax: Axes | None = None) -> Axes:
    """Descent directions of plain MSE and of max-margin MSE, over a grid of student embeddings in the plane."""
    ax = plt.gca() if ax is None else ax
    grid = np.stack(np.meshgrid(np.linspace(-1.8, 1.8, 9), np.linspace(-1.6, 1.6, 7)), axis=-1).reshape(-1, 2)
    own, others = TEACHERS[0], TEACHERS[1:]
    # D(y, t) is the mean over 2 dimensions, so its gradient is y - t. Loss: D(y, t_0) - gamma * mean_j D(y, t_j).
    pull = own - grid
    margin = pull - gamma * (others[None] - grid[:, None]).mean(axis=1)
    look: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": 6, "width": 0.004}
    ax.quiver(*grid.T, *pull.T, color=PALETTE["untrained"], label="MSE", **look)
    ax.quiver(*grid.T, *margin.T, color=PALETTE["student"], label=f"max-margin MSE, γ = {gamma}", **look)
    squares: dict[str, Any] = {"marker": "s", "markersize": 11, "linestyle": ""}
    ax.plot(*own, color=PALETTE["positive"], label="teacher embedding\nof the document", **squares)
    ax.plot(*others.T, color=PALETTE["negative"], label="of other documents", **squares)
    ax.margins(0.12)  # room for the outer arrows
    ax.set(xlabel="first dimension", ylabel="second dimension", aspect="equal")
    ax.grid(visible=False)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def two_topics(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Student and teacher embeddings (N, 2) of documents of two topics, one topic after the other.

    The teacher separates the topics; the student starts, like an untrained one, with all documents similar.
    """
    generator = torch.Generator().manual_seed(seed)
    topics = torch.tensor([[1.2, 0.5], [-0.4, 1.2]]).repeat_interleave(TOPIC, dim=0)
    teacher = topics + 0.2 * torch.randn(2 * TOPIC, 2, generator=generator)
    return torch.tensor([2.2, -1.5]) + 0.2 * torch.randn(2 * TOPIC, 2, generator=generator), teacher


@one_thread()
def descend(loss: nn.Module, student: Tensor, teacher: Tensor, *, steps: int = DESCENT_STEPS) -> Tensor:
    """Student embeddings under gradient descent on the embeddings themselves: (steps + 1, N, 2), the start first.

    All documents are one batch; a step is the rate times the gradient of the sum of the losses.
    """
    path, rate = [student], DESCENT_RATE * (FASTER if isinstance(loss, Cosine) else 1)
    for _ in range(steps):
        y = path[-1].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(y, teacher).sum(), y)
        path.append(path[-1] - rate * gradient)
    return torch.stack(path)


def plot_descents() -> list[Axes]:
    """Five losses on the same two topics, then the mean norm of the embeddings under each: six panels of one figure."""
    student, teacher = two_topics()
    figure, grid = plt.subplots(2, 3, figsize=(8.0, 5.7), layout="constrained")
    *planes, norms = grid.flat
    for ax, (name, loss), color in zip(planes, LOSSES.items(), SERIES, strict=False):
        path = descend(loss, student, teacher)
        _plot_path(ax, path, teacher)
        ax.set_title(f"{name} (steps × {FASTER})" if isinstance(loss, Cosine) else name, fontsize=9)
        mean_norm = path.norm(dim=2).mean(dim=1)
        norms.plot(mean_norm, color=color, linewidth=1.8)
        label(norms, name.split(", ")[-1], (DESCENT_STEPS, mean_norm[-1].item()), (4, 0))
    plt.setp(planes[::3], ylabel="second dimension")
    plt.setp(planes[3:], xlabel="first dimension")
    norms.set(xlabel="step", yscale="log", xlim=(0, 1.4 * DESCENT_STEPS), xticks=range(0, DESCENT_STEPS + 1, 10))
    norms.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"], minor=False)
    norms.minorticks_off()
    norms.set_title("mean norm of the student's embeddings", fontsize=9)
    norms.grid(axis="y", visible=True)
    figure.legend(*planes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return [*planes, norms]


def _plot_path(ax: Axes, path: Tensor, teacher: Tensor) -> None:
    """Start, path and end of the student's embeddings beside the teacher's; one marker per topic."""
    for marker, topic, hidden in (("o", slice(TOPIC), ""), ("^", slice(TOPIC, None), "_")):  # "_": not in the legend
        ax.plot(*path[:, topic].unbind(dim=2), color=PALETTE["student"], linewidth=0.6, alpha=0.5)
        shown = {"teacher": (teacher, "structural"), "student, start": (path[0], "untrained"),
                 "student, end": (path[-1], "student")}  # fmt: skip
        for name, (points, kind) in shown.items():
            ax.plot(*points[topic].T, marker, color=PALETTE[kind], markersize=4.5, label=f"{hidden}{name}")
    ax.plot(0, 0, "+", color="black", markersize=7, label="origin")
    ax.set_aspect("equal", adjustable="datalim")
    ax.locator_params(nbins=4)
    ax.grid(visible=False)


# ---- SoftCCA on two views

DOCUMENTS, WIDTHS = 300, (4, 5)  # widths of the two views
SHARED = (0.95, 0.8)  # correlations of the two shared signals; all else is noise
STEPS, RATE = 120, 0.3  # of gradient descent; the rate falls linearly to 0
DELTA = 0.03  # weight of the decorrelation, as in profiles
SEED = 9  # seven of ten seeds tried end as clearly; with the others the features separate, or meet, more slowly


def two_views() -> tuple[Tensor, Tensor]:
    """Views (N, 4) and (N, 5): two signals that both share, plus noise, each randomly rotated."""
    generator = torch.Generator().manual_seed(SEED)
    signals = torch.randn(DOCUMENTS, 2, generator=generator)
    share = torch.tensor(SHARED)
    views = []
    for width in WIDTHS:
        noise = torch.randn(DOCUMENTS, width, generator=generator)
        mixed = share.sqrt() * signals + (1 - share).sqrt() * noise[:, :2]
        rotation = torch.linalg.qr(torch.randn(width, width, generator=generator)).Q
        views.append(torch.cat([mixed, noise[:, 2:]], dim=1) @ rotation)
    return views[0], views[1]


def canonical_correlations(X: Tensor, Y: Tensor) -> np.ndarray:
    """Canonical correlations of the columns of both, (min(P, Q),), largest first: the singular values of Qx^T Qy."""
    Qx, Qy = (torch.linalg.qr(view - view.mean(dim=0)).Q for view in (X, Y))
    return torch.linalg.svdvals(Qx.T @ Qy).numpy()


@one_thread()
def train_projections(X: Tensor, Y: Tensor, *, delta: float = DELTA) -> pd.DataFrame:
    """Train a linear projection of each view to two features with SoftCCA, on all documents at once; a row per step.

    Columns: `feature 1` and `feature 2`, the correlation of a feature with the same feature of the other view;
    `within`, the absolute correlation of the two features of a view, mean of both views; `scale`, their deviation.
    """
    with torch.random.fork_rng(devices=[]):  # nn.Linear initialises from the global generator
        torch.manual_seed(SEED)
        f, g = nn.Linear(X.shape[1], 2), nn.Linear(Y.shape[1], 2)
    loss = SoftCCA(2, delta)
    weights = [*f.parameters(), *g.parameters()]
    rows = []
    for step in range(STEPS + 1):
        a, b = f(X), g(Y)
        R = np.corrcoef(a.detach().numpy(), b.detach().numpy(), rowvar=False)  # (4, 4): features of a, then of b
        scale = torch.cat([a, b], dim=1).std(dim=0).mean().item()
        rows.append((R[0, 2], R[1, 3], (abs(R[0, 1]) + abs(R[2, 3])) / 2, scale))
        gradients = torch.autograd.grad(loss(a, b).mean(), weights)
        with torch.no_grad():
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.sub_(gradient, alpha=RATE * (1 - step / STEPS))
    return pd.DataFrame(rows, columns=["feature 1", "feature 2", "within", "scale"])


def plot_soft_cca() -> list[Axes]:
    """SoftCCA training without (left) and with (right) decorrelation; dotted: canonical correlations of the views."""
    X, Y = two_views()
    axes = rows_axes(7, columns=2)
    for ax, delta in zip(axes, (0.0, DELTA), strict=True):
        trace = train_projections(X, Y, delta=delta)
        for column, style in ("feature 1", "-"), ("feature 2", "--"):
            ax.plot(trace[column], style, color=PALETTE["contextual"], linewidth=1.8, label=f"{column} of both views")
        name = "both features of one view (absolute)"
        ax.plot(trace["within"], color=PALETTE["negative"], linewidth=1.8, label=name)
        for known in canonical_correlations(X, Y)[:2]:
            ax.axhline(known, color="black", linewidth=0.8, linestyle=":")
            label(ax, f"{known:.2f}", (STEPS, known), (3, 0))
        ax.set(xlabel="step", xlim=(0, STEPS), ylim=(None, 1.03))
        ax.set_title(f"δ = {delta:g}: {'with' if delta else 'without'} decorrelation", fontsize=9)
        ax.grid(axis="y", visible=True)
    axes[0].set_ylabel("correlation")
    axes[0].figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return axes
