"""Tasks from data files, folders and data sets of a hub. Every error names the file and the row.

`source_rows` turns every layout into rows with a split, `read_examples` checks the fields of each row, `draw_splits`
divides examples whose splits are not named, and `own_task` reads the tasks of a user's own files.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, cast

import numpy as np

from docemb_lib.corpus.rows import Row, file_format, read_csv, read_rows, read_text, text_of
from docemb_lib.errors import InputError
from docemb_lib.evaluation.tasks import SPLITS, Classification, Labelled, LabelledPairs, Pairs, Ranking, Retrieval, Task
from docemb_lib.settings import OwnTask

Id = TypeVar("Id", bound=Hashable)  # of a text
logger = logging.getLogger(__name__)

VALIDATION = ("dev", "val", "valid")  # other names of the validation split
SPLIT = re.compile(rf"(?<![a-z])(train|validation|test|{'|'.join(VALIDATION)})(?![a-z])")
NO_SPLIT = ""  # the split of rows for which no split is named
LINES = ("dataset.txt", "labels.txt", "classes.txt")  # documents; numbers of their classes; names of the classes
CONVERTED = "refs/convert/parquet"  # branch on a hub with the files of data sets whose main branch is a script
WORD = re.compile(r"\b[^\W\d_]\w*")  # begins with a letter
LINK = ("source", "target")  # columns of a relevance file


def source_rows(source: str, *, config: str | None = None) -> Iterator[tuple[str, Row]]:
    """The split and the fields of every row of a data set; NO_SPLIT where no split is named.

    source: a data file; a folder of data files, of classes or with LINES; or the id of a data set on a hub. Folders of
    classes and LINES give the fields text and label. config: the subfolder, or the configuration on the hub.
    """
    place = Path(source)
    if place.is_file():
        yield from ((NO_SPLIT, row) for row in read_rows(place))
    elif (place / LINES[0]).is_file():
        yield from ((NO_SPLIT, row) for row in _parallel_lines(place))
    elif place.is_dir():
        folder = place / config if config and (place / config).is_dir() else place
        files = [file for file in visible_files(folder) if file_format(file)]
        splits = {file: split_in(file.relative_to(folder).as_posix()) for file in files}
        named = {file: split for file, split in splits.items() if split}  # a further file may hold all splits again
        for file, split in (named or splits).items():
            yield from ((split, row) for row in read_rows(file))
        if not splits:
            yield from class_folder_rows(folder)
    elif place.is_absolute() or source.startswith("."):
        raise InputError(f"{source}: no such file or folder; name the one that holds the published data")
    else:
        yield from _hub_rows(source, config)


def _hub_rows(dataset: str, config: str | None) -> Iterator[tuple[str, Row]]:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    try:
        try:
            splits = load_dataset(dataset, config)
        except RuntimeError:  # the main branch is a script, which `datasets` no longer runs
            splits = load_dataset(dataset, config, revision=CONVERTED)
    except (ValueError, OSError, DatasetsError) as error:
        raise InputError(f"dataset {dataset!r}: {error}; or name a folder in evaluation.benchmarks") from error
    for split in (name for name in SPLITS if name in splits):
        for number, fields in enumerate(splits[split], start=1):
            yield split, Row(f"{dataset} [{split}], row {number}", number, fields)


def _parallel_lines(folder: Path) -> Iterator[Row]:
    documents, labels, classes = (read_text(folder / name).removesuffix("\n").split("\n") for name in LINES)
    if len(documents) != len(labels):
        where = f"{folder}, line {min(len(documents), len(labels)) + 1}"
        counts = f"{LINES[0]} has {len(documents)} lines, {LINES[1]} {len(labels)}"
        raise InputError(f"{where}: {counts}; make them equal")
    for number, (text, label) in enumerate(zip(documents, labels, strict=True), start=1):
        where = f"{folder}, line {number}"
        if not text.strip():
            raise InputError(f"{where}: a text is blank; add one, or delete the line")
        if not label.strip().isdecimal() or int(label) >= len(classes):
            expected = f"the number of a class from 0 to {len(classes) - 1}"
            raise InputError(f"{where}: the label is {label!r}, expected {expected}")
        yield Row(where, number, {"text": text, "label": classes[int(label)]})


def class_folder_rows(folder: Path) -> Iterator[tuple[str, Row]]:
    """A row per visible file of a folder of classes, or of a folder of such folders that name splits.

    A class is named as its folder. Texts are UTF-8, or else Latin-1, as in older data sets: their number is logged.
    """
    folders = _subfolders(folder)
    splits = {split_in(one.name): one for one in folders}
    if not folders or NO_SPLIT in splits or len(splits) < len(folders):
        splits = {NO_SPLIT: folder}
    for split, place in splits.items():
        classes, latin = _subfolders(place), 0
        if not classes:
            raise InputError(f"{place}: holds no folder; name a data file, or put each class into a folder of its name")
        for one in classes:
            if not (files := visible_files(one)):
                raise InputError(f"{one}: a class without a document; add some, or delete the folder")
            for number, file in enumerate(files, start=1):
                try:
                    data = file.read_bytes()
                except OSError as error:
                    raise InputError(f"{file}: cannot be read ({error.strerror}); mend its permissions") from error
                try:
                    text = data.decode("utf-8-sig")
                except UnicodeDecodeError:
                    text, latin = data.decode("latin-1"), latin + 1
                yield split, Row(str(file), number, {"text": text, "label": one.name})
        if latin:
            logger.info("%s: %d files are not UTF-8 and were read as Latin-1", place, latin)


def split_in(name: str) -> str:
    """The split in the name of a file or folder, such as `20news-bydate-train` or `dev.csv`; or NO_SPLIT."""
    match = SPLIT.search(name.lower())
    return NO_SPLIT if match is None else "validation" if match[1] in VALIDATION else match[1]


def _subfolders(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))


def visible_files(folder: Path) -> list[Path]:
    """Every file below a folder, sorted, without hidden files and files in hidden folders."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return sorted(file for file in files if not any(part.startswith(".") for part in file.relative_to(folder).parts))


