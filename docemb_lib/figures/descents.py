"""A toy: what the structural losses do to two Gaussian clouds of embeddings under gradient descent."""

from __future__ import annotations

from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

from docemb_lib.evaluation.head_training import one_thread
from docemb_lib.figures import PALETTE, SERIES
from docemb_lib.losses import MSE, Cosine, MaxMargin

CLOUD = 10  # documents of each of two topics
STEPS, RATE = 40, 0.1  # of gradient descent
FASTER = 10  # times the rate for cosine, whose gradient is smaller the longer the embedding
LOSSES: dict[str, nn.Module] = {
    "MSE": MSE(),
    "cosine": Cosine(),
    "max-margin MSE, γ = 0.5": MaxMargin("mse", 0.5),
    "max-margin MSE, γ = 1": MaxMargin("mse", 1.0),
    "max-margin MSE, γ = 1.5": MaxMargin("mse", 1.5),
}


class Clouds(NamedTuple):
    """Embeddings of the same documents in the plane, (2 * CLOUD, 2) both: two topics, one after the other."""

    student: Tensor
    teacher: Tensor


def two_clouds(seed: int = 0) -> Clouds:
    """The teacher tells two topics apart; the student begins, as an untrained one does, with all documents alike."""
    generator = torch.Generator().manual_seed(seed)
    topics = torch.tensor([[1.2, 0.5], [-0.4, 1.2]]).repeat_interleave(CLOUD, dim=0)
    teacher = topics + 0.2 * torch.randn(2 * CLOUD, 2, generator=generator)
    student = torch.tensor([2.2, -1.5]) + 0.2 * torch.randn(2 * CLOUD, 2, generator=generator)
    return Clouds(student, teacher)


@one_thread()
def descend(loss: nn.Module, clouds: Clouds, *, steps: int = STEPS, rate: float = RATE) -> Tensor:
    """Where gradient descent takes the student's embeddings themselves: (steps + 1, N, 2), the start first.

    All documents are one batch; a step is `rate` times the gradient of the sum of their losses.
    """
    path = [clouds.student]
    for _ in range(steps):
        y = path[-1].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(y, clouds.teacher).sum(), y)
        path.append(path[-1] - rate * gradient)
    return torch.stack(path)


def plot_descents(seed: int = 0) -> list[Axes]:
    """Five losses on the same two clouds, then the mean norm of the embeddings under each: six Axes of one figure."""
    clouds = two_clouds(seed)
    figure, grid = plt.subplots(2, 3, figsize=(8.0, 5.7), layout="constrained")
    *planes, norms = grid.flat
    for ax, (name, loss), color in zip(planes, LOSSES.items(), SERIES, strict=False):
        faster = FASTER if isinstance(loss, Cosine) else 1
        path = descend(loss, clouds, rate=faster * RATE)
        _plot_descent(ax, path, clouds.teacher)
        ax.set_title(name if faster == 1 else f"{name} (steps × {faster})", fontsize=9)
        mean_norm = path.norm(dim=2).mean(dim=1)
        norms.plot(mean_norm, color=color, linewidth=1.8)
        norms.annotate(
            name.split(", ")[-1], (STEPS, mean_norm[-1].item()), xytext=(4, 0), textcoords="offset points",
            fontsize=8, va="center",
        )  # fmt: skip
    for ax in planes[::3]:
        ax.set_ylabel("second dimension")
    for ax in planes[3:]:
        ax.set_xlabel("first dimension")
    norms.set(xlabel="step", yscale="log", xlim=(0, 1.4 * STEPS), xticks=range(0, STEPS + 1, 10))
    norms.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"], minor=False)
    norms.minorticks_off()
    norms.set_title("mean norm of the student's embeddings", fontsize=9)
    norms.grid(axis="y", visible=True)
    figure.legend(*planes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
    return [*planes, norms]


def _plot_descent(ax: Axes, path: Tensor, teacher: Tensor) -> None:
    """Each topic has its marker. The scale is that of the paths: how large the teacher's clouds are shows it."""
    for marker, topic, shown in (("o", slice(CLOUD), ""), ("^", slice(CLOUD, None), "_")):  # "_": not in the legend
        ax.plot(*path[:, topic].unbind(dim=2), color=PALETTE["student"], linewidth=0.6, alpha=0.5)
        for points, color, label in (
            (teacher[topic], PALETTE["structural"], "teacher"),
            (path[0, topic], PALETTE["untrained"], "student, start"),
            (path[-1, topic], PALETTE["student"], "student, end"),
        ):
            ax.plot(*points.T, marker, color=color, markersize=4.5, label=f"{shown}{label}")
    ax.plot(0, 0, "+", color="black", markersize=7, label="origin")
    ax.set_aspect("equal", adjustable="datalim")
    ax.locator_params(nbins=4)
    ax.grid(visible=False)
