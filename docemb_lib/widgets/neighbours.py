"""Nearest documents of a task in the embedding spaces of several models, and why they are near."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from html import escape
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pandas as pd

from docemb_lib.evaluation.retrieval import unit
from docemb_lib.evaluation.tasks import documents_of
from docemb_lib.figures import short, short_names
from docemb_lib.runs.embeddings import embed_once
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.models import Model
from docemb_lib.runs.pipeline import Stages
from docemb_lib.runs.run import Run
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explanations import MARKS, side_by_side
from docemb_lib.widgets.explorer import Answer, Explorer, buttons, choice, slider, text_field

if TYPE_CHECKING:
    from docemb_lib.student import Student
    from docemb_lib.student.explanation import Explanation

POOL = 2000  # most texts of a task
OFFERED = 50  # documents that a slider reaches; `find` chooses others
RANKS = 10  # most neighbours of a document


class Pool:
    """N documents with their lengths and their embeddings by several models.

    lengths: (N,), structural tokens; spaces: embeddings (N, ·) by model, the student's first.
    """

    def __init__(
        self, texts: Sequence[str], lengths: np.ndarray, spaces: Mapping[str, np.ndarray]
    ) -> None:
        self.texts = list(texts)
        self.lengths = lengths
        # Computed once, because a slider asks many times: texts in lower case, and embeddings of
        # unit length.
        self.lowered = [text.lower() for text in texts]
        self.directions = {model: unit(X).astype(np.float32) for model, X in spaces.items()}

    def find(self, words: str) -> list[int]:
        """The rows whose text contains `words`, in any case; all rows for an empty text."""
        return [row for row, text in enumerate(self.lowered) if words.lower() in text]

    def neighbours(self, query: int | Mapping[str, np.ndarray], k: int) -> dict[str, pd.Series]:
        """The cosines of the k nearest documents, by model and row.

        The nearest is first; ties are in row order. query: a row, which is left out, or a text's
        embedding (·,) by model.
        """
        nearest = {}
        for model, X in self.directions.items():
            y = X[query] if isinstance(query, int) else unit(query[model][None])[0]
            cosines = pd.Series((X @ y.astype(np.float32)).astype(np.float64))
            if isinstance(query, int):
                cosines = cosines.drop(query)
            nearest[model] = cosines.sort_values(ascending=False, kind="stable").head(k)
        return nearest


class Documents(Protocol):
    """What the explorers ask for: documents by task, and the student's answers to further texts."""

    @property
    def tasks(self) -> Sequence[str]: ...

    def pool(self, task: str, /) -> Pool: ...

    def embed(self, text: str, /) -> Mapping[str, np.ndarray]:
        """The embedding (·,) of a text by each model."""

    def explain(self, a: str, b: str, /) -> Explanation:
        """The parts of the student's cosine."""


class Neighbourhoods:
    """The tasks of a profile as pools, each built at the first use, and models for further texts.

    models: by their names in figures, the model of the run first.
    """

    def __init__(self, stages: Stages, models: Mapping[str, Model]) -> None:
        self.stages = stages
        self.models = dict(models)
        self.tasks = list(stages.key.profile.evaluation.tasks)
        self.pool = cache(self._pool)

    def _pool(self, task: str) -> Pool:
        """The first `POOL` texts of the test split, with the embeddings that were scored."""
        documents = documents_of(self.stages.scores.task(task).splits["test"])
        texts = list(documents.values())[:POOL]
        spaces = {}
        for label, model in self.models.items():
            spaces[label] = embed_once(self.stages.workspace, model, texts)
        lengths = self.stages.teachers.structural.count_tokens(texts)
        return Pool(texts, np.asarray(lengths), spaces)

    def embed(self, text: str) -> dict[str, np.ndarray]:
        """The embedding (·,) of a text by each model.

        Models are loaded once; embeddings are not stored.
        """
        return {label: model.embed([text])[0] for label, model in self.models.items()}

    @cached_property
    def _student(self) -> Student:
        from docemb_lib.student import Student

        return Student.load(self.stages.students.trained.path)

    def explain(self, a: str, b: str) -> Explanation:
        """The parts of the student's cosine of two texts. It is loaded once."""
        return self._student.explain(a, b)


def neighbourhoods_of(run: Run) -> Neighbourhoods:
    """The student, the structural teacher in both forms and the Paragraph Vectors side by side."""
    # Embeddings of texts that are written are not stored, as the models' own `embed` would do with
    # the parts of a teacher.
    teachers = run.stages.teachers
    models = [run.model]
    for model in run.references:
        if model.form != Form.SAVED:
            continue
        if model.kind == Kind.SBERT_TRUNCATED:
            models.append(model)
        if model.kind == Kind.SBERT_CHUNKS:
            models.append(model._replace(embed=teachers.sbert("chunks").embed))
        if model.kind == Kind.PV:
            models.append(model._replace(embed=teachers.contextual("PV").embed))
    names = short_names(models, run.label)
    return Neighbourhoods(run.stages, {names[model.label]: model for model in models})


