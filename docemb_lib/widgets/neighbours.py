"""The neighbour browser: nearest documents of a task in the embedding spaces of several models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from docemb_lib.evaluation.retrieval import unit
from docemb_lib.evaluation.tasks import Ranking, pick
from docemb_lib.experiments.models import SBERT_LABELS, Model, contextual_labels, embed_once
from docemb_lib.experiments.run import Run, Stages
from docemb_lib.figures import short_name
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer, Options, choice, slider, text_field

POOL = 2000  # most texts of a task
PV = "PV"
LISTED = 50  # documents in the list


class Neighbours(NamedTuple):
    rows: np.ndarray  # (k,), nearest first
    cosines: np.ndarray  # (k,)


@dataclass
class Pool:
    texts: list[str]  # N documents
    lengths: np.ndarray  # (N,), tokens of the structural teacher
    spaces: Mapping[str, np.ndarray]  # embeddings (N, ·) by model, those of the student first
    relevant: dict[int, list[int]] = field(default_factory=dict)  # rows by row, of a retrieval task

    @cached_property
    def lowered(self) -> list[str]:
        return [text.lower() for text in self.texts]

    def find(self, words: str) -> list[int]:
        """The rows whose text contains `words`, in any case; all rows for an empty text."""
        return [row for row, text in enumerate(self.lowered) if words.lower() in text]

    @cached_property
    def directions(self) -> dict[str, np.ndarray]:
        """Embeddings of unit length by model, computed once: a slider asks many times."""
        return {model: unit(X).astype(np.float32) for model, X in self.spaces.items()}

    def neighbours(self, row: int, k: int) -> dict[str, Neighbours]:
        """Neighbours of a document of the pool by model, without the document itself."""
        return self.neighbours_of({model: X[row] for model, X in self.directions.items()}, k, without=row)

    def neighbours_of(
        self, embeddings: Mapping[str, np.ndarray], k: int, *, without: int = -1
    ) -> dict[str, Neighbours]:
        """The k nearest rows by cosine of a text with these embeddings, (·,), by model; ties in row order."""
        found = {}
        for model, y in embeddings.items():
            cosines = (self.directions[model] @ unit(y[None])[0].astype(np.float32)).astype(np.float64)
            order = np.argsort(-cosines, kind="stable")
            rows = order[order != without][:k]
            found[model] = Neighbours(rows, cosines[rows])
        return found


class Neighbourhoods:
    """The tasks of a profile as pools, each built at the first use, and the models, which embed further texts.

    models: by their short names, that of the run first.
    """

    def __init__(self, stages: Stages, models: Sequence[Model]) -> None:
        self.stages, self.models = stages, {short_name(model.label, models[0].label): model for model in models}
        self.tasks = list(stages.key.profile.evaluation.tasks)
        self.pool = cache(self._pool)

    def _pool(self, task: str) -> Pool:
        """The first `POOL` texts of the test split, with the embeddings that were scored."""
        data: Any = pick(task, self.stages.scores.tasks[task].splits, "test")
        texts = list(dict.fromkeys(data.texts))[:POOL]
        spaces = {label: embed_once(self.stages.workspace, model, texts) for label, model in self.models.items()}
        lengths = np.asarray(self.stages.teachers.structural.count_tokens(texts))
        row_of, relevant = {text: row for row, text in enumerate(texts)}, {}
        if isinstance(data, Ranking):
            for query, rows in zip(data.queries, data.relevant, strict=True):
                if (own := row_of.get(data.texts[query])) is not None:
                    relevant[own] = [row_of[data.texts[row]] for row in rows if data.texts[row] in row_of]
        return Pool(texts, lengths, spaces, relevant)

    def embed(self, text: str) -> dict[str, np.ndarray]:
        """The embedding (·,) of a text by each model. Models are loaded once; embeddings are not stored."""
        return {label: model.embed([text])[0] for label, model in self.models.items()}


def neighbourhoods_of(run: Run) -> Neighbourhoods:
    """The student, the structural teacher in both forms and the Paragraph Vectors side by side."""
    shown = [model for model in run.references if model.label in SBERT_LABELS]
    pv = {label for label, name in contextual_labels(run.profile).items() if name == PV}
    # Not the model's own `embed`, which stores what its members embed.
    of_teacher = run.stages.teachers.contextual
    shown += [model._replace(embed=of_teacher(PV).embed) for model in run.references if model.label in pv]
    return Neighbourhoods(run.stages, [run.model, *shown])


def neighbour_browser(neighbourhoods: Neighbourhoods) -> Explorer:
    """Choose a document of a task (`find` filters by words) or write a text, and compare the neighbours by model.

    The first text that is written loads the models, which takes seconds.
    """
    embed = cache(neighbourhoods.embed)

    def choices(task: str, find: str, *_: Any) -> dict[str, Options]:
        pool = neighbourhoods.pool(task)
        return {"document": [(f"{row}: {html.snippet(pool.texts[row], 70)}", row) for row in pool.find(find)[:LISTED]]}

    def answer(task: str, find: str, document: int | None, neighbours: int, own: str) -> Answer:
        pool = neighbourhoods.pool(task)
        if own.strip():
            found, relevant = pool.neighbours_of(embed(own), neighbours), []
            query = html.document("your text", own)
        elif document is None:
            return Answer(html.message(f"no document of {task} contains “{find}”; search for other words"))
        else:
            found, relevant = pool.neighbours(document, neighbours), pool.relevant.get(document, [])
            query = html.document(f"document {document}, {pool.lengths[document]} tokens", pool.texts[document])
            if (matches := len(pool.find(find))) > LISTED:
                query = f"<p>the first {LISTED} of {matches} documents are listed; find others by words</p>{query}"
        return Answer(_beside_each_other(pool, found, relevant) + query)

    controls = {
        "task": choice([(name, name) for name in neighbourhoods.tasks]),
        "find": text_field("words of a document, then the return key"),
        "document": choice([], wide=True),
        "neighbours": slider(1, 10, 1, 5),
        "your text": text_field("any text; empty: the document above", lines=3),
    }
    return Explorer(controls, answer, choices=choices)


def _beside_each_other(pool: Pool, found: dict[str, Neighbours], relevant: list[int]) -> str:
    """A column per model, a row per rank, with marks; below, how many neighbours the models share."""
    (_, first), *others = found.items()

    def cell(row: int, cosine: float) -> str:
        marks = " =" * (row in first.rows) + " ✓" * (row in relevant)
        return f"{cosine:.3f}{marks} · {pool.lengths[row]} tokens · {row}: {html.snippet(pool.texts[row], 90)}"

    columns = {model: [cell(*pair) for pair in zip(*own, strict=True)] for model, own in found.items()}
    shared = {model: len(np.intersect1d(first.rows, own.rows)) for model, own in others}
    counts = [f"{html.escape(model)}: {html.number('common', count)}" for model, count in shared.items()]
    note = "cosine · length · document; =: neighbour in the student's space too; ✓: relevant to the document"
    shares = f"of {len(first.rows)} neighbours shared with the student: {', '.join(counts)}"
    return html.table("neighbours", pd.DataFrame(columns)) + f"<p>{note}</p><p>{shares}</p>"
