"""Which documents give which loss, bar by bar."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

from docemb_lib.figures import PALETTE
from docemb_lib.figures.corpus import plot_mask
from docemb_lib.losses import Weighting


def weighed(weighting, lengths):
    structural, contextual = weighting.weights(torch.tensor(lengths))
    return pd.DataFrame({"length": lengths, "structural": structural.numpy(), "contextual": contextual.numpy()})


def bars(ax):
    structural, contextual = ax.containers
    return [bar.get_width() for bar in structural], [bar.get_width() for bar in contextual]


def test_a_masked_document_has_the_contextual_loss_alone():
    ax = plot_mask(weighed(Weighting(0.8, 256), [40, 256, 257, 2000]), max_structural_len=256)
    structural, contextual = bars(ax)
    assert structural == pytest.approx([0.8, 0.8, 0, 0])
    assert contextual == pytest.approx([0.2, 0.2, 1, 1])
    assert [bar.get_x() for bar in ax.containers[1]] == pytest.approx([0.8, 0.8, 0, 0])  # beside, not on top
    assert [text.get_text() for text in ax.get_yticklabels()] == ["40", "256", "257", "2,000"]
    assert ax.lines[0].get_ydata()[0] == 1.5  # between the second and the third
    assert "more than\n256 tokens" in ax.texts[0].get_text()
    colors = [plt.matplotlib.colors.to_hex(container[0].get_facecolor()) for container in ax.containers]
    assert colors == [PALETTE["structural"].lower(), PALETTE["contextual"].lower()]


def test_lam_may_fall_with_the_length():
    ax = plot_mask(weighed(Weighting(0.5, None, "linear:100:300"), [50, 200, 300]), max_structural_len=None)
    assert bars(ax)[0] == pytest.approx([0.5, 0.25, 0])
    assert not ax.lines


def test_without_weights_a_kept_document_counts_twice():
    ax = plot_mask(weighed(Weighting(None, 100), [50, 200]), max_structural_len=100)
    assert np.sum(bars(ax), axis=0) == pytest.approx([2, 1])
    assert ax.get_xlim()[1] > 2


def test_of_many_documents_twelve_are_drawn_with_the_shortest_and_the_longest():
    lengths = list(range(10, 1510, 10))
    ax = plot_mask(weighed(Weighting(0.5, 5000), lengths), max_structural_len=5000)
    shown = [int(text.get_text().replace(",", "")) for text in ax.get_yticklabels()]
    assert len(shown) == 12
    assert (shown[0], shown[-1]) == (10, 1500)
    assert shown == sorted(shown)
    assert not ax.lines  # the mask lies beyond all of them
