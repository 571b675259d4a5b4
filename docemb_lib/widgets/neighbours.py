"""The neighbour browser: nearest documents of a task in the embedding spaces of several models."""

from collections.abc import Mapping, Sequence
from functools import cache

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
from docemb_lib.widgets.explorer import Answer, Explorer, choice, slider, text_field

POOL = 2000  # most texts of a task
OFFERED = 50  # documents that a slider reaches; `find` chooses others


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


def neighbour_browser(neighbourhoods: Neighbourhoods) -> Explorer:
    """Compare the neighbours of a document by model.

    Choose a document of a task (`find` filters by words) or write a text. The first text that is
    written loads the models, which takes seconds.
    """
    embed = cache(neighbourhoods.embed)

    def answer(task: str, words: str, place: int, k: int, text: str) -> Answer:
        pool = neighbourhoods.pool(task)
        if text.strip():
            return Answer(_table(pool, pool.neighbours(embed(text), k), "your text", text))
        rows = pool.find(words)
        if not rows:
            problem = f"no document of {task} contains “{words}”; search for other words"
            return Answer(html.message(problem))
        place = min(place, len(rows))
        row = rows[place - 1]
        title = f"document {row}, {pool.lengths[row]} tokens; {place} of {len(rows)} found"
        return Answer(_table(pool, pool.neighbours(row, k), title, pool.texts[row]))

    tasks = neighbourhoods.tasks
    controls = {
        "task": choice(dict(zip(tasks, tasks, strict=True)), tasks[0]),
        "find": text_field("words of a document, then the return key"),
        "document": slider(1, OFFERED, 1, 1),
        "neighbours": slider(1, 10, 1, 5),
        "your text": text_field("any text; empty: the document above", lines=3),
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
