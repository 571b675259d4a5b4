"""The neighbour browser: nearest documents of a task in the embedding spaces of several models."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from docemb_lib.evaluation.retrieval import unit
from docemb_lib.evaluation.tasks import pick
from docemb_lib.figures import short, short_name
from docemb_lib.runs.models import SBERT_LABELS, Model, contextual_labels, embed_once
from docemb_lib.runs.pipeline import Stages
from docemb_lib.runs.run import Run
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer, choice, slider, text_field

POOL = 2000  # most texts of a task
OFFERED = 50  # documents that a slider reaches; `find` chooses others


class Pool:
    """N documents, their lengths (N,) in structural tokens, and embeddings (N, ·) by model, the
    student's first.
    """

    def __init__(
        self, texts: Sequence[str], lengths: np.ndarray, spaces: Mapping[str, np.ndarray]
    ) -> None:
        self.texts, self.lengths = list(texts), lengths
        # Computed once, because a slider asks many times: texts in lower case, and embeddings of
        # unit length.
        self.lowered = [text.lower() for text in texts]
        self.directions = {model: unit(X).astype(np.float32) for model, X in spaces.items()}

    def find(self, words: str) -> list[int]:
        """The rows whose text contains `words`, in any case; all rows for an empty text."""
        return [row for row, text in enumerate(self.lowered) if words.lower() in text]

    def neighbours(self, query: int | Mapping[str, np.ndarray], k: int) -> dict[str, pd.Series]:
        """By model the cosines of the k nearest documents, by row, nearest first; ties in row
        order.

        query: a row, which is left out, or a text's embedding (·,) by model.
        """
        found = {}
        for model, X in self.directions.items():
            y = X[query] if isinstance(query, int) else unit(query[model][None])[0]
            cosines = pd.Series((X @ y.astype(np.float32)).astype(np.float64))
            others = cosines.drop(query) if isinstance(query, int) else cosines
            found[model] = others.sort_values(ascending=False, kind="stable").head(k)
        return found


class Neighbourhoods:
    """The tasks of a profile as pools, each built at the first use, and the models, which embed
    further texts.

    models: by their short names, that of the run first.
    """

    def __init__(self, stages: Stages, models: Sequence[Model]) -> None:
        self.stages, self.models = (
            stages,
            {short_name(model.label, models[0].label): model for model in models},
        )
        self.tasks = list(stages.key.profile.evaluation.tasks)
        self.pool = cache(self._pool)

    def _pool(self, task: str) -> Pool:
        """The first `POOL` texts of the test split, with the embeddings that were scored."""
        data: Any = pick(task, self.stages.scores.task(task).splits, "test")
        texts = list(dict.fromkeys(data.texts))[:POOL]
        spaces = {
            label: embed_once(self.stages.workspace, model, texts)
            for label, model in self.models.items()
        }
        return Pool(texts, np.asarray(self.stages.teachers.structural.count_tokens(texts)), spaces)

    def embed(self, text: str) -> dict[str, np.ndarray]:
        """The embedding (·,) of a text by each model. Models are loaded once; embeddings are not
        stored.
        """
        return {label: model.embed([text])[0] for label, model in self.models.items()}


def neighbourhoods_of(run: Run) -> Neighbourhoods:
    """The student, the structural teacher in both forms and the Paragraph Vectors side by side."""
    shown = [model for model in run.references if model.label in SBERT_LABELS]
    names, contextual = contextual_labels(run.profile), run.stages.teachers.contextual
    pv = (model for model in run.references if names.get(model.label) == "PV")
    shown += [
        model._replace(embed=contextual("PV").embed) for model in pv
    ]  # its own stores what its members embed
    return Neighbourhoods(run.stages, [run.model, *shown])


def neighbour_browser(neighbourhoods: Neighbourhoods) -> Explorer:
    """Choose a document of a task (`find` filters by words) or write a text, and compare the
    neighbours by model.

    The first text that is written loads the models, which takes seconds.
    """
    embed = cache(neighbourhoods.embed)

    def answer(task: str, find: str, place: int, neighbours: int, own: str) -> Answer:
        pool = neighbourhoods.pool(task)
        if own.strip():
            found, query = pool.neighbours(embed(own), neighbours), html.document("your text", own)
        elif rows := pool.find(find):
            row = rows[min(place, len(rows)) - 1]
            title = f"document {row}, {pool.lengths[row]} tokens; {min(place, len(rows))} of {len(rows)} found"
            found, query = pool.neighbours(row, neighbours), html.document(title, pool.texts[row])
        else:
            return Answer(
                html.message(f"no document of {task} contains “{find}”; search for other words")
            )
        return Answer(_beside_each_other(pool, found) + query)

    tasks = neighbourhoods.tasks
    controls = {
        "task": choice(dict(zip(tasks, tasks, strict=True)), tasks[0]),
        "find": text_field("words of a document, then the return key"),
        "document": slider(1, OFFERED, 1, 1),
        "neighbours": slider(1, 10, 1, 5),
        "your text": text_field("any text; empty: the document above", lines=3),
    }
    return Explorer(controls, answer)


def _beside_each_other(pool: Pool, found: dict[str, pd.Series]) -> str:
    """A column per model, a row per rank; the neighbours in the student's space too are marked."""
    first = next(iter(found.values()))

    def cell(row: int, cosine: float) -> str:
        mark, begin = " =" if row in first.index else "", " ".join(pool.texts[row][:400].split())
        return f"{cosine:.3f}{mark} · {pool.lengths[row]} tokens · {row}: {short(begin, 90)}"

    columns = {
        model: [cell(*one) for one in zip(own.index, own, strict=True)]
        for model, own in found.items()
    }
    note = "cosine · length · document; =: neighbour in the student's space too"
    return html.table("neighbours", pd.DataFrame(columns)) + f"<p>{note}</p>"
