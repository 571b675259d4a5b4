"""Reads rows and documents from folders and data files: for commands, corpora and tasks alike.

A table is an iterator of rows, each with its place, its number and its fields. Errors name the
file, the row, the field and the mend; `Reading` collects several of them, and counts what is
passed over.
"""

import codecs
import csv
import glob
import gzip
import io
import json
import os
import re
import sys
import unicodedata
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from docemb_lib.base.errors import InputError, as_line, repeated
from docemb_lib.base.files import known_encoding, warn_once
from docemb_lib.corpus.document import Document

FORMATS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
# FORMATS in messages
DATA_FILES = ".jsonl, .ndjson, .json, .csv, .tsv (each also .gz) or .parquet"
TEXTS = (".txt", ".md")  # endings of the files of a folder that are documents
ABOUT = ("README", "LICENSE", "CHANGELOG")  # texts of a folder that are about it
IDS = ("id", "_id", "doc_id", "docid", "uid", "uuid")  # fields that may hold an id; the first one
NUL = "the text holds NUL bytes; in UTF-16 it needs --encoding utf-16-le"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
LONGEST = 50_000_000  # characters of a document, which is held in memory several times
WORD = re.compile(r"\w+")
VISIBLE = re.compile(r"[^\s\u00ad\u200b-\u200f\u2060\ufeff]")
# A word at the end of a line and its rest; a bound, because a text may be one word.
CUT = re.compile(r"\b(\w{1,40})-\r?\n[ \t]*(\w{1,40})\b")
ROW_INSIDE = re.compile(r"\n.*\t")  # of a value with a tab in its second line or later
BATCH = 256  # rows of a Parquet file held in memory
REPORTED = 10  # bad rows and files that are named; the others are counted
OBJECTS = "write an object with fields on each line, or an array of objects"
SKIP = "leave out what is bad with --skip-bad (skip_bad: true in a profile)"


