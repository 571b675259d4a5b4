"""What is known of documents without their texts, on disk: sets and orders of millions of ids in a few megabytes.

All of it is SQLite in files that are made anew and removed again; where they need room for sorting, it is that of the
system's temporary files (`TMPDIR`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

CACHE = 8 * 1024  # kB of a database held in memory; what is read again soon the system keeps beside it


class Key(NamedTuple):
    """A document without its text."""

    id: str
    source: str
    digest: bytes  # equal for copies
    see_also: tuple[str, ...]


class Ledger:
    """The documents of a corpus, in a database of its own, which leaving the context removes.

    file: where it lies; seed: of the order in which documents are given.
    """

    def __init__(self, file: Path, *, seed: int) -> None:
        file.unlink(missing_ok=True)  # a killed build left it
        self.file, self.seed = file, seed
        self.database = _open(str(file))
        self.database.execute("CREATE TABLE documents (row INTEGER PRIMARY KEY, id, source, digest, see_also, place)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.database.close()
        self.file.unlink(missing_ok=True)
        if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.file)) from error  # as other files say it

    def add(self, keys: Iterable[Key]) -> None:
        """The next documents, numbered from 0 on."""
        rows = (
            (key.id, key.source, key.digest, json.dumps(key.see_also) if key.see_also else None, self._place(key.id))
            for key in keys
        )
        self.database.executemany("INSERT INTO documents VALUES (NULL, ?, ?, ?, ?, ?)", rows)  # rows count from 1

    def repeated_id(self) -> str | None:
        """The first id that two documents have."""
        query = "SELECT id FROM documents GROUP BY id HAVING COUNT(*) > 1 LIMIT 1"
        found = self.database.execute(query).fetchone()
        return found and found[0]

    def drop_copies(self) -> int:
        """Forget every document whose digest one of an earlier id has; returns how many they were."""
        before = len(self)
        self.database.execute(  # with a single MIN, SQLite takes the other columns from the row that has it
            "CREATE TABLE kept AS SELECT row, MIN(id) AS id, source, digest, see_also, place FROM documents "
            "GROUP BY digest"
        )
        self.database.execute("DROP TABLE documents")
        self.database.execute("ALTER TABLE kept RENAME TO documents")
        return before - len(self)

    def __len__(self) -> int:
        return int(self.database.execute("SELECT COUNT(*) FROM documents").fetchone()[0])

    def linked(self) -> bool:
        """Whether any document refers to another."""
        return (
            self.database.execute("SELECT 1 FROM documents WHERE see_also IS NOT NULL LIMIT 1").fetchone() is not None
        )

    def ordered(self) -> Iterator[tuple[int, Key]]:
        """Documents and their numbers, in an order that depends on `seed` and each id alone."""
        query = "SELECT row - 1, id, source, digest, see_also FROM documents ORDER BY place"
        for row, id, source, digest, links in self.database.execute(query):
            yield row, Key(id, source, digest, tuple(json.loads(links)) if links else ())

    def _place(self, id: str) -> bytes:
        return hashlib.sha256(f"{self.seed}:{id}".encode()).digest()


class Seen:
    """A set of names, each with the place where it was met first."""

    def __init__(self) -> None:
        self.database = _open("")  # a temporary file
        self.database.execute("CREATE TABLE seen (name PRIMARY KEY, file, number) WITHOUT ROWID")

    def add(self, name: str, file: str = "", number: int = 0) -> tuple[str, int] | None:
        """None for a new name, otherwise its first place."""
        if self.database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", (name, file, number)).rowcount:
            return None
        return self.database.execute("SELECT file, number FROM seen WHERE name = ?", (name,)).fetchone()


def kth_smallest(values: Iterable[bytes], k: int) -> bytes | None:
    """The k-th of the values in ascending order, the first being 1; None where there are fewer."""
    database = _open("")
    database.execute("CREATE TABLE drawn (value)")
    database.executemany("INSERT INTO drawn VALUES (?)", ((value,) for value in values))
    found = database.execute("SELECT value FROM drawn ORDER BY value LIMIT 1 OFFSET ?", (k - 1,)).fetchone()
    return found and found[0]


def _open(file: str) -> sqlite3.Connection:
    """A database that is thrown away: nothing in it has to survive a crash."""
    database = sqlite3.connect(file, isolation_level=None)
    for setting in ("journal_mode = OFF", "synchronous = OFF", "temp_store = FILE", f"cache_size = -{CACHE}"):
        database.execute(f"PRAGMA {setting}")
    database.execute("BEGIN")  # never committed, so that pages are written only where the cache is full
    return database
