"""Documents of a corpus, in a fixed order: from installed documentation, from local files, or from
a hub.
"""

import glob
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from heapq import nsmallest
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from itertools import chain
from pathlib import Path
from typing import Any

from docemb_lib.base.errors import InputError, as_line
from docemb_lib.base.integrity import digest_of
from docemb_lib.base.progress import progress
from docemb_lib.base.tokenizing import batched
from docemb_lib.corpus.document import Document, not_installed
from docemb_lib.corpus.rows import (
    Row,
    any_word,
    file_format,
    lines_of,
    read_rows,
    text_of,
    visible_files,
    well_formed,
)
from docemb_lib.settings.sections import HubDataset, TextSource
from docemb_lib.workspace import VERSIONS, fingerprint_of

logger = logging.getLogger(__name__)

BATCH = 256  # texts given to a counter at once
BY_CONTENT = (
    2**28
)  # bytes of local files that are known by their content: half a second to read, once per process

CountTokens = Callable[[list[str]], list[int]]  # texts -> tokens of each


def read_documents(settings: TextSource, *, count_tokens: CountTokens) -> Iterable[Document]:
    """The documents of a corpus section: at most `settings.documents`.

    count_tokens: texts to their numbers of student tokens, for data sets with `min_student_tokens`.
    """
    if settings.source == "hub":
        return _hub_shares(settings, count_tokens)
    if settings.source == "installed-docs":
        from docemb_lib.corpus.installed_docs import PACKAGES, installed_docs

        documents = installed_docs(settings.packages or PACKAGES)
        return _sampled(lambda: documents, settings)
    read = partial(
        local_documents,
        settings.path or [],
        text_field=settings.text_field,
        id_field=settings.id_field,
    )
    return _sampled(lambda: progress(read(), desc="reading documents", unit="documents"), settings)


def source_fingerprint(settings: TextSource) -> str:
    """A hash that identifies the texts: by versions of packages, or by local files, see
    `files_fingerprint`.
    """
    inputs = {
        "version": VERSIONS["source"],
        **settings.model_dump(mode="json", exclude={"path", "datasets"}),
    }
    if settings.source == "installed-docs":
        from docemb_lib.corpus.installed_docs import PACKAGES, WORDS

        inputs["words"] = WORDS
        inputs["versions"] = {name: _version(name) for name in settings.packages or PACKAGES}
    elif settings.source == "local":
        try:
            inputs["files"] = files_fingerprint(
                (one, _names(one)) for one in local_paths(settings.path or [])
            )
        except InputError as error:
            raise InputError(f"corpus.path: {error}") from None
    else:
        found = [(source, _dataset_files(source)) for source in settings.datasets]
        inputs["files"] = [
            files_fingerprint((file, [file]) for file in files) for _, files in found
        ]
        inputs["datasets"] = [
            {**one.model_dump(), "dataset": stem(Path(one.dataset)) if files else one.dataset}
            for one, files in found
        ]
    return fingerprint_of(inputs)


def streamed(settings: TextSource) -> list[str]:
    """The data sets of a hub that a source streams; none for local files."""
    remote = [source for source in settings.datasets if not _dataset_files(source)]
    return [" ".join(filter(None, (source.dataset, source.config))) for source in remote]


def files_fingerprint(places: Iterable[tuple[Path, Iterable[Path]]]) -> str:
    """A hash of files: of their contents, and of their names in the folder that is named, that
    folder's included.

    So files that are copied or moved stay the same. Of more than `BY_CONTENT` bytes in all, sizes
    and times of the last change stand for the contents. places: files or folders, each with its
    files. Raises InputError.
    """
    named = [
        (file.relative_to(place.parent).as_posix(), file)
        for place, files in places
        for file in files
    ]
    count = Counter(name for name, _ in named)
    try:
        stats = [file.stat() for _, file in named]
        small = sum(stat.st_size for stat in stats) <= BY_CONTENT
        states = (
            [digest_of(file) for _, file in named]
            if small
            else [(one.st_size, one.st_mtime_ns) for one in stats]
        )
    except OSError as error:
        problem = f"the file cannot be read ({error.strerror})"
        mend = "make it readable, or leave it out"
        raise InputError(f"{error.filename}: {problem}; {mend}") from None
    lines = [
        f"{file if count[name] > 1 else name} {state}"
        for (name, file), state in zip(named, states, strict=True)
    ]
    return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def _hub_shares(settings: TextSource, count_tokens: CountTokens) -> Iterator[Document]:
    """Equal shares of all data sets; if `documents` is None, all of the first one and as many of
    each other one.
    """
    share, rest = (
        divmod(settings.documents, len(settings.datasets)) if settings.documents else (None, 0)
    )
    for number, source in enumerate(settings.datasets):
        given = 0
        limit = None if share is None else share + (number < rest)
        for document in hub_documents(
            source, limit=limit, seed=settings.seed, count_tokens=count_tokens
        ):
            given += 1
            yield document
        share = given if share is None else share


