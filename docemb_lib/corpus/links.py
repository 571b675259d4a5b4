"""Reads which documents a document or a query should find.

A file of links is a table of two ids a row, with or without a line of names, perhaps with a grade
after them (BEIR), or of TREC's four columns: query, iteration, document and grade.
"""

from collections.abc import Collection
from itertools import islice
from pathlib import Path

from docemb_lib.base.errors import InputError, as_line
from docemb_lib.base.integrity import warn_once
from docemb_lib.corpus.rows import Findings, clean, read_table

TARGET = {2: 1, 3: 1, 4: 2}  # the column of the second id, by the number of columns
NAMED = ("source", "query", "query-id")  # names of the first column that need no warning
SHOWN = 3  # ids in a message

Links = dict[str, dict[str, int]]  # the grade of each document for each query, by their ids


def read_links(
    file: Path,
    documents: Collection[str],
    queries: Collection[str] | None = None,
    *,
    skip_bad: bool = False,
) -> Links:
    """Return the grade of each second id for each first one, 1 where there is none.

    A first row whose values are no ids and have no digits is a line of names. Raises InputError for
    bad rows.

    Args:
        documents: their ids.
        queries: their ids; None: documents are the queries, and the two ids of a row differ.
        skip_bad: leave out bad rows, with a warning.
    """
    known = documents if queries is None else queries
    findings = Findings(skip_bad=skip_bad)
    links: Links = {}
    with findings.collecting():
        for where, number, fields in read_table(file, findings, named=False):
            values = [clean(value.strip()) for value in fields.values()]
            with findings.collecting():
                if len(values) not in TARGET or not all(values):
                    raise InputError(
                        f"{where}: it has {len(values)} values; "
                        "write two ids, perhaps with a grade, or TREC's four columns"
                    )
                source = values[0]
                target = values[TARGET[len(values)]]
                is_strange = source not in known and target not in documents
                if number == 1 and is_strange and not any(map(str.isdigit, source + target)):
                    if source.casefold() not in NAMED:
                        named = as_line(f"{source}, {target}")
                        warn_once("%s: the first line (%s) is read as names", as_line(file), named)
                    continue
                if queries is None and source == target:
                    raise InputError(
                        f"{where}: the row names the document {source!r:.40} twice; "
                        "name two different documents"
                    )
                grade = _grade(values[-1], where) if len(values) > 2 else 1
                links.setdefault(source, {})[target] = grade
    findings.end(file)
    return links


def relevant_documents(
    file: Path, known: Collection[str], *, skip_bad: bool = False
) -> dict[str, list[str]]:
    """Return for each id of a file of links the ids to retrieve; those of a grade below 1 not.

    Raises InputError for bad rows, and for ids that are not among the known ones.

    Args:
        skip_bad: leave out bad rows and links to unknown ids, with a warning, if any link is left.
    """
    links = read_links(file, known, skip_bad=skip_bad)
    relevant: dict[str, list[str]] = {}
    unknown: list[str] = []
    lost = 0
    for source, grades in links.items():
        for target, grade in grades.items():
            strange = [id for id in (source, target) if id not in known]
            unknown += strange
            lost += bool(strange)
            if grade > 0 and not strange:
                relevant.setdefault(source, []).append(target)
    if unknown:
        distinct = dict.fromkeys(unknown)
        named, like = (", ".join(map(repr, islice(ids, SHOWN))) for ids in (distinct, known))
        count = sum(map(len, links.values()))
        problem = (
            f"{lost} of {count} links name {len(distinct)} ids that no document has ({named}; "
            f"the documents' ids look like {like})"
        )
        if not (skip_bad and relevant):
            raise InputError(f"{file}: {problem}; let them agree")
        warn_once("%s: %s, and are left out", as_line(file), as_line(problem))
    return relevant


def _grade(value: str, where: str) -> int:
    try:
        return int(value)
    except ValueError:
        mend = "write a whole number, 1 or more for a document to find"
        raise InputError(f"{where}: the grade is {value!r:.40}; {mend}") from None
