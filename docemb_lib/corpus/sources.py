"""Documents of a corpus, in a fixed order: from installed documentation, from local files, or from a hub."""

from __future__ import annotations

import glob
import hashlib
import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from heapq import nsmallest
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from docemb_lib.corpus.rows import DATA_FILES, file_format, read_rows, read_text, text_of, without_surrogates
from docemb_lib.errors import InputError, as_line
from docemb_lib.progress import progress
from docemb_lib.settings import HubDataset, TextSource
from docemb_lib.workspace import VERSIONS, fingerprint_of

logger = logging.getLogger(__name__)

BATCH = 256  # texts given to a counter at once
CACHE = 8 * 1024  # kB of memory for a set of names
BUILDERS = {".jsonl": "json", ".tsv": "csv"}  # of `datasets`, where they are not the format's name
SHINGLE = 5  # words: unrelated texts share hardly any runs of this length
PERMUTATIONS = 128  # length of a signature; the standard error of the similarity is about 1 / sqrt(PERMUTATIONS)

CountTokens = Callable[[list[str]], list[int]]  # texts -> tokens of each


class Document(NamedTuple):
    """One text of a corpus."""

    id: str
    text: str
    source: str  # where it comes from; the class of the package task
    see_also: tuple[str, ...] = ()  # ids of the documents it refers to


def read_documents(settings: TextSource, *, count_tokens: CountTokens) -> Iterable[Document]:
    """The documents of a corpus section: at most `settings.documents`, without near-duplicates where that is set.

    count_tokens: texts to their numbers of student tokens, for data sets with `min_student_tokens`.
    """
    if settings.source == "hub":
        return _distinct(_hub_shares(settings, count_tokens), settings)
    if settings.source == "installed-docs":
        from docemb_lib.corpus.installed_docs import PACKAGES, installed_docs

        documents = installed_docs(settings.packages or PACKAGES)
        return _sampled(lambda: documents, settings)
    read = partial(local_documents, settings.path or [], text_field=settings.text_field, id_field=settings.id_field)
    return _sampled(lambda: iter(progress(read(), desc="reading documents", unit="documents")), settings)


def source_fingerprint(settings: TextSource) -> str:
    """A hash that identifies the texts: by versions of packages, or by names, sizes and times of local files."""
    inputs: dict[str, Any] = {"version": VERSIONS["source"], **settings.model_dump(mode="json", exclude={"path"})}
    if settings.source == "installed-docs":
        from docemb_lib.corpus.installed_docs import PACKAGES

        inputs["versions"] = {name: _version(name) for name in settings.packages or PACKAGES}
    elif settings.source == "local":
        try:
            paths = local_paths(settings.path or [])
        except InputError as error:
            raise InputError(f"corpus.path: {error}") from None
        files = [file for path in paths for file in (text_files(path) if path.is_dir() else [path])]
        inputs["files"] = files_fingerprint(files)
    else:
        found = {source.dataset: _dataset_files(source.dataset) for source in settings.datasets}
        for name in found:
            if file_format(Path(name)) and not found[name]:
                raise InputError(f"corpus.datasets: {name} does not exist; name files, a folder or a hub's data set")
        inputs["files"] = files_fingerprint(f for source in settings.datasets for f in found[source.dataset])
    return fingerprint_of(inputs)


def streamed(settings: TextSource) -> list[str]:
    """The data sets of a hub that a source streams; none for local files."""
    remote = [source for source in settings.datasets if not _dataset_files(source.dataset)]
    return [" ".join(filter(None, (source.dataset, source.config))) for source in remote]


def files_fingerprint(files: Iterable[Path]) -> str:
    stats = ((file, file.stat()) for file in files)
    names = "".join(f"{file} {stat.st_size} {stat.st_mtime_ns}\n" for file, stat in stats)
    return hashlib.sha256(names.encode(errors="surrogateescape")).hexdigest()


