"""Reads the rows of data files, and splits texts into sentences and words.

Data files are read one row at a time. What is malformed is a InputError that names the file and the
place in it; `Findings` collects several of them, and what is passed over. Sentences are found in
some 300 languages (`sentencex`), parts of speech in English (`textblob`), without a download.
"""

import codecs
import csv
import gzip
import io
import json
import re
import sys
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from sentencex import segment

from docemb_lib.base.errors import InputError, as_line
from docemb_lib.base.integrity import warn_once

FORMATS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
# FORMATS in messages
DATA_FILES = ".jsonl, .ndjson, .json, .csv, .tsv (each also .gz) or .parquet"
DELIMITERS = ",\t;|"  # of tables
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
BATCH = 256  # rows of a parquet file held in memory
COUNTED = re.compile(r"\b(file|folder|line|link|text)\b")  # what is passed over, without an s
REPORTED = 10  # bad rows and files that an error names; the others are counted
SKIP = "leave out what is bad with --skip-bad (skip_bad: true in a profile)"
# Characters split into sentences at a time. In scripts without spaces, the time that sentencex
# takes grows with the square of the number of characters.
WINDOW = 10_000

# The beginnings of Penn Treebank tags. Verbs include be, have and do; can, will and the like (MD)
# are "other".
TAGS = {"NN": "noun", "VB": "verb", "JJ": "adjective"}
PARTS = (*TAGS.values(), "other")
# Tokens are cut as in the lexicon: do n't, they 're, cat 's, state-of-the-art, U.S. Every sign is a
# token by itself.
TOKENS = re.compile(
    r"(?:[^\W\d_]\.){2,}|\w+?(?=n['’]t\b)|n['’]t\b|['’](?:s|re|ve|ll|d|m)\b|"
    r"\w+(?:[-.]\w+)*|[^\w\s]",
    re.IGNORECASE,
)


