"""Retrieval tasks with queries beside the documents, as BEIR, LongEmbed and TREC lay them out.

A folder holds `corpus.jsonl`, `queries.jsonl`, and `qrels/test.tsv` and `qrels/dev.tsv` (BEIR) or
`qrels.jsonl` (LongEmbed). The candidates are the documents alone.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.links import read_judgements
from docemb_lib.corpus.reader import IDS, id_text
from docemb_lib.corpus.rows import Findings, field_in, listed, read_rows, text_of
from docemb_lib.evaluation.readers import split_in
from docemb_lib.evaluation.tasks import Ranking, Retrieval
from docemb_lib.settings.sections import OwnTask, SplitName

logger = logging.getLogger(__name__)

QUERY = "qid"  # the id of a query in LongEmbed
TITLE = "title"  # of a document, which stands before its text where a row has one
Judgements = dict[str, dict[str, int]]  # the grade of each document for each query, by their ids


class Text(NamedTuple):
    """A document or a query."""

    body: str
    title: str = ""

    @property
    def whole(self) -> str:
        """The title and the body, separated by a blank as in BEIR."""
        return f"{self.title} {self.body}".strip()


class Layout(NamedTuple):
    """The files of a task. Without a split the validation split is drawn."""

    corpus: Path
    queries: Path
    relevance: Mapping[SplitName, Path] | Mapping[str, Path] | Path


def judged_task(settings: OwnTask) -> Retrieval:
    """A retrieval task with queries beside documents.

    Raises InputError for files that are missing, malformed, or do not fit each other.
    """
    layout = layout_of(settings)
    documents = _texts(layout.corpus, settings)
    queries = _texts(layout.queries, settings)
    if isinstance(layout.relevance, Path):
        by_split = _drawn(read_judgements(layout.relevance), settings)
    else:
        by_split = {split: read_judgements(file) for split, file in layout.relevance.items()}
    rankings = {}
    for split, judgements in by_split.items():
        where = f"task {settings.name}, split {split}"
        rankings[split] = _ranking(documents, queries, judgements, where)
    return Retrieval(settings.name, rankings)


def layout_of(settings: OwnTask) -> Layout:
    """The files that settings name, or those of a folder. Raises InputError for missing ones."""
    if settings.queries is not None and settings.relevance is not None:
        return Layout(Path(str(settings.path)), settings.queries, settings.relevance)
    folder = Path(str(settings.path))
    corpus, queries = _file(folder, "corpus"), _file(folder, "queries")
    files = {}
    for file in sorted((folder / "qrels").glob("*")):
        split = split_in(file.name)
        if split:
            files[split] = file
    files = files or {"test": _file(folder, "qrels", ".tsv")}
    return Layout(corpus, queries, files)


def _file(folder: Path, name: str, *further: str) -> Path:
    candidates = [folder / f"{name}{ending}" for ending in (".jsonl", ".jsonl.gz", *further)]
    file = next((file for file in candidates if file.is_file()), None)
    if file is None:
        needs = "corpus.jsonl, queries.jsonl, and qrels/test.tsv or qrels.jsonl"
        raise InputError(f"{folder}: there is no {candidates[0].name} in it; it must hold {needs}")
    return file


def _texts(file: Path, settings: OwnTask) -> dict[str, Text]:
    """The documents or queries of a file by id."""
    texts: dict[str, Text] = {}
    findings = Findings(skip_bad=settings.skip_bad)
    names = (*IDS, QUERY) if settings.id_field is None else (settings.id_field, *IDS, QUERY)
    for where, _, fields in read_rows(file, findings):
        with findings.collecting():
            name = field_in(fields, *names)
            if name is None:
                raise InputError(f"{where}: the row has no id, only {listed(fields)}; add {IDS[0]}")
            id = id_text(fields[name], where, name)
            if id in texts:
                raise InputError(f"{where}: an earlier row has the id {id!r:.40}, too; rename one")
            body = text_of(fields, settings.text_field, where=where)
            title = fields.get(TITLE)
            texts[id] = Text(body, title if isinstance(title, str) else "")
    findings.end(file)
    return texts


def _drawn(judgements: Judgements, settings: OwnTask) -> dict[str, Judgements]:
    """A share of the queries for validation, the rest for test, since nothing is trained."""
    held = round(settings.share * len(judgements))
    order = np.random.default_rng(settings.seed).permutation(sorted(judgements))
    drawn = set(order[:held].tolist())
    splits: dict[str, Judgements] = {"validation": {}, "test": {}}
    for query, grades in judgements.items():
        splits["validation" if query in drawn else "test"][query] = grades
    return {split: of_split for split, of_split in splits.items() if of_split}


def _ranking(
    documents: Mapping[str, Text],
    queries: Mapping[str, Text],
    judgements: Judgements,
    where: str,
) -> Ranking:
    """The ranking of one split. What is left out or missing is logged.

    A query with the id and the text of a document is this document, and not one of its hits.
    """
    row_of = {id: row for row, id in enumerate(documents)}
    texts = [text.whole for text in documents.values()]
    ids = list(documents)
    rows, relevant, grades, missing = [], [], [], []
    absent: list[str] = []
    without = 0
    for query, judged in judgements.items():
        text = queries.get(query)
        same = documents.get(query)
        is_document = text is not None and same is not None and text.body in {*same, same.whole}
        positive = {id: grade for id, grade in judged.items() if grade > 0}
        if is_document:
            positive.pop(query, None)
        if text is None or not positive:
            without += 1
            continue
        if is_document:
            rows.append(row_of[query])
        else:
            rows.append(len(texts))
            texts.append(text.whole)
            ids.append(f"query {query}")
        here = [id for id in positive if id in row_of]
        gone = [id for id in positive if id not in row_of]
        absent += gone
        relevant.append([row_of[id] for id in here])
        grades.append([positive[id] for id in here])
        missing.append([positive[id] for id in gone])
    judged_documents = sum(map(len, relevant)) + len(absent)
    named = f"{', '.join(map(repr, absent[:3]))}; a document's id is {ids[0]!r}" if ids else ""
    if not any(relevant):
        raise InputError(
            f"{where}: no query with a text has a relevant document ({len(absent)} ids are in no "
            f"document: {named}); let the ids of queries, documents and relevance agree"
        )
    if absent:
        message = "%s: %d of %d relevant documents are missing (%s) and count as not found"
        logger.warning(message, where, len(absent), judged_documents, named)
    if without:
        message = "%s: %d of %d queries have no text or no relevant document and are left out"
        logger.warning(message, where, without, len(judgements))
    return Ranking(texts, rows, relevant, ids, grades, missing, candidates=len(documents))
