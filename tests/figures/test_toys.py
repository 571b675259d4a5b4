"""The examples show what is true of the methods, by closed forms and by scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import CCA
from sklearn.metrics.pairwise import cosine_distances, paired_cosine_distances

from docemb_lib.figures import toys
from docemb_lib.figures.toys import DELTA, LOSSES, TEACHERS, TOPIC, descend, train_projections, two_topics, two_views
from docemb_lib.figures.toys import DESCENT_RATE as RATE
from docemb_lib.figures.toys import DESCENT_STEPS as DESCENT
from docemb_lib.losses import MaxMargin

# ---- Paragraph Vector


@pytest.mark.parametrize("words", [1, 4, 12])
@pytest.mark.parametrize("window", [1, 5])
@pytest.mark.parametrize("dm", [True, False])
def test_dm_reads_the_neighbours_of_a_word_and_both_read_the_document(words, window, dm):
    expected = [
        [True, *(dm and word != row and row - window <= word <= row + window for word in range(words))]
        for row in range(words)
    ]
    np.testing.assert_array_equal(toys.inputs_of_predictions(words, dm=dm, window=window), expected)


@pytest.mark.parametrize("dm", [True, False])
def test_windows_fill_the_inputs_and_outline_the_predicted_word(ax, names_of, dm):
    words = ["Return", "the", "shortest", "path", "between", "the", r"$\nonsense{$", "$x_i$"]  # no formulas
    toys.plot_windows(words, dm=dm, window=2, ax=ax)
    (cells,) = ax.collections
    filled = ~np.ma.getmaskarray(cells.get_array()).reshape(len(words), -1)
    np.testing.assert_array_equal(filled, toys.inputs_of_predictions(len(words), dm=dm, window=2))
    assert [(round(p.get_y() - 0.05), round(p.get_x() - 0.05)) for p in ax.patches] == [
        (row, row + 1) for row in range(len(words))
    ]
    ax.figure.canvas.draw()  # fails where matplotlib reads a formula
    for labels, expected in ((ax.get_xticklabels(), ["document vector", *words]), (ax.get_yticklabels(), words)):
        assert [label._preprocess_math(label.get_text()) for label in labels] == [(word, False) for word in expected]


# ---- structural losses in the plane


@pytest.mark.parametrize("gamma", [0.5, 1.0, 1.5])
def test_the_arrows_of_max_margin_are_the_steps_of_the_loss(ax, gamma):
    toys.plot_max_margin(gamma=gamma, ax=ax)
    mse, drawn = ax.collections[:2]
    teachers = torch.from_numpy(TEACHERS)
    for place, arrow in zip(drawn.get_offsets(), np.c_[drawn.U, drawn.V], strict=True):
        y = torch.tensor([[*place], [0, 0], [0, 0]], dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(MaxMargin("mse", gamma)(y, teachers)[0], y)
        np.testing.assert_allclose(arrow, -gradient[0], atol=1e-12)
    assert np.ptp(mse.U) > 1
    if gamma == 1:  # a constant gradient
        expected = TEACHERS[0] - TEACHERS[1:].mean(axis=0)
        np.testing.assert_allclose(np.c_[drawn.U, drawn.V], np.tile(expected, (len(drawn.U), 1)))


@pytest.fixture(scope="module")
def paths():
    return {name: descend(loss, *two_topics()) for name, loss in LOSSES.items()}


@pytest.fixture(scope="module")
def teacher():
    return two_topics()[1]


def spread(points):
    return cosine_distances(points)[np.triu_indices(len(points), 1)].mean()


def norms(path):
    return path.norm(dim=2).mean(dim=1)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 1.5])
def test_max_margin_descends_by_its_recurrence(gamma):
    """In the plane the gradient is (y - t) - gamma (y - m), m the mean of the other teacher embeddings."""
    student, teacher = two_topics(seed=3)
    path = descend(MaxMargin("mse", gamma), student, teacher)
    y, t = student.double().numpy(), teacher.double().numpy()
    others = np.stack([np.delete(t, row, axis=0).mean(axis=0) for row in range(len(t))])
    for step in range(DESCENT + 1):
        np.testing.assert_allclose(path[step].numpy(), y, rtol=1e-4, atol=1e-4)
        y = y - RATE * ((y - t) - gamma * (y - others))


def test_mse_ends_at_the_teacher_and_cosine_in_its_direction(paths, teacher):
    assert (paths["MSE"][-1] - teacher).norm(dim=1).max() < 0.1
    assert paired_cosine_distances(paths["cosine"][-1], teacher).max() < 0.02
    assert norms(paths["cosine"])[-1] > 2 * teacher.norm(dim=1).mean()  # the norm is free


def test_half_gamma_goes_beyond_the_teacher_away_from_the_others(paths, teacher):
    """Its minimum lies at (t - gamma m) / (1 - gamma) = 2 t - m."""
    others = (teacher.sum(dim=0) - teacher) / (len(teacher) - 1)
    path = paths["max-margin MSE, γ = 0.5"]
    target = 2 * teacher - others
    assert (path[-1] - target).norm(dim=1).mean() < 0.15 * (path[0] - target).norm(dim=1).mean()
    assert (target - others).norm(dim=1).mean() == pytest.approx(2 * (teacher - others).norm(dim=1).mean().item())


def test_at_gamma_one_every_step_is_equal_and_norms_grow_without_end(paths):
    path = paths["max-margin MSE, γ = 1"]
    steps = path.diff(dim=0)
    torch.testing.assert_close(steps, steps[:1].expand_as(steps), rtol=1e-3, atol=1e-5)
    assert norms(path)[-1] > 1.3 * norms(path)[0]
    assert (norms(path).diff()[DESCENT // 2 :] > 0).all()
    far = descend(MaxMargin("mse", 1.0), *two_topics(), steps=10 * DESCENT)
    assert norms(far)[-1] > 8 * norms(path)[-1]


def test_beyond_one_embeddings_leave_in_one_direction_with_growing_steps(paths, teacher):
    path = paths["max-margin MSE, γ = 1.5"]
    lengths = path.diff(dim=0).norm(dim=2).mean(dim=1)
    torch.testing.assert_close(lengths[1:] / lengths[:-1], torch.full((DESCENT - 1,), 1 + RATE / 2), rtol=1e-3, atol=0)
    assert norms(path)[-1] > 7 * norms(path)[0]
    assert spread(path[-1]) < 0.5 * spread(teacher)  # nearly one direction
    assert paired_cosine_distances(path[-1], teacher).mean() > 1  # and not that of the teacher
    assert spread(paths["max-margin MSE, γ = 1"][-1]) > 1.5 * spread(teacher)


def test_the_student_begins_with_similar_documents():
    student, teacher = two_topics()
    assert student.shape == teacher.shape == (2 * TOPIC, 2)
    assert spread(student) < 0.05
    assert spread(teacher[:TOPIC]) < 0.2 * spread(teacher)


def test_the_figure_shows_these_paths(paths, names_of):
    *planes, last = toys.plot_descents()
    assert [ax.get_title().split(" (")[0] for ax in planes] == list(LOSSES)
    assert "steps × 10" in planes[1].get_title()
    for ax, path in zip(planes, paths.values(), strict=True):
        (end,) = [line for line in ax.lines if line.get_label() == "student, end"]
        np.testing.assert_allclose(end.get_xydata(), path[-1, :TOPIC])
    for line, path in zip(last.lines, paths.values(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), norms(path))
    assert names_of(planes[0].figure.legends[0]) == ["teacher", "student, start", "student, end", "origin"]


# ---- SoftCCA


@pytest.fixture(scope="module")
def known():
    """The canonical correlations by scikit-learn."""
    X, Y = two_views()
    a, b = CCA(n_components=2, max_iter=5000, tol=1e-9).fit_transform(X.numpy(), Y.numpy())
    return [np.corrcoef(a[:, k], b[:, k]).item(1) for k in range(2)]


@pytest.fixture(scope="module")
def traces():
    return {delta: train_projections(*two_views(), delta=delta) for delta in (0.0, DELTA)}


def test_canonical_correlations_are_those_of_scikit_learn(known):
    found = toys.canonical_correlations(*two_views())
    assert len(found) == 4
    assert found[:2] == pytest.approx(known, abs=1e-4)
    assert found[2] < 0.3  # noise


def test_both_features_find_the_same_signal_without_decorrelation_and_two_with_it(known, traces):
    alone, decorrelated = (trace.iloc[-1] for trace in traces.values())
    assert alone[["feature 1", "feature 2"]].tolist() == pytest.approx([known[0], known[0]], abs=0.01)
    assert alone["within"] > 0.99
    assert sorted(decorrelated[["feature 1", "feature 2"]], reverse=True) == pytest.approx(known, abs=0.05)
    assert decorrelated["within"] < 0.3


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_views_shrink_while_correlations_rise(traces, delta):
    first, last = traces[delta].iloc[0], traces[delta].iloc[-1]
    assert last["scale"] < 0.3 * first["scale"]
    assert (last[["feature 1", "feature 2"]] > first[["feature 1", "feature 2"]] + 0.3).all()


def test_training_is_repeatable_and_leaves_the_global_generator_alone(traces):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    again = train_projections(*two_views())
    torch.testing.assert_close(torch.rand(3), expected)
    np.testing.assert_array_equal(again, traces[DELTA])


def test_the_figure_shows_both_trainings(traces, names_of):
    for ax, (delta, trace) in zip(toys.plot_soft_cca(), traces.items(), strict=True):
        drawn = [line.get_ydata() for line in ax.lines[:3]]
        np.testing.assert_allclose(np.transpose(drawn), trace[["feature 1", "feature 2", "within"]])
        assert len(trace) == toys.STEPS + 1
        assert f"δ = {delta:g}" in ax.get_title()
        assert names_of(ax.texts) == [f"{value:.2f}" for value in toys.canonical_correlations(*two_views())[:2]]
