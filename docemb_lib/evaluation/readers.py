"""Tasks with labels from data files, folders and data sets of a hub.

`examples_task` checks the fields of each row, and `draw_splits` divides examples whose splits are
not named. Every error names the file and the row.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.reader import (
    Reading,
    Row,
    clean,
    file_format,
    matches,
    read_rows,
    text_of,
    text_row,
    visible_files,
)
from docemb_lib.corpus.sources import hub_rows
from docemb_lib.evaluation.tasks import (
    SPLITS,
    Classification,
    Labelled,
    LabelledPairs,
    Pairs,
)
from docemb_lib.settings.sections import OwnTask

VALIDATION = ("dev", "val", "valid")  # other names of the validation split
# A name of a split outside of longer words: test in `c4-test.00000.json`, and not in `latest`.
SPLIT = re.compile(rf"(?<![a-z])({'|'.join((*SPLITS, *VALIDATION))})(?![a-z])")
NO_SPLIT = ""  # the split of files and rows for which none is named

Example = tuple[str, list[str], str]  # split, one or two texts, class


def labelled_task(settings: OwnTask) -> Classification | Pairs:
    """Return an own classification or pairs task. Raises InputError for files that do not fit."""
    reading = Reading(skip_bad=settings.skip_bad, encoding=settings.encoding)
    texts = [[settings.text_field] if isinstance(settings.text_field, str) else settings.text_field]
    if settings.kind == "pairs":
        texts.append([settings.second_field])
    return examples_task(
        settings.name,
        _own_rows(settings, reading),
        reading,
        texts=texts,
        label=[settings.label_field],
        where=str(settings.path),
        split_field=settings.split_field,
        share=settings.share,
        seed=settings.seed,
    )


def _own_rows(settings: OwnTask, reading: Reading) -> Iterator[tuple[str, Row]]:
    for split, place in files_by_split(settings.path).items():
        for named, row in source_rows(str(place), reading):
            yield split or named, row


def files_by_split(given: Path | Mapping[Any, Path]) -> dict[str, Path]:
    """Return the files of a task by split; NO_SPLIT for one file."""
    return {NO_SPLIT: given} if isinstance(given, Path) else {**given}


def source_rows(
    source: str, reading: Reading, *, config: str | None = None
) -> Iterator[tuple[str, Row]]:
    """Yield the split and the fields of every row of a data set; NO_SPLIT where none is named.

    Args:
        source: a data file or a pattern; a folder of data files, or of classes, which hold a text
            in each file; or the id of a data set on a hub.
        reading: collects bad rows, and counts the files that are passed over.
        config: the subfolder, or the configuration on the hub.
    """
    place = Path(source)
    files = dataset_files(source, config)
    if not files and not place.is_dir():
        yield from hub_rows(source, config, SPLITS, streaming=False)
    for file in {*visible_files(place)} - {*files}:
        reading.pass_over(file)
    for file, split in files.items():
        if file_format(file):
            yield from ((split, row) for row in read_rows(file, reading))
            continue
        with reading.collecting():
            yield split, text_row(file, reading)


def dataset_files(source: str, config: str | None = None) -> dict[Path, str]:
    """Return the files of a local data set and the split that each names; {} for a hub's.

    They are data files, or else the texts of classes, in a folder for each class. Among several, a
    data file that names no split may hold all splits of the others again, and is left out. Raises
    InputError for a split in several formats, which may be the same data.
    """
    place = Path(source)
    if not place.is_dir():
        return dict.fromkeys(matches(place), NO_SPLIT)
    folder = place / config if config and (place / config).is_dir() else place
    inside = {file: file.relative_to(folder) for file in visible_files(folder)}
    data = {file: split_in(path) for file, path in inside.items() if file_format(file)}
    texts = {f: split_in(path.parent.parent) for f, path in inside.items() if path.parent.name}
    found = {file: split for file, split in data.items() if split} or data or texts
    formats = {(split, file_format(file)) for file, split in found.items()}
    if len(formats) > len({*found.values()}):
        raise InputError(f"{folder}: a split has data files of several formats; keep one of them")
    return found


def split_in(path: Path) -> str:
    """Return the split in a path such as `20news-bydate-train` or `dev.csv`; or NO_SPLIT."""
    match = SPLIT.search(path.as_posix().lower())
    return split_named(match[1]) if match else NO_SPLIT


def split_named(name: str) -> str:
    """Return the split that has this name, perhaps another name of the validation split."""
    return "validation" if name in VALIDATION else name


def examples_task(
    name: str,
    rows: Iterable[tuple[str, Row]],
    reading: Reading,
    *,
    texts: Sequence[Sequence[str]],
    label: Sequence[str],
    where: str,
    class_of: Callable[[str], str] = str,
    split_field: str | None = None,
    share: float | None = 0.2,
    seed: int = 0,
) -> Classification | Pairs:
    """Return a classification, or pairs if each example has two texts; classes are strings.

    Raises InputError for rows that are no examples, where there is no example, and where only some
    rows name their splits.

    Args:
        rows: see `source_rows`.
        reading: collects the rows that are no examples. Where it skips them, rows with a blank
            text are none.
        texts: for each text of an example the fields whose texts are joined.
        label: the names that the field of the label may have.
        where: the source in messages.
        class_of: returns the class that a label stands for.
        split_field: names the split of a row whose file names none; None: `split`, if it is there.
        share, seed: of splits that are drawn if none is named, see `draw_splits`; None: they must
            be named.
    """
    examples: list[Example] = []
    for split, row in rows:
        with reading.collecting():
            documents = [text_of(row, names) for names in texts]
            if reading.skip_bad and not all(map(str.strip, documents)):
                raise row.bad("a text is blank; write one")
            named = row.get(split_field or "split")
            if split == NO_SPLIT and (split_field or named is not None):
                split = split_named(str(named))
                if split not in SPLITS:
                    raise row.wrong(f"one of {', '.join(SPLITS)}", split_field or "split")
            examples.append((split, documents, class_of(_label_of(row, label))))
    reading.end(where)
    without = [split for split, _, _ in examples].count(NO_SPLIT)
    if not examples:
        fields = ", ".join(names[0] for names in (*texts, label))
        raise InputError(f"{where}: it holds no example; add some with the fields {fields}")
    if without and (without < len(examples) or share is None):
        raise InputError(f"{where}: {without} rows name no split; name {', '.join(SPLITS)} in all")
    if without and share:
        examples = draw_splits(examples, share=share, seed=seed, where=where)
    columns = {}
    for split in SPLITS:
        part = [(*documents, of) for named, documents, of in examples if named == split]
        if part:
            columns[split] = map(list, zip(*part, strict=True))
    if len(texts) == 2:
        return Pairs(name, {split: LabelledPairs(*data) for split, data in columns.items()})
    return Classification(name, {split: Labelled(*data) for split, data in columns.items()})


def _label_of(row: Row, names: Sequence[str]) -> str:
    value = row.get(*names)
    if isinstance(value, str | int) and str(value).strip():
        return clean(str(value).strip())
    raise row.wrong("the class, a string or an integer", *names)


def draw_splits(
    examples: Sequence[Example], *, share: float, seed: int, where: str
) -> list[Example]:
    """Draw `share` of each class for test, as many for validation, the rest for train.

    Equal texts, in either order, go to the same split, with the class of the first. The order of
    the examples is kept. Raises InputError for a class of too few.
    """
    rng = np.random.default_rng(seed)
    class_of: dict[frozenset[str], str] = {}
    for _, documents, label in examples:
        class_of.setdefault(frozenset(documents), label)
    split_of = dict.fromkeys(class_of, "train")
    for name in sorted({*class_of.values()}):
        members = [key for key, label in class_of.items() if label == name]
        held = max(1, round(share * len(members)))
        if len(members) <= 2 * held:
            raise InputError(
                f"{where}: class {name!r}: {len(members)} examples are too few to draw train, "
                "validation and test from; add some, or name the splits in the file"
            )
        for place, row in enumerate(rng.permutation(len(members))[: 2 * held]):
            split_of[members[row]] = "test" if place < held else "validation"
    return [(split_of[frozenset(documents)], documents, of) for _, documents, of in examples]
