"""The diagrams show what the run does: names, widths, layers and weights; and they are legible."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch

from docemb_lib.experiments.students import weighting_of
from docemb_lib.figures import use_style
from docemb_lib.figures.diagrams import Box, draw_graph, plot_contextual_loss, plot_paragraph_vectors, plot_training
from docemb_lib.losses import Projection
from docemb_lib.settings.profile import Profile

TINY, THESIS = {"student": 384, "contextual": 200}, {"student": 768, "contextual": 2048}
DEEP = {"student_projection": "384(ReLU)x100(sigmoid)x100x100(ReLU)x384", "contextual_projection": "384"}
BANK = {"structural_loss": "max-margin", "gamma": 1.5, "negatives": 256}
RAMP = {"lam": None, "lam_by_length": "linear:384:4096"}
WORDS = ["Return", "the", "shortest", "path", "lengths", "between", "source", "and", "all", "reachable", "nodes"]


@pytest.fixture(autouse=True)
def style():
    use_style()


def boxes(ax):
    """The framed texts, by their text."""
    return {text.get_text(): text for text in ax.texts if text.get_bbox_patch() is not None}


def arrows(ax):
    return [text.arrow_patch for text in ax.texts if getattr(text, "arrow_patch", None) is not None]


def notes(ax):
    return "\n".join(text.get_text() for text in ax.texts if text.get_bbox_patch() is None)


def assert_legible(ax):
    """No text or box overlaps another, all are inside the figure, and arrows cross no text and no box."""
    ax.figure.draw_without_rendering()
    shown = {text: (text.get_bbox_patch() or text).get_window_extent() for text in ax.texts if text.get_text()}
    assert boxes(ax)
    whole = ax.figure.bbox
    for text, place in shown.items():
        inside = whole.x0 <= place.x0 < place.x1 <= whole.x1 and whole.y0 <= place.y0 < place.y1 <= whole.y1
        assert inside, f"{text.get_text()!r} leaves the figure"
    for (one, a), (other, b) in combinations(shown.items(), 2):
        assert not a.overlaps(b), f"{one.get_text()!r} lies on {other.get_text()!r}"
    for arrow in arrows(ax):
        (start, end), slack = arrow.get_path().vertices[:2], 1.0  # pixels
        x, y = np.linspace(start, end, 200).T
        for text, place in shown.items():
            within = (x > place.x0 + slack) & (x < place.x1 - slack) & (y > place.y0 + slack) & (y < place.y1 - slack)
            assert not within.any(), f"an arrow crosses {text.get_text()!r}"


@pytest.mark.parametrize("profile", ["tiny", "thesis"])
@pytest.mark.parametrize(
    "parameters",
    [{}, BANK, RAMP, DEEP, {"lam": None}, {"contextual_loss": "cca"}, {"structural_loss": None},
     {"contextual_teacher": None}, {"contextual_teacher": "LSA", "contextual_loss": "mse"},
     {"form": "contextual_full", "max_structural_len": None}],
)  # fmt: skip
def test_every_objective_is_drawn_legibly(profile, parameters):
    profile = Profile.load(profile, **parameters)
    ax = plot_training(profile, THESIS)
    assert_legible(ax)
    teachers = (profile.parameters.structural_loss is not None) + 2 * (
        profile.parameters.contextual_teacher is not None
    )
    assert len(arrows(ax)) == {1: 5, 2: 7, 3: 11}[teachers]
    if teachers > 1:
        assert_legible(plot_contextual_loss(profile, THESIS))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({}, None), ({"place": 0.2}, "lies on"), ({"row": 0.0}, "an arrow crosses"), ({"text": "x" * 300}, "leaves the figure")],
)  # fmt: skip
def test_what_is_illegible_is_found(wrong, message):
    case = {"place": 1.0, "row": 1.0, "text": "box"} | wrong
    drawn = {"a": Box(0, 0, case["text"]), "b": Box(case["place"], 0.0, "between"), "c": Box(3.0, case["row"], "end")}
    ax = draw_graph(drawn, ["a > c"])
    if message is None:
        assert_legible(ax)
    else:
        with pytest.raises(AssertionError, match=message):
            assert_legible(ax)


def test_training_names_the_models_their_widths_and_how_much_they_read():
    ax = plot_training(Profile.load("thesis"), THESIS)
    found = boxes(ax)
    assert {"document", "$L_S$\ncosine", "$L_C$\nSoftCCA", "$f_C$\nidentity"} <= set(found)
    assert "student\nlongformer-base-4096\n4,096 tokens\n$y$: 768 numbers" in found
    assert "structural teacher\nall-mpnet-base-v2\nfirst 384 tokens\n$t$: 768 numbers" in found
    assert "contextual teacher\nPV = DM + DBOW\nwhole document\n$c$: 2048 numbers" in found
    assert "$f_S$\n768 ReLU\n4,096 ReLU\n2,048" in found
    assert r"$\lambda_i$ = 0.5; 0 for documents of more than 384 tokens" in notes(ax)
    dashed = {name.partition("\n")[0] for name, text in found.items() if text.get_bbox_patch().get_linestyle() != "-"}
    assert dashed == {"structural teacher", "contextual teacher", "$f_C$"}  # not trained


def test_a_student_of_some_layers_names_them():
    profile = Profile.load("tiny")
    profile = profile.model_copy(update={"student": profile.student.model_copy(update={"layers": [1, 3]})})
    assert "student\nall-MiniLM-L6-v2\nlayers 1, 3; 2,048 tokens\n$y$: 384 numbers" in boxes(
        plot_training(profile, TINY)
    )


def test_a_teacher_that_is_switched_off_is_not_drawn():
    structural = boxes(plot_training(Profile.load("tiny").for_notebook("03_structural"), TINY))
    assert len(structural) == 5
    assert not [text for text in structural if "contextual" in text or "f_" in text]
    contextual = boxes(plot_training(Profile.load("tiny", structural_loss=None), TINY))
    assert len(contextual) == 7
    assert not [text for text in contextual if "structural" in text or "L_S" in text]


@pytest.mark.parametrize(
    ("parameters", "weights"),
    [
        ({"lam": 0.8}, {10: (0.8, 0.2), 5000: (0.0, 1.0)}),
        ({"lam": None}, {10: (1, 1), 5000: (0, 1)}),
        ({"lam": 0.5, "form": "half_means_sum"}, {10: (1, 1), 5000: (0, 1)}),
        ({"lam": 0.2, "form": "half_means_sum"}, {10: (0.2, 0.8), 5000: (0, 1)}),
        ({"lam": 0.8, "form": "contextual_full"}, {10: (0.8, 1), 5000: (0, 1)}),
        ({"lam": 0.8, "lam_by_length": "linear:384:4096", "max_structural_len": None}, {10: (0.8, 0.2), 5000: (0, 1)}),
    ],
)
def test_the_sum_and_its_notes_are_what_the_objective_computes(parameters, weights):
    """The formula is read back: λ from the note, 1 where there is none."""
    profile = Profile.load("tiny", **parameters)
    ax = plot_training(profile, TINY)
    (formula,) = [text for text in boxes(ax) if text.startswith("$L$ = mean of")]
    lines = [line for line in notes(ax).splitlines() if "lambda_i$ = " in line]
    for length, expected in weights.items():
        actual = weighting_of(profile.parameters).weights(torch.tensor([length]))
        assert [one.item() for one in actual] == pytest.approx(expected)
    short, long = weights[10], weights[5000]
    if lines:
        lam = float(lines[0].split(" = ")[1].split(" ")[0].rstrip(";"))
        assert lam == short[0]
        assert "0 for documents of more than 256 tokens" in lines[0] or "to 0 at 4,096" in lines[0]
        assert (r"(1-\lambda_i)\,L_C" in formula) == (short[1] == pytest.approx(1 - lam))
    else:
        assert "L_S + L_C" in formula
        assert short == (1, 1)
        assert "documents of more than 256 tokens have no $L_S$" in notes(ax)
    assert long[0] == 0


def test_further_teachers_are_named_below():
    raw = Profile.load("tiny").model_dump()
    raw["further_teachers"] = [{"name": "topics", "role": "contextual", "teacher": "LSA", "loss": "mse",
                                "student_projection": "100"}]  # fmt: skip
    assert "Not drawn: further teachers topics" in notes(plot_training(Profile.model_validate(raw), TINY))
    assert "Not drawn" not in notes(plot_training(Profile.load("tiny"), TINY))
    raw["parameters"]["contextual_teacher"] = None  # λ counts all the same: both roles have a teacher
    assert "$L$ = mean of\n$\\lambda_i\\,L_S$\n$+ (1-\\lambda_i)\\,L_C$" in boxes(
        plot_training(Profile.model_validate(raw), TINY)
    )


@pytest.mark.parametrize(
    ("profile", "widths"),
    [(Profile.load("tiny"), TINY), (Profile.load("thesis"), THESIS), (Profile.load("tiny", **DEEP), TINY)],
)
def test_the_contextual_loss_shows_every_layer_with_the_weights_that_torch_counts(profile, widths):
    p = profile.parameters
    ax = plot_contextual_loss(profile, widths)
    assert f"$f_S$ = {p.student_projection}, $f_C$ = {p.contextual_projection}" in notes(ax)
    expected = []
    for spec, width in ((p.student_projection, widths["student"]), (p.contextual_projection, widths["contextual"])):
        for layer in Projection(spec, width).layers:
            if isinstance(layer, torch.nn.Linear):
                expected.append([layer.out_features, "", sum(tensor.numel() for tensor in layer.parameters())])
            else:
                expected[-1][1] = type(layer).__name__.lower()
    solid = [
        name for name, text in boxes(ax).items() if text.get_bbox_patch().get_linestyle() == "-" and "$" not in name
    ]
    shown = [name.replace(",", "").replace("\n", " ").split() for name in solid]
    found = [(int(parts[0]), parts[1].lower() if len(parts) == 3 else "", int(parts[-1])) for parts in shown]
    assert sorted(set(found)) == sorted(set(map(tuple, expected)))
    assert len(arrows(ax)) == len(expected) + 2
    assert {f"student\n$y$: {widths['student']:,}", f"contextual\n$c$: {widths['contextual']:,}"} <= set(boxes(ax))


def test_without_contextual_teacher_there_is_a_line_instead():
    ax = plot_contextual_loss(Profile.load("tiny", contextual_teacher=None), {"student": 384})
    assert list(boxes(ax)) == ["This run has no contextual teacher and no projections."]


def test_a_diagram_stays_on_the_axes_it_is_given(ax):
    assert plot_training(Profile.load("tiny"), TINY, ax=ax) is ax
    assert arrows(ax)


def test_paragraph_vectors_leave_the_predicted_word_out_of_the_inputs_of_dm():
    ax = plot_paragraph_vectors(WORDS)
    frames = [text for text in ax.texts if text.get_bbox_patch() is not None]
    labels = [text.get_text() for text in frames]
    assert labels.count("document vector") == 2
    assert {word: labels.count(word) for word in WORDS[:5]} == dict.fromkeys(WORDS[:5], 2)
    assert len(arrows(ax)) == (1 + 4 + 1) + 5
    shortest = [text for text in frames if text.get_text() == "shortest"]
    assert all(text.get_bbox_patch().get_linestyle() != "-" for text in shortest)  # predicted by both, input of none


@pytest.mark.parametrize(
    "words", [WORDS, ["one"], ["a", "b"], ["matplotlib.pyplot.set_loglevel", *WORDS], [r"$\nonsense$", "$a_b$", "5$", r"\$"]]
)  # fmt: skip
def test_few_long_and_strange_words_are_drawn_legibly(words):
    assert_legible(plot_paragraph_vectors(words))
