"""The documents of a task in the spaces of several models: who is whose neighbour, in each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from docemb_lib.errors import InputError
from docemb_lib.evaluation.retrieval import unit
from docemb_lib.evaluation.tasks import Embedder, Ranking, pick
from docemb_lib.experiments.models import SBERT_LABELS, Model, SideBySide, contextual_labels, embed_once
from docemb_lib.experiments.run import Run, Stages
from docemb_lib.figures.results import plot_by_length
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Choice, Control, Explorer, Options, Slider, Words

# ---- the documents of a task in the spaces of several models


POOL = 2000  # texts of a task at most
PV = "PV"


class Neighbours(NamedTuple):
    """The nearest documents of one query in one space, nearest first."""

    rows: np.ndarray  # (k,)
    cosines: np.ndarray  # (k,)


class Pool:
    """Documents to look among, and what every model makes of them.

    texts: N; lengths: (N,) tokens of the structural teacher; spaces: (N, ·) embeddings by model, the student's first;
    relevant: rows that belong to a row, of a retrieval task.
    """

    def __init__(
        self,
        texts: Sequence[str],
        lengths: np.ndarray,
        spaces: Mapping[str, np.ndarray],
        relevant: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.texts, self.lengths = list(texts), np.asarray(lengths)
        self.directions = {model: unit(X).astype(np.float32) for model, X in spaces.items()}
        self.relevant = dict(relevant or {})

    @cached_property
    def lowered(self) -> list[str]:
        return [text.lower() for text in self.texts]

    def find(self, words: str) -> list[int]:
        """The rows whose text holds these words, in whatever case; all rows where nothing is asked."""
        wanted = words.lower()
        return [row for row, text in enumerate(self.lowered) if wanted in text]

    def neighbours(self, row: int, k: int) -> dict[str, Neighbours]:
        """Of a document of the pool, by model; never itself."""
        return {model: _nearest(X, X[row], k, without=row) for model, X in self.directions.items()}

    def neighbours_of(self, embeddings: Mapping[str, np.ndarray], k: int) -> dict[str, Neighbours]:
        """Of any text, by its embedding (·,) in each model."""
        return {model: _nearest(self.directions[model], unit(y[None])[0], k) for model, y in embeddings.items()}


def _nearest(directions: np.ndarray, query: np.ndarray, k: int, *, without: int | None = None) -> Neighbours:
    """The k nearest rows of (N, D) unit vectors by cosine, equal ones by row."""
    cosines = (directions @ query.astype(np.float32)).astype(np.float64)
    if without is not None:
        cosines[without] = -np.inf
    rows = np.argsort(-cosines, kind="stable")[: min(k, len(cosines) - (without is not None))]
    return Neighbours(rows, cosines[rows])


def in_common(found: Mapping[str, Neighbours]) -> dict[str, int]:
    """How many neighbours each model shares with the first one."""
    first = next(iter(found.values())).rows
    return {model: len(np.intersect1d(first, own.rows)) for model, own in found.items()}


class Neighbourhoods:
    """The tasks of a profile as pools, each made when it is first asked for; and the models to embed further texts."""

    def __init__(self, stages: Stages, models: Sequence[Model]) -> None:
        self.stages, self.models = stages, {model.label: model for model in models}
        self.tasks = list(stages.key.profile.evaluation.tasks)
        self._pools: dict[str, Pool] = {}
        self._loaded: dict[str, Embedder] = {}

    def pool(self, task: str) -> Pool:
        """At most the first `POOL` texts of the task's test split, as they were embedded for its scores."""
        if task not in self._pools:
            data: Any = pick(task, self.stages.scores.tasks[task].splits, "test")
            texts = list(dict.fromkeys(data.texts))[:POOL]
            row_of = {text: row for row, text in enumerate(texts)}
            spaces = {m.label: embed_once(self.stages.workspace, m, texts) for m in self.models.values()}
            lengths = np.asarray(self.stages.teachers.structural.count_tokens(texts))
            self._pools[task] = Pool(texts, lengths, spaces, _relevant(data, row_of))
        return self._pools[task]

    def embed(self, text: str) -> dict[str, np.ndarray]:
        """The embedding (·,) of any text by every model. Models are loaded once; nothing is stored."""
        if not text.strip():
            raise InputError("your text: it is blank; write some words")
        return {label: self._embedder(label).embed([text])[0] for label in self.models}

    def _embedder(self, label: str) -> Embedder:
        if label not in self._loaded:
            loaded = self.models[label].load()
            stored = isinstance(loaded, SideBySide)  # it would store what it embeds
            self._loaded[label] = self.stages.teachers.contextual(PV) if stored else loaded
        return self._loaded[label]


def neighbourhoods_of(run: Run) -> Neighbourhoods:
    """The student, the structural teacher in both forms and the Paragraph Vectors side by side."""
    shown = {*SBERT_LABELS, *(label for label, name in contextual_labels(run.profile).items() if name == PV)}
    return Neighbourhoods(run.stages, [run.model, *(model for model in run.references if model.label in shown)])