class Example(NamedTuple):
    texts: tuple[str, ...]  # one or two
    label: str


def read_examples(
    rows: Iterable[tuple[str, Row]],
    *,
    texts: Sequence[Sequence[str]],
    label: Sequence[str],
    where: str,
    blank: Literal["keep", "skip", "refuse"],
    split_field: str | None = None,
) -> dict[str, list[Example]]:
    """The examples of each split; a label becomes a string, so that all file formats agree. Raises InputError.

    rows: see `source_rows`; texts: for each text of an example the names that its field may have; label: those of the
    label; where: the source in messages; blank: keep blank texts, refuse them, or skip rows without a text or a label
    and log their number; split_field: names the split of a row, where a row has it.
    """
    splits: dict[str, list[Example]] = {}
    without_split, skipped = "", 0
    for split, row in rows:
        *names, last = (next((name for name in known if name in row.fields), known[0]) for known in (*texts, label))
        values = [row.fields[name] for name in (*names, last) if name in row.fields]
        if blank == "skip" and any(value is None or not str(value).strip() for value in values):
            skipped += 1
            continue
        found = tuple(text_of(row.fields, name, where=row.where) for name in names)
        if last not in row.fields:
            there = sorted(row.fields)
            raise InputError(f"{row.where}: no field {last!r}, found {there}; name the one that holds the label")
        value = row.fields[last]
        if not isinstance(value, str | int) or not str(value).strip():
            message = f"field {last!r} must be a string or an integer, found {value!r}"
            raise InputError(f"{row.where}: {message}; write the class")
        if blank == "refuse":
            for text in found:
                _not_blank(text, where=row.where)
        if split_field is not None and split_field in row.fields:
            split = "validation" if row.fields[split_field] in VALIDATION else row.fields[split_field]
            if split not in SPLITS:
                message = f"field {split_field!r} is {split!r}, expected {', '.join(SPLITS)}; name the split"
                raise InputError(f"{row.where}: {message}")
        without_split = without_split or (row.where if split == NO_SPLIT else "")
        splits.setdefault(split, []).append(Example(found, str(value).strip()))
    if skipped:
        logger.warning("%s: %d rows without a class or a text are left out", where, skipped)
    if not splits:
        fields = ", ".join(names[0] for names in (*texts, label))
        raise InputError(f"{where}: holds no example; add one with the fields {fields}")
    if without_split and len(splits) > 1:
        raise InputError(f"{without_split}: names no split, but other rows do; name it in all of them or in none")
    return splits


def _not_blank(text: str, *, where: str) -> str:
    if not text.strip():
        raise InputError(f"{where}: a text is blank; write it or delete the row")
    return text


def draw_splits(examples: Sequence[Example], *, share: float, seed: int, where: str) -> dict[str, list[Example]]:
    """Draw `share` of each class for test, as many for validation, the rest for train; the order of examples is kept.

    Examples with equal texts go to the same split, with the class of the first.
    """
    rng = np.random.default_rng(seed)
    label = {example.texts: example.label for example in reversed(examples)}
    by_label: dict[str, list[tuple[str, ...]]] = {name: [] for name in sorted(set(label.values()))}
    for texts in dict.fromkeys(example.texts for example in examples):
        by_label[label[texts]].append(texts)
    split_of = {}
    for name, members in by_label.items():
        held = max(1, round(share * len(members)))
        if len(members) <= 2 * held:
            what = f"{len(members)} examples are too few to draw train, validation and test from"
            mend = "add some, leave the class out, or name the splits in the file"
            raise InputError(f"{where}: class {name!r}: {what}; {mend}")
        for place, number in enumerate(rng.permutation(len(members))):
            split_of[members[number]] = "test" if place < held else "validation" if place < 2 * held else "train"
    return {split: [one for one in examples if split_of[one.texts] == split] for split in SPLITS}