class Findings:
    """What a reading meets beside good rows: bad rows and files, and what is passed over.

    Args:
        skip_bad: leave out what is bad, and say so, instead of raising an error at the end.
        collects: keep what is bad for the end, instead of raising the first error at once.
    """

    def __init__(self, *, skip_bad: bool = False, collects: bool = True) -> None:
        self.skip_bad = skip_bad
        self.collects = collects
        self.bad: list[InputError] = []
        self.left_out: Counter[str] = Counter()  # numbers by kind

    @property
    def refused(self) -> bool:
        """Whether `end` will raise an error."""
        return bool(self.bad) and not self.skip_bad

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep an `InputError` for the end."""
        try:
            yield
        except InputError as bad:
            if not self.collects:
                raise
            self.bad.append(bad)

    def counted(self) -> str:
        """What is passed over, as in "left out: 15 .html, 2 blank lines"; "" for nothing."""
        kinds = []
        for kind, count in sorted(self.left_out.items()):
            plural = kind if count == 1 else COUNTED.sub(r"\1s", kind, count=1)
            kinds.append(f"{count} {plural}")
        return f"left out: {', '.join(kinds)}" if kinds else ""

    def end(self, place: object) -> None:
        """Say in one line what is left out of a place; raises InputError for what is bad."""
        if self.refused and len(self.bad) == 1:
            raise InputError(f"{self.bad[0]}, or {SKIP}")
        causes: dict[str, list[str]] = {}
        for bad in self.bad[:REPORTED]:
            where, _, problem = str(bad).partition(": ")
            short = where.removeprefix(f"{place}, ").removeprefix(f"{place}/")
            causes.setdefault(problem.rpartition("; ")[0], []).append(short)
        named = "; ".join(f"{cause} ({', '.join(at)})" for cause, at in causes.items())
        more = len(self.bad) - REPORTED
        named += f"; and {more} more" if more > 0 else ""
        count = "1 row or file" if len(self.bad) == 1 else f"{len(self.bad)} rows or files"
        if self.refused:
            raise InputError(f"{place}: {count} are bad: {named}; mend them, or {SKIP}")
        for said in (self.counted(), f"left out as bad: {count}: {named}" if self.bad else ""):
            if said:
                warn_once("%s: %s", as_line(place), as_line(said))


class Row(NamedTuple):
    """One row of a data file or of a data set."""

    where: str  # file and row, for messages
    number: int  # from 1, a header not counted; in a file of JSON lines the number of the line
    fields: Mapping[str, Any]


def file_format(file: Path) -> str | None:
    """One of FORMATS, by the name of the file; None for any other."""
    suffix = Path(file.name.removesuffix(".gz")).suffix.lower()
    return suffix if suffix in FORMATS else None


def check_format(file: Path) -> None:
    """Raise InputError for what is no file of one of FORMATS."""
    if file.exists() and not (file.is_file() or file.is_dir()):
        raise InputError(f"{file}: this is a pipe or a device; write its content into a file")
    if file_format(file) is None:
        raise InputError(
            f"{file}: this is not a data file; "
            f"give {DATA_FILES}{'' if file.is_dir() else ', or a folder'}"
        )


def any_word(*words: str) -> re.Pattern[str]:
    """A pattern that finds one of the words in lower case, outside of longer words.

    It finds test in `c4-test.00000.json`, and nothing in `latest`.
    """
    return re.compile(rf"(?<![a-z])({'|'.join(map(re.escape, words))})(?![a-z])")


def visible_files(folder: Path, left_out: Counter[str] | None = None) -> list[Path]:
    """Every file below a folder, sorted, without hidden files and files in hidden folders.

    left_out: counts folders that are links, which are not entered, and what is no file.
    """
    files = []
    for path in sorted(folder.rglob("*")):
        if "/." in f"/{path.relative_to(folder).as_posix()}":
            continue
        if path.is_file():
            files.append(path)
        elif left_out is not None and (path.is_symlink() or not path.is_dir()):
            left_out["linked folder" if path.is_dir() else "broken link or device"] += 1
    return files


def ending_of(file: Path) -> str:
    """The kind of a file that is passed over: `.html`, or "without an ending"."""
    return file.suffix.lower() or "without an ending"


def read_rows(file: Path, findings: Findings | None = None) -> Iterator[Row]:
    """The rows of a file of one of FORMATS.

    CSV and TSV begin with a line of column names, whose delimiter is found by looking. JSON is an
    object on each line, an array of objects, or a mapping of objects by their ids, which become the
    field `id`.

    findings: collects what is malformed, and counts blank lines. None: InputError is raised while
    reading.
    """
    findings = findings or Findings(collects=False)
    with findings.collecting():
        check_format(file)
        match file_format(file):
            case ".csv" | ".tsv":
                yield from read_csv(file, findings, delimiter=_delimiter(file))
            case ".parquet":
                yield from _read_parquet(file)
            case _:
                yield from _read_json(file, findings)


def read_csv(
    file: Path,
    findings: Findings,
    *,
    columns: Sequence[str] | None = None,
    delimiter: str = ",",
) -> Iterator[Row]:
    """The rows of a CSV file; `columns` names them where the file has no line of names.

    Values may be quoted with `"`. Between tabs a quotation mark is a character like any other,
    unless all rows, read with quoting, have as many values as the first. Raises InputError for
    repeated names, broken quoting, and too few or many values; see `read_rows`.
    """
    csv.field_size_limit(sys.maxsize)  # the default of 131,072 characters is too short for a text
    is_plain = delimiter == "\t" and not _is_quoted(file)
    reader = csv.reader(
        lines_of(file),
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if is_plain else csv.QUOTE_MINIMAL,
        strict=True,
    )
    names = columns
    number = 0
    try:
        for values in reader:
            if not values:
                findings.left_out["blank line"] += 1
                continue
            if names is None:
                names = [name.strip() for name in values]
                _refuse_repeated(file, names)
                continue
            number += 1
            where = f"{file}, row {number}"
            with findings.collecting():
                if len(values) != len(names):
                    raise InputError(
                        f"{where} (up to line {reader.line_num}): the row must have {len(names)} "
                        f"values ({', '.join(names)}), and has more or fewer; "
                        "mend the row"
                    )
                yield Row(where, number, dict(zip(names, values, strict=True)))
    except csv.Error as error:
        raise InputError(
            f"{file}: there is broken quoting up to line {reader.line_num} ({error}); "
            "close every quoted value, and double each quotation mark inside of one"
        ) from error


def _delimiter(file: Path) -> str:
    """The delimiter of the first line; of equally likely ones the usual one."""
    first = next(filter(str.strip, lines_of(file)), "")
    usual = "\t" if file_format(file) == ".tsv" else ","
    return delimiter_in(first, usual + DELIMITERS)


def delimiter_in(line: str, delimiters: str) -> str:
    """The delimiter that cuts a line into most parts; of equal ones the first."""
    parts = {}
    for delimiter in delimiters:
        reader = csv.reader([line.replace("\r", "")], delimiter=delimiter)
        parts[delimiter] = len(next(reader, []))
    return max(parts, key=parts.__getitem__)


def _is_quoted(file: Path) -> bool:
    """Whether each row between tabs has as many values as the first if quotation marks quote."""
    try:
        rows = csv.reader(lines_of(file), delimiter="\t", strict=True)
        return len({len(values) for values in rows if values}) <= 1
    except csv.Error:
        return False


def _refuse_repeated(file: Path, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise InputError(
            f"{file}: two columns have the same name ({', '.join(names)}); rename one of them"
        )


def field_in(fields: Mapping[str, object], *names: str) -> str | None:
    """The first of the names that a row has, as the row writes it.

    Where no field has just this name, case makes no difference.
    """
    for name in names:
        if name in fields:
            return name
        folded = [field for field in fields if field.strip().casefold() == name.casefold()]
        if len(folded) == 1:
            return folded[0]
    return None


def listed(fields: Mapping[str, object]) -> str:
    """The names of fields, for messages."""
    return ", ".join(map(repr, sorted(fields))) or "an empty row"


def text_of(fields: Mapping[str, object], field: str | Sequence[str], *, where: str) -> str:
    """The string in a field, or those of several with a blank line between; see `clean`.

    Of several fields, those that are missing or null are left out. Raises InputError, which begins
    with `where`, if no field is there or one holds no string.
    """
    names = [field] if isinstance(field, str) else list(field)
    written = [field_in(fields, name) for name in names]
    there = [name for name in written if name is not None]
    if not there:
        raise InputError(
            f"{where}: there is no field {' or '.join(map(repr, names))}, only {listed(fields)}; "
            "name the one that holds the text (--text-field, or text_field in a profile)"
        )
    parts = []
    for name in there:
        value = fields[name]
        if isinstance(value, str):
            parts.append(value)
        elif value is not None or len(there) == 1:
            kind = "null" if value is None else f"{type(value).__name__} {value!r:.40}"
            mend = "write a text" if value is None else "quote the value"
            raise InputError(
                f"{where}: the field {name!r} must be a string, but it is {kind}; {mend}"
            )
    return clean("\n\n".join(filter(str.strip, parts)) if len(there) > 1 else "".join(parts))


def well_formed(text: str) -> str:
    """The text with surrogate pairs joined, and unpaired surrogates replaced by U+FFFD.

    Unpaired ones cannot be stored as UTF-8.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def clean(text: str) -> str:
    """The text `well_formed` and composed (NFC): an accent is written in one of two ways."""
    return unicodedata.normalize("NFC", well_formed(text))


