"""Two documents beside each other: the pairs that are linked, in the heatmap and in the texts."""

import numpy as np
import pytest
from bs4 import BeautifulSoup

from docemb_lib.student.explanation import Explanation
from docemb_lib.widgets.explanations import side_by_side

TEXTS = ("one two three four", "five six")
TITLES = ("document 4", "document 7")
SPANS = (np.array([[0, 3], [4, 7], [8, 18]]), np.array([[0, 4], [5, 8]]))
PAIRS = np.array([[0.02, -0.1], [0.3, 0.01], [0.05, 0.04]])


@pytest.fixture
def page():
    def show(chosen=0, texts=TEXTS):
        explanation = Explanation(0.4, PAIRS, SPANS, {"two": 0.07, "six": 0.01})
        return BeautifulSoup(side_by_side(explanation, texts, TITLES, chosen), "html.parser")

    return show


def test_the_heatmap_has_a_cell_for_each_pair_and_marks_the_strongest(page):
    rows = page().find("table", class_="docemb-pairs").find_all("tr")[1:]
    cells = [[cell.get_text() for cell in row.find_all("td")] for row in rows]
    assert cells == [["2.0④", "-10.0"], ["30.0①", "1.0⑤"], ["5.0②", "4.0③"]]


def test_shades_follow_the_contributions(page):
    cells = page().find("table", class_="docemb-pairs").find_all("td")
    shades = [float(cell["style"].rpartition(",")[2].strip(" );")) for cell in cells]
    np.testing.assert_allclose(shades, 0.6 * np.abs(PAIRS.ravel()) / 0.3, atol=0.005)


def test_linked_passages_have_the_marks_of_their_pairs_in_both_texts(page):
    regions = page().find_all(attrs={"role": "region"})
    first, second = (region.find_all(class_="docemb-passage") for region in regions)
    assert [each.get_text() for each in first] == ["1 ④ one", "2 ①⑤ two", "3 ②③ three four"]
    assert [each.get_text() for each in second] == ["1 ①②④ five", "2 ③⑤ six"]


@pytest.mark.parametrize(
    ("chosen", "texts"),
    [
        (0, ["2 ①⑤ two", "1 ①②④ five"]),
        (2, ["3 ②③ three four", "2 ③⑤ six"]),
        (99, ["2 ①⑤ two", "2 ③⑤ six"]),
    ],
)
def test_the_passages_of_the_chosen_pair_come_first(page, chosen, texts):
    regions = page(chosen).find_all(attrs={"role": "region"})
    assert [region.find("div").get_text() for region in regions] == texts
    assert [len(region.find_all(class_="docemb-chosen")) for region in regions] == [1, 1]


def test_contributions_that_round_to_zero_have_no_sign():
    explanation = Explanation(0.0, np.array([[-0.0001]]), (SPANS[0][:1], SPANS[1][:1]), {})
    shown = BeautifulSoup(side_by_side(explanation, TEXTS, TITLES), "html.parser")
    assert shown.find("table", class_="docemb-pairs").find("td").get_text() == "0.0"
    assert not shown.find(class_="docemb-chosen")


def test_texts_take_the_keyboard_and_have_names(page):
    regions = page().find_all(attrs={"role": "region"})
    assert [(each["tabindex"], each["aria-label"]) for each in regions] == [
        ("0", t) for t in TITLES
    ]


def test_words_are_listed_strongest_first(page, tables):
    words = tables(str(page()))["words"]
    assert words.to_numpy().tolist() == [["two", "0.070"], ["six", "0.010"]]


def test_no_text_of_a_document_is_html(page, hostile):
    assert not page(texts=(f"one{hostile}", hostile)).find("script")
