"""Retrieval tasks from files: documents that are queries, or queries beside the documents.

BEIR's layout is a folder with `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv` and perhaps
`qrels/dev.tsv`. Its candidates are the documents alone.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar, cast

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.links import SHOWN, Links, read_links, relevant_documents
from docemb_lib.corpus.reader import TITLE, local_documents
from docemb_lib.corpus.rows import field_in, read_rows
from docemb_lib.evaluation.readers import split_in
from docemb_lib.evaluation.tasks import Ranking, Retrieval
from docemb_lib.settings.sections import OwnTask, SplitName

logger = logging.getLogger(__name__)

WORD = re.compile(r"\b[^\W\d_]\w*")  # begins with a letter

OfQuery = TypeVar("OfQuery")
Relevance = Path | Mapping[SplitName, Path] | Mapping[str, Path]  # one file, or one for each split
Texts = Mapping[str, str]  # of documents or queries, by id


def retrieval_task(settings: OwnTask) -> Retrieval:
    """Return an own retrieval task.

    Raises InputError for files that are missing, malformed, or do not fit each other.
    """
    return Retrieval(settings.name, (_judged if settings.is_judged else _linked)(settings))


def _linked(settings: OwnTask) -> dict[str, Ranking]:
    """Return the whole pool for every split, with the queries of its links, or with drawn ones."""
    texts = _texts(cast(Path, settings.path), settings)
    if settings.mask_names:
        for id, text in texts.items():
            texts[id] = WORD.sub(lambda word: "" if word[0][0].isupper() else word[0], text)

    def links_in(file: Path) -> dict[str, list[str]]:
        return relevant_documents(file, texts, skip_bad=settings.skip_bad)

    by_split = _by_split(settings.relevance, settings, links_in)
    return {split: make_ranking(texts, links) for split, links in by_split.items()}


def make_ranking(texts: Texts, links: Mapping[str, Sequence[str]]) -> Ranking:
    """Return the ranking of texts by id, with the ids to retrieve for the id of each query."""
    row = {id: number for number, id in enumerate(texts)}
    relevant = [list(map(row.__getitem__, targets)) for targets in links.values()]
    queries = [row[id] for id in links]
    return Ranking(list(texts.values()), queries, relevant, list(texts))


def _judged(settings: OwnTask) -> dict[str, Ranking]:
    """Return the rankings of queries beside documents."""
    corpus = Path(str(settings.path))
    queries_file = settings.queries
    relevance: Relevance | None = settings.relevance
    if queries_file is None or relevance is None:
        folder = corpus
        corpus = _file(folder, "corpus.jsonl")
        queries_file = _file(folder, "queries.jsonl")
        by_split = {split_in(Path(file.name)): file for file in folder.glob("qrels/[!.]*.tsv")}
        named = {split: file for split, file in by_split.items() if split}
        relevance = named or {"test": _file(folder, "qrels/test.tsv")}
    documents = _texts(corpus, settings, titled=True)
    queries = _texts(queries_file, settings, titled=True)

    def grades_in(file: Path) -> Links:
        return read_links(file, documents, queries, skip_bad=settings.skip_bad)

    rankings = {}
    for split, links in _by_split(relevance, settings, grades_in).items():
        where = f"task {settings.name}, split {split}"
        rankings[split] = _judged_ranking(documents, queries, links, where)
    return rankings


def _file(folder: Path, name: str) -> Path:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    raise InputError(
        f"{folder}: there is no {name} in it; "
        "it must hold corpus.jsonl, queries.jsonl and qrels/test.tsv"
    )


def _texts(file: Path, settings: OwnTask, *, titled: bool = False) -> dict[str, str]:
    """Return the documents or queries of a file by id. titled: joins a title with the text."""
    text_field = settings.text_field
    first = next(iter(read_rows(file)), None) if titled else None
    if isinstance(text_field, str) and first and field_in(first.fields, TITLE):
        text_field = [TITLE, text_field]
    documents = local_documents(
        file, text_field=text_field, id_field=settings.id_field, skip_bad=settings.skip_bad
    )
    return {document.id: document.text for document in documents}


def _by_split(
    relevance: Relevance | None,
    settings: OwnTask,
    read: Callable[[Path], dict[str, OfQuery]],
) -> dict[str, dict[str, OfQuery]]:
    """Return what `read` finds for each query of each split in a file of links.

    Of a single file, a share of the queries is drawn for validation, and the rest is for test,
    since nothing is trained.
    """
    if relevance is None or isinstance(relevance, Mapping):
        return {split: read(file) for split, file in (relevance or {}).items()}
    by_query = read(relevance)
    held = round(settings.share * len(by_query))
    order = np.random.default_rng(settings.seed).permutation(sorted(by_query))
    drawn = set(order[:held].tolist())
    splits: dict[str, dict[str, OfQuery]] = {"validation": {}, "test": {}}
    for query, value in by_query.items():
        splits["validation" if query in drawn else "test"][query] = value
    return {split: queries for split, queries in splits.items() if queries or split == "test"}


def _judged_ranking(documents: Texts, queries: Texts, links: Links, where: str) -> Ranking:
    """Return the ranking of one split. What is left out or missing is logged.

    A query with the id and the text of a document is this document, and not one of its hits.
    """
    row_of = {id: row for row, id in enumerate(documents)}
    texts = [*documents.values()]
    ids = [*documents]
    rows = []
    relevant = []
    grades = []
    missing = []
    absent: list[str] = []
    for query, judged in links.items():
        text = queries.get(query)
        # The text of a document ends with its body, below a title if there is one.
        same = documents.get(query, "")
        is_document = bool(text) and (same == text or same.endswith(f"\n\n{text}"))
        positive = {id: grade for id, grade in judged.items() if grade > 0}
        if is_document:
            positive.pop(query, None)
        if text is None or not positive:
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
    looks = ", ".join(map(repr, islice(documents, SHOWN)))
    named = f"{', '.join(map(repr, absent[:SHOWN]))}; the documents' ids look like {looks}"
    if not any(relevant):
        raise InputError(
            f"{where}: no query with a text has a relevant document ({len(absent)} ids are in no "
            f"document: {named}); let the ids of queries, documents and relevance agree"
        )
    if absent:
        message = "%s: %d of %d relevant documents are missing (%s) and count as not found"
        count = sum(map(len, relevant)) + len(absent)
        logger.warning(message, where, len(absent), count, named)
    if len(rows) < len(links):
        message = "%s: %d of %d queries have no text or no relevant document and are left out"
        logger.warning(message, where, len(links) - len(rows), len(links))
    return Ranking(texts, rows, relevant, ids, grades, missing, candidates=len(documents))
