"""Neighbours in several spaces, against a loop over scipy's cosines."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import cosine

from docemb_lib.evaluation.retrieval import unit
from docemb_lib.evaluation.tasks import Labelled, LabelledPairs, Ranking, Retrieval
from docemb_lib.runs.embeddings import Embedder
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import Model
from docemb_lib.widgets import Neighbourhoods, Pool, neighbour_browser, neighbourhoods_of
from docemb_lib.widgets.neighbours import judge_of, names_of

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(1)">'


def judge(query, row):
    """Documents of three kinds, of which equal ones are right."""
    sign = "" if query is None else "✓ " if query % 3 == row % 3 else "✗ "
    return f"{sign}of {row % 3}"


@pytest.fixture
def spaces():
    rng = np.random.default_rng(0)
    spaces = {"S+PV": rng.standard_normal((9, 4)), "SBERT-256": rng.standard_normal((9, 3))}
    spaces["SBERT-256"][5] = 0  # an empty embedding
    return spaces


@pytest.fixture
def pool(spaces):
    texts = [f"page {row} of {'Graphs' if row % 2 else 'violins'} {HOSTILE}" for row in range(9)]
    names = [f"d{row} {HOSTILE}" for row in range(9)]
    directions = {model: unit(X) for model, X in spaces.items()}
    return Pool(texts, 1000 + np.arange(9), directions, names, judge)


@pytest.mark.parametrize("row", [0, 5, 8])
def test_neighbours_are_those_of_a_loop_and_never_the_document_itself(spaces, pool, row):
    for model, nearest in pool.neighbours(row, 4).items():
        X = spaces[model]
        cosines = {}
        for other in {*range(9)} - {row}:
            empty = not (X[row].any() and X[other].any())
            cosines[other] = 0.0 if empty else 1 - cosine(X[row], X[other])
        expected = sorted(cosines, key=lambda other: (-round(cosines[other], 5), other))[:4]
        assert nearest.index.tolist() == expected
        np.testing.assert_allclose(nearest, [cosines[other] for other in expected], atol=1e-6)


@pytest.mark.parametrize(
    ("words", "rows"),
    [("GRAPHS", [1, 3, 5, 7]), ("D7", [7]), ("nowhere", [])],
)
def test_documents_are_found_by_words_of_their_text_or_name(pool, words, rows):
    assert pool.find(words) == {pool.names[row]: row for row in rows}


def test_a_task_becomes_a_pool_embedded_once(workspace_root):
    asked = []

    def embed(texts):
        asked.extend(texts)
        return np.array([[3 * len(text), 4 * len(text)] for text in texts], dtype=np.float32)

    texts = ["a query", "an answer", "a query", "some other page"]  # one text twice
    task = Retrieval("find", {"test": Ranking(texts, [0, 1], [[1, 3], [3]])})
    counter = SimpleNamespace(count_tokens=lambda texts: [len(text.split()) for text in texts])
    student = Model(Identity(Kind.PARAGRAPH_VECTOR, name="a;b"), Embedder("a", "s", embed))
    run = SimpleNamespace(
        model=student,
        references=[],
        models=lambda: [student],
        scorer=SimpleNamespace(task={"find": task}.get),
        profile=SimpleNamespace(
            evaluation=SimpleNamespace(tasks=["find"]),
            structural_teacher=SimpleNamespace(max_tokens=256),
        ),
        teachers=SimpleNamespace(structural=counter),
    )
    neighbourhoods = neighbourhoods_of(run)
    pool = neighbourhoods.pool("find")
    assert pool.texts == ["a query", "an answer", "some other page"]
    assert pool.names == pool.texts  # they have no ids
    assert pool.lengths.tolist() == [2, 2, 3]
    assert pool.judge(0, 1) == "✓ relevant"
    np.testing.assert_allclose(pool.spaces["a, b"], [[0.6, 0.8]] * 3)
    assert neighbourhoods.pool("find") is pool
    assert sorted(asked) == sorted(pool.texts)
    assert neighbourhoods.embed("anything")["a, b"].tolist() == [24, 32]


def test_documents_are_named_by_their_ids_or_by_how_they_begin():
    long = " ".join(["many"] * 30)
    (written,) = Labelled([f"One\n two {long}"], ["a"]).ids
    (same,) = Labelled([f"One\n  two {long}"], ["a"]).ids
    texts = {"numpy/fft": "Fourier", written: f"One\n two {long}", same: f"One\n  two {long}"}
    first, second, third = names_of(texts)
    assert first == "numpy/fft"
    assert second.startswith("One two many")
    assert second.endswith("many …")
    assert third == f"{second} (3)"


IDS = ["a", "b", "c"]
LABELS = Labelled(["x", "y", "z"], ["in", "out", "in"], IDS)
PAIRS = LabelledPairs(["x"], ["y"], [1], ["a"], ["b"])
RANKED = Ranking(["x", "y", "z"], [0, 0], [[1], [1]], IDS)


@pytest.mark.parametrize(
    ("data", "query", "row", "expected"),
    [
        (LABELS, 0, 2, "✓ in"),
        (LABELS, 0, 1, "✗ out"),
        (LABELS, None, 1, "out"),
        (PAIRS, 0, 1, "pair: 1"),
        (PAIRS, 0, 2, ""),
        (RANKED, 0, 1, "✓ relevant"),
        (RANKED, 0, 2, "✗ not relevant"),
        (RANKED, 1, 0, ""),
    ],
)
def test_a_neighbour_is_judged_by_what_the_task_says(data, query, row, expected):
    assert judge_of(data, IDS)(query, row) == expected


@pytest.fixture
def browser(opened, pool, spaces):
    """The open browser, and the texts that were embedded."""
    asked = []

    def embed(text):
        asked.append(text)
        return {model: X[3] for model, X in spaces.items()}

    move = opened(neighbour_browser, Neighbourhoods(["find"], lambda task: pool, embed))
    return move, asked


def cells_of(answer):
    """The neighbours by rank, the lines of each in a list for each model."""
    rows = answer.page.find("table").find_all("tr")[1:]
    cells = [[cell.get_text().split("\n") for cell in row.find_all("td")] for row in rows]
    return [*zip(*cells, strict=True)]


def test_the_browser_shows_the_neighbours_of_the_chosen_document(browser, pool):
    move, _ = browser
    move(document=2)
    answer = move(neighbours=3)
    of_student = pool.neighbours(2, 3)["S+PV"].index
    for cells, cosines in zip(cells_of(answer), pool.neighbours(2, 3).values(), strict=True):
        for (about, name, value), (row, expected) in zip(cells, cosines.items(), strict=True):
            assert about == f"{judge(2, row)}, {pool.lengths[row]:,} tokens"
            assert name == pool.names[row]
            assert value == f"{expected:.3f}{' =' if row in of_student else ''}"
    assert not answer.page.find(["script", "img"])


def test_found_documents_are_offered_and_the_first_is_asked_for(browser):
    move, _ = browser
    assert move(find="PAGE 5").page.find("div").get_text().startswith("d5 ")
    assert [value for _, value in move.controls["document"].options] == [5]
    assert "no document of find contains" in move(find="<nowhere>").printed
    assert move(find="").page.find("div").get_text().startswith("d0 ")


def test_a_text_of_ones_own_has_neighbours_until_it_is_deleted(browser):
    move, _ = browser
    answer = move(**{"your text": "my <b>own</b> words"})
    assert cells_of(answer)[0][0][1].startswith("d3 ")
    assert "my <b>own</b> words" in answer.page.get_text()
    assert move(**{"your text": ""}).page.find("div").get_text().startswith("d0 ")
