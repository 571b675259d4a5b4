"""Reads the documents of a corpus from installed documentation, local files, or a hub.

The order of the documents is the same in each run.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from heapq import nsmallest
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from docemb_lib.base.errors import InputError, as_line
from docemb_lib.base.files import digest_of, fingerprint_of, hash_of
from docemb_lib.base.progress import progress
from docemb_lib.base.tokenizing import batched
from docemb_lib.corpus.document import Document, not_installed
from docemb_lib.corpus.reader import (
    Reading,
    Row,
    common_folder,
    files_in,
    local_documents,
    local_paths,
    path_below,
    text_of,
    visible_files,
)
from docemb_lib.settings.sections import HubDataset, TextSource

logger = logging.getLogger(__name__)

BATCH = 256  # texts given to a counter at once
# Local files of at most so many bytes in all are identified by their contents, which takes half a
# second to read, once per process.
BY_CONTENT = 2**28

CountTokens = Callable[[list[str]], list[int]]  # texts -> the number of tokens of each


def read_documents(settings: TextSource, *, count_tokens: CountTokens) -> Iterable[Document]:
    """Return the documents of a corpus section, at most `settings.documents`.

    Args:
        count_tokens: gives numbers of student tokens, for data sets with `min_student_tokens`.
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
        skip_bad=settings.skip_bad,
        encoding=settings.encoding,
    )
    return _sampled(lambda: progress(read(), desc="reading documents", unit="documents"), settings)


def source_fingerprint(settings: TextSource) -> str:
    """Return a hash that identifies the texts, see `source_inputs`."""
    return fingerprint_of(source_inputs(settings))


def source_inputs(settings: TextSource) -> dict[str, Any]:
    """Return what identifies the texts, as JSON: versions of packages, or `files_fingerprint`.

    Raises InputError for a package or a file that is not there.
    """
    inputs: dict[str, Any] = settings.model_dump(mode="json", exclude={"path", "datasets"})
    if settings.source == "installed-docs":
        from docemb_lib.corpus.installed_docs import PACKAGES, WORDS

        inputs["words"] = WORDS
        inputs["versions"] = {name: _version(name) for name in settings.packages or PACKAGES}
    elif settings.source == "local":
        try:
            inputs["files"] = files_fingerprint(local_paths(settings.path or []))
        except InputError as error:
            raise InputError(f"corpus.path: {error}") from None
    else:
        inputs["datasets"] = []
        for source in settings.datasets:
            fields = source.model_dump()
            place = Path(source.dataset)
            if place.is_dir():  # the folder that holds it does not matter
                files = files_fingerprint(visible_files(place))
                fields |= {"dataset": place.name, "files": files}
            inputs["datasets"].append(fields)
    return inputs


def streamed(settings: TextSource) -> list[str]:
    """Return the data sets of a hub that a source streams; none for local files."""
    remote = (each for each in settings.datasets if not Path(each.dataset).is_dir())
    return [" ".join(filter(None, (source.dataset, source.config))) for source in remote]


def files_fingerprint(places: Sequence[Path]) -> str:
    """Return a hash of the contents and names of files, which copying and moving do not change.

    For more than `BY_CONTENT` bytes in all, sizes and times of the last change stand for the
    contents. Raises InputError for an unreadable file. places: files, and folders of text files.
    """
    files = [file for place in places for file in files_in(place)]
    top = common_folder(places)
    lines = []
    try:
        is_small = sum(file.stat().st_size for file in files) <= BY_CONTENT
        for file in files:
            stat = file.stat()
            state = digest_of(file) if is_small else (stat.st_size, stat.st_mtime_ns)
            lines.append(f"{path_below(top, file)} {state}")
    except OSError as error:
        raise InputError(
            f"{error.filename}: the file cannot be read ({error.strerror}); "
            "make it readable, or leave it out"
        ) from error
    return hash_of("\n".join(lines))


@cache
def _version(package: str) -> str:
    """Return the version of an installed package, by its import name. Raises InputError."""
    with suppress(PackageNotFoundError):  # most are installed under their import name
        return version("scikit-learn" if package == "sklearn" else package)
    names = packages_distributions().get(package)  # reads all of site-packages
    if not names:
        raise not_installed(package)
    return version(names[0])


def _sampled(read: Callable[[], Iterable[Document]], settings: TextSource) -> Iterable[Document]:
    """Return the `settings.documents` documents with the lowest hashes of seed and id.

    Documents that are added later replace few of them.
    """
    if settings.documents is None:
        return read()
    ids = (document.id for document in read())
    chosen = set(nsmallest(settings.documents, ids, key=partial(_draw, seed=settings.seed)))
    return (document for document in read() if document.id in chosen)


