"""The documents of a task in the spaces of several models: who is whose neighbour, in each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.evaluation.retrieval import unit
from docemb_lib.evaluation.splits import Ranking, pick
from docemb_lib.evaluation.tasks import Embedder
from docemb_lib.experiments.embedding_cache import Model, embed_once
from docemb_lib.experiments.models import SBERT_LABELS, student_model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.stages import Stages
from docemb_lib.workspace import Artefact

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
        self.tasks = list(stages.profile.evaluation.tasks)
        self._pools: dict[str, Pool] = {}
        self._loaded: dict[str, Embedder] = {}

    def pool(self, task: str) -> Pool:
        """At most the first `POOL` texts of the task's test split, as they were embedded for its scores."""
        if task not in self._pools:
            data: Any = pick(task, self.stages.tasks[task].splits, "test")
            texts = list(dict.fromkeys(data.texts))[:POOL]
            row_of = {text: row for row, text in enumerate(texts)}
            spaces = {m.label: embed_once(self.stages.workspace, m, texts) for m in self.models.values()}
            lengths = np.asarray(self.stages.structural_teacher.count_tokens(texts))
            self._pools[task] = Pool(texts, lengths, spaces, _relevant(data, row_of))
        return self._pools[task]

    def embed(self, text: str) -> dict[str, np.ndarray]:
        """The embedding (·,) of any text by every model. Models are loaded once; nothing is stored."""
        if not text.strip():
            raise InputError("your text: it is blank; write some words")
        return {label: self._embedder(label).embed([text])[0] for label in self.models}

    def _embedder(self, label: str) -> Embedder:
        if label not in self._loaded:
            stored = label.startswith(PV)  # a compound's model would keep what it embeds
            self._loaded[label] = self.stages.contextual_teacher(PV) if stored else self.models[label].load()
        return self._loaded[label]


def neighbourhoods_of(run: Run, student: Artefact, models: Sequence[Model]) -> Neighbourhoods:
    """The student, the structural teacher in both forms and the Paragraph Vectors side by side.

    models: those that were scored on the profile's tasks.
    """
    chosen = [model for model in models if model.label in SBERT_LABELS or model.label.startswith(f"{PV};")]
    return Neighbourhoods(run.stages, [student_model(run.label, student), *chosen])


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
