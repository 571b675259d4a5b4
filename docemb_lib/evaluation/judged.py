"""Tasks of links between documents, from files: retrieval, with queries that are documents or stand
beside them, and scored pairs.

BEIR's layout is a folder with `corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv` and perhaps
`qrels/dev.tsv`. Its candidates are the documents alone. A file of links is a table of two ids a
row, with or without a line of names, perhaps with a grade after them (BEIR), or of TREC's four
columns: query, iteration, document and grade. Of scored pairs a number, the score, stands in the
place of the grade.
"""

import logging
import re
from collections.abc import Mapping, Set
from math import isfinite
from pathlib import Path
from typing import get_args

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.base.files import warn_once
from docemb_lib.base.prompts import Query
from docemb_lib.corpus.reader import (
    TEXTS,
    Reading,
    clean,
    field_in,
    local_documents,
    read_rows,
    read_table,
)
from docemb_lib.evaluation.readers import NO_SPLIT, files_by_split, split_named
from docemb_lib.evaluation.tasks import LabelledPairs, Ranking, Retrieval, ScoredPairs
from docemb_lib.settings.sections import OwnTask, SplitName

TARGET = {2: 1, 3: 1, 4: 2}  # the column of the second id, by the number of columns
ITERATIONS = [[], ["0"], ["Q0"]]  # TREC has such a second column, other layouts have none
# What stands beside two ids: its name, its form, and what to write, for messages.
GRADE = (
    "grade",
    r"\d+",
    "a whole number, 1 or more for a document to find; other numbers are --scored pairs (kind: "
    "scored-pairs)",
)
SCORE = ("score", r"(?i)[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", "a number")

Links = dict[str, dict[str, float]]  # the grade or score of each second document, by their ids
logger = logging.getLogger(__name__)

TITLE = "title"  # stands above the text of a document or query of BEIR
SHOWN = 3  # ids in a message

Texts = Mapping[str, str]  # of documents or queries, by id


def read_links(
    file: Path,
    known: Set[str],
    *,
    scored: bool = False,
    skip_bad: bool = False,
    encoding: str | None = None,
) -> Links:
    """Return the grade of each second id for each first one, 1 where there is none.

    A warning says how a first row of three columns without names is read. Raises InputError for bad
    rows.

    Args:
        known: the ids of documents and queries. A first row with none of them is a line of names.
            Ids of a folder may lack the endings of its files.
        scored: return scores, which may be any numbers, of known ids, in the place of grades.
        skip_bad: leave out bad rows, with a warning.
        encoding: of the file, see `local_documents`.
    """
    what, form, wanted = SCORE if scored else GRADE
    reading = Reading(skip_bad=skip_bad, encoding=encoding)
    links: Links = {}
    full = {Path(id).with_suffix("").as_posix(): id for id in known if id.endswith(TEXTS)}
    full |= {id: id for id in known}
    for row in read_table(file, reading, named=False):
        with reading.collecting():
            values = [clean(value.strip()) for value in row.fields.values()]
            ids = [full.get(value, value) for value in values]
            if row.number == 1 and all(values) and known.isdisjoint(ids):
                continue
            is_short = len(values) not in TARGET or (scored and len(values) == 2)
            if is_short or not all(values) or values[1:-2] not in ITERATIONS:
                raise row.bad(
                    f"it has {len(values)} values; write two ids and a {what}, which may be left "
                    "out unless it is a score, or TREC's four columns, of which the second is 0"
                )
            source = ids[0]
            target = ids[TARGET[len(values)]]
            if scored:  # both orders are one pair
                source, target = sorted((source, target))
            grade = values[-1] if len(values) > 2 else "1"
            if not re.fullmatch(form, grade) or not isfinite(float(grade)):
                raise row.bad(f"the {what} is {grade!r:.40}; write {wanted}")
            if scored and not known >= {source, target}:
                raise row.bad(f"no document has the id {source!r} or {target!r}; let the ids agree")
            value = float(grade)
            if links.setdefault(source, {}).setdefault(target, value) != value:
                raise row.bad(
                    f"{source!r} and {target!r} have another {what} in an earlier row; keep one"
                )
            if row.number == 1 and len(values) == 3:
                row_1 = f"{source!r} and {target!r} with the {what} {grade}"
                warn_once("%s: there are no names of columns; row 1 is read as %s", file, row_1)
    reading.end(file)
    if not links:
        raise InputError(f"{file}: it holds no links; write two ids on each line")
    return links


