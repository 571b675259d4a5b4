"""Reads which documents a document or a query should find, in the layouts that people have.

They are two ids a line, with or without names of columns, separated by tabs, commas, semicolons or
blanks; a grade after them (BEIR); TREC's query, iteration, document and grade; and JSON or Parquet
with such fields.
"""

import csv
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

from docemb_lib.base.errors import InputError, as_line
from docemb_lib.base.integrity import warn_once
from docemb_lib.corpus.reader import id_text
from docemb_lib.corpus.rows import (
    Findings,
    Row,
    delimiter_in,
    field_in,
    file_format,
    lines_of,
    read_rows,
)

# Names of fields. The first ones stand for columns without names.
SOURCE = ("source", "query", "query-id", "query_id", "qid")
TARGET = ("target", "doc", "document", "corpus-id", "corpus_id", "doc_id", "docid")
GRADE = ("score", "grade", "relevance")
LAYOUTS: dict[int, Sequence[str]] = {
    2: (SOURCE[0], TARGET[0]),
    3: (SOURCE[0], TARGET[0], GRADE[0]),
    4: (SOURCE[0], "iteration", TARGET[0], GRADE[0]),
}
TABLES = (".csv", ".tsv", ".txt", ".qrels", "")  # endings of files of columns
SHOWN = 3  # ids in a message


def read_links(
    file: Path,
    documents: Collection[str],
    findings: Findings,
    *,
    queries: Collection[str] | None = None,
) -> Iterator[tuple[str, str, int]]:
    """The two ids of each row, of a query and a document, and the grade, 1 where there is none.

    A first row whose values are no ids and have no digits is a line of names, and a warning says
    so.

    Args:
        documents: their ids.
        findings: collects bad rows, see `read_rows`.
        queries: their ids; None: documents are the queries, and the two ids of a row differ.
    """
    rows = _table_rows(file) if _is_table(file) else read_rows(file, findings)
    known = documents if queries is None else queries
    with findings.collecting():
        for row in rows:
            with findings.collecting():
                source, target = _ids(row)
                is_strange = source not in known and target not in documents
                if row.number == 1 and is_strange and not any(map(str.isdigit, source + target)):
                    named = as_line(f"{source}, {target}")
                    warn_once("%s: the first line (%s) is read as names", as_line(file), named)
                    continue
                if queries is None and source == target:
                    raise InputError(
                        f"{row.where}: the row names the document {source!r:.40} twice; "
                        "name two different documents"
                    )
                yield source, target, _grade(row)


def may_hold_links(file: Path) -> bool:
    """Whether the name of a file is that of a visible file which `read_links` reads."""
    is_read = _is_table(file) or file_format(file) is not None
    return is_read and not file.name.startswith(".")


def _is_table(file: Path) -> bool:
    return Path(file.name.removesuffix(".gz")).suffix.lower() in TABLES


def relevant_documents(
    file: Path, known: Collection[str], *, skip_bad: bool = False
) -> dict[str, list[str]]:
    """For each id of a file of links the ids to retrieve, each once; those of a grade below 1 not.

    Raises InputError for bad rows, and for ids that are not among the known ones.

    Args:
        skip_bad: leave out bad rows and links to unknown ids, with a warning, if any link is left.
    """
    findings = Findings(skip_bad=skip_bad)
    links: dict[str, dict[str, None]] = {}
    unknown: dict[str, None] = {}
    count = lost = 0
    for source, target, grade in read_links(file, known, findings):
        count += 1
        strange = [id for id in (source, target) if id not in known]
        if strange:
            lost += 1
            unknown |= dict.fromkeys(strange)
        elif grade > 0:
            links.setdefault(source, {})[target] = None
    findings.end(file)
    if unknown:
        named, like = (", ".join(map(repr, islice(ids, SHOWN))) for ids in (unknown, known))
        problem = f"{lost} of {count} links name {len(unknown)} ids that no document has ({named}"
        looks = f"; the documents' ids look like {like})"
        if not (skip_bad and links):
            raise InputError(f"{file}: {problem}{looks}; let them agree")
        warn_once("%s: %s%s, and are left out", as_line(file), as_line(problem), as_line(looks))
    return {source: list(targets) for source, targets in links.items()}


def _ids(row: Row) -> tuple[str, str]:
    ids = []
    for names in (SOURCE, TARGET):
        name = field_in(row.fields, *names)
        value = None if name is None else row.fields[name]
        if value is None:
            raise InputError(
                f"{row.where}: the row has no {names[0]}, only {list(row.fields.values())!r:.60}; "
                f"name two documents, {SOURCE[0]} and {TARGET[0]}"
            )
        ids.append(id_text(value, row.where, str(name)))
    return ids[0], ids[1]


def _grade(row: Row) -> int:
    name = field_in(row.fields, *GRADE)
    value = "1" if name is None else str(row.fields[name]).strip()
    try:
        grade = float(value)
        if grade % 1 == 0:
            return int(grade)
    except ValueError:
        pass
    raise InputError(f"{row.where}: the grade is {value!r:.40}; write an integer")


def _table_rows(file: Path) -> Iterator[Row]:
    """The rows of a file of columns; the first line may name them."""
    lines: Iterator[str] = filter(str.strip, lines_of(file))
    first = next(lines, "")
    delimiter = delimiter_in(first, "\t" if "\t" in first else ",;")  # ids may hold commas
    lines = chain([first] if first else [], lines)
    table: Iterator[list[str]] = (line.split() for line in lines)
    if delimiter in first:
        table = csv.reader(lines, delimiter=delimiter, strict=True)
    columns: Sequence[str] = ()
    number = 0
    try:
        for values in table:
            values = [value.strip() for value in values]
            if not columns:
                columns = values
                fields = dict.fromkeys(values)
                if field_in(fields, *SOURCE) is not None and field_in(fields, *TARGET) is not None:
                    continue
                columns = LAYOUTS.get(len(values), ())
            number += 1
            where = f"{file}, row {number}"
            if len(values) != len(columns):
                raise InputError(
                    f"{where}: it has {len(values)} values; "
                    "write two ids, perhaps with a grade, or TREC's four columns"
                )
            yield Row(where, number, dict(zip(columns, values, strict=True)))
    except csv.Error as error:
        raise InputError(
            f"{file}: there is broken quoting near row {number + 1} ({error}); "
            "close every quoted value"
        ) from error
