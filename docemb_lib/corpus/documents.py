"""Documents, and sets and orders of millions of them on disk, in SQLite files that are removed after use.

Sorting takes room in the system's folder for temporary files (`TMPDIR`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

CACHE = 8 * 1024  # kB of a database held in memory; the system caches its files too
CountTokens = Callable[[list[str]], list[int]]  # texts -> tokens of each


class Document(NamedTuple):
    """One text of a corpus."""

    id: str
    text: str
    source: str  # where it comes from; the class of the package task
    see_also: tuple[str, ...] = ()  # ids of the documents it refers to


class Key(NamedTuple):
    """A document without its text."""

    id: str
    source: str
    digest: bytes  # equal for copies
    see_also: Sequence[str]


class Ledger:
    """The keys of a corpus in a database `file`, which leaving the context removes; `seed` sets their order."""

    def __init__(self, file: Path, *, seed: int) -> None:
        file.unlink(missing_ok=True)  # from a build that was killed
        self.file, self.seed = file, seed
        self.database = _open(str(file))
        self.database.execute("CREATE TABLE documents (row INTEGER PRIMARY KEY, id, source, digest, see_also, place)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.database.close()
        self.file.unlink(missing_ok=True)
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.file)) from error  # as other files raise

    def add(self, keys: Iterable[Key]) -> None:
        """Append keys. They are numbered from 0."""
        rows = (
            (key.id, key.source, key.digest, json.dumps(key.see_also) if key.see_also else None, self._place(key.id))
            for key in keys
        )
        self.database.executemany("INSERT INTO documents VALUES (NULL, ?, ?, ?, ?, ?)", rows)  # SQLite numbers from 1

    def __len__(self) -> int:
        return int(self._first("SELECT COUNT(*) FROM documents"))

    def repeated_id(self) -> str | None:
        """The first id, in their order, that two documents have."""
        return self._first("SELECT id FROM documents GROUP BY id HAVING COUNT(*) > 1 LIMIT 1")

    def linked(self) -> bool:
        """Whether any document refers to another."""
        return self._first("SELECT 1 FROM documents WHERE see_also IS NOT NULL LIMIT 1") is not None

    def drop_copies(self) -> int:
        """Of the documents of one digest keep the one with the first id. Returns how many were dropped."""
        before = len(self)
        self.database.execute(  # with a single MIN, SQLite takes the other columns from the row that has it
            "CREATE TABLE kept AS SELECT row, MIN(id) AS id, source, digest, see_also, place FROM documents "
            "GROUP BY digest"
        )
        self.database.execute("DROP TABLE documents")
        self.database.execute("ALTER TABLE kept RENAME TO documents")
        return before - len(self)

    def ordered(self) -> Iterator[tuple[int, Key]]:
        """The numbers and keys of the documents, ordered by a hash of `seed` and id."""
        query = "SELECT row - 1, id, source, digest, see_also FROM documents ORDER BY place"
        for row, id, source, digest, links in self.database.execute(query):
            yield row, Key(id, source, digest, json.loads(links) if links else [])

    def _first(self, query: str) -> Any:
        found = self.database.execute(query).fetchone()
        return found and found[0]

    def _place(self, id: str) -> bytes:
        return hashlib.sha256(f"{self.seed}:{id}".encode()).digest()


class Seen:
    """A set of names, each with the file and row where it was found first."""

    def __init__(self) -> None:
        self.database = _open("")  # a temporary file
        self.database.execute("CREATE TABLE seen (name PRIMARY KEY, file, number) WITHOUT ROWID")

    def add(self, name: str, file: str = "", number: int = 0) -> tuple[str, int] | None:
        """Add a name. Returns None if it is new, otherwise its first place."""
        if self.database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", (name, file, number)).rowcount:
            return None
        return self.database.execute("SELECT file, number FROM seen WHERE name = ?", (name,)).fetchone()


def kth_smallest(values: Iterable[bytes], k: int) -> bytes | None:
    """The k-th of the values in ascending order, the first being 1; None if there are fewer."""
    database = _open("")
    database.execute("CREATE TABLE drawn (value)")
    database.executemany("INSERT INTO drawn VALUES (?)", ((value,) for value in values))
    found = database.execute("SELECT value FROM drawn ORDER BY value LIMIT 1 OFFSET ?", (k - 1,)).fetchone()
    return found and found[0]


def _open(file: str) -> sqlite3.Connection:
    """A database that need not survive a crash."""
    database = sqlite3.connect(file, isolation_level=None)
    for setting in ("journal_mode = OFF", "synchronous = OFF", "temp_store = FILE", f"cache_size = -{CACHE}"):
        database.execute(f"PRAGMA {setting}")
    database.execute("BEGIN")  # never committed, so that pages are written only when the cache is full
    return database
