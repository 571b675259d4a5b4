"""Text taken apart: the rows of a data file, the sentences of a text, the words of a sentence.

Data files are read one row at a time; anything malformed raises an InputError that names the file
and the place in it. Sentences are found in some 300 languages (`sentencex`), parts of speech in
English (`textblob`), without a download.
"""

import csv
import gzip
import json
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sentencex import segment

from docemb_lib.base.errors import InputError

FORMATS = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
DATA_FILES = ".jsonl, .json, .csv, .tsv (each also .gz) or .parquet"
BATCH = 256  # rows of a parquet file held in memory
# characters split at a time: in scripts without spaces, sentencex' time grows with their square
WINDOW = 10_000

# Penn Treebank tags begin with these. Verbs include be, have and do; can, will and the like (MD)
# are "other".
TAGS = {"NN": "noun", "VB": "verb"}
# Tokens as in the lexicon: do n't, they 're, cat 's, state-of-the-art, U.S.; and every sign by
# itself.
TOKENS = re.compile(
    r"(?:[^\W\d_]\.){2,}|\w+?(?=n['’]t\b)|n['’]t\b|['’](?:s|re|ve|ll|d|m)\b|\w+(?:[-.]\w+)*|[^\w\s]",
    re.IGNORECASE,
)


class Row(NamedTuple):
    where: str  # file and row, for messages
    # of the line in a file of JSON lines, of the row in the others; from 1, a header not counted
    number: int
    fields: Mapping[str, Any]


def file_format(file: Path) -> str | None:
    """One of FORMATS, by the name of the file; None for any other."""
    suffix = Path(file.name.removesuffix(".gz")).suffix.lower()
    return suffix if suffix in FORMATS else None


def any_word(*words: str) -> re.Pattern[str]:
    """Finds one of the words in lower case, not inside a longer one: test in `c4-test.00000.json`,
    not in `latest`.
    """
    return re.compile(rf"(?<![a-z])({'|'.join(map(re.escape, words))})(?![a-z])")


