"""Neighbours in several spaces, against a loop over scipy's cosines."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.spatial.distance import cosine

from docemb_lib.evaluation.tasks import Ranking, Retrieval
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.models import Model
from docemb_lib.widgets import neighbour_browser
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