def _relevant(data: Any, row_of: Mapping[str, int]) -> dict[int, list[int]]:
    if not isinstance(data, Ranking):
        return {}
    pairs = zip(data.queries, data.relevant, strict=True)
    found = {data.texts[query]: [data.texts[row] for row in rows] for query, rows in pairs}
    return {
        row_of[query]: [row_of[text] for text in texts if text in row_of]
        for query, texts in found.items()
        if query in row_of
    }


# ---- neighbour browser


SNIPPET = 90  # characters of a neighbour
LISTED = 50  # documents to choose from at a time


def neighbour_browser(neighbourhoods: Neighbourhoods, by_length: pd.DataFrame) -> Explorer:
    """Pick a task and one of its documents (`find` keeps those with some words), or write a text of your own; beneath
    stand its neighbours by cosine, their lengths, and how many each model shares with the student.

    by_length: see `scores_by_length`; drawn for the task. A text of your own loads the models first, which takes
    seconds.
    """

    asked = cache(neighbourhoods.embed)
    drawn = cache(lambda task: _by_length(by_length, task, list(neighbourhoods.models)))

    def choices(task: str, find: str, document: int | None, neighbours: int, own: str) -> dict[str, Options]:
        pool = neighbourhoods.pool(task)
        return {"document": [(f"{row}: {_snippet(pool.texts[row], 70)}", row) for row in pool.find(find)[:LISTED]]}

    def answer(task: str, find: str, document: int | None, neighbours: int, own: str) -> Answer:
        pool = neighbourhoods.pool(task)
        if own.strip():
            found, relevant = pool.neighbours_of(asked(own), neighbours), []
            query = html.document("your text", own)
        elif document is None:
            return Answer(html.message(f"no document of {task} holds “{find}”; write other words"))
        else:
            found, relevant = pool.neighbours(document, neighbours), list(pool.relevant.get(document, []))
            query = html.document(f"document {document}, {pool.lengths[document]} tokens", pool.texts[document])
            if (found_in := len(pool.find(find))) > LISTED:
                query = (
                    f"<p>the first {LISTED} of {found_in} documents are listed; find others by their words</p>" + query
                )
        return Answer(
            query + _beside_each_other(pool, found, relevant) + _common(in_common(found), neighbours),
            drawn(task),
            f"scores on {task} by length of document",
        )

    tasks = [(name, name) for name in neighbourhoods.tasks]
    controls: dict[str, Control] = {
        "task": Choice(tasks),
        "find": Words(placeholder="words that a document holds, then the return key"),
        "document": Choice([]),
        "neighbours": Slider(1, 10, 1, 5),
        "your text": Words(lines=3, placeholder="or a text of your own; empty: the document above"),
    }
    return Explorer(controls, answer, choices=choices)


def _beside_each_other(pool: Pool, found: dict[str, Neighbours], relevant: list[int]) -> str:
    """A column per model, a line per rank; what the student has too is bold, what belongs to the query has a tick."""
    first = set(next(iter(found.values())).rows.tolist())
    rows = []
    for rank, places in enumerate(zip(*(own.rows.tolist() for own in found.values()), strict=True)):
        cells = []
        for (model, own), row in zip(found.items(), places, strict=True):
            tick = " ✓" if row in relevant else ""
            weight = "bold" if row in first else "normal"
            cells.append(
                f'<td class="docemb-neighbour" data-model="{html.escape(model)}" data-row="{row}" '
                f'style="{html.CELL} max-width: 260px; font-weight: {weight};">{own.cosines[rank]:.3f}{tick} · '
                f"{pool.lengths[row]} tokens<br>{html.escape(_snippet(pool.texts[row], SNIPPET))}</td>"
            )
        rows.append(html.row(cells))
    note = "bold: among the student's; ✓: belongs to the document; each with its cosine and its length"
    return html.table("neighbours", list(found), rows) + f"<p>{note}</p>"


def _common(common: dict[str, int], neighbours: int) -> str:
    said = [
        f'{html.escape(model)}: <b class="docemb-common" data-model="{html.escape(model)}">{count}</b>'
        for model, count in common.items()
    ]
    return f"<p>of {neighbours} neighbours shared with the student: {', '.join(said[1:])}</p>"


def _by_length(by_length: pd.DataFrame, task: str, models: list[str]) -> Figure | None:
    rows = by_length[by_length["model"].isin(models) & (by_length["task"] == task)]
    if rows.empty:
        return None
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    plot_by_length(rows, task=task, ax=figure.subplots())
    return figure


def _snippet(text: str, most: int) -> str:
    """The beginning of a text on one line."""
    words = " ".join(text[: 4 * most].split())
    return words if len(words) <= most else words[: most - 1] + "…"