def visible_files(folder: Path) -> list[Path]:
    """Every file below a folder, sorted, without hidden files and files in hidden folders."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return sorted(
        file
        for file in files
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )


def read_rows(file: Path) -> Iterator[Row]:
    """The rows of a file of one of FORMATS; CSV and TSV begin with a line of column names.

    Raises InputError.
    """
    format = file_format(file)
    if format is None:
        mend = f"give {DATA_FILES}{'' if file.is_dir() else ', or a folder'}"
        raise InputError(f"{file}: this is not a data file; {mend}")
    if format in {".csv", ".tsv"}:
        return read_csv(file, delimiter="\t" if format == ".tsv" else ",")
    return _read_parquet(file) if format == ".parquet" else _read_jsonl(file)


def read_csv(
    file: Path, *, columns: Sequence[str] | None = None, delimiter: str = ","
) -> Iterator[Row]:
    """The rows of a CSV file; `columns` names them where the file has no line of names.

    Values may be quoted with `"`, except between tabs, where a quotation mark is a character like
    any other.
    """
    csv.field_size_limit(
        sys.maxsize
    )  # the default of 131,072 characters is too short for documents
    quoting: Any = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    reader = csv.DictReader(
        lines_of(file), columns, delimiter=delimiter, quoting=quoting, strict=True
    )
    try:
        reader.fieldnames = names = [name.strip() for name in reader.fieldnames or ()]
        if len(set(names)) < len(names):
            mend = "rename one of them"
            raise InputError(f"{file}: two columns have the same name ({', '.join(names)}); {mend}")
        for number, fields in enumerate(reader, start=1):
            where = f"{file}, row {number}"
            if (
                None in fields or None in fields.values()
            ):  # what DictReader has for too many and too few values
                columns = f"{len(names)} values ({', '.join(names)})"
                needed = f"the row must have {columns}, and has more or fewer"
                raise InputError(f"{where} (up to line {reader.line_num}): {needed}; mend the row")
            yield Row(where, number, fields)
    except csv.Error as error:
        broken = f"there is broken quoting up to line {reader.reader.line_num} ({error})"
        mend = "close every quoted value, and double each quotation mark inside of one"
        raise InputError(f"{file}: {broken}; {mend}") from error


def text_of(fields: Mapping[str, Any], field: str, *, where: str) -> str:
    """The string in `field`, without unpaired surrogates, which cannot be stored as UTF-8."""
    if field not in fields:
        others = ", ".join(map(repr, sorted(fields))) or "an empty row"
        there = f"there is no field {field!r}, only {others}"
        mend = "name the one that holds the text (--text-field, or text_field in a profile)"
        raise InputError(f"{where}: {there}; {mend}")
    if not isinstance(text := fields[field], str):
        found = f"it is {type(text).__name__} {text!r:.40}"
        mend = "quote the value"
        raise InputError(f"{where}: the field {field!r} must be a string, but {found}; {mend}")
    return well_formed(text)


def well_formed(text: str) -> str:
    """The text with surrogate pairs joined into their character, and unpaired surrogates replaced
    by U+FFFD.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_jsonl(file: Path) -> Iterator[Row]:
    for number, line in enumerate(lines_of(file), start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            mend = "write one JSON object on each line"
            raise InputError(f"{where}: the line is not JSON ({error}); {mend}") from error
        if not isinstance(record, dict):
            found = f"the line holds a {type(record).__name__}"
            raise InputError(f"{where}: {found}; write one JSON object on each line")
        yield Row(where, number, record)


def _read_parquet(file: Path) -> Iterator[Row]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(file) as table:
            rows = (
                fields
                for batch in table.iter_batches(batch_size=BATCH)
                for fields in batch.to_pylist()
            )
            for number, fields in enumerate(rows, start=1):
                yield Row(f"{file}, row {number}", number, fields)
    except (ArrowException, OSError) as error:
        mend = "write it again"
        raise InputError(f"{file}: this is not a whole parquet file ({error}); {mend}") from error


def lines_of(file: Path) -> Iterator[str]:
    """The lines of a file in UTF-8, split at newlines only.

    A byte order mark at its head is dropped.
    """
    number = 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.strerror:
            mend = "check that it is there and that you may read it"
            problem = f"the file cannot be read ({error.strerror})"
            raise InputError(f"{file}: {problem}; {mend}") from error
        where = f"{file}, near line {number}"
        mend = "save it again, whole and as UTF-8"
        raise InputError(f"{where}: the file cannot be read ({error}); {mend}") from error


def split_sentences(text: str, *, language: str = "en") -> list[str]:
    """The sentences of `text` in their order; joined, they are the text again, with all its
    whitespace.

    language: an ISO 639 code; it decides which abbreviations end no sentence. A blank line ends a
    sentence, a line break does not. Time is linear in the length of the text.
    """
    sentences: list[str] = []
    start, size = 0, WINDOW
    while start < len(text):
        end = start + size
        found: list[str] = []
        for piece in segment(language, text[start:end]):
            if found and (piece.isspace() or found[-1].isspace()):  # a blank line is no sentence
                found[-1] += piece
            else:
                found.append(piece)
        if end < len(text):
            if len(found) == 1:
                size *= 2
                continue
            found.pop()  # may go on in the next window
        sentences += found
        start += sum(map(len, found))
        size = WINDOW
    return sentences


def tag_words(text: str) -> list[tuple[str, str]]:
    """Every word of an English text in its order, and its part: noun, verb or other.

    Signs and numbers are no words.
    """
    from textblob.en import parser  # with nltk, whose import takes a second

    words: list[tuple[str, str]] = []
    for sentence in split_sentences(text):
        found = TOKENS.findall(sentence)
        tagged = parser.find_tags([token.replace("’", "'") for token in found])
        pairs = (
            (token, tag)
            for token, (_, tag) in zip(found, tagged, strict=True)
            if any(map(str.isalpha, token))
        )
        words += [(token, TAGS.get(tag[:2], "other")) for token, tag in pairs]
    return words