def judged_task(settings: OwnTask) -> Retrieval | ScoredPairs:
    """Return an own task of retrieval or of scored pairs.

    Raises InputError for files that are missing, malformed, or do not fit each other.
    """
    scored = settings.kind == "scored-pairs"
    path = Path(str(settings.path))
    queries_file = settings.queries
    relevance = settings.relevance
    if relevance is None:  # BEIR's layout
        qrels = {split_named(file.stem): file for file in path.glob("qrels/*.tsv")}
        relevance = {split: qrels[split] for split in get_args(SplitName) if split in qrels}
        if not relevance:
            needed = "corpus.jsonl, queries.jsonl and qrels/test.tsv"
            raise InputError(f"{path}: there is no qrels/test.tsv in it; it must hold {needed}")
        queries_file = path / "queries.jsonl"
        path = path / "corpus.jsonl"
    documents = _texts(path, settings, titled=queries_file is not None)
    queries = (
        _texts(queries_file, settings, titled=True) if queries_file and not scored else documents
    )
    known = documents.keys() | queries.keys()
    by_split = {}
    for split, file in files_by_split(relevance).items():
        by_split[split] = read_links(
            file, known, scored=scored, skip_bad=settings.skip_bad, encoding=settings.encoding
        )
    if NO_SPLIT in by_split:
        by_split = _drawn(by_split[NO_SPLIT], settings)
    if scored:
        pairs = {split: _scored_pairs(documents, links) for split, links in by_split.items()}
        return ScoredPairs(settings.name, pairs)
    rankings = {}
    for split, links in by_split.items():
        where = f"task {settings.name}, split {split}"
        rankings[split] = make_ranking(documents, queries, links, where)
    return Retrieval(settings.name, rankings)


def _texts(file: Path, settings: OwnTask, *, titled: bool) -> dict[str, str]:
    """Return the documents or queries of a file by id. titled: joins a title with the text."""
    fields = settings.text_field
    if titled and isinstance(fields, str):
        rows = read_rows(file, Reading(skip_bad=True, encoding=settings.encoding))
        if any(field_in(row.fields, TITLE) for row in rows):
            fields = [TITLE, fields]
    documents = local_documents(
        file,
        text_field=fields,
        id_field=settings.id_field,
        skip_bad=settings.skip_bad,
        encoding=settings.encoding,
    )
    return {document.id: document.text for document in documents}


def _drawn(links: Links, settings: OwnTask) -> dict[str, Links]:
    """Draw a share of the first ids for validation; the rest is for test, as nothing is trained."""
    held = round(settings.share * len(links))
    order = np.random.default_rng(settings.seed).permutation(sorted(links))
    splits: dict[str, Links] = {"validation": {}, "test": {}}
    drawn = set(order[:held].tolist())
    for query, grades in links.items():
        splits["validation" if query in drawn else "test"][query] = grades
    return {split: queries for split, queries in splits.items() if queries or split == "test"}


def _scored_pairs(documents: Texts, links: Links) -> LabelledPairs:
    pairs = []
    for first, scores in links.items():
        for second, score in scores.items():
            pairs.append((documents[first], documents[second], score, first, second))
    return LabelledPairs(*zip(*pairs, strict=True))


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
            texts.append(Query(text))
            ids.append(f"query {query}")
        relevant.append([row_of[id] for id in found])
        grades.append([positive[id] for id in found])
        missing.append([positive[id] for id in gone])
    named, like = (", ".join(map(repr, some[:SHOWN])) for some in (unknown, [*documents]))
    said = (
        f"{len(unknown)} ids of links are in no text ({named}; the documents' ids look like {like})"
    )
    if not any(relevant):
        mend = "let the ids of queries, documents and links agree, and let some grades be 1 or more"
        raise InputError(f"{where}: no query has a relevant document; {said}; {mend}")
    if unknown or len(rows) < len(links):
        message = (
            "%s: %s: such documents count as not found; %d of %d queries have no text or no "
            "relevant document and are left out"
        )
        logger.warning(message, where, said, len(links) - len(rows), len(links))
    return Ranking(texts, rows, relevant, ids, grades, missing, candidates=len(documents))
