"""Maps: each document once in each plane, linked by its number; legends; the static figure."""

import json

import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from matplotlib import colormaps
from matplotlib.colors import to_rgb

from docemb_lib.widgets.maps import HEIGHT, TEXT, WIDTH, Map, Panel

PLACES = np.array([[0.0, 0], [4, 0], [2, 1], [1, 3]])
DOCUMENTS = pd.DataFrame(
    {
        "id": ["a", "b", "c", "d"],
        "text": ["one", "two", "three", "x" * (TEXT + 9)],
        "topic": ["graphs", "violins", "graphs", "graphs"],
        "length": [0, 10, 1000, 10000],
    }
)


@pytest.fixture
def a_map():
    def make(colour="topic", documents=DOCUMENTS):
        panels = {"left": Panel(PLACES, "70% of the variance"), "right": Panel(-PLACES)}
        return Map(panels, documents, colour)

    return make


@pytest.fixture
def page(a_map):
    return lambda *given: BeautifulSoup(a_map(*given).html(), "html.parser")


def places_of(svg):
    circles = svg.find_all("circle")
    return np.array([[float(circle[name]) for name in ("cx", "cy")] for circle in circles])


def test_every_plane_has_every_document_under_its_number(page):
    for svg in page().find_all("svg"):
        assert [circle["data-row"] for circle in svg.find_all("circle")] == ["0", "1", "2", "3"]


def test_places_keep_their_shape_with_the_second_axis_upwards(page):
    drawn = places_of(page().find("svg")) * [1, -1]
    steps = (drawn - drawn[0]) / (PLACES - PLACES[0]).max()
    expected = PLACES / PLACES.max()
    np.testing.assert_allclose(steps / np.ptp(steps[:, 0]), expected, atol=1e-3)


@pytest.mark.parametrize("places", [PLACES, np.zeros((4, 2)), 1e-9 * PLACES, 1e9 * PLACES])
def test_all_points_lie_inside_their_panel(places):
    svg = BeautifulSoup(Map({"one": Panel(places)}, DOCUMENTS, "topic").html(), "html.parser")
    drawn = places_of(svg)
    assert (drawn > 0).all()
    assert (drawn < [WIDTH, HEIGHT]).all()


def test_the_texts_stand_beside_the_map_and_are_cut(page):
    texts = json.loads(page().find(class_="docemb-map")["data-texts"])
    assert texts[:2] == [["a, topic graphs", "one"], ["b, topic violins", "two"]]
    assert texts[3][1] == "x" * TEXT


def test_a_value_of_the_legend_marks_its_documents(page):
    buttons = page().find(class_="docemb-legend").find_all("button")
    marks = {button.get_text(): json.loads(button["data-mark"]) for button in buttons}
    assert marks == {"graphs": [0, 2, 3], "violins": [1]}


def test_equal_values_have_equal_colours(page):
    colours = [circle["fill"] for circle in page().find("svg").find_all("circle")]
    assert colours[0] == colours[2] == colours[3] != colours[1]


def test_colours_of_lengths_follow_their_logarithm(page):
    fills = [circle["fill"] for circle in page("length").find("svg").find_all("circle")]
    shares = np.array([0, 0.25, 0.75, 1])  # of 1, 10, 1,000 and 10,000; 0 counts as 1
    expected = colormaps["viridis"](0.15 + 0.75 * shares)[:, :3]
    np.testing.assert_allclose([to_rgb(fill) for fill in fills], expected, atol=0.003)


def test_lengths_have_a_colour_bar_with_their_ends(page):
    legend = page("length").find(class_="docemb-legend")
    assert legend.get_text().startswith("110,000 tokens (logarithmic; 100 in the middle)")
    assert "linear-gradient" in legend.find(class_="docemb-bar")["style"]


def test_planes_take_the_keyboard_and_say_what_they_show(page):
    for svg, title in zip(page().find_all("svg"), ("left", "right"), strict=True):
        assert svg["tabindex"] == "0"
        assert svg["aria-label"].startswith(f"{title}: 4 documents. Click")


def test_what_looks_like_html_is_text(page, hostile):
    documents = DOCUMENTS.assign(id=hostile, text=hostile, topic=hostile)
    shown = page("topic", documents)
    assert not shown.find(["script", "img"])
    assert json.loads(shown.find(class_="docemb-map")["data-texts"])[0][1] == hostile


@pytest.mark.parametrize("colour", ["topic", "length"])
def test_the_figure_of_an_executed_copy_has_the_same_points(a_map, colour):
    figure = a_map(colour).figure()
    left, right = figure.axes[:2]
    assert [ax.get_title() for ax in (left, right)] == ["left", "right"]
    assert left.get_xlabel() == "70% of the variance"
    np.testing.assert_allclose(left.collections[0].get_offsets(), PLACES)
    np.testing.assert_allclose(right.collections[0].get_offsets(), -PLACES)
