"""Neighbours in several spaces, against a loop over scipy's cosines."""

from types import SimpleNamespace

import numpy as np
import pytest
from bs4 import BeautifulSoup
from scipy.spatial.distance import cosine

from docemb_lib.evaluation.tasks import Labelled, LabelledPairs, Ranking, Retrieval
from docemb_lib.runs.embeddings import Embedder
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import Model
from docemb_lib.widgets import neighbour_browser
from docemb_lib.widgets.neighbours import Neighbourhoods, Pool, Verdict, judge_of, names_of

TEXTS = [f"text {row} of {'Graphs' if row % 2 else 'violins'}" for row in range(9)]
NAMES = [f"d{row}" for row in range(9)]


@pytest.fixture
def spaces():
    rng = np.random.default_rng(0)
    spaces = {"student": rng.standard_normal((9, 4)), "SBERT": rng.standard_normal((9, 3))}
    spaces["SBERT"][5] = 0  # an empty embedding
    return spaces


@pytest.mark.parametrize("row", [0, 5, 8])
def test_neighbours_are_those_of_a_loop_and_never_the_document_itself(spaces, row):
    for model, nearest in Pool(TEXTS, np.arange(9), spaces, NAMES).neighbours(row, 4).items():
        X = spaces[model]
        cosines = {
            r: 1 - cosine(X[row], X[r]) if X[row].any() and X[r].any() else 0.0
            for r in range(9)
            if r != row
        }
        expected = sorted(cosines, key=lambda r: (-round(cosines[r], 5), r))[:4]
        assert nearest.index.tolist() == expected
        np.testing.assert_allclose(nearest, [cosines[r] for r in expected], atol=1e-6)


def test_a_text_of_ones_own_has_neighbours_among_all_documents(spaces):
    pool = Pool(TEXTS, np.arange(9), spaces, NAMES)
    nearest = pool.neighbours({model: 7 * X[3] for model, X in spaces.items()}, 2)
    assert all(
        cosines.index[0] == 3 and cosines.iloc[0] == pytest.approx(1)
        for cosines in nearest.values()
    )
    assert sorted(pool.neighbours(2, 50)["student"].index) == [
        0,
        1,
        3,
        4,
        5,
        6,
        7,
        8,
    ]  # more than there are
    found = {"GRAPHS": [1, 3, 5, 7], "": range(9), "D7": [7], "nowhere": []}
    assert [pool.find(words) for words in found] == [
        {f"d{row}": row for row in rows} for rows in found.values()
    ]


def test_a_task_becomes_a_pool_embedded_once(workspace_root):
    asked = []

    def embed(texts):
        asked.extend(texts)
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)

    texts = ["a query", "an answer", "a query", "some other page"]  # one text twice
    task = Retrieval("find", {"test": Ranking(texts, [0, 1], [[1, 3], [3]])})
    counter = SimpleNamespace(count_tokens=lambda texts: [len(text.split()) for text in texts])
    run = SimpleNamespace(
        scorer=SimpleNamespace(task={"find": task}.get),
        profile=SimpleNamespace(evaluation=SimpleNamespace(tasks=["find"])),
        teachers=SimpleNamespace(structural=counter),
    )
    student = Model(Identity(Kind.STUDENT, name="a"), Embedder("a", "s", embed))
    truncated = Model(Identity(Kind.SBERT_TRUNCATED), Embedder("SBERT", "t", embed))
    models = {"this student: a": student, "truncated": truncated}
    neighbourhoods = Neighbourhoods(run, models)
    pool = neighbourhoods.pool("find")
    assert pool.texts == ["a query", "an answer", "some other page"]
    assert pool.lengths.tolist() == [2, 2, 3]
    assert pool.names == pool.texts  # they have no ids
    assert pool.judge(0, 1) == Verdict("relevant", True)
    assert sorted(asked) == sorted(pool.texts * 2)
    assert neighbourhoods.pool("find") is pool
    embedded = neighbourhoods.embed("anything at all")
    assert {model: y.tolist() for model, y in embedded.items()} == {
        "this student: a": [15, 1],
        "truncated": [15, 1],
    }


def test_documents_are_named_by_their_ids_or_by_how_they_begin():
    (written,) = Labelled(["One\n two " + "x" * 99], ["a"]).ids
    (same,) = Labelled(["One\n  two " + "x" * 99], ["a"]).ids
    texts = {"numpy/fft": "Fourier", written: "One\n two " + "x" * 99}
    texts[same] = "One\n  two " + "x" * 99
    assert names_of(texts) == ["numpy/fft", f"One two {'x' * 51}…", f"One two {'x' * 51}… (3)"]


IDS = ["a", "b", "c"]
LABELS = Labelled(["x", "y", "z"], ["in", "out", "in"], IDS)
PAIRS = LabelledPairs(["x"], ["y"], [1], ["a"], ["b"])
RANKED = Ranking(["x", "y", "z"], [0, 0], [[1], [1]], IDS)


