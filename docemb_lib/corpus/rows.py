"""Reads the rows of data files, and splits texts into sentences and words.

Data files are read one row at a time. Malformed rows raise InputError, which names the file and the
row; `Findings` collects several of them and counts what is passed over. Sentences are found in some
300 languages (`sentencex`), parts of speech in English (`textblob`), without a download.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from sentencex import segment

from docemb_lib.base.errors import InputError, as_line, repeated
from docemb_lib.base.integrity import warn_once

FORMATS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
# FORMATS in messages
DATA_FILES = ".jsonl, .ndjson, .json, .csv, .tsv (each also .gz) or .parquet"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
BATCH = 256  # rows of a Parquet file held in memory
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
    """Collects bad rows and files, and counts what is passed over.

    Args:
        skip_bad: leave out what is bad, and say so, instead of raising an error at the end.
    """

    def __init__(self, *, skip_bad: bool = False) -> None:
        self.skip_bad = skip_bad
        self.count = 0  # of bad rows and files
        self.bad: list[InputError] = []  # the first `REPORTED` of them
        self.left_out: Counter[str] = Counter()  # numbers by kind

    @property
    def refused(self) -> bool:
        """Whether `end` will raise an error."""
        return self.count > 0 and not self.skip_bad

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep an `InputError` for the end."""
        try:
            yield
        except InputError as bad:
            self.count += 1
            if self.count <= REPORTED:
                self.bad.append(bad)

    def end(self, place: object) -> None:
        """Say in one line what is left out of a place; raises InputError for what is bad."""
        if self.refused and self.count == 1:
            raise InputError(f"{self.bad[0]}, or {SKIP}")
        causes: dict[str, list[str]] = {}
        for bad in self.bad:
            where, _, problem = str(bad).partition(": ")
            short = where.removeprefix(f"{place}, ").removeprefix(f"{place}/")
            causes.setdefault(problem.rpartition("; ")[0], []).append(short)
        named = "; ".join(f"{cause} ({', '.join(rows)})" for cause, rows in causes.items())
        if self.count > REPORTED:
            named += f"; and {self.count - REPORTED} more"
        number = "1 row or file" if self.count == 1 else f"{self.count} rows or files"
        if self.refused:
            raise InputError(f"{place}: {number} are bad: {named}; mend them, or {SKIP}")
        kinds = ", ".join(f"{count} × {kind}" for kind, count in sorted(self.left_out.items()))
        said = [f"left out: {kinds}"] if kinds else []
        if self.count:
            said.append(f"left out as bad: {number}: {named}")
        if said:
            warn_once("%s: %s", as_line(place), as_line("; ".join(said)))


class Row(NamedTuple):
    """One row of a data file or of a data set."""

    where: str  # file and row, for messages
    number: int  # from 1, a header not counted; in a file of JSON lines the number of the line
    fields: Mapping[str, Any]


def file_format(file: Path) -> str | None:
    """Return one of FORMATS, by the name of the file; None for any other."""
    suffix = Path(file.name.removesuffix(".gz")).suffix.lower()
    return suffix if suffix in FORMATS else None


def check_format(file: Path) -> None:
    """Raise InputError for what is no file of one of FORMATS."""
    if file_format(file) is None:
        further = "" if file.is_dir() else ", or a folder"
        raise InputError(f"{file}: this is not a data file; give {DATA_FILES}{further}")


def any_word(*words: str) -> re.Pattern[str]:
    """Compile a pattern that finds one of the words in lower case, outside of longer words.

    It finds test in `c4-test.00000.json`, and nothing in `latest`.
    """
    return re.compile(rf"(?<![a-z])({'|'.join(map(re.escape, words))})(?![a-z])")


def visible_files(folder: Path) -> list[Path]:
    """Return every file below a folder, sorted, without hidden files and hidden folders.

    Folders that are links are not entered.
    """
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [file for file in files if "/." not in f"/{file.relative_to(folder).as_posix()}"]


def ending_of(file: Path) -> str:
    """Return the kind of a file that is passed over: `.html`, or "without an ending"."""
    return file.suffix.lower() or "without an ending"


def read_rows(file: Path, findings: Findings | None = None) -> Iterator[Row]:
    """Yield the rows of a file of one of FORMATS.

    CSV and TSV begin with a line of column names. JSON is an object on each line, an array of
    objects, or a mapping of objects by their ids, which become the field `id`.

    findings: collects what is malformed. None: an InputError at the end names all bad rows.
    """
    collected = Findings() if findings is None else findings
    with collected.collecting():
        check_format(file)
        match file_format(file):
            case ".csv" | ".tsv":
                yield from read_table(file, collected)
            case ".parquet":
                yield from _read_parquet(file)
            case _:
                yield from _read_json(file, collected)
    if findings is None:
        collected.end(file)


