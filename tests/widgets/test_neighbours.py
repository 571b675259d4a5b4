"""Neighbours in several spaces, against a loop over scipy's cosines."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import cosine

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation.tasks import Ranking, Retrieval
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.models import Model
from docemb_lib.student.explanation import Explanation
from docemb_lib.widgets import explanation_explorer, neighbour_browser
from docemb_lib.widgets.explorer import message
from docemb_lib.widgets.neighbours import Neighbourhoods, Pool

TEXTS = [f"text {row} of {'Graphs' if row % 2 else 'violins'}" for row in range(9)]


@pytest.fixture
def spaces():
    rng = np.random.default_rng(0)
    spaces = {"student": rng.standard_normal((9, 4)), "SBERT": rng.standard_normal((9, 3))}
    spaces["SBERT"][5] = 0  # an empty embedding
    return spaces


@pytest.mark.parametrize("row", [0, 5, 8])
def test_neighbours_are_those_of_a_loop_and_never_the_document_itself(spaces, row):
    for model, nearest in Pool(TEXTS, np.arange(9), spaces).neighbours(row, 4).items():
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
    pool = Pool(TEXTS, np.arange(9), spaces)
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
    assert [pool.find(words) for words in ("GRAPHS", "", "nowhere")] == [
        [1, 3, 5, 7],
        list(range(9)),
        [],
    ]


def test_a_task_becomes_a_pool_embedded_once(workspace):
    asked = []

    def embed(texts):
        asked.extend(texts)
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)

    texts = ["a query", "an answer", "a query", "some other page"]  # one text twice
    task = Retrieval("find", {"test": Ranking(texts, [0, 1], [[1, 3], [3]])})
    stages = SimpleNamespace(
        workspace=workspace,
        scores=SimpleNamespace(task={"find": task}.get),
        key=SimpleNamespace(profile=SimpleNamespace(evaluation=SimpleNamespace(tasks=["find"]))),
        teachers=SimpleNamespace(
            structural=SimpleNamespace(
                count_tokens=lambda texts: [len(text.split()) for text in texts]
            )
        ),
    )
    student = Model(Kind.STUDENT, Form.SAVED, "a", "s", embed)
    truncated = Model(Kind.SBERT_TRUNCATED, Form.SAVED, "", "t", embed)
    models = {"this student: a": student, "truncated": truncated}
    neighbourhoods = Neighbourhoods(stages, models)
    pool = neighbourhoods.pool("find")
    assert pool.texts == ["a query", "an answer", "some other page"]
    assert pool.lengths.tolist() == [2, 2, 3]
    assert sorted(asked) == sorted(pool.texts * 2)
    assert neighbourhoods.pool("find") is pool
    embedded = neighbourhoods.embed("anything at all")
    assert {model: y.tolist() for model, y in embedded.items()} == {
        "this student: a": [15, 1],
        "truncated": [15, 1],
    }


def test_the_neighbour_browser_shows_neighbours_of_a_document_and_of_a_text(tables, moved, hostile):
    rng = np.random.default_rng(0)
    spaces = {
        "student": rng.standard_normal((6, 4)),
        "SBERT over chunks": rng.standard_normal((6, 3)),
    }
    pool = Pool([f"page {n} {hostile}" for n in range(6)], np.arange(6), spaces)
    asked = []
    neighbourhoods = SimpleNamespace(
        tasks=["find"],
        models=spaces,
        pool=lambda task: pool,
        embed=lambda text: asked.append(text) or {model: X[3] for model, X in spaces.items()},
        explain=lambda a, b: pytest.fail("nothing asks why"),
    )
    explorer = neighbour_browser(neighbourhoods)

    def rows(text, model):
        return [
            int(re.search(r"(\d+): page", cell)[1]) for cell in tables(text)["neighbours"][model]
        ]

    text = moved(explorer, document=3, neighbours=3)
    assert "document 2, 2 tokens; 3 of 6 found" in text
    nearest = pool.neighbours(2, 3)
    for model, cosines in nearest.items():
        assert rows(text, model) == cosines.index.tolist()
    others = tables(text)["neighbours"]["SBERT over chunks"]
    assert (
        others.str.contains(" =").tolist()
        == nearest["SBERT over chunks"].index.isin(nearest["student"].index).tolist()
    )
    assert "<script" not in text
    assert "document 5, 5 tokens; 1 of 1 found" in moved(
        explorer, find="PAGE 5"
    )  # the last that is found
    assert "no document of find contains" in moved(explorer, find="<nowhere>")
    text = moved(explorer, **{"your text": "my <b>own</b> words"})
    assert rows(text, "student")[0] == 3
    assert "<b>own" not in text
    moved(explorer, neighbours=2)
    assert asked == ["my <b>own</b> words"]  # embedded once


@pytest.fixture
def explained(spaces, hostile):
    """Documents whose explanations link their only passages; and the pairs that were asked for."""
    pool = Pool([f"page {n} {hostile}" for n in range(9)], np.arange(9), spaces)
    asked = []

    def explain(first, second):
        asked.append((first, second))
        spans = tuple(np.array([[0, len(text)]]) for text in (first, second))
        return Explanation(0.3, np.array([[0.2]]), spans, {hostile: 0.1})

    def embed(text):
        return {model: X[3] for model, X in spaces.items()}

    documents = SimpleNamespace(
        tasks=["find"], pool=lambda task: pool, embed=embed, explain=explain
    )
    return documents, asked


LINE = "cosine 0.300: 33 % words, 67 % meaning, of it 100 % between passages 1 and 1"


def test_one_click_shows_why_a_neighbour_is_near(explained, moved):
    documents, asked = explained
    explorer = neighbour_browser(documents)
    assert LINE not in moved(explorer, document=3)
    text = moved(explorer, why=2)
    pool = documents.pool("find")
    second = pool.neighbours(2, 2)["student"].index[1]
    assert asked == [(pool.texts[2], pool.texts[second])]
    assert LINE in text
    assert "<script" not in text
    moved(explorer, **{"your text": "my own words"})
    assert asked[1] == (
        "my own words",
        pool.texts[
            pool.neighbours({m: X[3] for m, X in pool.directions.items()}, 2)["student"].index[1]
        ],
    )


def test_why_is_asked_once_for_a_pair(explained, moved):
    documents, asked = explained
    explorer = neighbour_browser(documents)
    for why in (1, 0, 1):
        moved(explorer, why=why)
    assert len(asked) == 1


def test_the_explorer_sets_a_document_beside_a_neighbour_of_any_model(explained, moved):
    documents, asked = explained
    text = moved(explanation_explorer(documents), first=4, rank=3, **{"near by": "SBERT"})
    pool = documents.pool("find")
    nearest = pool.neighbours(3, 8)
    other = nearest["SBERT"].index[2]
    assert asked[-1] == (pool.texts[3], pool.texts[other])
    rank = nearest["student"].index.tolist().index(other) + 1
    assert f"student {nearest['student'][other]:.3f} (neighbour {rank})" in text
    assert f"SBERT {nearest['SBERT'][other]:.3f} (neighbour 3)" in text


def test_a_student_that_cannot_explain_says_so_in_one_line(explained, moved):
    documents, _ = explained

    def explain(first, second):
        raise InputError("pooling 'cls' is no mean")

    documents.explain = explain
    assert moved(explanation_explorer(documents)) == message("pooling 'cls' is no mean")
