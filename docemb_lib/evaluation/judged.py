"""Retrieval tasks with queries beside the documents, as BEIR, LongEmbed and TREC lay them out.

A folder holds `corpus.jsonl`, `queries.jsonl`, and `qrels/test.tsv` and `qrels/dev.tsv` (BEIR) or
`qrels.jsonl` (LongEmbed). The candidates are the documents alone.
"""

import csv
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.rows import file_format, lines_of, read_rows, text_of
from docemb_lib.evaluation.readers import split_in
from docemb_lib.evaluation.tasks import Ranking, Retrieval
from docemb_lib.settings.sections import OwnTask, SplitName

logger = logging.getLogger(__name__)

TITLE = "title"  # of a document, which stands before its text where a row has one
# Names of fields in the different layouts.
IDS = ("_id", "doc_id", "qid")
QUERY = ("query-id", "qid", "query_id", "source")
DOCUMENT = ("corpus-id", "doc_id", "docid", "corpus_id", "target")
GRADE = ("score", "relevance", "grade")
# The columns of a file without a line of names, by their number; four are TREC's
COLUMNS = {
    2: (QUERY[0], DOCUMENT[0]),
    3: (QUERY[0], DOCUMENT[0], GRADE[0]),
    4: (QUERY[0], "iteration", DOCUMENT[0], GRADE[0]),
}
DELIMITERS = {".csv": ",", ".tsv": "\t"}
INTEGER = re.compile(r"-?\d{1,9}(\.0+)?")

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
    known = (settings.id_field, *IDS)
    for where, _, fields in read_rows(file):
        name = next((name for name in known if name in fields), settings.id_field)
        id = fields.get(name)
        if isinstance(id, bool) or not isinstance(id, str | int) or str(id) in texts:
            raise InputError(
                f"{where}: the field {name!r} is {id!r:.40}; write a string or an integer that no "
                "earlier row has"
            )
        body = text_of(fields, settings.text_field, where=where)
        title = fields.get(TITLE)
        texts[str(id)] = Text(body, title if isinstance(title, str) else "")
    return texts


def read_judgements(file: Path) -> Judgements:
    """The grades of documents by query; those below 1 mean that a document is not relevant.

    Formats: BEIR's (query-id, corpus-id, score, separated by tabs or commas), TREC's (query,
    iteration, document, grade, separated by white space), two ids a line, and JSON lines. Raises
    InputError for a line that is none of these.
    """
    judgements: Judgements = {}
    for where, fields in _judged_rows(file):
        query, document = (_value(fields, names) for names in (QUERY, DOCUMENT))
        grade = _value(fields, GRADE) or "1"
        if not query or not document or not INTEGER.fullmatch(grade):
            raise InputError(
                f"{where}: the row is {list(fields.values())!r:.80}, but it must name a query, a "
                "document and perhaps a grade, an integer; mend it"
            )
        judgements.setdefault(query, {})[document] = int(float(grade))
    return judgements


def _value(fields: Mapping[str, object], names: Sequence[str]) -> str:
    return next((str(fields[name]).strip() for name in names if name in fields), "")


def _judged_rows(file: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The place and the fields of each row."""
    kind = file_format(file) or ""
    if kind and kind not in DELIMITERS:
        yield from ((row.where, row.fields) for row in read_rows(file))
        return
    columns: Sequence[str] = ()
    for number, line in enumerate(lines_of(file), start=1):
        values = next(csv.reader([line], delimiter=DELIMITERS[kind])) if kind else line.split()
        if not values:
            continue
        if not columns:
            is_named = values[0] in QUERY
            columns = values if is_named else COLUMNS.get(len(values), ())
            if is_named or (len(values) > 2 and not INTEGER.fullmatch(values[-1])):
                continue
        if len(values) != len(columns):
            raise InputError(
                f"{file}, line {number}: it has {len(values)} values; write two ids a line, or a "
                "query, a document and a grade"
            )
        yield f"{file}, line {number}", dict(zip(columns, values, strict=True))


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
