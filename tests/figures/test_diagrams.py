"""The diagrams say what the run does: names, widths, layers and weights, and can be read."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pytest
import torch
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from docemb_lib.experiments.students import weighting_of
from docemb_lib.figures.diagrams import Box, canvas, draw_arrow, draw_box, plot_contextual_loss, plot_training, write
from docemb_lib.losses import Projection
from docemb_lib.settings.profile import Profile

TINY, THESIS = {"student": 384, "contextual": 200}, {"student": 768, "contextual": 2048}
DEEP = {"student_projection": "384(ReLU)x100(sigmoid)x100x100(ReLU)x384", "contextual_projection": "384"}
BANK = {"structural_loss": "max-margin", "gamma": 1.5, "negatives": 256}
RAMP = {"lam": None, "lam_by_length": "linear:384:4096"}


def labels(ax):
    return [text.get_text() for text in ax.texts]


def said(ax):
    return "\n".join(labels(ax))


def boxes(ax):
    return {patch.get_label(): patch for patch in ax.patches if isinstance(patch, FancyBboxPatch)}


@pytest.mark.parametrize("profile", ["tiny", "thesis"])
@pytest.mark.parametrize(
    "parameters",
    [{}, BANK, RAMP, DEEP, {"lam": None}, {"contextual_loss": "cca"}, {"structural_loss": None},
     {"contextual_teacher": None}, {"contextual_teacher": "LSA", "contextual_loss": "mse"},
     {"form": "contextual_full", "max_structural_len": None}],
)  # fmt: skip
def test_every_objective_is_drawn_legibly(profile, parameters, assert_legible):
    profile = Profile.load(profile, **parameters)
    widths = {"student": 384, "contextual": 200}
    assert_legible(plot_training(profile, widths))
    if profile.parameters.contextual_teacher is not None:
        assert_legible(plot_contextual_loss(profile, widths))


def test_what_is_illegible_is_found(assert_legible):
    def drawing(*, place=(1.0, 0.2), end=(3.0, 1.0), text="box"):
        ax = canvas(None, 4, 2)
        draw_box(ax, Box(1, 1, 1, 0.4), text, color="blue")
        draw_arrow(ax, [(1.5, 1), end])
        write(ax, place, "label")
        return ax

    assert_legible(drawing())
    for wrong, message in (
        ({"text": "far too long for its box"}, "wider"),
        ({"text": "a\nb\nc\nd"}, "higher"),
        ({"place": (0.6, 1.1)}, "lies on a box"),
        ({"place": (2, 1)}, "an arrow crosses"),
        ({"end": (0.2, 1)}, "an arrow crosses"),
        ({"place": (3.99, 0.2)}, "leaves the figure"),
    ):
        with pytest.raises(AssertionError, match=message):
            assert_legible(drawing(**wrong))


def test_training_names_the_models_their_widths_and_how_much_they_read():
    ax = plot_training(Profile.load("thesis"), THESIS)
    found = boxes(ax)
    assert {"document", "$L_S$\ncosine", "$L_C$\nSoftCCA", "$f_C$\nidentity"} <= set(found)
    assert "student\nlongformer-base-4096\nup to 4,096 tokens" in found
    assert "structural teacher\nall-mpnet-base-v2\nfirst 384 tokens" in found
    assert "contextual teacher\nPV = DM + DBOW\nwhole document" in found
    assert "$f_S$\n768(ReLU)\n4096(ReLU)\n2048" in found
    assert {"$y$  768", "$t$  768", "$c$  2048"} <= set(labels(ax))
    assert r"$\lambda_i$ = 0.5; 0 for documents of more than 384 tokens" in labels(ax)
    dashed = {text.partition("\n")[0] for text, box in found.items() if box.get_linestyle() != "-"}
    assert dashed == {"structural teacher", "contextual teacher", "$f_C$"}  # what is not trained


def test_a_student_of_some_layers_says_how_many():
    student = Profile.load("tiny").student
    for layers, said_of_it in (([0, 2, 4], "3 layers, 2,048 tokens"), ([1], "1 layer, 2,048 tokens")):
        settings = student.model_copy(update={"layers": layers})
        profile = Profile.load("tiny").model_copy(update={"student": settings})
        assert f"student\nall-MiniLM-L6-v2\n{said_of_it}" in boxes(plot_training(profile, TINY))


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
    """The formula is read back: λ taken from the note, 1 where there is none."""
    profile = Profile.load("tiny", **parameters)
    ax = plot_training(profile, TINY)
    (formula,) = [text for text in boxes(ax) if text.startswith("$L$ = mean of")]
    notes = [text for text in labels(ax) if "lambda_i$ = " in text]
    for length, expected in weights.items():
        actual = weighting_of(profile.parameters).weights(torch.tensor([length]))
        assert [one.item() for one in actual] == pytest.approx(expected)
    short, long = weights[10], weights[5000]
    if notes:
        lam = float(notes[0].split(" = ")[1].split(" ")[0].rstrip(";"))
        assert lam == short[0]
        assert "0 for documents of more than 256 tokens" in notes[0] or "to 0 at 4,096" in notes[0]
        assert (r"(1-\lambda_i)\,L_C" in formula) == (short[1] == pytest.approx(1 - lam))
    else:
        assert "L_S + L_C" in formula
        assert short == (1, 1)
        assert "documents of more than 256 tokens have no $L_S$" in said(ax)
    assert long[0] == 0


def test_further_teachers_are_said_to_be_missing():
    raw = Profile.load("tiny").model_dump()
    raw["further_teachers"] = [{"name": "topics", "role": "contextual", "teacher": "LSA", "loss": "mse",
                                "student_projection": "100"}]  # fmt: skip
    assert "not drawn: further teachers topics" in labels(plot_training(Profile.model_validate(raw), TINY))
    assert "not drawn" not in said(plot_training(Profile.load("tiny"), TINY))
    raw["parameters"]["contextual_teacher"] = None  # λ counts all the same: both roles have a teacher
    assert "$L$ = mean of\n$\\lambda_i\\,L_S$\n$+\\;(1-\\lambda_i)\\,L_C$" in boxes(
        plot_training(Profile.model_validate(raw), TINY)
    )


@pytest.mark.parametrize(("profile", "widths"), [("tiny", TINY), ("thesis", THESIS)])
def test_the_contextual_loss_shows_every_layer_with_the_weights_that_torch_counts(profile, widths, assert_legible):
    p = Profile.load(profile).parameters
    ax = plot_contextual_loss(Profile.load(profile), widths)
    assert_legible(ax)
    assert f"student, $f_S$ = {p.student_projection}" in labels(ax)
    assert f"PV teacher, $f_C$ = {p.contextual_projection}" in labels(ax)
    linears = [
        layer
        for spec, width in ((p.student_projection, widths["student"]), (p.contextual_projection, widths["contextual"]))
        for layer in Projection(spec, width).layers
        if isinstance(layer, torch.nn.Linear)
    ]
    shown = [text for text in labels(ax) if text.endswith(" weights")]
    assert len(shown) == len(linears)
    for text, layer in zip(shown, linears, strict=True):
        number, letter = text.split()[:2]
        counted = float(number) * {"k": 1e3, "M": 1e6}[letter]
        assert counted == pytest.approx(sum(tensor.numel() for tensor in layer.parameters()), rel=0.005)
    activations = [text for text in labels(ax) if text.startswith("linear")]
    relus = f"{p.student_projection}{p.contextual_projection}".count("ReLU")
    assert sum("ReLU" in text for text in activations) == relus
    assert ("identity" in labels(ax)) == (p.contextual_projection == "-")


def test_bars_grow_with_the_square_root_of_their_width_and_both_views_stand_above_each_other():
    ax = plot_contextual_loss(Profile.load("thesis"), THESIS)
    bars = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    heights = [bar.get_height() - 0.18 for bar in bars]
    widths = [768, 768, 4096, 2048, 2048, 2048]
    assert [height / heights[2] for height in heights] == pytest.approx([(width / 4096) ** 0.5 for width in widths])
    assert bars[3].get_x() == pytest.approx(bars[5].get_x())


def test_without_contextual_teacher_there_is_a_line_instead():
    ax = plot_contextual_loss(Profile.load("tiny", contextual_teacher=None), {"student": 384})
    assert labels(ax) == ["This run has no contextual teacher, and so no projections."]


def test_a_diagram_stays_on_the_axes_it_is_given():
    figure, ax = plt.subplots()
    assert plot_training(Profile.load("tiny"), TINY, ax=ax) is ax
    assert plt.get_fignums() == [figure.number]
    assert [patch for patch in ax.patches if isinstance(patch, FancyArrowPatch)]
