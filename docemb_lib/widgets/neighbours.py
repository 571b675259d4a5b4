"""Nearest documents of a task in the embedding spaces of several models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from html import escape
from textwrap import shorten
from typing import Any, NamedTuple

import ipywidgets
import numpy as np
import pandas as pd
from IPython.display import HTML

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation.retrieval import unit
from docemb_lib.evaluation.tasks import (
    Labelled,
    LabelledPairs,
    Ranking,
    documents_of,
    ids_of_texts,
)
from docemb_lib.figures.names import short_names
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.run import Run
from docemb_lib.widgets.explorer import explore

POOL = 2000  # most texts of a task
RANKS = 10  # most neighbours of a document
LONGEST = 4000  # characters of a document that are shown
NAME = 60  # characters of a text without an id that name it
BESIDE = [(kind, Form.SAVED) for kind in (Kind.SBERT_TRUNCATED, Kind.SBERT_CHUNKS, Kind.PV)]
CAPTION = "what the task says, tokens; name; cosine, = is a neighbour in the student's space, too"
RIGHT = "✓ "
WRONG = "✗ "
# Translucent, so that texts are legible on light and dark pages.
COLOURS = {RIGHT: "rgba(49, 130, 206, 0.35)", WRONG: "rgba(221, 107, 32, 0.35)"}
BOX = "white-space: pre-wrap; max-height: 16em; overflow: auto; border: 1px solid #999;"

# What a task says of a row (the second number) as a neighbour of another, or of None, a written
# text; it begins with RIGHT or WRONG where the task can tell.
Judge = Callable[[int | None, int], str]
Embeddings = Mapping[str, np.ndarray]  # by model


class Pool(NamedTuple):
    """N documents with their lengths and their embeddings by several models."""

    texts: Sequence[str]
    lengths: np.ndarray  # (N,), tokens
    spaces: Embeddings  # (N, ·) each, of unit length, the student's first
    names: Sequence[str]  # N different ones
    judge: Judge

    def find(self, words: str) -> dict[str, int]:
        """Return the rows whose name or text contains `words`, in any case, by name."""
        words = words.lower()
        rows = {}
        for row, (name, text) in enumerate(zip(self.names, self.texts, strict=True)):
            if words in text.lower() or words in name.lower():
                rows[name] = row
        return rows

    def neighbours(self, query: int | Embeddings, k: int) -> dict[str, pd.Series]:
        """Return the cosines of the k nearest documents, by model and row.

        The nearest is first; ties are in row order. query: a row, which is left out, or a text's
        embedding (·,) by model.
        """
        nearest: dict[str, pd.Series] = {}
        for model, X in self.spaces.items():
            y = X[query] if isinstance(query, int) else unit(query[model][None])[0]
            cosines = pd.Series(X @ y.astype(X.dtype))
            if isinstance(query, int):
                cosines = cosines.drop(query)
            nearest[model] = cosines.sort_values(ascending=False, kind="stable").head(k)
        return nearest


class Neighbourhoods(NamedTuple):
    """The documents of tasks, and the embeddings of further texts."""

    tasks: Sequence[str]
    pool: Callable[[str], Pool]  # of a task
    embed: Callable[[str], Embeddings]  # of a text, (·,)


def neighbourhoods_of(run: Run) -> Neighbourhoods:
    """Return the student beside the structural teacher in both forms and the Paragraph Vectors.

    The documents of a task are the first `POOL` of its test split, queries first, as they were
    scored; each task is read at the first use. The first further text loads the models.
    """
    models = [run.model]
    models += [model for model in run.references if model.identity[:2] in BESIDE]
    names = short_names(run)

    def pool(task: str) -> Pool:
        data = run.scorer.task(task).splits["test"]
        text_of = documents_of(task, data)
        queries = [data.ids[row] for row in data.queries] if isinstance(data, Ranking) else []
        ids = list(dict.fromkeys([*queries, *text_of]))[:POOL]
        documents = {id: text_of[id] for id in ids}
        texts = list(documents.values())
        spaces = {names[model.label]: unit(model.embed(texts)) for model in models}
        lengths = np.asarray(run.teachers.structural.count_tokens(texts))
        return Pool(texts, lengths, spaces, names_of(documents), judge_of(data, ids))

    def embed(text: str) -> Embeddings:
        return {names[model.label]: model.embed([text])[0] for model in models}

    return Neighbourhoods(list(run.profile.evaluation.tasks), cache(pool), cache(embed))


def names_of(documents: Mapping[str, str]) -> list[str]:
    """Return ids or, of documents without ids of their own, how they begin; all different.

    documents: texts by id.
    """
    names: dict[str, str] = {}
    for id, text in documents.items():
        name = id
        if id == ids_of_texts([text])[0]:
            name = shorten(text[: 8 * NAME], NAME, placeholder=" …")
        names[f"{name} ({len(names) + 1})" if name in names else name] = id
    return list(names)


def judge_of(data: Labelled | LabelledPairs | Ranking, ids: Sequence[str]) -> Judge:
    """Return what a split says of neighbours: equal labels, the label of a pair, or relevance.

    ids: of the rows that are judged.
    """
    label_of: dict[str, str] = {}
    said: dict[tuple[str, str], str] = {}  # of a document and its neighbour
    queries: set[str] = set()
    if isinstance(data, Labelled):
        label_of = dict(zip(data.ids, map(str, data.labels), strict=True))
    elif isinstance(data, LabelledPairs):
        for first, second, label in zip(data.first_ids, data.second_ids, data.labels, strict=True):
            said[first, second] = f"pair: {label}"
            said[second, first] = f"pair: {label}"
    else:
        queries = {data.ids[query] for query in data.queries}
        for query, rows in zip(data.queries, data.relevant, strict=True):
            for row in rows:
                said[data.ids[query], data.ids[row]] = f"{RIGHT}relevant"

    def judge(query: int | None, row: int) -> str:
        label = label_of.get(ids[row], "")
        if query is None:
            return label
        if label:
            return (RIGHT if label_of[ids[query]] == label else WRONG) + label
        otherwise = f"{WRONG}not relevant" if ids[query] in queries else ""
        return said.get((ids[query], ids[row]), otherwise)

    return judge


def neighbour_browser(neighbourhoods: Neighbourhoods) -> ipywidgets.VBox | None:
    """Compare the neighbours of a document by model, and see whether they are right.

    Choose a document of a task (`find` filters by words), or write a text. The first text that is
    written loads models, which takes seconds.
    """
    wide = {"width": "98%"}
    tasks = neighbourhoods.tasks
    find = ipywidgets.Text(continuous_update=False)
    document = ipywidgets.Dropdown(layout=wide)
    task_menu = ipywidgets.Dropdown(options=tasks)

    def offer(_: object = None) -> None:
        found = neighbourhoods.pool(task_menu.value).find(find.value)
        document.options = list(found.items())
        document.index = 0 if found else None

    offer()
    for control in (task_menu, find):
        control.observe(offer, names="value")

    def answer(
        task: str, find: str, document: int | None, neighbours: int, text: str
    ) -> Iterable[Any]:
        pool = neighbourhoods.pool(task)
        query: int | Embeddings
        if text.strip():
            document = None
            head = "your text, instead of a document"
            query = neighbourhoods.embed(text)
        elif document is None:
            raise InputError(f"no document of {task} contains “{find}”; search for other words")
        else:
            text = pool.texts[document]
            head = f"{pool.names[document]}, {_about(pool, None, document)}"
            query = document
        shown = escape(f"{head}\n\n{text[:LONGEST]}{' …' if len(text) > LONGEST else ''}")
        table = _table(pool, pool.neighbours(query, neighbours), document)
        return HTML(f'<div style="{BOX}">{shown}</div>'), table

    return explore(
        answer,
        task=task_menu,
        find=find,
        document=document,
        neighbours=ipywidgets.IntSlider(5, min=1, max=RANKS),
        text=ipywidgets.Textarea(description="your text", continuous_update=False, layout=wide),
    )


def _about(pool: Pool, query: int | None, row: Any) -> str:
    """Return what the task says of a document, and its tokens."""
    return ", ".join(filter(None, [pool.judge(query, row), f"{pool.lengths[row]:,} tokens"]))


def _table(pool: Pool, nearest: Mapping[str, pd.Series], query: int | None) -> Any:
    """Return the nearest documents in a column per model; = marks those of the student's space.

    query: the row of the document that they are near to.
    """
    of_student = set(next(iter(nearest.values())).index)
    columns: dict[str, list[str]] = {}
    for model, cosines in nearest.items():
        for row, cosine in zip(cosines.index, cosines, strict=True):
            mark = " =" if row in of_student else ""
            cell = f"{_about(pool, query, row)}\n{pool.names[row]}\n{cosine:.3f}{mark}"
            columns.setdefault(model, []).append(cell)

    def colour(cell: Any) -> str:
        return f"background: {COLOURS.get(cell[:2], 'none')}"

    look = {"white-space": "pre-wrap", "overflow-wrap": "anywhere"}
    look |= {"text-align": "left", "vertical-align": "top"}
    style = pd.DataFrame(columns).style.hide().format(escape="html").set_caption(CAPTION)
    return style.set_properties(None, **look).map(colour)
