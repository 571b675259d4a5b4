"""Reads documents from folders and data files: for commands, corpora and tasks alike.

Every error names the file, the row and the field. Bad rows and files are reported together, and
what is passed over is counted.
"""

import glob
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from docemb_lib.base.errors import InputError, as_line, repeated
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
    listed,
    read_rows,
    text_of,
    visible_files,
    well_formed,
)

# Fields that may hold an id; the first one. qid is LongEmbed's.
IDS = ("id", "_id", "doc_id", "docid", "uid", "uuid", "qid")
TITLE = "title"  # the field of a document that stands above its text, if it is read
COMMAND_LINE = ("text_field", "id_field")  # what is an option of a command, too
TEXTS = {".txt", ".md"}  # endings of the files of a folder that are documents


def local_documents(
    path: Path | Sequence[Path],
    *,
    text_field: str | Sequence[str] = "text",
    id_field: str | None = None,
    skip_bad: bool = False,
) -> Iterator[Document]:
    """The documents of folders (every visible .txt and .md file below them) and of data files.

    In a folder the id is the path below it, and the source is the name of the folder that holds the
    file. In a data file (see `corpus.rows`) the source is the name of the file without its endings.
    Where such names of two folders or files are the same, the name of the folder precedes them. A
    warning counts what is passed over.

    Args:
        text_field: one or several, whose texts are joined.
        id_field: None: the first of IDS. Where no row has one of these, ids are the numbers of the
            rows, after the name of the file if there are several files, and a warning says so.
        skip_bad: leave out bad rows and files, with a warning.

    Raises InputError for bad rows and files (without a text or an id, with a repeated id, not
    readable) after the last one, for a named field that no row has, and for a place without
    documents.
    """
    paths = local_paths(path)
    findings = Findings(skip_bad=skip_bad)
    names = {place: names_in(place, findings) for place in paths}
    uses = Counter(name for place in paths for name in names[place].values())
    ids: set[str] = set()
    for place in paths:
        prefix = ""
        if any(uses[name] > 1 for name in names[place].values()):
            folder = place if place.is_dir() else place.parent
            prefix = well_formed(f"{folder.resolve().name}/")
        if place.is_dir():
            documents = _of_folder(names[place], prefix, findings)
        else:
            prefix += f"{names[place][place]}:" if len(paths) > 1 else ""
            documents = _of_file(place, prefix, text_field, id_field, findings)
        before = len(ids)
        for where, document in documents:
            with findings.collecting():
                if not document.text.strip():
                    raise InputError(
                        f"{where}: the text is blank; write one, or delete the document"
                    )
                if document.id in ids:
                    raise InputError(
                        f"{where}: an earlier document has the id {document.id!r}, too; rename one"
                    )
                ids.add(document.id)
                if not findings.refused:
                    yield document
        if len(ids) == before and not findings.refused:
            mend = ".txt or .md files to the folder" if place.is_dir() else "rows to the file"
            counted = findings.counted()
            raise InputError(
                f"{place}: it holds no document{f' ({counted})' if counted else ''}; add {mend}"
            )
    findings.end(paths[0] if len(paths) == 1 else f"{len(paths)} files and folders")


def local_paths(path: Path | Sequence[Path]) -> list[Path]:
    """The folders and data files that a path, a pattern (`news/*.jsonl.gz`) or a list stands for.

    Raises InputError for a path or a pattern without a match, for a file that is no data file, and
    for a path that is given twice.
    """
    places = []
    for place in [path] if isinstance(path, str | Path) else path:
        matched = matches(place)
        if not matched:
            raise InputError(
                f"{place} does not exist; name a folder of .txt/.md files or data files"
            )
        places += matched
    twice = repeated([place.resolve() for place in places])
    if twice is not None:
        raise InputError(f"{twice} is given twice, by itself or by a pattern; give it once")
    for place in places:
        if not place.is_dir():
            check_format(place)
    return places


def matches(path: Path | str) -> list[Path]:
    """The path itself where it exists, or else what it matches as a pattern."""
    if Path(path).exists():
        return [Path(path)]
    return sorted(map(Path, glob.glob(str(path), recursive=True)))