def _hub_shares(settings: TextSource, count_tokens: CountTokens) -> Iterator[Document]:
    """Equal shares of all data sets; for no number of documents all of the first one and as many of each other one."""
    share, rest = divmod(settings.documents, len(settings.datasets)) if settings.documents else (None, 0)
    for number, source in enumerate(settings.datasets):
        given = 0
        limit = None if share is None else share + (number < rest)
        for document in hub_documents(source, limit=limit, seed=settings.seed, count_tokens=count_tokens):
            given += 1
            yield document
        share = given if share is None else share


def _sampled(read: Callable[[], Iterable[Document]], settings: TextSource) -> Iterable[Document]:
    """The `settings.documents` documents whose hash of seed and id is lowest: a longer corpus keeps most of them."""
    if settings.documents is None:
        return _distinct(read(), settings)
    ids = (document.id for document in _distinct(read(), settings))
    chosen = set(nsmallest(settings.documents, ids, key=partial(_draw, seed=settings.seed)))
    return (document for document in read() if document.id in chosen)


_distributions = cache(packages_distributions)  # by import name; reads all of site-packages


def _version(package: str) -> str:
    """The version of an installed package, by its import name. Raises InputError."""
    from docemb_lib.corpus.installed_docs import PACKAGES

    if package in PACKAGES:  # their distributions are known: asking for these alone takes a millisecond each
        with suppress(PackageNotFoundError):
            return version("scikit-learn" if package == "sklearn" else package)
    if package not in _distributions():
        raise InputError(f"corpus.packages: {package} is not installed; install it, or leave it out")
    return version(_distributions()[package][0])


def drop_near_duplicates(documents: Iterable[Document], *, similarity: float) -> Iterator[Document]:
    """The documents, in order, without those that are nearly a copy of an earlier one that is kept.

    similarity: the smallest Jaccard index of two sets of five consecutive words, case aside, that counts as a copy. It
    is estimated by MinHash (Broder 1997) among candidates found by banding (Leskovec, Rajaraman and Ullman, Mining of
    Massive Datasets, chapter 3). Texts of fewer than five words are kept.
    """
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError:
        raise InputError('corpus.near_duplicates needs datasketch; install it: pip install "docemb[dedup]"') from None

    index = MinHashLSH(threshold=similarity, num_perm=PERMUTATIONS)
    kept: dict[int, Any] = {}  # signatures by position
    dropped = 0
    for position, document in enumerate(progress(documents, desc="near-duplicates", unit="documents")):
        words = document.text.lower().split()
        if runs := {" ".join(words[start : start + SHINGLE]) for start in range(len(words) - SHINGLE + 1)}:
            signature = MinHash(num_perm=PERMUTATIONS)
            signature.update_batch([run.encode() for run in runs])
            if any(signature.jaccard(kept[other]) >= similarity for other in index.query(signature)):
                dropped += 1
                continue
            index.insert(position, signature)
            kept[position] = signature
        yield document
    if dropped:
        logger.warning("%d documents are nearly copies of earlier ones and are left out", dropped)


def _distinct(documents: Iterable[Document], settings: TextSource) -> Iterable[Document]:
    similarity = settings.near_duplicates
    return documents if similarity is None else drop_near_duplicates(documents, similarity=similarity)


def local_documents(
    path: Path | Sequence[Path], *, text_field: str = "text", id_field: str = "id"
) -> Iterator[Document]:
    """The documents of folders (every .txt and .md file below them) and of data files (see `corpus.rows`).

    In a folder the id is the path below it, and the source is the name of the folder that holds the file. In a data
    file the id is `id_field`, or where that is missing the number of the row (after the name of the file, if there are
    several files), and the source is the name of the file without its endings.
    """
    paths, seen = local_paths(path), Seen()
    for one in paths:
        found = _folder(one) if one.is_dir() else _data_file(one, text_field, id_field, alone=len(paths) == 1)
        for place, given in found:  # names of files and ids may hold surrogates as texts do
            where, id, source = map(without_surrogates, (place, given.id, given.source))
            document = given._replace(id=id, source=source)
            if (first := seen.add(document.id, where)) is not None:
                raise InputError(f"{first} and {where}: both have id {document.id!r}; rename one")
            yield document


