"""Labelled documents as folders of text: a folder per class with a file per document, perhaps in a folder per split.

`bbc/sport/001.txt`, or `20news-bydate-train/sci.med/58043` beside `20news-bydate-test/…`: a layout of many data sets.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

from docemb_lib.errors import InputError
from docemb_lib.evaluation.examples import Example, refuse_blank

logger = logging.getLogger(__name__)

VALIDATION = ("dev", "val", "valid")  # other names of that split
SPLIT = re.compile(rf"(?<![a-z])(train|validation|test|{'|'.join(VALIDATION)})(?![a-z])")
NO_SPLIT = ""  # stands for a split where none is named


def split_in(name: str) -> str:
    """The split that is part of a file's or folder's name, `20news-bydate-train`, `dev.csv`; or NO_SPLIT."""
    match = SPLIT.search(name.lower())
    if match is None:
        return NO_SPLIT
    return "validation" if match[1] in VALIDATION else match[1]


def read_class_folders(folder: Path) -> dict[str, list[Example]]:
    """The examples of each split, under NO_SPLIT where there are no folders of splits; a class is named as its folder.

    Every file below a class is a document, whatever its ending, hidden ones excepted; files beside the folders are
    none. Texts are UTF-8, or else Latin-1, as those of older data sets: how many is logged.
    Raises InputError for a folder without classes, a class without files and a blank document.
    """
    found = _folders(folder)
    splits = {split_in(one.name): one for one in found}
    if found and NO_SPLIT not in splits and len(splits) == len(found):
        return {split: list(_examples(one)) for split, one in splits.items()}
    return {NO_SPLIT: list(_examples(folder))}


def text_files(folder: Path) -> list[Path]:
    """Every file below a folder, in order, but for hidden ones and those in hidden folders."""
    found = [file for file in folder.rglob("*") if file.is_file()]
    return sorted(file for file in found if not any(map(_is_hidden, file.relative_to(folder).parts)))


def _examples(folder: Path) -> Iterator[Example]:
    classes = _folders(folder)
    if not classes:
        raise InputError(f"{folder}: holds no folder; name a data file, or put each class into a folder of its name")
    latin = 0
    for one in classes:
        files = text_files(one)
        if not files:
            raise InputError(f"{one}: a class without a document; add some, or delete the folder")
        for file in files:
            try:
                data = file.read_bytes()
            except OSError as error:
                raise InputError(f"{file}: cannot be read ({error.strerror}); mend its permissions") from error
            try:
                text = data.decode("utf-8-sig")
            except UnicodeDecodeError:
                text, latin = data.decode("latin-1"), latin + 1
            yield refuse_blank(Example((text,), one.name), where=str(file))
    if latin:
        logger.info("%s: %d files are no UTF-8 and were read as Latin-1", folder, latin)


def _folders(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.is_dir() and not _is_hidden(one.name))


def _is_hidden(name: str) -> bool:
    return name.startswith(".")