def names_in(place: Path, findings: Findings | None = None) -> dict[Path, str]:
    """The data file, or the text files of a folder, and how ids begin that no field gives.

    findings: counts the files that are passed over.
    """
    if not place.is_dir():
        return {place: stem(place)}
    left_out = Counter[str]() if findings is None else findings.left_out
    names = {}
    for file in visible_files(place, left_out):
        if file.suffix.lower() in TEXTS:
            names[file] = clean(file.relative_to(place).as_posix())
        else:
            left_out[ending_of(file)] += 1
    return names


def stem(path: Path) -> str:
    """`wikimedia/wikipedia` → wikipedia, `/data/realnews.jsonl.gz` → realnews."""
    name = path.name.removesuffix(".gz")
    return well_formed(name[: len(name) - len(file_format(path) or "")])


def _of_folder(
    names: Mapping[Path, str], prefix: str, findings: Findings
) -> Iterator[tuple[str, Document]]:
    """The documents of a folder, and where each is, for messages."""
    for file, name in names.items():
        source = well_formed(file.resolve().parent.name)
        with findings.collecting():
            text = clean("".join(lines_of(file)))
            yield str(file), Document(f"{prefix}{name}", text, source)


def _of_file(
    file: Path,
    prefix: str,
    text_field: str | Sequence[str],
    id_field: str | None,
    findings: Findings,
) -> Iterator[tuple[str, Document]]:
    """The documents of a data file, and where each is, for messages."""
    texts = [text_field] if isinstance(text_field, str) else text_field
    wanted = [("text_field", name) for name in texts]
    if id_field is not None:
        wanted.append(("id_field", id_field))
    source = stem(file)
    known: dict[str, None] = {}  # the fields of all rows
    with_ids = None  # whether the first row has an id, as all the others then must
    for where, number, fields in read_rows(file, findings):
        known |= dict.fromkeys(fields)
        name = field_in(fields, *(IDS if id_field is None else [id_field]))
        value = None if name is None else fields[name]
        if with_ids is None:
            with_ids = value is not None or id_field is not None
        with findings.collecting():
            id = f"{prefix}{number}" if value is None else id_text(value, where, str(name))
            if with_ids != (value is not None):
                problem = f"there is an id ({name}), and the first row has none"
                if with_ids:
                    problem = f"the id ({name or id_field or IDS[0]}) is missing or null"
                raise InputError(f"{where}: {problem}; give every row one, or none")
            yield where, Document(id, text_of(fields, text_field, where=where), source)
    for option, name in wanted:
        if known and field_in(known, name) is None:
            raise no_field(file, name, known, option)
    if texts == ["text"] and field_in(known, TITLE):
        mend = "--text-field title --text-field text (text_field: [title, text] in a profile)"
        message = "%s: only the field 'text' is read; its titles are read, too, with %s"
        warn_once(message, as_line(file), mend)
    if with_ids is False and not findings.refused:
        message = "%s: no row has an id (%s); the numbers of the rows are the ids"
        warn_once(message, as_line(file), ", ".join(IDS))


def no_field(where: object, name: str, known: Mapping[str, object], option: str) -> InputError:
    """The error about a named field that no row has. option: what names the field in a profile."""
    on_command_line = f"--{option.replace('_', '-')}, or " if option in COMMAND_LINE else ""
    mend = f"name another ({on_command_line}{option} in a profile)"
    return InputError(f"{where}: no row has the field {name!r}, only {listed(known)}; {mend}")


def id_text(value: object, where: str, field: str) -> str:
    """An id as text: a string, an integer, or a float or decimal that is whole.

    Raises InputError for anything else, also an empty string.
    """
    if isinstance(value, float | Decimal) and value % 1 == 0:
        value = int(value)
    is_text = isinstance(value, str) and value.strip()
    if is_text or (isinstance(value, int) and not isinstance(value, bool)):
        return clean(str(value))
    raise InputError(
        f"{where}: the field {field!r} holds the {type(value).__name__} {value!r:.40} and no id; "
        "write a string or an integer"
    )
