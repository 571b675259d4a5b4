"""Reads which documents a document or a query should find.

A file of links is a table of two ids a row, with or without a line of names, perhaps with a grade
after them (BEIR), or of TREC's four columns: query, iteration, document and grade.
"""

from collections.abc import Collection
from pathlib import Path

from docemb_lib.corpus.reader import Problems, clean, read_table

TARGET = {2: 1, 3: 1, 4: 2}  # the column of the second id, by the number of columns

Links = dict[str, dict[str, int]]  # the grade of each document for each query, by their ids


def read_links(file: Path, known: Collection[str], *, skip_bad: bool = False) -> Links:
    """Return the grade of each second id for each first one, 1 where there is none.

    Raises InputError for bad rows.

    Args:
        known: the ids of documents and queries. A first row with none of them is a line of names.
        skip_bad: leave out bad rows, with a warning.
    """
    problems = Problems(skip_bad=skip_bad)
    links: Links = {}
    for row in read_table(file, problems, named=False):
        with problems.collecting():
            values = [clean(value.strip()) for value in row.fields.values()]
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
                    "to find"
                )
            links.setdefault(source, {})[target] = int(grade)
    problems.end(file)
    return links