class Reading:
    """How files are read: counts what is passed over, and collects bad rows and files.

    Args:
        skip_bad: leave out what is bad, and say so, instead of raising its error.
        encoding: of all files; None: UTF-8, or UTF-16 where its mark stands first.

    Raises InputError for an unknown encoding.
    """

    def __init__(self, *, skip_bad: bool = False, encoding: str | None = None) -> None:
        self.skip_bad = skip_bad
        self.encoding = encoding and known_encoding(encoding)
        self.bad: list[str] = []  # errors, the first `REPORTED`
        self.left_out: Counter[str] = Counter()  # numbers by kind

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep an `InputError` for `end`, if what is bad is left out."""
        try:
            yield
        except InputError as error:
            if not self.skip_bad:
                raise
            self.left_out["bad row or file"] += 1
            if len(self.bad) < REPORTED:
                self.bad.append(str(error).removesuffix(f", or {SKIP}"))

    def pass_over(self, file: Path) -> None:
        """Count a file that is not read, by its kind."""
        self.left_out[file.suffix.lower() or "without an ending"] += 1

    def end(self, place: object) -> None:
        """Say in one line what is left out of a place."""
        kinds = ", ".join(f"{number} × {kind}" for kind, number in sorted(self.left_out.items()))
        if kinds:
            said = "; ".join([f"left out: {kinds}", *self.bad])
            warn_once("%s: %s", as_line(place), as_line(said))


class Row(NamedTuple):
    """One row of a data file or of a data set."""

    where: str  # file and row, for messages
    number: int  # from 1, a header not counted
    fields: Mapping[str, Any]

    def get(self, *names: str) -> Any:
        """Return the value of the first of these fields; None where there is none."""
        name = field_in(self.fields, *names)
        return None if name is None else self.fields[name]

    def bad(self, problem: str) -> InputError:
        """Return the error for a row that has this problem. It ends with what to do."""
        return InputError(f"{self.where}: {problem}, or {SKIP}")

    def wrong(self, wanted: str, *names: str) -> InputError:
        """Return the error for the first of these fields, which does not hold what it must."""
        name = field_in(self.fields, *names)
        value = "missing" if name is None else f"{self.fields[name]!r:.40}"
        fields = ", ".join(map(repr, sorted(self.fields)[:REPORTED]))
        return self.bad(
            f"the field {name or names[0]!r} must hold {wanted}, but it is {value}; mend it, name "
            f"another of the fields {fields}"
        )


def field_in(fields: Mapping[str, object], *names: str) -> str | None:
    """Return the first of the names that a row has, as the row writes it.

    Where no field has just this name, case makes no difference.
    """
    for name in names:
        if name in fields:
            return name
        folded = [field for field in fields if field.casefold() == name.casefold()]
        if len(folded) == 1:
            return folded[0]
    return None


def local_documents(
    path: Path | Sequence[Path],
    *,
    text_field: str | Sequence[str] = "text",
    id_field: str | None = None,
    skip_bad: bool = False,
    encoding: str | None = None,
) -> Iterator[Document]:
    """Yield the documents of folders (every visible .txt and .md file below them) and data files.

    In a folder the id is the path below it, and the source is the name of the folder that holds the
    file. In a data file the source is the name of the file without its endings. A warning counts
    what is passed over.

    Args:
        text_field: one or several, whose texts are joined.
        id_field: None: the first of IDS. Where the first row has none of these, the ids are the
            numbers of the rows, and a warning says so. If there are several folders and files,
            their paths precede the ids that no field gives.
        skip_bad: leave out bad rows and files, with a warning.
        encoding: of the files; None: UTF-8, or UTF-16 where its mark stands first.

    Raises InputError for a bad row or file (without a text or an id, with a repeated id, not
    readable), and for a place without documents.
    """
    places = local_paths(path)
    top = common_folder(places)
    reading = Reading(skip_bad=skip_bad, encoding=encoding)
    ids: set[str] = set()
    for place in places:
        before = len(ids)
        prefix = path_below(top, place) if len(places) > 1 else ""
        source = stem(place)
        is_folder = place.is_dir()
        if is_folder:
            rows = _folder_rows(place, prefix, reading)
            names: Sequence[str] = IDS
            texts: Sequence[str] = ["text"]
        else:
            rows = read_rows(place, reading)
            names = _id_fields(place, id_field, encoding)
            texts = [text_field] if isinstance(text_field, str) else text_field
        for row in rows:
            with reading.collecting():
                id = id_of(row, *names) if names else f"{prefix}:{row.number}".removeprefix(":")
                of_row = row.fields["label"] if is_folder else source
                document = Document(id, text_of(row, texts), of_row)
                _check(document, ids, row)
                ids.add(id)
                yield document
        if len(ids) == before:
            reading.end(place)
            data = [kind for kind, _ in reading.left_out.most_common() if kind in FORMATS]
            mend = f"name its files, as in '{place}/**/*{data[0]}'" if data else "add some"
            raise InputError(f"{place}: it holds no document (rows, .txt or .md files); {mend}")
    reading.end(places[0] if len(places) == 1 else f"{len(places)} files and folders")


def _folder_rows(folder: Path, prefix: str, reading: Reading) -> Iterator[Row]:
    """Yield the text files of a folder as rows, with prefix and path as their ids."""
    for file in visible_files(folder):
        if file.suffix.lower() not in TEXTS:
            reading.pass_over(file)
        elif file.parent == folder and file.stem.upper() in ABOUT:
            reading.left_out[file.name] += 1
        else:
            with reading.collecting():
                id = (prefix / file.relative_to(folder)).as_posix()
                yield text_row(file, reading, id=id)


def text_row(file: Path, reading: Reading, **fields: str) -> Row:
    """Return a text file as a row with these fields, its text, and its folder as the label."""
    label = well_formed(Path(os.path.abspath(file)).parent.name)
    text = clean("".join(lines_of(file, reading.encoding)))
    return Row(str(file), 1, {"text": text, "label": label, **fields})


def _id_fields(file: Path, id_field: str | None, encoding: str | None) -> Sequence[str]:
    """Return the fields of which one holds the ids; [] where numbers of rows are the ids."""
    if id_field is not None:
        return [id_field]
    first = next(read_rows(file, Reading(skip_bad=True, encoding=encoding)), None)
    if first is None or first.get(*IDS) is not None:
        return IDS
    message = "%s: the first row has no id (%s); the numbers of the rows are the ids"
    warn_once(message, as_line(file), ", ".join(IDS))
    return []


def _check(document: Document, ids: Collection[str], row: Row) -> None:
    """Raise InputError for a blank or binary text, and for an id that is among `ids`."""
    if not VISIBLE.search(document.text):
        raise row.bad("the text is blank; write one")
    if len(document.text) > LONGEST:
        raise row.bad(f"the text has more than {LONGEST:,} characters; cut it into documents")
    if "\0" in document.text:
        raise row.bad(NUL)
    if document.id in ids:
        raise row.bad(f"an earlier document has the id {document.id!r}; rename one")


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
    if os.path.exists(path):  # False for a name that is too long, too
        return [Path(path)]
    return sorted(map(Path, glob.glob(str(path), recursive=True)))


def visible_files(folder: Path) -> list[Path]:
    """Return every file below a folder, sorted, without hidden files and hidden folders.

    Folders that are links are not entered.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [file for file in files if "/." not in f"/{file.relative_to(folder).as_posix()}"]


