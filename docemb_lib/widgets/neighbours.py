"""Nearest documents of a task in the embedding spaces of several models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from html import escape
from math import log
from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd

from docemb_lib.evaluation.retrieval import unit
from docemb_lib.evaluation.tasks import (
    Labelled,
    LabelledPairs,
    Ranking,
    documents_of,
    ids_of_texts,
)
from docemb_lib.figures import short, short_names
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.models import Model
from docemb_lib.runs.run import Run
from docemb_lib.teachers.words import words_of
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import (
    LESS,
    MORE,
    Answer,
    Explorer,
    choice,
    dependent_choice,
    slider,
    text_field,
)

POOL = 2000  # most texts of a task
RANKS = 10  # most neighbours of a document
SHARED = 5  # words that are shown of those that two documents share
COUNTED_IN = 500  # texts in which words are counted
# Of a verdict: its sign, class and colour.
LOOKS = {
    True: ("✓ ", "right", MORE),
    False: ("✗ ", "wrong", LESS),
    None: ("", "verdict", "128, 128, 128"),
}
NAME = 60  # characters of a text without an id that name it


class Verdict(NamedTuple):
    """What the task says of a neighbour; `right` is None where nothing says whether it is right."""

    text: str
    right: bool | None = None


# The verdict on a row (the second number) as a neighbour of another, or of None, a written text.
Judge = Callable[[int | None, int], Verdict]


class Pool:
    """N documents with their lengths and their embeddings by several models.

    lengths: (N,), structural tokens; spaces: embeddings (N, ·) by model, the student's first;
    names: N different ones.
    """

    def __init__(
        self,
        texts: Sequence[str],
        lengths: np.ndarray,
        spaces: Mapping[str, np.ndarray],
        names: Sequence[str],
        judge: Judge = lambda query, row: Verdict(""),
    ) -> None:
        self.texts = list(texts)
        self.lengths = lengths
        self.names = list(names)
        self.judge = judge
        # Computed once, because a menu asks many times: texts in lower case, and embeddings of
        # unit length.
        self.lowered = [text.lower() for text in texts]
        self.directions = {model: unit(X).astype(np.float32) for model, X in spaces.items()}
        self._counts = cache(lambda text: Counter(words_of(text)))

    def find(self, words: str) -> dict[str, int]:
        """The rows whose name or text contains `words`, in any case, by name; all for no words."""
        words = words.lower()
        rows = {}
        for row, (name, text) in enumerate(zip(self.names, self.lowered, strict=True)):
            if words in text or words in name.lower():
                rows[name] = row
        return rows

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

    def shared_words(self, text: str, row: int) -> list[str]:
        """The words in both texts that say most, at most `SHARED`.

        They have the largest product of TF-IDF, with logarithmic frequencies in both texts, over
        the share of documents that contain them. Words of fewer than three letters are left out.
        """
        first = self._counts(text)
        second = self._counts(self.texts[row])
        documents, containing = self._frequencies
        weights = {}
        for word in first.keys() & second.keys():
            if len(word) > 2 and word.isalpha():
                rarity = log((documents + 1) / (containing[word] + 1))
                weights[word] = (1 + log(first[word])) * (1 + log(second[word])) * rarity**2
        return sorted(weights, key=lambda word: (-weights[word], word))[:SHARED]

    @cached_property
    def _frequencies(self) -> tuple[int, Counter[str]]:
        """How many documents words are counted in, and how many of them contain each word."""
        texts = self.texts[:: 1 + len(self.texts) // COUNTED_IN]
        containing: Counter[str] = Counter()
        for text in texts:
            containing.update(self._counts(text).keys())
        return len(texts), containing


class Documents(Protocol):
    """What the browser asks for: documents by task, and the embeddings of further texts."""

    @property
    def tasks(self) -> Sequence[str]: ...

    def pool(self, task: str, /) -> Pool: ...

    def embed(self, text: str, /) -> Mapping[str, np.ndarray]:
        """The embedding (·,) of a text by each model."""


class Neighbourhoods:
    """The tasks of a profile as pools, each built at the first use, and models for further texts.

    models: by their names in figures, the model of the run first.
    """

    def __init__(self, run: Run, models: Mapping[str, Model]) -> None:
        self.run = run
        self.models = dict(models)
        self.tasks = list(run.profile.evaluation.tasks)
        self.pool = cache(self._pool)

    def _pool(self, task: str) -> Pool:
        """The first `POOL` texts of the test split, queries first, as they were scored."""
        data = self.run.scorer.task(task).splits["test"]
        text_of = documents_of(task, data)
        queries = [data.ids[row] for row in data.queries] if isinstance(data, Ranking) else []
        ids = list(dict.fromkeys([*queries, *text_of]))[:POOL]
        documents = {id: text_of[id] for id in ids}
        texts = list(documents.values())
        spaces = {}
        for label, model in self.models.items():
            spaces[label] = model.embed(texts)
        lengths = self.run.teachers.structural.count_tokens(texts)
        names = names_of(documents)
        return Pool(texts, np.asarray(lengths), spaces, names, judge_of(data, ids))

    def embed(self, text: str) -> dict[str, np.ndarray]:
        """The embedding (·,) of a text by each model.

        Models are loaded once; embeddings are not stored.
        """
        return {label: model.of_any_text.embed([text])[0] for label, model in self.models.items()}


def neighbourhoods_of(run: Run) -> Neighbourhoods:
    """The student, the structural teacher in both forms and the Paragraph Vectors side by side."""
    # Embeddings of texts that are written are not stored, as the models' own `embed` would do with
    # the parts of a teacher.
    teachers = run.teachers
    models = [run.model]
    for model in run.references:
        if model.form != Form.SAVED:
            continue
        if model.kind == Kind.SBERT_TRUNCATED:
            models.append(model)
        if model.kind == Kind.SBERT_CHUNKS:
            models.append(model.embedding_by(teachers.sbert("chunks").embed))
        if model.kind == Kind.PV:
            models.append(model.embedding_by(teachers.contextual("PV").embed))
    names = short_names(models, run.label)
    return Neighbourhoods(run, {names[model.label]: model for model in models})


def names_of(documents: Mapping[str, str]) -> list[str]:
    """Their ids or, of documents without ids of their own, how their texts begin; all different.

    documents: texts by id.
    """
    names: dict[str, str] = {}
    for id, text in documents.items():
        name = id
        if id == ids_of_texts([text])[0]:
            name = short(" ".join(text[: 8 * NAME].split()), NAME)
        names[f"{name} ({len(names) + 1})" if name in names else name] = id
    return list(names)


def judge_of(data: Labelled | LabelledPairs | Ranking, ids: Sequence[str]) -> Judge:
    """What a split says of neighbours: equal labels, the label of a pair, or whether relevant.

    ids: of the rows that are judged.
    """
    if isinstance(data, Labelled):
        label_of = dict(zip(data.ids, map(str, data.labels), strict=True))

        def by_label(query: int | None, row: int) -> Verdict:
            label = label_of[ids[row]]
            return Verdict(label, None if query is None else label_of[ids[query]] == label)

        return by_label

    if isinstance(data, LabelledPairs):
        pairs = zip(data.first_ids, data.second_ids, data.labels, strict=True)
        label_of_pair = {frozenset((first, second)): label for first, second, label in pairs}

        def by_pair(query: int | None, row: int) -> Verdict:
            pair = frozenset() if query is None else frozenset((ids[query], ids[row]))
            label = label_of_pair.get(pair)
            return Verdict("" if label is None else f"pair: {label}")

        return by_pair

    relevant: dict[str, set[str]] = {}
    for query, rows in zip(data.queries, data.relevant, strict=True):
        relevant.setdefault(data.ids[query], set()).update(data.ids[row] for row in rows)

    def by_relevance(query: int | None, row: int) -> Verdict:
        if query is None or ids[query] not in relevant:
            return Verdict("")
        right = ids[row] in relevant[ids[query]]
        return Verdict("relevant" if right else "not relevant", right)

    return by_relevance


def neighbour_browser(neighbourhoods: Documents) -> Explorer:
    """Compare the neighbours of a document by model, and see whether they are right.

    Choose a document of a task (`find` filters by words), or write a text. The
    first text that is written loads models, which takes seconds.
    """
    embed = cache(neighbourhoods.embed)

    def answer(task: str, words: str, row: int | None, k: int, text: str) -> Answer:
        pool = neighbourhoods.pool(task)
        if text.strip():
            row = None
            head = "<b>your text</b> (find and document wait until it is deleted)"
            query: int | Mapping[str, np.ndarray] = embed(text)
        elif row is None:
            problem = f"no document of {task} contains “{words}”; search for other words"
            return Answer(html.message(problem))
        else:
            head = f"<b>{escape(pool.names[row])}</b>, {_about(pool, None, row)}"
            text = pool.texts[row]
            query = row
        box = f'<p class="docemb-query" tabindex="-1">{head}</p>{html.document("", text)}'
        return Answer(box + _table(pool, pool.neighbours(query, k), row, text))

    tasks = neighbourhoods.tasks
    controls = {
        "task": choice(dict(zip(tasks, tasks, strict=True)), tasks[0]),
        "find": text_field("words of a document, then the return key"),
        "document": dependent_choice(
            lambda settings: neighbourhoods.pool(settings["task"]).find(settings["find"]), 0
        ),
        "neighbours": slider(1, RANKS, 1, 5),
        "your text": text_field("any text; empty: the document above", lines=3),
    }
    return Explorer(controls, answer)


def _about(pool: Pool, query: int | None, row: int) -> str:
    """The tokens of a document and, in words and colour, whether it is right for the query."""
    verdict = pool.judge(query, row)
    sign, name, colour = LOOKS[verdict.right]
    shade = f"background: rgba({colour}, 0.35); padding: 0 4px; border-radius: 3px;"
    text = f'<span class="docemb-{name}" style="{shade}">{sign}{escape(verdict.text)}</span> '
    return f"{text if verdict.text else ''}{pool.lengths[row]:,} tokens"


def _table(pool: Pool, nearest: Mapping[str, pd.Series], query: int | None, text: str) -> str:
    """The nearest documents of a text in a column per model and a row per rank.

    Those that are also neighbours in the student's space are marked. query: the row of the text.
    """
    of_student = next(iter(nearest.values())).index
    heads = "".join(f"<th>{escape(model)}</th>" for model in nearest)
    rows = ""
    for place in range(len(of_student)):
        cells = ""
        for cosines in nearest.values():
            row = int(cosines.index[place])
            mark = " =" if row in of_student else ""
            name = pool.names[row]
            words = ", ".join(pool.shared_words(text, row))
            cells += (
                f'<td data-row="{row}"><b>{escape(name)}</b><br>{_about(pool, query, row)}<br>'
                f"{cosines.iloc[place]:.3f}{mark}<br><i>{escape(words)}</i></td>"
            )
        rows += f"<tr>{cells}</tr>"
    note = (
        "name; what the task says, tokens; cosine, =: neighbour in the student's space too; words "
        "that both share"
    )
    table = f'<table class="docemb-neighbours"><tr>{heads}</tr>{rows}</table>'
    return f'<div style="overflow-x: auto;">{table}</div><p>{note}</p>'