def _draw(id: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{id}".encode()).digest()


def _hub_shares(settings: TextSource, count_tokens: CountTokens) -> Iterator[Document]:
    """Yield equal shares of all data sets.

    Without `settings.documents`, all of the first data set and as many of each other one.
    """
    limit = None
    for number, source in enumerate(settings.datasets):
        if settings.documents is not None:  # the first data sets take the remainder
            limit = -(-(settings.documents - number) // len(settings.datasets))
        given = 0
        for document in hub_documents(
            source, limit=limit, seed=settings.seed, count_tokens=count_tokens
        ):
            given += 1
            yield document
        limit = given if limit is None else limit


def hub_documents(
    source: HubDataset, *, limit: int | None, seed: int, count_tokens: CountTokens
) -> Iterator[Document]:
    """Yield a uniform sample of `limit` documents of a data set (None: all), which is streamed.

    Blank and repeated texts are left out, and those below `source.min_student_tokens`. The id is a
    hash of the text. The sample, which is held in memory, consists of the documents with the lowest
    hashes of seed and id, in this order; it does not depend on the order of rows and shards.

    Raises InputError for a row without the text, ConnectionError for a hub that fails on the way.
    """
    least = source.min_student_tokens
    lowest: dict[bytes, Document | None] = {}  # by draw
    bound = b"\xff" * 32  # above it are documents that cannot be among the lowest
    for batch in batched(_hashed_documents(source), BATCH):
        new = {_draw(document.id, seed): document for document in batch}
        new = {draw: new[draw] for draw in new if draw < bound and draw not in lowest}
        if least is not None:
            counts = count_tokens([document.text for document in new.values()])
            new = {draw: new[draw] for draw, n in zip(new, counts, strict=True) if n >= least}
        if limit is None:
            yield from new.values()
            lowest |= dict.fromkeys(new)
            continue
        lowest |= new
        # Sorting is rare, because an eighth more than needed is collected before it.
        if len(lowest) >= limit + max(limit // 8, BATCH):
            lowest = {draw: lowest[draw] for draw in nsmallest(limit, lowest)}
            bound = max(lowest, default=b"")
    if limit is not None:
        yield from filter(None, (lowest[draw] for draw in nsmallest(limit, lowest)))
        if len(lowest) < limit:
            message = "%s [%s] gave %d documents of the %d asked for"
            logger.warning(message, source.dataset, source.split, len(lowest), limit)


def _hashed_documents(source: HubDataset) -> Iterator[Document]:
    """Yield the documents of all rows with a text."""
    name = Path(source.dataset).name  # wikipedia of wikimedia/wikipedia
    reading = Reading()
    pairs = hub_rows(source.dataset, source.config, [source.split], streaming=True)
    rows = (row for _, row in pairs)
    for row in progress(rows, desc=f"streaming {name}", unit="rows"):
        with reading.collecting():
            text = text_of(row, [source.text_field])
            if not text.strip():
                reading.left_out["blank text"] += 1
                continue
            yield Document(f"{name}/{hash_of(text)[:16]}", text, name)
    reading.end(source.dataset)


def hub_rows(
    dataset: str, config: str | None, splits: Sequence[str], *, streaming: bool
) -> Iterator[tuple[str, Row]]:
    """Yield the split and the row for every row of a data set, in its splits among `splits`.

    dataset: an id on a hub, or a folder of which `datasets` finds the splits by the names of its
    files. Raises InputError for an unknown or unreachable data set, ConnectionError for one that
    fails on the way.
    """
    from datasets import load_dataset  # takes seconds to import
    from datasets.exceptions import DatasetsError

    load = partial(load_dataset, dataset, config, streaming=streaming)
    try:
        try:
            tables = load()
        except RuntimeError:  # the main branch is a script, which `datasets` no longer runs
            tables = load(revision="refs/convert/parquet")  # has the files of such data sets
        known = [name for name in splits if name in tables]
        if not known:
            raise ValueError(f"it has no split {' or '.join(splits)}, only {', '.join(tables)}")
    except (ValueError, OSError, DatasetsError) as error:  # also an unknown config
        raise InputError(
            f"dataset {dataset!r}: it cannot be read ({error}); "
            "correct its name, config or split, connect, or name a folder of its files"
        ) from error
    for name in known:
        where = f"dataset {dataset!r}, split {name!r}"
        number = 0
        try:
            for number, fields in enumerate(tables[name], start=1):
                yield name, Row(f"{where}, row {number}", number, fields)
        except Exception as error:  # formats and the network raise many kinds of errors
            message = (
                f"{where}, after row {number}: the stream broke off "
                f"({type(error).__name__}: {error}); the same command streams it again"
            )
            raise ConnectionError(as_line(message)) from error