def _read_json(file: Path, findings: Findings) -> Iterator[Row]:
    lines = _filled_lines(file, findings)
    opening = list(islice(lines, 2))
    if len(opening) == 1 or (opening and not _is_json(opening[0][1])):
        opening += lines
        content: object = None
        try:
            content = json.loads("".join(line for _, line in opening), object_pairs_hook=_fields)
        except (ValueError, RecursionError) as error:
            if len(opening) > 1 and opening[0][1].strip() in ("[", "{"):
                raise InputError(f"{file}: this is not JSON ({error}); write it again") from error
        if isinstance(content, list):
            for number, item in enumerate(content, start=1):
                with findings.collecting():
                    yield _row_of(f"{file}, item {number}", number, item)
            return
        if isinstance(content, dict):
            if not content or not all(isinstance(item, dict) for item in content.values()):
                yield Row(f"{file}, line 1", 1, content)
                return
            for number, (id, fields) in enumerate(content.items(), start=1):
                yield Row(f"{file}, entry {id!r:.40}", number, {"id": id} | fields)
            return
    for number, line in chain(opening, lines):
        where = f"{file}, line {number}"
        with findings.collecting():
            try:
                item = json.loads(line, object_pairs_hook=_fields)
            except (ValueError, RecursionError) as error:
                raise InputError(
                    f"{where}: the line is not JSON ({error}); write one JSON object on each line"
                ) from error
            yield _row_of(where, number, item)