def files_in(place: Path) -> list[Path]:
    """Return the data file itself, or the text files of a folder."""
    if not place.is_dir():
        return [place]
    return [file for file in visible_files(place) if file.suffix.lower() in TEXTS]


def common_folder(places: Iterable[Path]) -> str:
    """Return the last folder that holds all of these places."""
    parents = [os.path.dirname(os.path.abspath(place)) for place in places]
    return os.path.commonpath(parents or ["."])


def path_below(folder: str, file: Path) -> str:
    """Return the path of a file below a folder, as it is written in ids."""
    return Path(os.path.relpath(file, folder)).as_posix()


def stem(path: Path) -> str:
    """Return wikipedia of `wikimedia/wikipedia`, realnews of `/data/realnews.jsonl.gz`."""
    return well_formed(path.name.removesuffix(".gz").removesuffix(file_format(path) or ""))


def file_format(file: Path) -> str | None:
    """Return one of FORMATS, by the name of the file; None for any other."""
    suffix = Path(file.name.removesuffix(".gz")).suffix.lower()
    return suffix if suffix in FORMATS else None


def check_format(file: Path) -> None:
    """Raise InputError for what is no file of one of FORMATS."""
    if file_format(file) is None:
        raise InputError(f"{file}: this is not a data file; give {DATA_FILES}, or a folder")


def read_rows(file: Path, reading: Reading) -> Iterator[Row]:
    """Yield the rows of a file of one of FORMATS.

    CSV and TSV begin with a line of column names. JSON is an object on each line, an array of
    objects, or a mapping of objects by their ids, which become the field `id`.

    reading: collects what is malformed.
    """
    with reading.collecting():
        check_format(file)
        match file_format(file):
            case ".csv" | ".tsv":
                items = _table(file, reading)
            case ".parquet":
                items = _parquet(file)
            case _:
                items = _json(file, reading)
        yield from _numbered(file, items, reading)


def read_table(
    file: Path, reading: Reading, *, delimiter: str | None = None, named: bool = True
) -> Iterator[Row]:
    """Yield the rows of a table; blank lines are passed over.

    Values may be quoted with `"`.

    Args:
        reading: collects rows with broken quoting, or with more or fewer values than names.
            Reading goes on with the next line. Two columns of one name end it.
        delimiter: None: a tab if the first line has one, or else what cuts it into most values.
        named: whether the first line has the names of the columns; else they are 0, 1, 2.
    """
    return _numbered(file, _table(file, reading, delimiter, named=named), reading)


def _numbered(file: Path, items: Iterable[Any], reading: Reading) -> Iterator[Row]:
    """Yield the rows with the fields in `items`; an error in their place is that of a row."""
    with reading.collecting():
        for number, fields in enumerate(items, 1):
            with reading.collecting():
                is_whole = isinstance(fields, dict)
                row = Row(f"{file}, row {number}", number, fields if is_whole else {})
                if isinstance(fields, ValueError):
                    raise row.bad(str(fields))
                if not is_whole:
                    raise row.bad(f"this is a value without fields; {OBJECTS}")
                yield row


def _table(
    file: Path, reading: Reading, delimiter: str | None = None, *, named: bool = True
) -> Iterator[object]:
    csv.field_size_limit(sys.maxsize)  # the default of 131,072 characters is too short for a text
    lines = lines_of(file, reading.encoding)
    first = next(filter(str.strip, lines), "")
    if first.startswith("sep="):  # as Excel writes it
        delimiter = first[4:5].strip("\r\n")
        first = next(lines, "")
    delimiter = delimiter or _delimiter(first, file)
    cut = partial(csv.reader, delimiter=delimiter, skipinitialspace=True)
    names = [name.strip() for name in next(cut([first]), [])]
    if named:
        _check_columns(names, file)
    reader = cut(lines if named else chain([first], lines), strict=True)
    while True:
        try:
            values = next(filter(None, reader), None)
        except csv.Error as error:
            yield ValueError(
                f"there is broken quoting up to line {reader.line_num + named} ({error}); close "
                "every quoted value, and double each quotation mark inside of one"
            )
            continue
        if values is None:
            return
        if delimiter == "\t" and any(map(ROW_INSIDE.search, values)):
            warn_once(
                "%s: quotation marks make one value of lines with tabs up to line %d; if these are "
                "rows, remove the marks",
                as_line(file),
                reader.line_num + named,
            )
        if not named:
            yield dict(zip(map(str, count()), values, strict=False))
        elif len(values) == len(names):
            yield dict(zip(names, values, strict=True))
        else:
            yield ValueError(
                f"the row must have {len(names)} values ({', '.join(names)}), and has "
                f"{len(values)}; mend it"
            )


def _check_columns(names: Sequence[str], file: Path) -> None:
    if len({*names}) < len(names):
        raise InputError(f"{file}: two columns have the same name ({', '.join(names)}); rename one")


def _delimiter(line: str, file: Path) -> str:
    if "\t" in line or file_format(file) == ".tsv":
        return "\t"
    # Names of columns may hold blanks; ids in a file of links are cut by them.
    return max(",;|" if file_format(file) else ",; ", key=line.count)


def _json(file: Path, reading: Reading) -> Iterator[object]:
    lines = filter(str.strip, lines_of(file, reading.encoding))
    first = next(lines, "[]")
    is_whole = first.strip() == "{" or first.lstrip().startswith("[")
    for text in [first + "".join(lines)] if is_whole else chain([first], lines):
        try:
            content = json.loads(text, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            yield ValueError(f"this is not JSON ({error}); {OBJECTS}")
            continue
        inner = content.values() if isinstance(content, dict) else ()
        if inner and all(isinstance(fields, dict) for fields in inner):
            content = [{"id": id} | fields for id, fields in content.items()]
        yield from content if isinstance(content, list) else [content]


def _object(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of an object. Raises ValueError for a name that it has twice."""
    content = dict(fields)
    if len(content) < len(fields):
        raise ValueError(f"the field {repeated([name for name, _ in fields])!r} is there twice")
    return content


def _parquet(file: Path) -> Iterator[object]:
    from pyarrow.parquet import ParquetFile, read_schema

    with _whole(file):
        names = read_schema(file).names
    _check_columns(names, file)
    with _whole(file), ParquetFile(file) as table:
        for batch in table.iter_batches(batch_size=BATCH):
            yield from batch.to_pylist()


def lines_of(file: Path, encoding: str | None = None) -> Iterator[str]:
    """Yield the lines of a file with their ends.

    A byte order mark at the beginning is dropped, and .gz is unpacked. Raises InputError for a file
    that cannot be read or has another encoding.

    encoding: None: UTF-8, or UTF-16 where its mark stands first.
    """
    with (
        _whole(file, encoding),
        gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream,
    ):
        start = stream.peek(64)[:64]
        found = "utf-16" if start[:2] in UTF_16 else "utf-8"
        if b"\0" in start and found != "utf-16" and not encoding:
            raise InputError(f"{file}: {NUL}")
        lines = io.TextIOWrapper(stream, encoding or found, newline="")
        yield next(lines, "").lstrip("\ufeff")
        yield from lines


@contextmanager
def _whole(file: Path, encoding: str | None = None) -> Iterator[None]:
    """Raise InputError for a file that cannot be read to its end."""
    try:
        yield
    except InputError:
        raise
    except UnicodeError as error:
        mend = (
            "save it in UTF-8, name its encoding (--encoding; encoding in a profile), cp1252 in "
            "Western Europe, or unpack it"
        )
        raise InputError(f"{file}: the file is not in {encoding or 'UTF-8'}; {mend}") from error
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise InputError(
            f"{file}: the file cannot be read ({error}); save it again, whole"
        ) from error


def text_of(row: Row, names: Sequence[str]) -> str:
    """Return the strings in the named fields with a blank line between; see `clean`.

    Of several fields, those that are null are left out. Raises InputError if a field is missing or
    holds no string.
    """
    texts = []
    for name in dict.fromkeys(names):
        value = row.get(name)
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            value = "\n\n".join(value)  # of paragraphs
        if isinstance(value, str):
            texts.append(value)
        elif value is not None or len(names) == 1 or field_in(row.fields, name) is None:
            raise row.wrong("a text (--text-field)", name)
    return clean("\n\n".join(filter(str.strip, texts)))


def id_of(row: Row, *names: str) -> str:
    """Return the id in the first of these fields: a string, an integer, or a float that is whole.

    Raises InputError for anything else, also an empty string.
    """
    value = row.get(*names)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise row.wrong("an id, a string or an integer", *names)
    return clean(str(value).strip())


def well_formed(text: str) -> str:
    """Return the text with surrogate pairs joined, and unpaired surrogates replaced by U+FFFD.

    Unpaired ones cannot be stored as UTF-8.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def clean(text: str) -> str:
    """Return the text `well_formed` and composed (NFC): an accent is written in one of two ways.

    A word that is cut at the end of a line is joined where the text has it whole elsewhere.
    """
    composed = unicodedata.normalize("NFC", well_formed(text))
    if not CUT.search(composed):
        return composed
    words = set(WORD.findall(composed.casefold()))

    def joined(cut: re.Match[str]) -> str:
        word = cut[1] + cut[2]
        return word if word.casefold() in words else cut[0]

    return CUT.sub(joined, composed)
