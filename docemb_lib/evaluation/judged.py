"""Retrieval tasks from files: documents that are queries, or queries beside the documents.

BEIR's layout is a folder with `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv` and perhaps
`qrels/dev.tsv`. Its candidates are the documents alone. A file of links is a table of two ids a
row, with or without a line of names, perhaps with a grade after them (BEIR), or of TREC's four
columns: query, iteration, document and grade.
"""

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import get_args

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.reader import (
    TEXTS,
    Problems,
    clean,
    field_in,
    first_row,
    local_documents,
    read_table,
)
from docemb_lib.evaluation.readers import NO_SPLIT, files_by_split, split_in
from docemb_lib.evaluation.tasks import Ranking, Retrieval
from docemb_lib.settings.sections import OwnTask, SplitName

TARGET = {2: 1, 3: 1, 4: 2}  # the column of the second id, by the number of columns

Links = dict[str, dict[str, int]]  # the grade of each document for each query, by their ids
logger = logging.getLogger(__name__)

TITLE = "title"  # stands above the text of a document or query of BEIR
SHOWN = 3  # ids in a message

Texts = Mapping[str, str]  # of documents or queries, by id


def read_links(file: Path, known: Collection[str], *, skip_bad: bool = False) -> Links:
    """Return the grade of each second id for each first one, 1 where there is none.

    Raises InputError for bad rows.

    Args:
        known: the ids of documents and queries. A first row with none of them is a line of names.
            Ids of a folder may lack the endings of its files.
        skip_bad: leave out bad rows, with a warning.
    """
    problems = Problems(skip_bad=skip_bad)
    links: Links = {}
    full = {Path(id).with_suffix("").as_posix(): id for id in known if id.endswith(TEXTS)}
    full |= {id: id for id in known}
    for row in read_table(file, problems, named=False):
        with problems.collecting():
            values = [clean(value.strip()) for value in row.fields.values()]
            values = [full.get(value, value) for value in values]
            if len(values) not in TARGET or not all(values):
                raise row.bad(
                    f"it has {len(values)} values; write two ids, perhaps with a grade, or TREC's "
                    "four columns"
                )
            source = values[0]
            target = values[TARGET[len(values)]]
            grade = values[-1] if len(values) > 2 else "1"
            if row.number == 1 and source not in known and target not in known:
                continue
            if not grade.isdecimal():
                raise row.bad(
                    f"the grade is {grade!r:.40}; write a whole number, 1 or more for a document "
                    "to find, as for scores above a threshold"
                )
            links.setdefault(source, {})[target] = int(grade)
    problems.end(file)
    return links


def retrieval_task(settings: OwnTask) -> Retrieval:
    """Return an own retrieval task.

    Raises InputError for files that are missing, malformed, or do not fit each other.
    """
    path = Path(str(settings.path))
    queries_file = settings.queries
    relevance = settings.relevance
    if relevance is None:  # BEIR's layout
        qrels = {split_in(Path(file.name)): file for file in path.glob("qrels/[!.]*.tsv")}
        relevance = {split: qrels[split] for split in get_args(SplitName) if split in qrels}
        if not relevance:
            needed = "corpus.jsonl, queries.jsonl and qrels/test.tsv"
            raise InputError(f"{path}: there is no qrels/test.tsv in it; it must hold {needed}")
        queries_file = path / "queries.jsonl"
        path = path / "corpus.jsonl"
    documents = _texts(path, settings, titled=queries_file is not None)
    queries = _texts(queries_file, settings, titled=True) if queries_file else documents
    known = documents.keys() | queries.keys()
    by_split = {}
    for split, file in files_by_split(relevance).items():
        by_split[split] = read_links(file, known, skip_bad=settings.skip_bad)
    if NO_SPLIT in by_split:
        by_split = _drawn(by_split[NO_SPLIT], settings)
    rankings = {}
    for split, links in by_split.items():
        where = f"task {settings.name}, split {split}"
        rankings[split] = make_ranking(documents, queries, links, where)
    return Retrieval(settings.name, rankings)


def _texts(file: Path, settings: OwnTask, *, titled: bool) -> dict[str, str]:
    """Return the documents or queries of a file by id. titled: joins a title with the text."""
    fields = settings.text_field
    if titled and isinstance(fields, str):
        first = first_row(file)
        if first and field_in(first.fields, TITLE):
            fields = [TITLE, fields]
    documents = local_documents(
        file, text_field=fields, id_field=settings.id_field, skip_bad=settings.skip_bad
    )
    return {document.id: document.text for document in documents}


def _drawn(links: Links, settings: OwnTask) -> dict[str, Links]:
    """Draw a share of the queries for validation; the rest is for test, as nothing is trained."""
    held = round(settings.share * len(links))
    order = np.random.default_rng(settings.seed).permutation(sorted(links))
    splits: dict[str, Links] = {"validation": {}, "test": {}}
    drawn = set(order[:held].tolist())
    for query, grades in links.items():
        splits["validation" if query in drawn else "test"][query] = grades
    return {split: queries for split, queries in splits.items() if queries or split == "test"}


def make_ranking(documents: Texts, queries: Texts, links: Links, where: str) -> Ranking:
    """Return the ranking of documents for the queries that have links, with their grades.

    A query with the id and the text of a document is this document, and not one of its hits. What
    is left out or missing is logged. Raises InputError, which begins with `where`, where no link
    leads from a query to a document.
    """
    row_of = {id: row for row, id in enumerate(documents)}
    texts = [*documents.values()]
    ids = [*documents]
    rows = []
    relevant = []
    grades = []
    missing = []
    unknown = []  # ids in the links that no document or query has
    for query, judged in links.items():
        text = queries.get(query)
        # The text of a document ends with its body, below a title if there is one.
        is_document = f"\n\n{documents.get(query, '')}".endswith(f"\n\n{text}")
        positive = {id: grade for id, grade in judged.items() if grade > 0}
        if is_document:
            positive.pop(query, None)
        found = [id for id in positive if id in row_of]
        gone = [id for id in positive if id not in row_of]
        unknown += gone if query in queries else [query, *gone]
        if text is None or not positive:
            continue
        if is_document:
            rows.append(row_of[query])
        else:
            rows.append(len(texts))
            texts.append(text)
            ids.append(f"query {query}")
        relevant.append([row_of[id] for id in found])
        grades.append([positive[id] for id in found])
        missing.append([positive[id] for id in gone])
    named, like = (", ".join(map(repr, some[:SHOWN])) for some in (unknown, [*documents]))
    said = (
        f"{len(unknown)} ids of links are in no text ({named}; the documents' ids look like {like})"
    )
    if not any(relevant):
        mend = "let the ids of queries, documents and links agree"
        raise InputError(f"{where}: no query has a relevant document; {said}; {mend}")
    if unknown or len(rows) < len(links):
        message = (
            "%s: %s: such documents count as not found; %d of %d queries have no text or no "
            "relevant document and are left out"
        )
        logger.warning(message, where, said, len(links) - len(rows), len(links))
    return Ranking(texts, rows, relevant, ids, grades, missing, candidates=len(documents))
