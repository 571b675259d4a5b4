"""Structural losses on points in the plane."""

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

from docemb_lib.evaluation.heads import one_thread
from docemb_lib.figures import GREY, PALETTE, SERIES, label
from docemb_lib.losses import MSE, Cosine, MaxMargin

TOPIC = 10  # documents of each of two topics
DESCENT_STEPS = 40
DESCENT_RATE = 0.1
FASTER = 10  # factor of the rate for cosine, whose gradient falls with the norm of the embedding
LOSSES: dict[str, nn.Module] = {
    "MSE": MSE(),
    "cosine": Cosine(),
    "max-margin MSE, γ = 0.5": MaxMargin("mse", 0.5),
    "max-margin MSE, γ = 1": MaxMargin("mse", 1.0),
    "max-margin MSE, γ = 1.5": MaxMargin("mse", 1.5),
}


def two_topics(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Student and teacher embeddings, (N, 2) each, one topic after the other.

    The student's are all similar, as those of an untrained student.
    """
    generator = torch.Generator().manual_seed(seed)
    topics = torch.tensor([[1.2, 0.5], [-0.4, 1.2]]).repeat_interleave(TOPIC, dim=0)
    teacher = topics + 0.2 * torch.randn(2 * TOPIC, 2, generator=generator)
    student = torch.tensor([2.2, -1.5]) + 0.2 * torch.randn(2 * TOPIC, 2, generator=generator)
    return student, teacher


@one_thread()
def descend(loss: nn.Module, student: Tensor, teacher: Tensor) -> Tensor:
    """Student embeddings under gradient descent on themselves, as one batch.

    Returns (DESCENT_STEPS + 1, N, 2), the start first.
    """
    rate = DESCENT_RATE * (FASTER if isinstance(loss, Cosine) else 1)
    path = [student]
    for _ in range(DESCENT_STEPS):
        y = path[-1].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(y, teacher).sum(), y)
        path.append(path[-1] - rate * gradient)
    return torch.stack(path)


def plot_descents() -> list[Axes]:
    """Five losses on the same two topics, then the mean norm of the embeddings under each.

    Returns the six panels of one figure.
    """
    student, teacher = two_topics()
    figure, grid = plt.subplots(2, 3, figsize=(8.0, 5.7), layout="constrained")
    *planes, norms = grid.flat
    for ax, (name, loss), color in zip(planes, LOSSES.items(), SERIES, strict=False):
        path = descend(loss, student, teacher)
        _plot_path(ax, path, teacher)
        title = f"{name} (steps × {FASTER})" if isinstance(loss, Cosine) else name
        ax.set_title(title, fontsize=9)
        mean_norm = path.norm(dim=2).mean(dim=1)  # (steps + 1,)
        norms.plot(mean_norm, color=color, linewidth=1.8)
        label(norms, name.split(", ")[-1], (DESCENT_STEPS, mean_norm[-1].item()), (4, 0))
    plt.setp(planes[::3], ylabel="second dimension")
    plt.setp(planes[3:], xlabel="first dimension")
    norms.set(xlabel="step", yscale="log", xlim=(0, 1.4 * DESCENT_STEPS))
    norms.set_xticks(range(0, DESCENT_STEPS + 1, 10))
    norms.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"], minor=False)
    norms.minorticks_off()
    norms.set_title("mean norm of the student's embeddings", fontsize=9)
    entries = planes[0].get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower center", ncols=4, fontsize=8)
    return [*planes, norms]


def _plot_path(ax: Axes, path: Tensor, teacher: Tensor) -> None:
    """Both topics, (steps + 1, N, 2), from start to end; the second is not in the legend."""
    embeddings = {
        "teacher": (teacher, "structural"),
        "student, start": (path[0], "untrained"),
        "student, end": (path[-1], "student"),
    }
    for topic, marker, hidden in ((slice(TOPIC), "o", ""), (slice(TOPIC, None), "^", "_")):
        ax.plot(*path[:, topic].unbind(dim=2), color=PALETTE["student"], linewidth=0.6, alpha=0.5)
        for name, (points, kind) in embeddings.items():
            entry = hidden + name  # a legend leaves out what begins with "_"
            ax.plot(*points[topic].T, marker, color=PALETTE[kind], markersize=4.5, label=entry)
    ax.plot(0, 0, "+", color=GREY, markersize=7, label="origin")
    ax.set_aspect("equal", adjustable="datalim")
    ax.locator_params(nbins=4)
    ax.grid(visible=False)
