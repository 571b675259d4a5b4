"""Reads documents from folders and data files: for commands, corpora and tasks alike.

Every error names the file, the row and the field. Bad rows and files are reported together, and
what is passed over is counted.
"""

import glob
import os
from collections.abc import Collection, Iterator, Sequence
from decimal import Decimal
from pathlib import Path

from docemb_lib.base.errors import InputError, as_line
from docemb_lib.base.integrity import warn_once
from docemb_lib.corpus.document import Document
from docemb_lib.corpus.rows import (
    Findings,
    check_format,
    clean,
    ending_of,
    field_in,
    file_format,
    lines_of,
    read_rows,
    text_of,
    visible_files,
    well_formed,
)

IDS = ("id", "_id", "doc_id", "docid", "uid", "uuid")  # fields that may hold an id; the first one
TITLE = "title"  # the field of a document that stands above its text, if it is read
TEXTS = {".txt", ".md"}  # endings of the files of a folder that are documents


def local_documents(
    path: Path | Sequence[Path],
    *,
    text_field: str | Sequence[str] = "text",
    id_field: str | None = None,
    skip_bad: bool = False,
) -> Iterator[Document]:
    """Yield the documents of folders (every visible .txt and .md file below them) and data files.

    In a folder the id is the path below it, and the source is the name of the folder that holds the
    file. In a data file (see `corpus.rows`) the source is the name of the file without its endings.
    A warning counts what is passed over.

    Args:
        text_field: one or several, whose texts are joined.
        id_field: None: the first of IDS. Where no row has one of these, ids are the numbers of the
            rows, and a warning says so. If there are several folders and files, their paths precede
            the ids that no field gives.
        skip_bad: leave out bad rows and files, with a warning.

    Raises InputError for bad rows and files (without a text or an id, with a repeated id, not
    readable) after the last one, and for a place without documents.
    """
    places = local_paths(path)
    top = os.path.commonpath([place.resolve().parent for place in places])
    texts = [text_field] if isinstance(text_field, str) else text_field
    findings = Findings(skip_bad=skip_bad)
    ids: set[str] = set()
    for place in places:
        prefix = place.resolve().relative_to(top).as_posix() if len(places) > 1 else ""
        if place.is_dir():
            documents = _of_folder(place, prefix, findings)
        else:
            documents = _of_file(place, prefix, texts, id_field, findings)
        before = len(ids)
        for where, document in documents:
            with findings.collecting():
                _check(document, ids, where)
                ids.add(document.id)
                if not findings.refused:
                    yield document
        if len(ids) == before and not findings.refused:
            findings.end(place)
            mend = "add rows to the file"
            if place.is_dir():
                mend = f"add .txt or .md files, or name data files, as in {place}/*.parquet"
            raise InputError(f"{place}: it holds no document; {mend}")
    findings.end(places[0] if len(places) == 1 else f"{len(places)} files and folders")


def local_paths(path: Path | Sequence[Path]) -> list[Path]:
    """Return the folders and data files of a path, a pattern (`news/*.jsonl.gz`) or a list.

    Raises InputError for a path or a pattern without a match, and for a file that is no data file.
    """
    places = []
    for place in [path] if isinstance(path, str | Path) else path:
        matched = matches(place)
        if not matched:
            raise InputError(
                f"{place} does not exist; name a folder of .txt/.md files or data files"
            )
        places += matched
    for place in places:
        if not place.is_dir():
            check_format(place)
    return places


def matches(path: Path | str) -> list[Path]:
    """Return the path itself where it exists, or else what it matches as a pattern."""
    if Path(path).exists():
        return [Path(path)]
    return sorted(map(Path, glob.glob(str(path), recursive=True)))


def files_in(place: Path) -> list[Path]:
    """Return the data file itself, or the text files of a folder."""
    if not place.is_dir():
        return [place]
    return [file for file in visible_files(place) if file.suffix.lower() in TEXTS]


def stem(path: Path) -> str:
    """Return wikipedia of `wikimedia/wikipedia`, realnews of `/data/realnews.jsonl.gz`."""
    return well_formed(path.name.removesuffix(".gz").removesuffix(file_format(path) or ""))


def _check(document: Document, ids: Collection[str], where: str) -> None:
    """Raise InputError for a blank or binary text, and for an id that is among `ids`."""
    if not document.text.strip():
        raise InputError(f"{where}: the text is blank; write one, or delete the document")
    if "\0" in document.text:
        problem = "the text holds NUL bytes, as a binary file does"
        raise InputError(f"{where}: {problem}; save it again as UTF-8")
    if document.id in ids:
        raise InputError(
            f"{where}: an earlier document has the id {document.id!r}, too; rename one"
        )


def _of_folder(folder: Path, prefix: str, findings: Findings) -> Iterator[tuple[str, Document]]:
    """Yield the documents of a folder, and where each is, for messages."""
    for file in visible_files(folder):
        if file.suffix.lower() not in TEXTS:
            findings.left_out[ending_of(file)] += 1
            continue
        id = clean((prefix / file.relative_to(folder)).as_posix())
        source = well_formed(file.resolve().parent.name)
        with findings.collecting():
            yield str(file), Document(id, clean("".join(lines_of(file))), source)


def _of_file(
    file: Path,
    prefix: str,
    texts: Sequence[str],
    id_field: str | None,
    findings: Findings,
) -> Iterator[tuple[str, Document]]:
    """Yield the documents of a data file, and where each is, for messages."""
    source = stem(file)
    names = IDS if id_field is None else (id_field,)
    with_ids = None  # whether the first row has an id, as all the others then must
    for where, number, fields in read_rows(file, findings):
        name = field_in(fields, *names)
        value = fields[name] if name else None
        if with_ids is None:
            with_ids = value is not None or id_field is not None
            if [*texts] == ["text"] and field_in(fields, TITLE):
                mend = "--text-field title --text-field text (text_field: [title, text])"
                message = "%s: only the field 'text' is read; its titles are read, too, with %s"
                warn_once(message, as_line(file), mend)
        with findings.collecting():
            id = f"{prefix}:{number}" if prefix else str(number)
            if with_ids:
                id = id_text(value, where, name or names[0])
            elif value is not None:
                problem = f"there is an id ({name}), and the first row has none"
                raise InputError(f"{where}: {problem}; give every row one, or none")
            yield where, Document(clean(id), text_of(fields, texts, where=where), source)
    if with_ids is False and not findings.refused:
        message = "%s: no row has an id (%s); the numbers of the rows are the ids"
        warn_once(message, as_line(file), ", ".join(IDS))


def id_text(value: object, where: str, field: str) -> str:
    """Return an id as text: a string, an integer, or a float or decimal that is whole.

    Raises InputError for anything else, also an empty string.
    """
    if isinstance(value, float | Decimal) and value % 1 == 0:
        value = int(value)
    if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
        return str(value)
    kind = "null" if value is None else f"the {type(value).__name__} {value!r:.40}"
    mend = "write a string or an integer in every row"
    raise InputError(f"{where}: the field {field!r} holds {kind} and no id; {mend}")
