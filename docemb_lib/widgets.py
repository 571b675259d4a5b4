"""Live controls: pick a loss and a distance, and a figure function draws what was computed before. No logic here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from ipywidgets import interactive

ALL = "all losses"


def distance_explorer(distances: dict[str, pd.DataFrame]) -> interactive:
    """Choose a loss and a distance; see positives against negatives. distances: see `distances_to_teacher`."""
    import ipywidgets
    import matplotlib.pyplot as plt

    from docemb_lib.figures.distances import UNITS, plot_distances

    models = list(dict.fromkeys(distances["cosine"]["model"]))

    def draw(loss: str, distance: str) -> None:
        frame = distances[distance]
        shown = frame if loss == ALL else frame[frame["model"] == loss]
        _, ax = plt.subplots(figsize=(7, 0.9 + 0.9 * shown["model"].nunique()))
        plot_distances(shown, distance=distance, ax=ax)
        plt.show()

    options: dict[str, Any] = {
        "loss": ipywidgets.Dropdown(options=[ALL, *models], description="loss"),
        "distance": ipywidgets.Dropdown(options=[(name, key) for key, name in UNITS.items()], description="distance"),
    }
    return ipywidgets.interactive(draw, **options)