def neighbour_browser(neighbourhoods: Documents) -> Explorer:
    """Compare the neighbours of a document by model.

    Choose a document of a task (`find` filters by words) or write a text. A number of `why` shows
    what makes this neighbour near to the student. The first text that is written, and the first
    `why`, load models, which takes seconds.
    """
    embed = cache(neighbourhoods.embed)
    explain = cache(neighbourhoods.explain)

    def of_text(
        pool: Pool, nearest: dict[str, pd.Series], title: str, text: str, why: int
    ) -> Answer:
        of_student = next(iter(nearest.values())).index
        because = ""
        if why and len(of_student):
            row = int(of_student[min(why, len(of_student)) - 1])
            texts = (text, pool.texts[row])
            titles = (title.partition(",")[0], f"document {row}")
            because = side_by_side(explain(*texts), texts, titles)
        return Answer(because + _table(pool, nearest, title, text))

    def answer(task: str, words: str, place: int, k: int, why: int, text: str) -> Answer:
        pool = neighbourhoods.pool(task)
        if text.strip():
            return of_text(pool, pool.neighbours(embed(text), k), "your text", text, why)
        rows = pool.find(words)
        if not rows:
            problem = f"no document of {task} contains “{words}”; search for other words"
            return Answer(html.message(problem))
        place = min(place, len(rows))
        row = rows[place - 1]
        title = f"document {row}, {pool.lengths[row]} tokens; {place} of {len(rows)} found"
        return of_text(pool, pool.neighbours(row, k), title, pool.texts[row], why)

    tasks = neighbourhoods.tasks
    controls = {
        "task": choice(dict(zip(tasks, tasks, strict=True)), tasks[0]),
        "find": text_field("words of a document, then the return key"),
        "document": slider(1, OFFERED, 1, 1),
        "neighbours": slider(1, RANKS, 1, 5),
        "why": buttons({"–": 0, **{str(rank): rank for rank in range(1, RANKS + 1)}}, 0),
        "your text": text_field("any text; empty: the document above", lines=3),
    }
    return Explorer(controls, answer)


def explanation_explorer(neighbourhoods: Documents) -> Explorer:
    """Set a document beside a neighbour, and show what makes them near to the student.

    Where the neighbours of another model differ from the student's, choose one of this model.
    """
    explain = cache(neighbourhoods.explain)

    def answer(task: str, place: int, model: str, rank: int, pair: int) -> Answer:
        pool = neighbourhoods.pool(task)
        row = min(place, len(pool.texts)) - 1
        cosines = pool.neighbours(row, len(pool.texts))
        nearest = cosines[model].index
        if not len(nearest):
            return Answer(html.message(f"{task} has one document; there is no neighbour"))
        other = int(nearest[min(rank, len(nearest)) - 1])
        standing = []
        for name, of_model in cosines.items():
            place_of_other = of_model.index.tolist().index(other) + 1
            standing.append(f"{name} {of_model[other]:.3f} (neighbour {place_of_other})")
        line = f"<p>cosines: {escape('; '.join(standing))}</p>"
        texts = (pool.texts[row], pool.texts[other])
        titles = (f"document {row}", f"document {other}")
        return Answer(line + side_by_side(explain(*texts), texts, titles, pair))

    tasks = neighbourhoods.tasks
    models = list(neighbourhoods.pool(tasks[0]).directions)
    controls = {
        "from task": choice(dict(zip(tasks, tasks, strict=True)), tasks[0]),
        "first": slider(1, OFFERED, 1, 1),
        "near by": choice(dict(zip(models, models, strict=True)), models[0]),
        "rank": slider(1, RANKS, 1, 1),
        "pair": buttons(dict(zip(MARKS, range(len(MARKS)), strict=True)), 0),
    }
    return Explorer(controls, answer)


def _table(pool: Pool, nearest: dict[str, pd.Series], title: str, text: str) -> str:
    """The neighbours in a column per model and a row per rank, above the document itself.

    Those that are also neighbours in the student's space are marked.
    """
    of_student = next(iter(nearest.values())).index
    columns: dict[str, list[str]] = {}
    for model, cosines in nearest.items():
        columns[model] = []
        for row, cosine in zip(cosines.index, cosines, strict=True):
            mark = " =" if row in of_student else ""
            begin = short(" ".join(pool.texts[row][:400].split()), 90)
            cell = f"{cosine:.3f}{mark} · {pool.lengths[row]} tokens · {row}: {begin}"
            columns[model].append(cell)
    note = "cosine · length · document; =: neighbour in the student's space too"
    neighbours = html.table("neighbours", pd.DataFrame(columns))
    return f"{neighbours}<p>{note}</p>{html.document(title, text)}"
