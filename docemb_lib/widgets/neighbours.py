"""Neighbour browser: what lies near a document in the space of each model, beside each other."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from docemb_lib.figures.results import plot_by_length
from docemb_lib.widgets import html
from docemb_lib.widgets.controls import Choice, Control, Options, Slider, Words
from docemb_lib.widgets.explorer import Answer, Explorer

if TYPE_CHECKING:
    from docemb_lib.experiments.neighbourhoods import Neighbourhoods, Neighbours, Pool

SNIPPET = 90  # characters of a neighbour
LISTED = 50  # documents to choose from at a time


def neighbour_browser(neighbourhoods: Neighbourhoods, by_length: pd.DataFrame) -> Explorer:
    """Pick a task and one of its documents (`find` keeps those with some words), or write a text of your own; beneath
    stand its neighbours by cosine, their lengths, and how many each model shares with the student.

    by_length: see `scores_by_length`; drawn for the task. A text of your own loads the models first, which takes
    seconds.
    """
    from docemb_lib.experiments.neighbourhoods import in_common

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
