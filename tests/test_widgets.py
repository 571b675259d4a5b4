"""Live controls call the figure functions with what is chosen."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from docemb_lib.widgets import ALL, distance_explorer


@pytest.fixture
def distances():
    def frame(scale):
        return pd.concat(
            pd.DataFrame({"model": model, "kind": ["positive", "negative"] * 20, "value": scale * np.arange(40.0), "auc": 0.7})
            for model in ("student before distillation", "cosine")
        )  # fmt: skip

    return {"cosine": frame(0.01), "mse": frame(1.0)}


def test_the_explorer_offers_every_loss_and_distance_and_draws_the_choice(distances, monkeypatch):
    drawn = []
    monkeypatch.setattr(plt, "show", lambda: drawn.append(plt.gca()))
    explorer = distance_explorer(distances)
    loss, distance = explorer.children[:2]
    assert list(loss.options) == [ALL, "student before distillation", "cosine"]
    assert [value for _, value in distance.options] == ["cosine", "mse"]
    explorer.update()
    loss.value, distance.value = "cosine", "mse"
    explorer.update()
    rows = [[label.get_text() for label in ax.get_yticklabels()] for ax in drawn]
    assert rows[0] == ["student before distillation", "cosine"]
    assert rows[-1] == ["cosine"]
    assert drawn[-1].get_xlabel() == "mean squared difference"
    plt.close("all")
