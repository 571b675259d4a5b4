"""Retrieval tasks with queries beside the documents, as BEIR, LongEmbed and TREC lay them out.

A folder holds `corpus.jsonl`, `queries.jsonl`, and `qrels/test.tsv` and `qrels/dev.tsv` (BEIR) or
`qrels.jsonl` (LongEmbed). The candidates are the documents alone.
"""

import logging
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.links import may_hold_links, read_links
from docemb_lib.corpus.reader import TITLE
from docemb_lib.corpus.rows import Findings, field_in, read_rows
from docemb_lib.evaluation.readers import Relevance, own_texts, queries_by_split, split_in
from docemb_lib.evaluation.tasks import Ranking, Retrieval
from docemb_lib.settings.sections import OwnTask

logger = logging.getLogger(__name__)

SHOWN = 3  # ids in a message

Texts = Mapping[str, str]  # of documents or queries, by id
Judgements = dict[str, dict[str, int]]  # the grade of each document for each query, by their ids


class Layout(NamedTuple):
    """The files of a task. Without a split the validation split is drawn."""

    corpus: Path
    queries: Path
    relevance: Relevance


def judged_task(settings: OwnTask) -> Retrieval:
    """A retrieval task with queries beside documents.

    Raises InputError for files that are missing, malformed, or do not fit each other.
    """
    layout = layout_of(settings)
    documents = _texts(layout.corpus, settings)
    queries = _texts(layout.queries, settings)

    def judgements_in(file: Path) -> Judgements:
        return read_judgements(file, documents, queries, skip_bad=settings.skip_bad)

    rankings = {}
    by_split = queries_by_split(layout.relevance, settings, judgements_in)
    for split, judgements in by_split.items():
        where = f"task {settings.name}, split {split}"
        rankings[split] = _ranking(documents, queries, judgements, where)
    return Retrieval(settings.name, rankings)


def layout_of(settings: OwnTask) -> Layout:
    """The files that settings name, or those of a folder.

    Raises InputError for missing ones, and for two of one split.
    """
    if settings.queries is not None and settings.relevance is not None:
        return Layout(Path(str(settings.path)), settings.queries, settings.relevance)
    folder = Path(str(settings.path))
    corpus = _file(folder, "corpus")
    queries = _file(folder, "queries")
    files: dict[str, Path] = {}
    for file in sorted(filter(may_hold_links, (folder / "qrels").glob("*"))):
        split = split_in(file.name)
        if split in files:
            raise InputError(
                f"{folder / 'qrels'}: {files[split].name} and {file.name} are both of the split "
                f"{split}; "
                "leave one of them there"
            )
        if split:
            files[split] = file
    files = files or {"test": _file(folder, "qrels", ".tsv")}
    return Layout(corpus, queries, files)


def _file(folder: Path, name: str, *further: str) -> Path:
    candidates = [folder / f"{name}{ending}" for ending in (".jsonl", ".jsonl.gz", *further)]
    file = next((file for file in candidates if file.is_file()), None)
    if file is None:
        raise InputError(
            f"{folder}: there is no {candidates[0].name} in it; "
            "it must hold corpus.jsonl, queries.jsonl, and qrels/test.tsv or qrels.jsonl"
        )
    return file


def _texts(file: Path, settings: OwnTask) -> dict[str, str]:
    """The documents or queries of a file by id; a title is joined with the text."""
    text_field = settings.text_field
    first = next(iter(read_rows(file)), None)
    if isinstance(text_field, str) and first and field_in(first.fields, TITLE):
        text_field = [TITLE, text_field]
    return own_texts(file, settings, text_field)


def read_judgements(
    file: Path, documents: Texts, queries: Texts, *, skip_bad: bool = False
) -> Judgements:
    """The grades of documents by query; those below 1 mean that a document is not relevant.

    The layouts are those of `read_links`. Raises InputError for bad rows, unless they are left out.
    """
    findings = Findings(skip_bad=skip_bad)
    judgements: Judgements = {}
    for query, document, grade in read_links(file, documents, findings, queries=queries):
        judgements.setdefault(query, {})[document] = grade
    findings.end(file)
    return judgements


def _ranking(documents: Texts, queries: Texts, judgements: Judgements, where: str) -> Ranking:
    """The ranking of one split. What is left out or missing is logged.

    A query with the id and the text of a document is this document, and not one of its hits.
    """
    row_of = {id: row for row, id in enumerate(documents)}
    texts = list(documents.values())
    ids = list(documents)
    rows = []
    relevant = []
    grades = []
    missing = []
    absent = []
    without = 0
    for query, judged in judgements.items():
        text = queries.get(query)
        # The text of a document ends with its body, below a title if there is one.
        same = documents.get(query, "")
        is_document = bool(text) and (same == text or same.endswith(f"\n\n{text}"))
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
            texts.append(text)
            ids.append(f"query {query}")
        here = [id for id in positive if id in row_of]
        gone = [id for id in positive if id not in row_of]
        absent += gone
        relevant.append([row_of[id] for id in here])
        grades.append([positive[id] for id in here])
        missing.append([positive[id] for id in gone])
    judged_documents = sum(map(len, relevant)) + len(absent)
    looks = ", ".join(map(repr, islice(documents, SHOWN)))
    named = f"{', '.join(map(repr, absent[:SHOWN]))}; the documents' ids look like {looks}"
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
