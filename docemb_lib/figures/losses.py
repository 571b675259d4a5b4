"""A toy: where the structural losses would move an embedding, from wherever it is."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from docemb_lib.figures import PALETTE

TEACHERS = np.array([[1.0, 0.6], [-0.8, 0.9], [0.1, -1.0]])  # three documents in the plane; the first is ours


def plot_max_margin(*, gamma: float = 1.0, ax: Axes | None = None) -> Axes:
    """Where plain MSE and max-margin MSE would move a student's embedding, over a grid of the plane.

    The arrows are minus the gradient of D(y, t_0) - gamma * mean of D(y, t_1), D(y, t_2), with D the MSE, which in the
    plane has the gradient y - t.
    """
    ax = plt.gca() if ax is None else ax
    grid = np.stack(np.meshgrid(np.linspace(-1.8, 1.8, 9), np.linspace(-1.6, 1.6, 7)), axis=-1).reshape(-1, 2)
    own, others = TEACHERS[0], TEACHERS[1:]
    plain = own - grid
    margin = plain - gamma * (others[None] - grid[:, None]).mean(axis=1)
    for arrows, color, label in (
        (plain, PALETTE["untrained"], "MSE"),
        (margin, PALETTE["student"], f"max-margin MSE, γ = {gamma}"),
    ):
        ax.quiver(*grid.T, *arrows.T, color=color, angles="xy", scale_units="xy", scale=6, width=0.004, label=label)
    ax.plot(*own, marker="s", color=PALETTE["positive"], markersize=11, linestyle="", label="its teacher embedding")
    ax.plot(*others.T, marker="s", color=PALETTE["negative"], markersize=11, linestyle="", label="of other documents")
    ax.margins(0.12)  # room for the outer arrows
    ax.set(xlabel="first dimension", ylabel="second dimension", aspect="equal")
    ax.grid(visible=False)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax
