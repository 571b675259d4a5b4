"""Reads the rows of data files, and splits texts into sentences and words.

Data files are read one row at a time. Anything malformed raises an InputError that names the file
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
DATA_FILES = ".jsonl, .json, .csv, .tsv (each also .gz) or .parquet"  # FORMATS in messages
BATCH = 256  # rows of a parquet file held in memory
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


class Row(NamedTuple):
    """One row of a data file or of a data set."""

    where: str  # file and row, for messages
    number: int  # from 1, a header not counted; in a file of JSON lines the number of the line
    fields: Mapping[str, Any]


def file_format(file: Path) -> str | None:
    """One of FORMATS, by the name of the file; None for any other."""
    suffix = Path(file.name.removesuffix(".gz")).suffix.lower()
    return suffix if suffix in FORMATS else None


def any_word(*words: str) -> re.Pattern[str]:
    """A pattern that finds one of the words in lower case, outside of longer words.

    It finds test in `c4-test.00000.json`, and nothing in `latest`.
    """
    return re.compile(rf"(?<![a-z])({'|'.join(map(re.escape, words))})(?![a-z])")


def visible_files(folder: Path) -> list[Path]:
    """Every file below a folder, sorted, without hidden files and files in hidden folders."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in paths if "/." not in f"/{path.relative_to(folder).as_posix()}"]


def read_rows(file: Path) -> Iterator[Row]:
    """The rows of a file of one of FORMATS; CSV and TSV begin with a line of column names.

    Raises InputError for another format, and while reading for a malformed file.
    """
    match file_format(file):
        case ".csv":
            return read_csv(file)
        case ".tsv":
            return read_csv(file, delimiter="\t")
        case ".parquet":
            return _read_parquet(file)
        case ".jsonl" | ".json":
            return _read_jsonl(file)
    or_folder = "" if file.is_dir() else ", or a folder"
    raise InputError(f"{file}: this is not a data file; give {DATA_FILES}{or_folder}")


def read_csv(
    file: Path, *, columns: Sequence[str] | None = None, delimiter: str = ","
) -> Iterator[Row]:
    """The rows of a CSV file; `columns` names them where the file has no line of names.

    Values may be quoted with `"`, except between tabs, where a quotation mark is a character like
    any other. Raises InputError for repeated names, broken quoting, and too few or many values.
    """
    csv.field_size_limit(sys.maxsize)  # the default of 131,072 characters is too short for a text
    reader = csv.DictReader(
        lines_of(file),
        columns,
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
        strict=True,
    )
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        listed = ", ".join(names)
        if len(set(names)) < len(names):
            raise InputError(
                f"{file}: two columns have the same name ({listed}); rename one of them"
            )
        reader.fieldnames = names
        for number, fields in enumerate(reader, start=1):
            where = f"{file}, row {number}"
            # DictReader puts surplus values under the key None, and None for missing values.
            if None in fields or None in fields.values():
                raise InputError(
                    f"{where} (up to line {reader.line_num}): the row must have {len(names)} "
                    f"values ({listed}), and has more or fewer; mend the row"
                )
            yield Row(where, number, fields)
    except csv.Error as error:
        raise InputError(
            f"{file}: there is broken quoting up to line {reader.reader.line_num} ({error}); "
            "close every quoted value, and double each quotation mark inside of one"
        ) from error


def text_of(fields: Mapping[str, object], field: str, *, where: str) -> str:
    """The string in `field`, without unpaired surrogates, which cannot be stored as UTF-8.

    Raises InputError, which begins with `where`, if the field is missing or holds no string.
    """
    if field not in fields:
        others = ", ".join(map(repr, sorted(fields))) or "an empty row"
        raise InputError(
            f"{where}: there is no field {field!r}, only {others}; "
            "name the one that holds the text (--text-field, or text_field in a profile)"
        )
    text = fields[field]
    if not isinstance(text, str):
        raise InputError(
            f"{where}: the field {field!r} must be a string, "
            f"but it is {type(text).__name__} {text!r:.40}; quote the value"
        )
    return well_formed(text)


def well_formed(text: str) -> str:
    """The text with surrogate pairs joined, and unpaired surrogates replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_jsonl(file: Path) -> Iterator[Row]:
    mend = "write one JSON object on each line"
    for number, line in enumerate(lines_of(file), start=1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: the line is not JSON ({error}); {mend}") from error
        if not isinstance(record, dict):
            raise InputError(f"{where}: the line holds a {type(record).__name__}; {mend}")
        yield Row(where, number, record)


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
            f"{file}: this is not a whole parquet file ({error}); write it again"
        ) from error


def lines_of(file: Path) -> Iterator[str]:
    """The lines of a file in UTF-8, split at newlines only.

    A byte order mark at the beginning is dropped. Raises InputError for a file that cannot be read.
    """
    number = 0
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise InputError(
                f"{file}: the file cannot be read ({error.strerror}); "
                "check that it is there and that you may read it"
            ) from error
        raise InputError(
            f"{file}, near line {number}: the file cannot be read ({error}); "
            "save it again, whole and as UTF-8"
        ) from error


def split_sentences(text: str, *, language: str = "en") -> list[str]:
    """The sentences of `text` in their order; joined, they are the text with all its whitespace.

    A blank line ends a sentence, a line break does not. Time is linear in the length of the text.

    Args:
        language: an ISO 639 code, which decides what abbreviations end no sentence.
    """
    sentences: list[str] = []
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

    words: list[tuple[str, str]] = []
    for sentence in split_sentences(text):
        tokens = TOKENS.findall(sentence)
        tagged = parser.find_tags([token.replace("’", "'") for token in tokens])
        for token, (_, tag) in zip(tokens, tagged, strict=True):
            if any(map(str.isalpha, token)):
                words.append((token, TAGS.get(tag[:2], "other")))
    return words