@pytest.mark.parametrize(
    ("data", "query", "row", "expected"),
    [
        (LABELS, 0, 2, Verdict("in", True)),
        (LABELS, 0, 1, Verdict("out", False)),
        (LABELS, None, 1, Verdict("out")),
        (PAIRS, 0, 1, Verdict("pair: 1")),
        (PAIRS, 1, 0, Verdict("pair: 1")),
        (PAIRS, 0, 2, Verdict("")),
        (PAIRS, None, 2, Verdict("")),
        (RANKED, 0, 1, Verdict("relevant", True)),
        (RANKED, 0, 2, Verdict("not relevant", False)),
        (RANKED, 1, 0, Verdict("")),
        (RANKED, None, 0, Verdict("")),
    ],
)
def test_a_neighbour_is_judged_by_what_the_task_says(data, query, row, expected):
    assert judge_of(data, IDS)(query, row) == expected


def test_shared_words_are_the_rare_and_frequent_ones_of_both_texts():
    texts = [
        "violin violin music the the the",
        "violin music score the the",
        "the music of the graph",
        "the graph",
    ]
    pool = Pool(texts, np.arange(4), {"student": np.eye(4)}, [*IDS, "d"])
    # violin is in two of four documents, music in three, and "the" in all.
    assert pool.shared_words(texts[0], 1) == ["violin", "music", "the"]
    assert pool.shared_words("a graph", 0) == []


@pytest.fixture
def judged(spaces, hostile):
    """Documents of three kinds, of which equal ones are right; and what was embedded."""

    def judge(query, row):
        return Verdict(f"of {row % 3}", None if query is None else query % 3 == row % 3)

    texts = [f"page {n} {hostile}" for n in range(9)]
    pool = Pool(texts, 1000 + np.arange(9), spaces, [f"d{n} {hostile}" for n in range(9)], judge)
    asked = []

    def embed(text):
        asked.append(text)
        return {model: X[3] for model, X in spaces.items()}

    return SimpleNamespace(tasks=["find"], pool=lambda task: pool, embed=embed), asked


def rows_of(text):
    """The rows of the neighbours by rank, a list for each model."""
    table = BeautifulSoup(text, "html.parser").find("table", class_="docemb-neighbours")
    ranks = [row.find_all("td") for row in table.find_all("tr")[1:]]
    return [[int(cell["data-row"]) for cell in column] for column in zip(*ranks, strict=True)]


def asked_document(text):
    return BeautifulSoup(text, "html.parser").find(class_="docemb-query").get_text()


def test_the_browser_shows_the_neighbours_of_the_chosen_document(judged, moved):
    documents, _ = judged
    text = moved(neighbour_browser(documents), document=2, neighbours=3)
    nearest = documents.pool("find").neighbours(2, 3)
    assert rows_of(text) == [of_model.index.tolist() for of_model in nearest.values()]


def test_neighbours_say_in_words_and_colour_whether_they_are_right(judged, moved):
    documents, _ = judged
    text = moved(neighbour_browser(documents), document=2, neighbours=8)
    cells = BeautifulSoup(text, "html.parser").find_all("td", {"data-row": True})
    assert len(cells) == 16
    for cell in cells:
        row = int(cell["data-row"])
        kind, sign, colour = ("wrong", "✗", "221") if row % 3 != 2 else ("right", "✓", "49")
        verdict = cell.find(class_=f"docemb-{kind}")
        assert verdict.get_text() == f"{sign} of {row % 3}"
        assert f"rgba({colour}," in verdict["style"]


def test_neighbours_that_are_also_the_students_are_marked(judged, moved):
    documents, _ = judged
    text = moved(neighbour_browser(documents), document=2, neighbours=3)
    cells = BeautifulSoup(text, "html.parser").find_all("td", {"data-row": True})
    both = rows_of(text)[0]
    assert [" =" in cell.get_text() for cell in cells] == [
        int(cell["data-row"]) in both for cell in cells
    ]


def test_no_text_of_a_document_is_html(judged, moved):
    text = moved(neighbour_browser(judged[0]), document=2)
    assert not BeautifulSoup(text, "html.parser").find(["script", "img"])


def test_lengths_have_separators_of_thousands(judged, moved):
    assert "1,002 tokens" in asked_document(moved(neighbour_browser(judged[0]), document=2))


def test_found_documents_are_offered_and_the_first_is_asked_for(judged, moved):
    documents, _ = judged
    explorer = neighbour_browser(documents)
    text = moved(explorer, find="PAGE 5")
    assert [value for _, value in explorer.widgets["document"].options] == [5]
    assert asked_document(text).startswith("d5 ")
    assert "no document of find contains" in moved(explorer, find="<nowhere>")
    assert asked_document(moved(explorer, find="")).startswith("d0 ")


def test_a_text_of_ones_own_has_neighbours_until_it_is_deleted(judged, moved):
    documents, asked = judged
    explorer = neighbour_browser(documents)
    text = moved(explorer, **{"your text": "my <b>own</b> words"})
    assert rows_of(text)[0][0] == 3
    assert "<b>own" not in text
    assert "find and document wait" in asked_document(text)
    moved(explorer, neighbours=2)
    assert asked.count("my <b>own</b> words") == 1
    assert asked_document(moved(explorer, **{"your text": ""})).startswith("d0 ")