def _sampled(read: Callable[[], Iterable[Document]], settings: TextSource) -> Iterable[Document]:
    """The `settings.documents` documents with the lowest hashes of seed and id; added documents
    replace few of them.
    """
    if settings.documents is None:
        return read()
    ids = (document.id for document in read())
    chosen = set(nsmallest(settings.documents, ids, key=partial(_draw, seed=settings.seed)))
    return (document for document in read() if document.id in chosen)


_distributions = cache(packages_distributions)  # reads all of site-packages


@cache
def _version(package: str) -> str:
    """The version of an installed package, by its import name. Raises InputError."""
    with suppress(PackageNotFoundError):
        return version("scikit-learn" if package == "sklearn" else package)
    if names := _distributions().get(package):
        return version(names[0])
    raise not_installed(package)


def local_documents(
    path: Path | Sequence[Path], *, text_field: str = "text", id_field: str = "id"
) -> Iterator[Document]:
    """The documents of folders (every visible .txt and .md file below them) and of data files (see
    `corpus.rows`).

    In a folder the id is the path below it, and the source is the name of the folder that holds the
    file. In a data file the id is `id_field`, or where that is missing the number of the row (after
    the name of the file, if there are several files), and the source is the name of the file
    without its endings. Where such names of two folders or files are the same, the name of the
    folder precedes them. Raises InputError.
    """
    paths, ids = local_paths(path), set[str]()
    names = [_names(one) for one in paths]
    count = Counter(name for own in names for name in own.values())
    for one, own in zip(paths, names, strict=True):
        above = (
            (one if one.is_dir() else one.parent).resolve().name
        )  # makes names differ that repeat
        prefix = well_formed(f"{above}/") if any(count[name] > 1 for name in own.values()) else ""
        prefix += f"{own[one]}:" if len(paths) > 1 and not one.is_dir() else ""
        found = (
            _folder(own, prefix) if one.is_dir() else _data_file(one, text_field, id_field, prefix)
        )
        before = len(ids)
        for where, document in found:
            if not document.text.strip():
                raise InputError(f"{where}: the text is blank; write one, or delete the document")
            if document.id in ids:
                raise InputError(
                    f"{where}: an earlier document has the id {document.id!r}, too; rename one"
                )
            ids.add(document.id)
            yield document
        if len(ids) == before:
            mend = "add .txt or .md files to the folder" if one.is_dir() else "add rows to the file"
            raise InputError(f"{one}: it holds no document; {mend}")


def local_paths(path: Path | Sequence[Path]) -> list[Path]:
    """The folders and data files that a path, a pattern such as `news/*.jsonl.gz`, or a list of
    them stands for.
    """
    found: list[Path] = []
    for one in [path] if isinstance(path, str | Path) else path:
        matches = _matches(one)
        if not matches:
            raise InputError(f"{one} does not exist; name a folder of .txt/.md files or data files")
        found += matches
    return found


def local_files(path: Path | Sequence[Path]) -> list[Path]:
    """The files that `local_documents` reads."""
    return [file for one in local_paths(path) for file in _names(one)]


def _matches(path: Path | str) -> list[Path]:
    """The path itself where it exists, or else what it matches as a pattern."""
    return (
        [Path(path)]
        if Path(path).exists()
        else sorted(map(Path, glob.glob(str(path), recursive=True)))
    )


def _names(path: Path) -> dict[Path, str]:
    """The data file, or the text files of a folder, and what their ids begin with where no field
    gives them.
    """
    if not path.is_dir():
        return {path: stem(path)}
    files = (file for file in visible_files(path) if file.suffix.lower() in {".txt", ".md"})
    return {file: well_formed(file.relative_to(path).as_posix()) for file in files}


def _folder(names: dict[Path, str], prefix: str) -> Iterator[tuple[str, Document]]:
    for file, name in names.items():
        yield (
            str(file),
            Document(
                f"{prefix}{name}", "".join(lines_of(file)), well_formed(file.resolve().parent.name)
            ),
        )


def _data_file(
    file: Path, text_field: str, id_field: str, prefix: str
) -> Iterator[tuple[str, Document]]:
    source = stem(file)
    for where, number, fields in read_rows(file):
        id = fields.get(id_field)
        if id is None:
            id = f"{prefix}{number}"
        yield (
            where,
            Document(well_formed(str(id)), text_of(fields, text_field, where=where), source),
        )


def stem(path: Path) -> str:
    """`wikimedia/wikipedia` → wikipedia, `/data/realnews.jsonl.gz` → realnews."""
    name = path.name.removesuffix(".gz")
    return well_formed(name[: len(name) - len(file_format(path) or "")])