def _row_of(where: str, number: int, item: object) -> Row:
    if isinstance(item, dict):
        return Row(where, number, item)
    raise InputError(
        f"{where}: there is a {type(item).__name__} and no object with fields; "
        "write one JSON object on each line, or an array of objects"
    )


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _fields(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        name, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the field {name!r} is there twice")
    return fields


def _filled_lines(file: Path, findings: Findings) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines_of(file), start=1):
        if line.strip():
            yield number, line
        else:
            findings.left_out["blank line"] += 1


def _read_parquet(file: Path) -> Iterator[Row]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(file) as table:
            columns = table.schema_arrow
            _refuse_repeated(file, columns.names)
            # pyarrow gives the values of such columns as JSON.
            is_json = [
                name
                for name, kind in zip(columns.names, columns.types, strict=True)
                if getattr(kind, "extension_name", "") == "arrow.json"
            ]
            for batch in table.iter_batches(batch_size=BATCH):
                for fields in batch.to_pylist():
                    number += 1
                    for name in is_json:
                        fields[name] = json.loads(fields[name] or "null")
                    yield Row(f"{file}, row {number}", number, fields)
    except (ArrowException, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{file}: this is not a whole parquet file ({error}); write it again"
        ) from error


def lines_of(file: Path) -> Iterator[str]:
    """The lines of a file in UTF-8, or in UTF-16 with its mark, split at newlines only.

    A byte order mark at the beginning is dropped. A line that is not UTF-8 is read as Latin-1, and
    a warning says how many there are. Raises InputError for a file that cannot be read or holds
    NUL.
    """
    number = 0
    in_latin_1 = 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            lines: Iterable[str | bytes] = stream
            if stream.peek(2)[:2] in UTF_16:
                lines = io.TextIOWrapper(stream, "utf-16", newline="\n")
            for number, line in enumerate(lines, start=1):
                text, is_latin_1 = _decoded(line, number)
                in_latin_1 += is_latin_1
                if "\0" in text:
                    raise ValueError("it holds NUL bytes, as a binary file does")
                yield text
    except (OSError, EOFError, zlib.error, ValueError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise InputError(
                f"{file}: the file cannot be read ({error.strerror}); "
                "check that it is there and that you may read it"
            ) from error
        raise InputError(
            f"{file}, near line {number}: the file cannot be read ({error}); "
            "save it again, whole and as UTF-8"
        ) from error
    if in_latin_1:
        message = "%s: lines that are not UTF-8 are read as Latin-1: %d"
        warn_once(message, as_line(file), in_latin_1)


def _decoded(line: str | bytes, number: int) -> tuple[str, bool]:
    """The text of a line, and whether it was read as Latin-1."""
    if isinstance(line, str):
        return line, False
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8"), False
    except UnicodeDecodeError:
        return line.decode("latin-1"), True


def split_sentences(text: str, *, language: str = "en") -> list[str]:
    """The sentences of `text` in their order; joined, they are the text with all its whitespace.

    A blank line ends a sentence, a line break does not. Time is linear in the length of the text.

    Args:
        language: an ISO 639 code, which decides what abbreviations end no sentence.
    """
    sentences = []
    start = 0
    size = WINDOW
    while start < len(text):
        end = start + size
        window: list[str] = []  # the sentences of text[start:end]
        for piece in segment(language, text[start:end]):
            if window and (piece.isspace() or window[-1].isspace()):  # a blank line is no sentence
                window[-1] += piece
            else:
                window.append(piece)
        if end < len(text):
            if len(window) == 1:  # the sentence may be longer than the window
                size *= 2
                continue
            window.pop()  # the last sentence may go on in the next window
        sentences += window
        start += sum(map(len, window))
        size = WINDOW
    return sentences


def tag_words(text: str) -> list[tuple[str, str]]:
    """Every word of an English text in its order, and its part of speech, one of `PARTS`.

    Signs and numbers are not words.
    """
    from textblob.en import parser  # imports nltk, which takes a second

    words = []
    for sentence in split_sentences(text):
        tokens = TOKENS.findall(sentence)
        tagged = parser.find_tags([token.replace("’", "'") for token in tokens])
        for token, (_, tag) in zip(tokens, tagged, strict=True):
            if any(map(str.isalpha, token)):
                words.append((token, TAGS.get(tag[:2], "other")))
    return words