def head_task(name: str, splits: Mapping[str, Sequence[Example]]) -> Classification | Pairs:
    """Pairs where examples have two texts, else a classification."""
    pairs = any(len(some[0].texts) == 2 for some in splits.values())
    kind: Any = LabelledPairs if pairs else Labelled
    data: dict[str, Any] = {}
    for split in (split for split in SPLITS if split in splits):
        columns = zip(*((*one.texts, one.label) for one in splits[split]), strict=True)
        data[split] = kind(*map(list, columns))
    return Pairs(name, data) if pairs else Classification(name, data)


def own_task(settings: OwnTask) -> Task:
    if settings.kind == "retrieval":
        return Retrieval(settings.name, _own_rankings(settings))
    path = settings.path
    if isinstance(path, dict):
        return head_task(settings.name, {split: _own_examples(settings, path[split], split)[split] for split in path})
    splits = _own_examples(settings, path)
    if NO_SPLIT in splits:
        splits = draw_splits(splits[NO_SPLIT], share=settings.share, seed=settings.seed, where=str(path))
    return head_task(settings.name, splits)


def _own_examples(settings: OwnTask, place: Path, split: str | None = None) -> dict[str, list[Example]]:
    """All examples of a file or of a folder of classes, those of a named split under that name."""
    if settings.kind == "classification" and place.is_dir():
        rows, texts, label = class_folder_rows(place), [["text"]], ["label"]
    else:
        rows, label = ((NO_SPLIT, row) for row in read_rows(place)), [settings.label_field]
        texts = [[settings.text_field], [settings.second_field]][: 1 + (settings.kind == "pairs")]
    rows, field = (rows, settings.split_field) if split is None else (((split, row) for _, row in rows), None)
    return read_examples(rows, texts=texts, label=label, where=str(place), blank="refuse", split_field=field)


def task_files(settings: OwnTask) -> list[Path]:
    """Every file of the task; a path that is neither a file nor a folder stands for itself."""
    given = [settings.path, settings.relevance]
    places = [one for place in given if place for one in (place.values() if isinstance(place, dict) else [place])]
    return [file for place in places for file in (visible_files(place) if place.is_dir() else [place])]


def _own_rankings(settings: OwnTask) -> dict[str, Ranking]:
    """The whole pool in every split, with the queries of the relevance file of the split, or with drawn queries."""
    texts: dict[str, str] = {}
    for where, _, fields in read_rows(cast(Path, settings.path)):
        id = fields.get(settings.id_field)
        if not isinstance(id, str | int):
            raise InputError(f"{where}: field {settings.id_field!r} must be a string or an integer, found {id!r}")
        if str(id) in texts:
            raise InputError(f"{where}: an earlier row has the id {str(id)!r} too; rename one")
        text = text_of(fields, settings.text_field, where=where)
        if settings.mask_names:
            text = WORD.sub(lambda word: "" if word[0][0].isupper() else word[0], text)
        texts[str(id)] = _not_blank(text, where=where)
    if isinstance(settings.relevance, dict):
        return {split: make_ranking(texts, _own_links(file, texts)) for split, file in settings.relevance.items()}
    links = _own_links(cast(Path, settings.relevance), texts)
    held = round(settings.share * len(links))  # for validation; the rest for test, since nothing is trained
    drawn = set(np.random.default_rng(settings.seed).permutation(sorted(links))[:held].tolist())
    validation = {source: targets for source, targets in links.items() if source in drawn}
    test = {source: targets for source, targets in links.items() if source not in drawn}
    return {split: make_ranking(texts, some) for split, some in (("validation", validation), ("test", test)) if some}


def _own_links(file: Path, texts: Mapping[str, str]) -> dict[str, list[str]]:
    """For each id the ids to retrieve, each once. CSV and TSV may start with a line of column names."""
    delimiter = {".csv": ",", ".tsv": "\t"}.get(file_format(file) or "")
    rows = read_csv(file, columns=LINK, delimiter=delimiter) if delimiter else read_rows(file)
    links: dict[str, dict[str, None]] = {}
    for where, number, fields in rows:
        if absent := [column for column in LINK if not isinstance(fields.get(column), str | int)]:
            problem = f"no string or integer in the field {absent[0]!r}"
            raise InputError(f"{where}: {problem}, found {sorted(fields)}; write an id into source and into target")
        source, target = (str(fields[column]) for column in LINK)
        if delimiter and number == 1 and (source, target) == LINK:
            continue
        for id in (source, target):
            if id not in texts:
                raise InputError(f"{where}: {id!r} is the id of no document; mend it, or delete the row")
        if source == target:
            raise InputError(f"{where}: {source!r} is relevant for itself; delete the row")
        links.setdefault(source, {})[target] = None
    if not links:
        raise InputError(f"{file}: holds no pair of ids; write one a row, source and target")
    return {source: list(targets) for source, targets in links.items()}


def make_ranking(
    texts: Mapping[Id, str], links: Mapping[Id, Sequence[Id]], *, candidates: int | None = None
) -> Ranking:
    """The ranking of texts by id, with the ids to retrieve for the id of each query. candidates: see `Ranking`."""
    row = {id: number for number, id in enumerate(texts)}
    relevant = [[row[id] for id in targets] for targets in links.values()]
    return Ranking(list(texts.values()), [row[id] for id in links], relevant, candidates)