def local_paths(path: Path | Sequence[Path]) -> list[Path]:
    """The folders and data files that a path, a pattern such as `news/*.jsonl.gz`, or a list of them stands for."""
    found: list[Path] = []
    for one in [path] if isinstance(path, str | Path) else path:
        named = [str(one)] if Path(one).exists() else sorted(glob.glob(str(one), recursive=True), reverse=True)
        matches = sorted(map(Path, {os.path.realpath(name): name for name in named}.values()))  # links may form a loop
        if not matches:
            raise InputError(
                f"{one} does not exist: no such file or folder; name a folder of .txt/.md files or data files"
            )
        for match in matches:
            if not match.exists():
                raise InputError(f"{match}: a link that leads to no file; remove it")
            if not match.is_dir() and file_format(match) is None:
                raise InputError(f"{match}: a corpus is a folder of .txt/.md files, or data files: {DATA_FILES}")
        found += matches
    return found


def text_files(folder: Path) -> list[Path]:
    """Every .txt and .md file below a folder, in order."""
    return sorted(file for file in folder.rglob("*") if file.suffix in {".txt", ".md"} and file.is_file())


def _folder(folder: Path) -> Iterator[tuple[str, Document]]:
    files = text_files(folder)
    if not files:
        raise InputError(f"{folder}: holds no .txt or .md file; add some, or give the path of a data file (.jsonl, …)")
    for file in files:
        text = read_text(file)
        if not text.strip():
            raise InputError(f"{file}: the document is blank; write text into it or delete it")
        yield str(file), Document(file.relative_to(folder).as_posix(), text, file.resolve().parent.name)


def _data_file(file: Path, text_field: str, id_field: str, *, alone: bool) -> Iterator[tuple[str, Document]]:
    source, number = _stem(file), 0
    for where, number, fields in read_rows(file):
        text = text_of(fields, text_field, where=where)
        if not text.strip():
            raise InputError(f"{where}: field {text_field!r} is blank; write text into it or delete the row")
        name = fields.get(id_field, number if alone else f"{source}:{number}")
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise InputError(f"{where}: field {id_field!r} must be a string or an integer, found {name!r}; change it")
        yield where, Document(str(name), text, source)
    if not number:
        raise InputError(f"{file}: holds no document; add one with a field {text_field!r}")


def _stem(path: Path) -> str:
    """`wikimedia/wikipedia` → wikipedia, `/data/realnews.jsonl.gz` → realnews."""
    return path.name.removesuffix(".gz").removesuffix(file_format(path) or "")


class Seen:
    """A set of names, each with the place where it was found first; on disk, because names may be millions."""

    def __init__(self) -> None:
        self.database = sqlite3.connect("")  # a temporary file; nothing is committed: pages leave a full cache only
        self.database.executescript(f"PRAGMA journal_mode = OFF; PRAGMA cache_size = -{CACHE}")
        self.database.execute("CREATE TABLE seen (name PRIMARY KEY, place) WITHOUT ROWID")

    def add(self, name: str, place: str = "") -> str | None:  # its first place if the name is known
        if self.database.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (name, place)).rowcount:
            return None
        return self.database.execute("SELECT place FROM seen WHERE name = ?", (name,)).fetchone()[0]


def hub_documents(source: HubDataset, *, limit: int | None, seed: int, count_tokens: CountTokens) -> Iterator[Document]:
    """`limit` documents of a data set (None: all), each set of so many being equally likely; all rows are streamed.

    Skips blank texts, repeated ones, and those below `source.min_words` or `source.min_student_tokens`, counted by
    `count_tokens`. The id is a hash of the text. The sample are the documents whose hash of seed and id is lowest, in
    this order: wherever they stand, and in whichever shard. It is held in memory.
    Raises InputError for local files that cannot be read, ConnectionError for a hub that fails on the way.
    """
    name = _stem(Path(source.dataset))
    texts = progress(_texts(source), desc=f"streaming {name}", unit="rows")
    several = (text for text in texts if len(text.split()) >= (source.min_words or 1))
    documents = (Document(f"{name}/{hashlib.sha256(text.encode()).hexdigest()[:16]}", text, name) for text in several)
    long = partial(_long, min_tokens=source.min_student_tokens, count_tokens=count_tokens)
    given, seen = 0, Seen()
    for document in long(documents) if limit is None else _drawn(documents, limit, seed, long):
        if seen.add(document.id) is None:
            given += 1
            yield document
    if not given:
        limits = source.model_dump(include={"min_words", "min_student_tokens"}, exclude_none=True)
        least = " and ".join(f"{field}={value}" for field, value in limits.items())
        reason = f"no text is as long as {least}; lower it" if least else f"no text in its field {source.text_field!r}"
        raise InputError(f"dataset {source.dataset!r}, split {source.split!r}: {reason}")
    if limit is not None and given < limit:
        logger.warning("%s [%s] gave %d documents of the %d asked for", source.dataset, source.split, given, limit)


