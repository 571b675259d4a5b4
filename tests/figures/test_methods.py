"""The diagrams show what the run does; the descents agree with closed forms of the losses."""

from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.metrics.pairwise import cosine_distances, paired_cosine_distances

from docemb_lib.figures import methods
from docemb_lib.figures.methods import (
    descend,
    plot_paragraph_vectors,
    plot_training,
)
from docemb_lib.losses import MaxMargin
from docemb_lib.runs.students import weighting_of
from docemb_lib.settings.profile import Profile

RATE = methods.DESCENT_RATE
DESCENT = methods.DESCENT_STEPS
TINY = {"student": 384, "contextual": 200}
THESIS = {"student": 768, "contextual": 2048}
DEEP = {
    "student_projection": "384(ReLU)x100(sigmoid)x100x100(ReLU)x384",
    "contextual_projection": "384",
}
LAYERED = {
    "student_projection": "768(ReLU,drop0.1,norm)x1024(norm)x384",
    "contextual_projection": "384",
}
MARGIN = {"structural_loss": "max-margin", "gamma": 1.5}
RAMP = {"lam": None, "lam_by_length": "linear:384:4096"}


def boxes(ax):
    return {text.get_text(): text for text in ax.texts if text.get_bbox_patch() is not None}


def arrows(ax):
    return [text.arrow_patch for text in ax.texts if getattr(text, "arrow_patch", None) is not None]


def notes(ax):
    return "\n".join(text.get_text() for text in ax.texts if text.get_bbox_patch() is None)


def assert_legible(ax):
    """No text or box overlaps another, and all are inside the figure."""
    ax.figure.draw_without_rendering()
    texts = [text.get_bbox_patch() or text for text in ax.texts if text.get_text()]
    places = [text.get_window_extent() for text in texts]
    assert boxes(ax)
    assert all(ax.figure.bbox.x0 <= place.x0 < place.x1 <= ax.figure.bbox.x1 for place in places)
    assert not [both for both in combinations(places, 2) if both[0].overlaps(both[1])]


@pytest.mark.parametrize("profile", ["tiny", "thesis"])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        MARGIN,
        RAMP,
        DEEP,
        LAYERED,
        {"lam": None},
        {"contextual_loss": "cca:10"},
        {"structural_loss": None},
        {"contextual_teacher": None},
        {"contextual_teacher": "LSA", "contextual_loss": "mse"},
        {"max_structural_len": None},
    ],
)
def test_every_objective_is_drawn_legibly(profile, parameters):
    profile = Profile.load(profile, **parameters)
    ax = plot_training(profile, THESIS)
    assert_legible(ax)
    teachers = (profile.parameters.structural_loss is not None) + 2 * (
        profile.parameters.contextual_teacher is not None
    )
    assert len(arrows(ax)) == {1: 5, 2: 7, 3: 11}[teachers]


def test_training_names_the_models_their_widths_layers_and_how_much_they_read():
    drawn = boxes(plot_training(Profile.load("thesis"), THESIS))
    assert {
        "document",
        "$L_S$\ncosine",
        "$L_C$\nsoft-cca",
        "$f_C$\nidentity",
        "$f_S$\n768 ReLU\n4,096 ReLU\n2,048",
        "student\nlongformer-base-4096\n4,096 tokens\n$y$: 768 numbers",
        "structural teacher\nall-mpnet-base-v2\nfirst 384 tokens\n$t$: 768 numbers",
        "contextual teacher\nPV = DM + DBOW\nwhole document\n$c$: 2048 numbers",
    } <= set(drawn)
    dashed = {
        name.partition("\n")[0]
        for name, text in drawn.items()
        if text.get_bbox_patch().get_linestyle() != "-"
    }
    assert dashed == {"structural teacher", "contextual teacher", "$f_C$"}  # not trained
    profile = Profile.load("tiny")
    profile = profile.model_copy(
        update={"student": profile.student.model_copy(update={"layers": [1, 3]})}
    )
    assert "student\nall-MiniLM-L6-v2\nlayers 1, 3; 1,024 tokens\n$y$: 384 numbers" in boxes(
        plot_training(profile, TINY)
    )
    # a teacher that is switched off is not drawn
    for off, number, absent in (
        ({"contextual_teacher": None}, 5, ("contextual", "f_")),
        ({"structural_loss": None}, 7, ("structural", "L_S")),
    ):
        drawn = boxes(plot_training(Profile.load("tiny", **off), TINY))
        assert len(drawn) == number
        assert not [text for text in drawn if any(name in text for name in absent)]


@pytest.mark.parametrize(
    ("parameters", "lam", "short"),
    [
        ({"lam": 0.8}, 0.8, (0.8, 0.2)),
        ({"lam": None}, 1, (1, 1)),
        (
            {"lam": 0.8, "lam_by_length": "linear:384:4096", "max_structural_len": None},
            0.8,
            (0.8, 0.2),
        ),
    ],
)
def test_the_sum_is_what_the_objective_computes(parameters, lam, short):
    """The formula is read back at λ."""
    profile = Profile.load("tiny", **{"max_structural_len": 256, **parameters})
    (formula,) = [
        text for text in boxes(plot_training(profile, TINY)) if text.startswith("$L$ = mean of")
    ]
    actual = torch.stack(weighting_of(profile.parameters).weights(torch.tensor([10, 5000])), dim=1)
    np.testing.assert_allclose(actual, [short, (0, 1)], atol=1e-6)
    assert (r"\lambda_i\,L_S" in formula) == (lam < 1)
    assert (r"(1-\lambda_i)\,L_C" in formula) == (lam < 1 and short[1] == pytest.approx(1 - lam))


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


def joined(ax):
    """The texts of the boxes that each arrow joins, without line breaks."""
    texts = [text for text in ax.texts if getattr(text, "arrow_patch", None) is not None]
    pairs = [(text.anncoords.get_text(), text.xycoords.get_text()) for text in texts]
    return [tuple(text.replace("\n", " ") for text in pair) for pair in pairs]


def test_dm_predicts_a_word_from_the_mean_of_the_document_and_its_neighbours(small):
    dm, _ = plot_paragraph_vectors(small)
    inputs = ["document vector $v$ 8 numbers"]
    inputs += [f"{word}: 8 numbers" for word in ("return", "the", "path", "lengths")]
    expected = {(name, "mean 8 numbers") for name in inputs} | {("mean 8 numbers", "shortest")}
    assert set(joined(dm)) == expected


def test_dbow_predicts_all_words_from_the_document_alone(small):
    _, dbow = plot_paragraph_vectors(small)
    words = ("return", "the", "shortest", "path", "lengths")
    assert joined(dbow) == [("document vector $v$ 8 numbers", word) for word in words]


@pytest.mark.parametrize("profile", ["tiny", "thesis"])
def test_paragraph_vectors_are_legible_at_the_widths_of_a_profile(profile):
    for ax in plot_paragraph_vectors(Profile.load(profile)):
        assert_legible(ax)
