"""Labelled examples from the rows of a data file: the texts and the class of each, checked where they stand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from docemb_lib.corpus.rows import Row, text_of
from docemb_lib.errors import InputError
from docemb_lib.evaluation.splits import Labelled, LabelledPairs


class Example(NamedTuple):
    """One or two texts and their class."""

    texts: tuple[str, ...]
    label: str


def read_example(row: Row, *, text_fields: Sequence[str], label_field: str) -> Example:
    """The example in a row; its label becomes a string, so that all file formats agree. Raises InputError."""
    texts = tuple(text_of(row.fields, field, where=row.where) for field in text_fields)
    return Example(texts, label_of(row.fields, label_field, where=row.where))


def refuse_blank(example: Example, *, where: str) -> Example:
    """The example, if each of its texts has a character that shows."""
    if not all(text.strip() for text in example.texts):
        raise InputError(f"{where}: a text is blank; write it or delete the row")
    return example


def label_of(fields: Any, field: str, *, where: str) -> str:
    """The class in `field`: a whole number, a truth value or a string that is not blank."""
    if field not in fields:
        raise InputError(f"{where}: no field {field!r}, found {sorted(fields)}; name the one that holds the label")
    label = fields[field]
    if not isinstance(label, str | int) or not str(label).strip():
        raise InputError(f"{where}: field {field!r} must be a string or an integer, found {label!r}; write the class")
    return str(label).strip()


def labelled(examples: Iterable[Example]) -> Labelled:
    """The examples of a classification split."""
    taken = list(examples)
    return Labelled([example.texts[0] for example in taken], [example.label for example in taken])


def labelled_pairs(examples: Iterable[Example]) -> LabelledPairs:
    """The examples of a split of pairs."""
    taken = list(examples)
    first, second = ([example.texts[side] for example in taken] for side in (0, 1))
    return LabelledPairs(first, second, [example.label for example in taken])
