"""What the toy shows of the structural losses is true of them, by closed forms of gradient descent."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_distances, paired_cosine_distances

from docemb_lib.figures.losses import CLOUD, LOSSES, descend, plot_descents, two_clouds
from docemb_lib.figures.losses import DESCENT_RATE as RATE
from docemb_lib.figures.losses import DESCENT_STEPS as STEPS
from docemb_lib.losses import MaxMargin

FASTER = 10


@pytest.fixture(scope="module")
def paths():
    clouds = two_clouds()
    return {
        name: descend(loss, clouds, rate=RATE * (FASTER if name == "cosine" else 1)) for name, loss in LOSSES.items()
    }


def spread(points):
    return cosine_distances(points)[np.triu_indices(len(points), 1)].mean()


def norms(path):
    return path.norm(dim=2).mean(dim=1)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 1.5])
def test_max_margin_descends_as_its_recurrence_says(gamma):
    """In the plane the gradient is (y - t) - gamma (y - m), m the mean of the others' teacher embeddings."""
    clouds = two_clouds(seed=3)
    path = descend(MaxMargin("mse", gamma), clouds)
    y, t = clouds.student.double().numpy(), clouds.teacher.double().numpy()
    others = np.stack([np.delete(t, row, axis=0).mean(axis=0) for row in range(len(t))])
    for step in range(STEPS + 1):
        np.testing.assert_allclose(path[step].numpy(), y, rtol=1e-4, atol=1e-4)
        y = y - RATE * ((y - t) - gamma * (y - others))


def test_mse_ends_at_the_teacher_and_cosine_in_its_direction(paths):
    clouds = two_clouds()
    assert (paths["MSE"][-1] - clouds.teacher).norm(dim=1).max() < 0.1
    assert paired_cosine_distances(paths["cosine"][-1], clouds.teacher).max() < 0.02
    assert norms(paths["cosine"])[-1] > 2 * clouds.teacher.norm(dim=1).mean()  # the length is free


def test_half_gamma_goes_beyond_the_teacher_away_from_the_others(paths):
    """Its minimum lies at (t - gamma m) / (1 - gamma) = 2 t - m."""
    teacher = two_clouds().teacher
    others = (teacher.sum(dim=0) - teacher) / (len(teacher) - 1)
    path = paths["max-margin MSE, γ = 0.5"]
    target = 2 * teacher - others
    assert (path[-1] - target).norm(dim=1).mean() < 0.15 * (path[0] - target).norm(dim=1).mean()
    assert (target - others).norm(dim=1).mean() == pytest.approx(2 * (teacher - others).norm(dim=1).mean().item())


def test_at_gamma_one_every_step_is_the_same_and_in_the_end_norms_grow(paths):
    path = paths["max-margin MSE, γ = 1"]
    steps = path.diff(dim=0)
    torch.testing.assert_close(steps, steps[:1].expand_as(steps), rtol=1e-3, atol=1e-5)
    assert norms(path)[-1] > 1.3 * norms(path)[0]
    assert (norms(path).diff()[STEPS // 2 :] > 0).all()
    far = descend(MaxMargin("mse", 1.0), two_clouds(), steps=10 * STEPS)
    assert norms(far)[-1] > 8 * norms(path)[-1]  # there is no end to it


def test_beyond_one_they_run_away_faster_and_faster_together(paths):
    path, teacher = paths["max-margin MSE, γ = 1.5"], two_clouds().teacher
    lengths = path.diff(dim=0).norm(dim=2).mean(dim=1)
    torch.testing.assert_close(lengths[1:] / lengths[:-1], torch.full((STEPS - 1,), 1 + RATE / 2), rtol=1e-3, atol=0)
    assert norms(path)[-1] > 7 * norms(path)[0]
    assert spread(path[-1]) < 0.5 * spread(teacher)  # nearly one direction
    assert paired_cosine_distances(path[-1], teacher).mean() > 1  # and not the teacher's
    assert spread(paths["max-margin MSE, γ = 1"][-1]) > 1.5 * spread(teacher)


def test_the_student_begins_with_all_documents_alike():
    clouds = two_clouds()
    assert clouds.student.shape == clouds.teacher.shape == (2 * CLOUD, 2)
    assert spread(clouds.student) < 0.05
    assert spread(clouds.teacher[:CLOUD]) < 0.2 * spread(clouds.teacher)


def test_the_figure_shows_these_paths(paths):
    *planes, last = plot_descents()
    assert [ax.get_title().split(" (")[0] for ax in planes] == list(LOSSES)
    assert "steps × 10" in planes[1].get_title()
    for ax, path in zip(planes, paths.values(), strict=True):
        (end,) = [line for line in ax.lines if line.get_label() == "student, end"]
        np.testing.assert_allclose(end.get_xydata(), path[-1, :CLOUD])
    for line, path in zip(last.lines, paths.values(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), norms(path))
    legend = planes[0].figure.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["teacher", "student, start", "student, end", "origin"]
