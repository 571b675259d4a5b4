"""The descents agree with closed forms of the losses."""

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_distances, paired_cosine_distances

from docemb_lib.figures import methods
from docemb_lib.figures.methods import descend
from docemb_lib.losses import MaxMargin

RATE = methods.DESCENT_RATE
DESCENT = methods.DESCENT_STEPS


@pytest.fixture(scope="module")
def paths():
    return {name: descend(loss, *methods.two_topics()) for name, loss in methods.LOSSES.items()}


def spread(points):
    return cosine_distances(points)[np.triu_indices(len(points), 1)].mean()


def norms(path):
    return path.norm(dim=2).mean(dim=1)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 1.5])
def test_max_margin_descends_by_its_recurrence(gamma):
    """The gradient is (y - t) - gamma (y - m); m is the mean of the other teacher embeddings."""
    student, teacher = methods.two_topics(seed=3)
    path = descend(MaxMargin("mse", gamma), student, teacher)
    y = student.double().numpy()
    t = teacher.double().numpy()
    others = np.stack([np.delete(t, row, axis=0).mean(axis=0) for row in range(len(t))])
    for step in range(DESCENT + 1):
        np.testing.assert_allclose(path[step].numpy(), y, rtol=1e-4, atol=1e-4)
        y = y - RATE * ((y - t) - gamma * (y - others))


def test_the_descents_end_where_the_text_says(paths):
    teacher = methods.two_topics()[1]
    assert (paths["MSE"][-1] - teacher).norm(dim=1).max() < 0.1
    assert paired_cosine_distances(paths["cosine"][-1], teacher).max() < 0.02
    assert norms(paths["cosine"])[-1] > 2 * teacher.norm(dim=1).mean()  # the norm is free
    # half γ goes beyond the teacher, away from the others m: its minimum lies at (t - gamma m) / (1
    # - gamma) = 2 t - m
    others = (teacher.sum(dim=0) - teacher) / (len(teacher) - 1)
    half, equal, beyond = (paths[f"max-margin MSE, γ = {gamma}"] for gamma in ("0.5", "1", "1.5"))
    target = 2 * teacher - others
    assert (half[-1] - target).norm(dim=1).mean() < 0.15 * (half[0] - target).norm(dim=1).mean()
    steps = equal.diff(dim=0)  # at γ = 1 all are equal
    torch.testing.assert_close(steps, steps[:1].expand_as(steps), rtol=1e-3, atol=1e-5)
    assert spread(equal[-1]) > 1.5 * spread(teacher)
    lengths = beyond.diff(dim=0).norm(dim=2).mean(dim=1)  # beyond it they grow
    torch.testing.assert_close(
        lengths[1:] / lengths[:-1], torch.full((DESCENT - 1,), 1 + RATE / 2), rtol=1e-3, atol=0
    )
    assert spread(beyond[-1]) < 0.5 * spread(teacher)  # nearly one direction
    assert paired_cosine_distances(beyond[-1], teacher).mean() > 1  # and not that of the teacher


def test_the_figure_shows_these_paths(paths, names_of):
    *planes, last = methods.plot_descents()
    assert [ax.get_title().split(" (")[0] for ax in planes] == list(methods.LOSSES)
    assert "steps × 10" in planes[1].get_title()
    for ax, path in zip(planes, paths.values(), strict=True):
        (end,) = [line for line in ax.lines if line.get_label() == "student, end"]
        np.testing.assert_allclose(end.get_xydata(), path[-1, : methods.TOPIC])
    np.testing.assert_allclose(
        [line.get_ydata() for line in last.lines], [norms(path) for path in paths.values()]
    )
    assert names_of(planes[0].figure.legends[0]) == [
        "teacher",
        "student, start",
        "student, end",
        "origin",
    ]