def read_table(
    file: Path, findings: Findings, *, delimiter: str | None = None, named: bool = True
) -> Iterator[Row]:
    """Yield the rows of a table; blank lines are passed over.

    Values may be quoted with `"`.

    Args:
        findings: collects rows with broken quoting, or with more or fewer values than names.
            Reading goes on with the next line.
        delimiter: None: a tab if the first line has one, or else what cuts it into most values.
        named: whether the first line has the names of the columns; else they are 0, 1, 2.
    """
    csv.field_size_limit(sys.maxsize)  # the default of 131,072 characters is too short for a text
    delimiter = delimiter or _delimiter(file)
    reader = csv.reader(lines_of(file), delimiter=delimiter, skipinitialspace=True, strict=True)
    names: list[str] = []
    number = 0
    while True:
        with findings.collecting():
            where = f"{file}, row {number + 1}"
            try:
                values = next(reader, None)
            except csv.Error as error:
                number += 1
                raise InputError(
                    f"{where}: there is broken quoting up to line {reader.line_num} ({error}); "
                    "close every quoted value, and double each quotation mark inside of one"
                ) from error
            if values is None:
                return
            if values and named and not names:
                names = [name.strip() for name in values]
                if repeated(names) is not None:
                    problem = f"two columns have the same name ({', '.join(names)})"
                    raise InputError(f"{file}: {problem}; rename one of them")
            elif values:
                number += 1
                columns = names or [str(column) for column in range(len(values))]
                if len(values) != len(columns):
                    raise InputError(
                        f"{where}: the row must have {len(names)} values ({', '.join(names)}), and "
                        f"has {len(values)}; mend the row"
                    )
                yield Row(where, number, dict(zip(columns, values, strict=True)))


def _delimiter(file: Path) -> str:
    line = next(filter(str.strip, lines_of(file)), "")
    if "\t" in line or file_format(file) == ".tsv":
        return "\t"
    # Names of columns may hold blanks; ids in a file of links are cut by them.
    return max(",;|" if file_format(file) else ",; ", key=line.count)


def field_in(fields: Mapping[str, object], *names: str) -> str | None:
    """Return the first of the names that a row has, as the row writes it.

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
    """Return the names of fields, for messages."""
    return ", ".join(map(repr, sorted(fields))) or "an empty row"


def text_of(fields: Mapping[str, object], names: Sequence[str], *, where: str) -> str:
    """Return the strings in the named fields with a blank line between; see `clean`.

    Of several fields, those that are null are left out. Raises InputError, which begins with
    `where`, if a field is missing or holds no string.
    """
    texts = []
    for name in names:
        written = field_in(fields, name)
        value = fields[written] if written else None
        if isinstance(value, str):
            texts.append(value)
        elif not written:
            raise InputError(
                f"{where}: there is no field {name!r} (--text-field, or text_field in a profile), "
                f"only {listed(fields)}; name another one"
            )
        elif value is not None or len(names) == 1:
            kind = "null" if value is None else f"{type(value).__name__} {value!r:.40}"
            raise InputError(
                f"{where}: the field {written!r} must be a string, but it is {kind}; write a text"
            )
    return clean("\n\n".join(filter(str.strip, texts)))


def well_formed(text: str) -> str:
    """Return the text with surrogate pairs joined, and unpaired surrogates replaced by U+FFFD.

    Unpaired ones cannot be stored as UTF-8.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def clean(text: str) -> str:
    """Return the text `well_formed` and composed (NFC): an accent is written in one of two ways."""
    return unicodedata.normalize("NFC", well_formed(text))


def _read_json(file: Path, findings: Findings) -> Iterator[Row]:
    lines = ((number, line) for number, line in enumerate(lines_of(file), 1) if line.strip())
    number, first = next(lines, (1, "[]"))
    texts: Iterator[tuple[int, str]] = chain([(number, first)], lines)
    unit = "line"
    if first.strip() == "{" or first.lstrip().startswith("["):
        texts = iter([(1, "".join(line for _, line in texts))])
        unit = "item"
    for start, text in texts:
        with findings.collecting():
            items = _objects_in(text, f"{file}, {unit} {start}")
            for number, fields in enumerate(items, start):
                yield Row(f"{file}, {unit} {number}", number, fields)


def _objects_in(text: str, where: str) -> list[dict[str, object]]:
    """Return the objects of an array, of a mapping by ids (with the ids), or a single one."""
    mend = "write an object with fields on each line, or an array of objects"
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: this is not JSON ({error}); {mend}") from error
    items = content if isinstance(content, list) else [content]
    if not all(isinstance(item, dict) for item in items):
        raise InputError(f"{where}: there is a value without fields; {mend}")
    if items == [content] and content and all(isinstance(v, dict) for v in content.values()):
        return [{"id": id} | fields for id, fields in content.items()]
    return items


def _read_parquet(file: Path) -> Iterator[Row]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=BATCH):
                for fields in batch.to_pylist():
                    number += 1
                    yield Row(f"{file}, row {number}", number, fields)
    except (ArrowException, OSError) as error:
        raise InputError(
            f"{file}: this is not a whole Parquet file ({error}); write it again"
        ) from error


def lines_of(file: Path) -> Iterator[str]:
    """Yield the lines of a file with their ends, in UTF-8, or in UTF-16 with its mark.

    A byte order mark at the beginning is dropped, and .gz is unpacked. Raises InputError for a file
    that cannot be read or has another encoding.
    """
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            encoding = "utf-16" if stream.peek(2)[:2] in UTF_16 else "utf-8-sig"
            yield from io.TextIOWrapper(stream, encoding, newline="")
    except UnicodeError as error:
        raise InputError(f"{file}: the file is not in UTF-8; save it again, as UTF-8") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{file}: the file cannot be read ({error}); save it again, whole"
        ) from error


def split_sentences(text: str, *, language: str = "en") -> list[str]:
    """Return the sentences of a text; joined, they are the text with all its whitespace.

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
    """Return every word of an English text in its order, and its part of speech, one of `PARTS`.

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