def _drawn(
    documents: Iterator[Document], limit: int, seed: int, long: Callable[[Iterator[Document]], Iterator[Document]]
) -> Iterator[Document]:
    """The `limit` documents with the lowest draws. Only those that could be among them are counted by `long`."""
    lowest: dict[bytes, Document] = {}  # by draw; an eighth more than needed before the highest are left out
    bound = b"\xff" * 32
    candidates = (document for document in documents if _draw(document.id, seed) < bound)
    for document in long(candidates):
        lowest[_draw(document.id, seed)] = document  # a repeated text has the same draw
        if len(lowest) >= limit + max(limit // 8, BATCH):
            lowest = {draw: lowest[draw] for draw in nsmallest(limit, lowest)}
            bound = max(lowest)
    yield from (lowest[draw] for draw in nsmallest(limit, lowest))


def _draw(id: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{id}".encode()).digest()


def _long(documents: Iterator[Document], min_tokens: int | None, count_tokens: CountTokens) -> Iterator[Document]:
    if min_tokens is None:
        yield from documents
        return
    # A token has a byte or more: shorter texts need not be counted.
    candidates = (document for document in documents if len(document.text.encode()) >= min_tokens)
    while batch := list(islice(candidates, BATCH)):
        counts = count_tokens([document.text for document in batch])
        yield from (document for document, n in zip(batch, counts, strict=True) if n >= min_tokens)


def _texts(source: HubDataset) -> Iterator[str]:
    """The texts of all rows. An error names the row of a local file, or how far the stream of a hub came."""
    where, number = f"dataset {source.dataset!r}, split {source.split!r}", 0
    try:
        for row in _stream(source):
            text = text_of(row, source.text_field, where=f"{where}, row {number + 1}")
            number += 1
            yield text
    except Exception as error:  # libraries raise many kinds of errors for files, formats and the network
        files = _dataset_files(source.dataset)
        for file in [file for file in files if source.split in file.name] or files:
            for found in read_rows(file) if file_format(file) else ():  # raises at the first bad row, naming it
                text_of(found.fields, source.text_field, where=found.where)
        if isinstance(error, InputError):
            raise
        reason = as_line(f"{type(error).__name__}: {error}")
        if files:
            raise InputError(f"{where}, after row {number}: {reason}; mend its files") from error
        raise ConnectionError(f"{where}, after row {number}: {reason}; the same command streams it again") from error


def _dataset_files(dataset: str) -> list[Path]:
    """All local files of a data set; none for one on a hub."""
    places = [Path(dataset)] if Path(dataset).exists() else sorted(map(Path, glob.glob(dataset)))
    files = (file for place in places for file in (sorted(place.rglob("*")) if place.is_dir() else [place]))
    return [file for file in files if file.is_file()]


def _stream(source: HubDataset) -> Any:
    from datasets import load_dataset  # takes seconds to import

    name, format = source.dataset, file_format(Path(source.dataset))
    try:
        if not format:
            return load_dataset(name, source.config, split=source.split, streaming=True)
        options = {"delimiter": "\t"} if format == ".tsv" else {}
        files, builder = {source.split: name}, BUILDERS.get(format, format[1:])
        return load_dataset(builder, split=source.split, streaming=True, data_files=files, **options)
    except (ValueError, OSError) as error:  # unknown split or config; unknown or unreachable data set
        raise InputError(f"dataset {name!r}, config {source.config!r}, split {source.split!r}: {error}") from error
