"""What is known of documents without their texts, on disk: sets and orders of millions of ids in a few megabytes.

All of it is SQLite in files that are made anew and removed again; where they need room for sorting, it is that of the
system's temporary files (`TMPDIR`).
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Self

from docemb_lib.corpus.rows import file_format, read_rows, read_text, text_of
from docemb_lib.errors import InputError
from docemb_lib.progress import progress

# ---- what is known of documents without their texts


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


# ---- what a corpus is made of


logger = logging.getLogger(__name__)

SHUFFLE_BUFFER = 10_000  # rows a shuffled stream holds in memory
BATCH = 256  # texts given to a counter at once
# What `datasets` reads data files with.
BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}

CountTokens = Callable[[list[str]], list[int]]  # texts -> tokens of each


class Document(NamedTuple):
    """One text of a corpus."""

    id: str
    text: str
    source: str  # where it comes from; the class of the package task
    see_also: tuple[str, ...] = ()  # ids of the documents it refers to


def local_documents(path: Path | Sequence[Path], *, text_field: str = "text", id_field: str = "id") -> list[Document]:
    """All that `read_local` reads, in memory."""
    return list(read_local(path, text_field=text_field, id_field=id_field))


def read_local(path: Path | Sequence[Path], *, text_field: str = "text", id_field: str = "id") -> Iterator[Document]:
    """The documents of folders (every .txt and .md below them) and of data files; see `local_paths` and `rows`.

    In a folder the id is the path below it and the source the name of the folder that holds the file. In a data file
    the id is `id_field`, or the number of the row where it is missing (after the file's name, where there are several
    files), and the source is the file's name without its endings.
    Raises InputError, naming file and row, for whatever cannot be read as text with a unique id.
    """
    paths = local_paths(path)
    seen = Seen()
    for one in paths:
        found = _folder(one) if one.is_dir() else _data_file(one, text_field, id_field, alone=len(paths) == 1)
        for file, number, document in found:
            if (first := seen.add(document.id, str(file), number)) is not None:
                both = _both(Path(first[0]), first[1], file, number)
                raise InputError(f"{both}: both have id {document.id!r}; rename one")
            yield document


def local_paths(path: Path | Sequence[Path]) -> list[Path]:
    """Folders and data files that a path, a pattern such as `news/*.jsonl.gz`, or a list of them stands for."""
    found: list[Path] = []
    for one in [path] if isinstance(path, str | Path) else path:
        matches = [Path(one)] if Path(one).exists() else [Path(match) for match in glob.glob(str(one), recursive=True)]
        if not matches:
            raise InputError(
                f"{one} does not exist: no such file or folder; name a folder of .txt/.md files or data files"
            )
        for match in sorted(matches):
            if not match.is_dir() and file_format(match) is None:
                raise InputError(
                    f"{match}: a corpus is a folder of .txt/.md files, or data files: .jsonl, .json, .csv, .tsv (each "
                    f"also .gz) or .parquet, not {match.name!r}"
                )
        found += sorted(matches)
    return found


def text_files(folder: Path) -> list[Path]:
    """Every .txt and .md file below a folder, in order."""
    return sorted(file for file in folder.rglob("*") if file.suffix in {".txt", ".md"} and file.is_file())


def _both(file: Path, number: int, other: Path, again: int) -> str:
    """Two places as one reads of them."""
    rows = "lines" if file_format(file) in {".jsonl", ".json"} else "rows"
    return f"{file}, {rows} {number} and {again}" if file == other else f"{file} and {other}"


def _folder(folder: Path) -> Iterator[tuple[Path, int, Document]]:
    files = text_files(folder)
    if not files:
        raise InputError(f"{folder}: holds no .txt or .md file; add some, or give the path of a data file (.jsonl, …)")
    for file in files:
        text = read_text(file)
        if not text.strip():
            raise InputError(f"{file}: the document is blank; write text into it or delete it")
        yield file, 1, Document(file.relative_to(folder).as_posix(), text, file.resolve().parent.name)


def _data_file(file: Path, text_field: str, id_field: str, *, alone: bool) -> Iterator[tuple[Path, int, Document]]:
    source = file.name.removesuffix(".gz").removesuffix(file_format(file) or "")
    empty = True
    for where, number, fields in read_rows(file):
        empty = False
        text = text_of(fields, text_field, where=where)
        if not text.strip():
            raise InputError(f"{where}: field {text_field!r} is blank; write text into it or delete the row")
        name = fields.get(id_field, number if alone else f"{source}:{number}")
        if not isinstance(name, str | int):
            raise InputError(f"{where}: field {id_field!r} must be a string or an integer, found {name!r}; change it")
        yield file, number, Document(str(name), text, source)
    if empty:
        raise InputError(f"{file}: holds no document; add one with a field {text_field!r}")


def hub_documents(
    dataset: str,
    *,
    config: str | None = None,
    split: str = "train",
    text_field: str = "text",
    limit: int | None,
    seed: int = 0,
    min_words: int | None = None,
    min_tokens: int | None = None,
    count_tokens: CountTokens | None = None,
) -> Iterator[Document]:
    """Up to `limit` documents (None: all) drawn from a data set by streaming.

    dataset: a hub's name, a folder that `datasets` can load, or data files (a pattern). The stream is shuffled through
    a buffer, so nothing beyond what is drawn is kept. Blank, repeated and short texts (of fewer than `min_words` words,
    or fewer than `min_tokens` tokens by `count_tokens`) are passed over. The id is a hash of the text: rows of a
    shuffled stream have no number, and hub datasets share no id column.
    Raises InputError for what cannot be read from local files, ConnectionError for a hub that fails on the way.
    """
    source = _source_name(dataset)
    texts = _texts(dataset, config=config, split=split, seed=seed, text_field=text_field)
    distinct = _distinct(texts, source=source, min_words=min_words or 1)
    if min_tokens is not None:
        if count_tokens is None:
            raise ValueError("min_tokens needs count_tokens, a function from texts to their numbers of tokens")
        distinct = _long(distinct, min_tokens=min_tokens, count_tokens=count_tokens)
    given = 0
    for document in progress(islice(distinct, limit), desc=f"streaming {source}", total=limit, unit="documents"):
        given += 1
        yield document
    if not given:
        limits = {"min_words": min_words, "min_student_tokens": min_tokens}
        least = " and ".join(f"{name}={value}" for name, value in limits.items() if value is not None)
        reason = f"no text is as long as {least}; lower it" if least else f"no text in its field {text_field!r}"
        raise InputError(f"dataset {dataset!r}, split {split!r}: {reason}")
    if limit is not None and given < limit:
        logger.warning("%s [%s] gave %d documents of the %d asked for", dataset, split, given, limit)


def _source_name(dataset: str) -> str:
    """`wikimedia/wikipedia` → wikipedia, `/data/realnews.jsonl.gz` → realnews."""
    name = Path(dataset).name
    return name.removesuffix(".gz").removesuffix(file_format(Path(dataset)) or "")


def _distinct(texts: Iterable[str], *, source: str, min_words: int) -> Iterator[Document]:
    seen = Seen()
    for text in texts:
        id = f"{source}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if len(text.split()) >= min_words and seen.add(id) is None:
            yield Document(id, text, source)


def _long(documents: Iterator[Document], *, min_tokens: int, count_tokens: CountTokens) -> Iterator[Document]:
    """Those of at least so many tokens. A token is a byte or more, so shorter texts need not be counted."""
    candidates = (document for document in documents if len(document.text.encode()) >= min_tokens)
    while batch := list(islice(candidates, BATCH)):
        counts = count_tokens([document.text for document in batch])
        yield from (document for document, n in zip(batch, counts, strict=True) if n >= min_tokens)


def _texts(dataset: str, *, config: str | None, split: str, seed: int, text_field: str) -> Iterator[str]:
    """The texts of the shuffled stream. Whatever ends it early is told in one line that names the data set and the row:
    in local files the very row, of a hub about how far the stream had come."""
    where = f"dataset {dataset!r}, split {split!r}"
    number = 0
    try:
        for row in _stream(dataset, config=config, split=split).shuffle(seed=seed, buffer_size=SHUFFLE_BUFFER):
            text = text_of(row, text_field, where=f"{where}, row {number + 1} as shuffled")
            number += 1
            yield text
    except Exception as error:  # of whatever library: of files, formats or the network
        files = local_data_files(dataset)
        _find_fault([file for file in files if split in file.name] or files, text_field)
        if isinstance(error, InputError):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        if files:
            raise InputError(f"{where}, after row {number}: {reason}; mend its files") from error
        raise ConnectionError(f"{where}, after row {number}: {reason}; the same command goes on from here") from error


def local_data_files(dataset: str) -> list[Path]:
    """The files that a data set consists of; none for one of a hub."""
    places = [Path(dataset)] if Path(dataset).exists() else sorted(map(Path, glob.glob(dataset)))
    found = [file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place])]
    return [file for file in found if file.is_file()]


def _find_fault(files: Iterable[Path], text_field: str) -> None:
    """Read files row by row, which raises an InputError that names the first place that is not as it should be."""
    for file in files:
        if file_format(file):
            for row in read_rows(file):
                text_of(row.fields, text_field, where=row.where)


def _stream(dataset: str, *, config: str | None, split: str) -> Any:
    from datasets import load_dataset  # seconds of imports that the other sources do without

    files = file_format(Path(dataset))
    options: dict[str, Any] = {"delimiter": "\t"} if files == ".tsv" else {}
    try:
        if files:
            options["data_files"] = {split: dataset}
            return load_dataset(BUILDERS[files], split=split, streaming=True, **options)
        return load_dataset(dataset, config, split=split, streaming=True)
    except (ValueError, OSError) as error:  # unknown split or config; unknown or unreachable dataset
        reason = " ".join(str(error).split())
        raise InputError(f"dataset {dataset!r}, config {config!r}, split {split!r}: {reason}") from error
