"""Labelled examples from the rows of a data file: the texts and the class of each, checked where they stand."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from docemb_lib.corpus.rows import Row, file_format, read_csv, read_rows, text_of
from docemb_lib.errors import InputError
from docemb_lib.evaluation.tasks import SPLITS, Classification, Labelled, LabelledPairs, Pairs, Ranking, Retrieval, Task
from docemb_lib.settings import OwnTask

# ---- labelled examples from the rows of a data file


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


# ---- labelled documents as folders of text


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


# ---- tasks from one's own data files


LINK = ("source", "target")  # columns of a relevance file


def own_task(settings: OwnTask) -> Task:
    """The task. Raises InputError, naming file and row, for whatever cannot be read."""
    if settings.kind == "retrieval":
        return Retrieval(settings.name, _rankings(settings))
    splits = read_splits(settings)
    if settings.kind == "pairs":
        return Pairs(settings.name, {split: labelled_pairs(examples) for split, examples in splits.items()})
    return Classification(settings.name, {split: labelled(examples) for split, examples in splits.items()})


def task_files(settings: OwnTask) -> list[Path]:
    """Every file that the task is made of; a path that is neither a file nor a folder stands for itself."""
    given = [settings.path, settings.relevance]
    places = [one for place in given if place for one in (place.values() if isinstance(place, dict) else [place])]
    return [file for place in places for file in (text_files(place) if place.is_dir() else [place])]


def read_splits(settings: OwnTask) -> dict[str, list[Example]]:
    """The examples of each split: of its own file or folder, by the rows' split field, or drawn (`draw_splits`)."""
    if isinstance(settings.path, dict):
        return {split: _examples_of(place, settings) for split, place in settings.path.items()}
    if settings.path.is_dir():
        found = _class_folders(settings.path, settings)
        return _drawn(found[NO_SPLIT], settings) if NO_SPLIT in found else found
    rows = list(_own_examples(settings.path, settings))
    if not any(settings.split_field in row.fields for row, _ in rows):
        return _drawn([example for _, example in rows], settings)
    splits: dict[str, list[Example]] = {}
    for row, example in rows:
        splits.setdefault(split_of(row, settings.split_field), []).append(example)
    return splits


def draw_splits(examples: Sequence[Example], *, share: float, seed: int, where: str) -> dict[str, list[Example]]:
    """`share` of each class for test, as many for validation, the rest for train; examples keep their order.

    An example whose texts stand in the file twice goes where the first of them goes. where: what an InputError calls
    the file or data set.
    """
    rng = np.random.default_rng(seed)
    group = {texts: number for number, texts in enumerate(dict.fromkeys(example.texts for example in examples))}
    label = {group[example.texts]: example.label for example in reversed(examples)}
    split_of: dict[int, str] = {}
    for name in sorted(set(label.values())):
        members = rng.permutation([number for number in range(len(group)) if label[number] == name])
        held = max(1, round(share * len(members)))
        if len(members) <= 2 * held:
            raise InputError(
                f"{where}: class {name!r}: {len(members)} examples are too few to draw train, validation and test "
                "from; add some, leave the class out, or name the splits in the file"
            )
        for place, number in enumerate(members.tolist()):
            split_of[number] = "test" if place < held else "validation" if place < 2 * held else "train"
    splits: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for example in examples:
        splits[split_of[group[example.texts]]].append(example)
    return splits


def _drawn(examples: Sequence[Example], settings: OwnTask) -> dict[str, list[Example]]:
    return draw_splits(examples, share=settings.share, seed=settings.seed, where=str(settings.path))


def _examples_of(place: Path, settings: OwnTask) -> list[Example]:
    """All of a file, or of a folder of classes."""
    if place.is_dir():
        return [example for examples in _class_folders(place, settings).values() for example in examples]
    return [example for _, example in _own_examples(place, settings)]