def hub_documents(
    source: HubDataset, *, limit: int | None, seed: int, count_tokens: CountTokens
) -> Iterator[Document]:
    """A uniform sample of `limit` documents of a data set (None: all of them); all rows are
    streamed.

    Skips blank texts, repeated ones, and those below `source.min_student_tokens`, counted by
    `count_tokens`. The id is a hash of the text. The sample, which is held in memory, consists of
    the documents with the lowest hashes of seed and id, in this order; it does not depend on the
    order of rows and shards.
    Raises InputError for local files that cannot be read, ConnectionError for a hub that fails on
    the way.
    """
    name = stem(Path(source.dataset))
    if files := _dataset_files(source):
        rows: Iterator[Row] = chain.from_iterable(map(read_rows, files))
    else:
        rows = (
            row
            for _, row in hub_rows(source.dataset, source.config, [source.split], streaming=True)
        )
    shown = progress(rows, desc=f"streaming {name}", unit="rows")
    texts = (text_of(row.fields, source.text_field, where=row.where) for row in shown)
    ids = (
        (f"{name}/{hashlib.sha256(text.encode()).hexdigest()[:16]}", text)
        for text in texts
        if text.strip()
    )
    documents = (Document(id, text, name) for id, text in ids)
    long = partial(_long, min_tokens=source.min_student_tokens, count_tokens=count_tokens)
    given = set[str]()
    for document in long(documents) if limit is None else _drawn(documents, limit, seed, long):
        if document.id not in given:
            given.add(document.id)
            yield document
    if limit is not None and len(given) < limit:
        logger.warning(
            "%s [%s] gave %d documents of the %d asked for",
            source.dataset,
            source.split,
            len(given),
            limit,
        )


def _drawn(
    documents: Iterator[Document],
    limit: int,
    seed: int,
    long: Callable[[Iterator[Document]], Iterator[Document]],
) -> Iterator[Document]:
    """The `limit` documents with the lowest draws.

    Only those that could be among them are counted by `long`.
    """
    lowest: dict[
        bytes, Document
    ] = {}  # by draw; an eighth more than needed before the highest are left out
    bound = b"\xff" * 32
    candidates = (document for document in documents if _draw(document.id, seed) < bound)
    for document in long(candidates):
        lowest[_draw(document.id, seed)] = document  # a repeated text has the same draw
        if len(lowest) >= limit + max(limit // 8, BATCH):
            lowest = {draw: lowest[draw] for draw in nsmallest(limit, lowest)}
            bound = max(lowest, default=b"")
    yield from (lowest[draw] for draw in nsmallest(limit, lowest))


def _draw(id: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{id}".encode()).digest()


def _long(
    documents: Iterator[Document], min_tokens: int | None, count_tokens: CountTokens
) -> Iterator[Document]:
    if min_tokens is None:
        yield from documents
        return
    for batch in batched(documents, BATCH):
        counts = count_tokens([document.text for document in batch])
        yield from (document for document, n in zip(batch, counts, strict=True) if n >= min_tokens)


def _dataset_files(source: HubDataset) -> list[Path]:
    """The data files of a local data set, of a folder those with the split in their names; [] for a
    hub.
    """
    place = Path(source.dataset)
    if not place.is_dir():
        files = _matches(place)
        if file_format(place) and not files:
            raise InputError(
                f"corpus.datasets: {place} does not exist; name files, a folder or a hub's data set"
            )
        return files
    split, files = (
        any_word(source.split.lower()),
        [file for file in visible_files(place) if file_format(file)],
    )
    own = [file for file in files if split.search(file.relative_to(place).as_posix().lower())]
    if not own:
        problem = f"no data file in this folder has the split {source.split!r} in its name"
        mend = f"name the files by a pattern, such as {place}/*.jsonl"
        raise InputError(f"{place}: {problem}; {mend}")
    return own


def hub_rows(
    dataset: str, config: str | None, splits: Sequence[str], *, streaming: bool
) -> Iterator[tuple[str, Row]]:
    """The split and the fields of every row of a data set of a hub, in those of `splits` that it
    has.

    Raises InputError for an unknown or unreachable data set, ConnectionError for a hub that fails
    on the way.
    """
    from datasets import load_dataset  # takes seconds to import
    from datasets.exceptions import DatasetsError

    load: Callable[..., Any] = partial(load_dataset, dataset, config, streaming=streaming)
    try:
        try:
            found = load()
        except RuntimeError:  # the main branch is a script, which `datasets` no longer runs
            found = load(revision="refs/convert/parquet")  # has the files of such data sets
        if not (named := [name for name in splits if name in found]):
            raise ValueError(f"it has no split {' or '.join(splits)}, only {', '.join(found)}")
    except (ValueError, OSError, DatasetsError) as error:  # also an unknown config
        mend = "correct its name, config or split, connect, or name a folder of its files"
        raise InputError(f"dataset {dataset!r}: it cannot be read ({error}); {mend}") from error
    for name in named:
        where, number = f"dataset {dataset!r}, split {name!r}", 0
        try:
            for number, fields in enumerate(found[name], start=1):
                yield name, Row(f"{where}, row {number}", number, fields)
        except (
            Exception
        ) as error:  # libraries raise many kinds of errors for formats and the network
            reason = f"the stream broke off ({type(error).__name__}: {error})"
            line = f"{where}, after row {number}: {reason}; the same command streams it again"
            raise ConnectionError(as_line(line)) from error
