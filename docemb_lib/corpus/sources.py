"""What a corpus is made of: documents, from one's own files or from a dataset hub.

The third source, the documentation of installed packages, stands in `installed_docs`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from docemb_lib.errors import InputError
from docemb_lib.progress import progress

logger = logging.getLogger(__name__)

SHUFFLE_BUFFER = 10_000  # rows a shuffled stream holds in memory


class Document(NamedTuple):
    """One text of a corpus."""

    id: str
    text: str
    source: str  # where it comes from; the class of the package task
    see_also: tuple[str, ...] = ()  # ids of the documents it refers to


def local_documents(path: Path, *, text_field: str = "text", id_field: str = "id") -> list[Document]:
    """The documents of a folder (every .txt and .md below it) or of one .jsonl or .jsonl.gz file.

    In a folder the id is the path below it and the source the name of the folder that holds the file. In a jsonl file
    the id is `id_field`, or the line number where it is missing, and the source is the file's name.
    Raises InputError, naming file and line, for whatever cannot be read as text with a unique id.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; give a folder of .txt/.md files or a .jsonl file")
    if path.is_dir():
        return _folder(path)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return _jsonl(path, text_field=text_field, id_field=id_field)
    raise InputError(
        f"{path}: a corpus is a folder of .txt/.md files or one .jsonl or .jsonl.gz file, not {path.name!r}"
    )


def hub_documents(
    dataset: str,
    *,
    config: str | None = None,
    split: str = "train",
    text_field: str = "text",
    limit: int,
    seed: int = 0,
    min_words: int | None = None,
) -> list[Document]:
    """Up to `limit` documents drawn from a dataset by streaming: a hub's name, or a folder `datasets` can load.

    The stream is shuffled through a buffer, so nothing beyond what is drawn is kept. Blank, repeated and short
    (fewer than `min_words` words) texts are passed over. The id is a hash of the text: rows of a shuffled stream have
    no number, and hub datasets share no id column.
    """
    rows = _stream(dataset, config=config, split=split).shuffle(seed=seed, buffer_size=SHUFFLE_BUFFER)
    source = dataset.rstrip("/").rpartition("/")[2]
    texts = (_text(row, text_field, where=f"{dataset} [{split}]") for row in rows)
    drawn = islice(_distinct(texts, source=source, min_words=min_words or 1), limit)
    documents = list(progress(drawn, desc=f"streaming {source}", total=limit, unit="documents"))
    if not documents:
        raise InputError(
            f"dataset {dataset!r}, split {split!r}: no text of min_words={min_words} words; lower min_words"
        )
    if len(documents) < limit:
        logger.warning("%s [%s] gave %d documents of the %d asked for", dataset, split, len(documents), limit)
    return documents


def _distinct(texts: Iterable[str], *, source: str, min_words: int) -> Iterator[Document]:
    seen: set[str] = set()
    for text in texts:
        id = f"{source}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        if len(text.split()) >= min_words and id not in seen:
            seen.add(id)
            yield Document(id, text, source)


def _stream(dataset: str, *, config: str | None, split: str) -> Any:
    from datasets import load_dataset  # seconds of imports that the other sources do without

    try:
        return load_dataset(dataset, config, split=split, streaming=True)
    except (ValueError, OSError) as error:  # unknown split or config; unknown or unreachable dataset
        reason = " ".join(str(error).split())
        raise InputError(f"dataset {dataset!r}, config {config!r}, split {split!r}: {reason}") from error


def text_files(folder: Path) -> list[Path]:
    """Every .txt and .md file below a folder, in order."""
    return sorted(file for file in folder.rglob("*") if file.suffix in {".txt", ".md"} and file.is_file())


def _folder(folder: Path) -> list[Document]:
    files = text_files(folder)
    if not files:
        raise InputError(f"{folder}: holds no .txt or .md file; add some, or give the path of a .jsonl file")
    documents = []
    for file in files:
        try:
            data = file.read_bytes()
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror}); mend its permissions") from error
        text = _decode(data, file=file, offset=0)
        if not text.strip():
            raise InputError(f"{file}: the document is blank; write text into it or delete it")
        documents.append(Document(file.relative_to(folder).as_posix(), text, file.resolve().parent.name))
    return documents


def _jsonl(file: Path, *, text_field: str, id_field: str) -> list[Document]:
    source = file.name.removesuffix(".gz").removesuffix(".jsonl")
    documents: list[Document] = []
    lines: dict[str, int] = {}
    for number, line in _lines(file):
        where = f"{file}, line {number}"
        record = _record(line, where=where)
        text = _text(record, text_field, where=where)
        if not text.strip():
            raise InputError(f"{where}: field {text_field!r} is blank; write text into it or delete the line")
        name = record.get(id_field, number)
        if not isinstance(name, str | int):
            raise InputError(f"{where}: field {id_field!r} must be a string or an integer, found {name!r}; change it")
        if (first := lines.setdefault(str(name), number)) != number:
            raise InputError(f"{file}, lines {first} and {number}: both have {id_field} {str(name)!r}; rename one")
        documents.append(Document(str(name), text, source))
    if not documents:
        raise InputError(f'{file}: holds no document; write one JSON object a line, as {{"{text_field}": "..."}}')
    return documents


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a file that are not blank, split at newlines only."""
    offset = 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                text = _decode(line, file=file, offset=offset)
                offset += len(line)
                if text.strip():
                    yield number, text
    except (gzip.BadGzipFile, EOFError) as error:
        raise InputError(f"{file}: is not a whole gzip file ({error}); compress it again") from error
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); mend its permissions") from error


def _decode(data: bytes, *, file: Path, offset: int) -> str:
    """UTF-8 to text, a byte order mark dropped; `offset` is where `data` begins in `file`."""
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        position = offset + error.start
        raise InputError(
            f"{file}: byte {position} is {data[error.start]:#04x}, which is not UTF-8; save the file as UTF-8"
        ) from error


def _record(line: str, *, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}: not JSON ({error.msg} at column {error.colno}); write one object a line") from error
    if not isinstance(record, dict):
        raise InputError(f"{where}: found {type(record).__name__} {line.strip()[:40]!r}; write one JSON object a line")
    return record


def _text(record: dict[str, Any], field: str, *, where: str) -> str:
    if field not in record:
        raise InputError(f"{where}: no field {field!r}, found {sorted(record)}; name the one that holds the text")
    text = record[field]
    if not isinstance(text, str):
        raise InputError(
            f"{where}: field {field!r} must be a string, found {type(text).__name__} {text!r:.40}; quote it"
        )
    return text