def _class_folders(folder: Path, settings: OwnTask) -> dict[str, list[Example]]:
    if settings.kind != "classification":
        raise InputError(f"{folder}: a folder of classes is no task of {settings.kind}; name a data file")
    return read_class_folders(folder)


def _own_examples(file: Path, settings: OwnTask) -> Iterator[tuple[Row, Example]]:
    fields = [settings.text_field, settings.second_field] if settings.kind == "pairs" else [settings.text_field]
    empty = True
    for row in read_rows(file):
        empty = False
        example = read_example(row, text_fields=fields, label_field=settings.label_field)
        yield row, refuse_blank(example, where=row.where)
    if empty:
        raise InputError(f"{file}: holds no example; add one with the fields {', '.join(fields)}")


def split_of(row: Row, field: str) -> str:
    """The split that a row names in `field`. Raises InputError for none."""
    split = row.fields.get(field)
    split = "validation" if split in VALIDATION else split
    if split not in SPLITS:
        raise InputError(f"{row.where}: field {field!r} is {split!r}, expected {', '.join(SPLITS)}; name the split")
    return split


def _rankings(settings: OwnTask) -> dict[str, Ranking]:
    """The whole pool in every split, each with its own queries: those of its file, or a drawn part of all."""
    assert isinstance(settings.path, Path)  # the profile's own check
    texts = _pool(settings.path, settings)
    if isinstance(settings.relevance, dict):
        links: dict[str, dict[str, list[str]]] = {
            split: _links(file, texts) for split, file in settings.relevance.items()
        }
    else:
        assert settings.relevance is not None  # the profile's own check
        links = _draw_queries(_links(settings.relevance, texts), share=settings.share, seed=settings.seed)
    pool = list(texts.values())
    row = {id: number for number, id in enumerate(texts)}
    return {
        split: Ranking(pool, [row[id] for id in found], [[row[id] for id in targets] for targets in found.values()])
        for split, found in links.items()
    }


def _pool(file: Path, settings: OwnTask) -> dict[str, str]:
    texts: dict[str, str] = {}
    for where, _, fields in read_rows(file):
        id = fields.get(settings.id_field)
        if not isinstance(id, str | int):
            raise InputError(f"{where}: field {settings.id_field!r} must be a string or an integer, found {id!r}")
        if str(id) in texts:
            raise InputError(f"{where}: an earlier row has the id {str(id)!r} too; rename one")
        text = text_of(fields, settings.text_field, where=where)
        texts[str(id)] = refuse_blank(Example((text,), ""), where=where).texts[0]
    return texts


def _links(file: Path, texts: dict[str, str]) -> dict[str, list[str]]:
    """The ids to be found for each id, each once. CSV and TSV may do without a line of names."""
    tabular = {".csv": ",", ".tsv": "\t"}.get(file_format(file) or "")
    rows = read_csv(file, columns=LINK, delimiter=tabular) if tabular else read_rows(file)
    links: dict[str, dict[str, None]] = {}
    for where, number, fields in rows:
        source, target = (str(fields.get(column)) for column in LINK)
        if tabular and number == 1 and (source, target) == LINK:
            continue
        for id in (source, target):
            if id not in texts:
                raise InputError(f"{where}: {id!r} is the id of no document; mend it, or delete the row")
        if source == target:
            raise InputError(f"{where}: {source!r} is to be found for itself; delete the row")
        links.setdefault(source, {})[target] = None
    if not links:
        raise InputError(f"{file}: holds no pair of ids; write one a row, source and target")
    return {source: list(targets) for source, targets in links.items()}


def _draw_queries(links: dict[str, list[str]], *, share: float, seed: int) -> dict[str, dict[str, list[str]]]:
    """`share` of the queries for validation, the rest for test: nothing is trained."""
    held = round(share * len(links))
    drawn = set(np.random.default_rng(seed).permutation(sorted(links))[:held].tolist())
    validation = {source: targets for source, targets in links.items() if source in drawn}
    test = {source: targets for source, targets in links.items() if source not in drawn}
    return {"validation": validation, "test": test} if validation else {"test": test}
