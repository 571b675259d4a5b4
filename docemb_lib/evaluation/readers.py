"""Tasks from data files, folders and data sets of a hub. Every error names the file and the row.

`source_rows` turns every layout into rows with a split, `read_examples` checks the fields of each
row, `draw_splits` divides examples whose splits are not named, and `own_task` reads the tasks of a
user's own files.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.rows import (
    Row,
    any_word,
    file_format,
    read_csv,
    read_rows,
    text_of,
    visible_files,
)
from docemb_lib.corpus.sources import hub_rows
from docemb_lib.evaluation.tasks import (
    SPLITS,
    Classification,
    Labelled,
    LabelledPairs,
    Pairs,
    Ranking,
    Retrieval,
    Task,
)
from docemb_lib.settings.sections import OwnTask

logger = logging.getLogger(__name__)

VALIDATION = ("dev", "val", "valid")  # other names of the validation split
SPLIT = any_word(*SPLITS, *VALIDATION)
NO_SPLIT = ""  # the split of rows for which no split is named
WORD = re.compile(r"\b[^\W\d_]\w*")  # begins with a letter
TEXTS = ("first", "second")  # columns of the texts of examples
LINK = ("source", "target")  # columns of a relevance file


def source_rows(source: str, *, config: str | None = None) -> Iterator[tuple[str, Row]]:
    """The split and the fields of every row of a data set; NO_SPLIT where no split is named.

    source: a data file; a folder of data files or of classes; or the id of a data set on a hub.
    Folders of classes give the fields text and label. config: the subfolder, or the configuration
    on the hub.
    """
    place = Path(source)
    if place.is_file():
        yield from ((NO_SPLIT, row) for row in read_rows(place))
    elif place.is_dir():
        folder = place / config if config and (place / config).is_dir() else place
        files = [file for file in visible_files(folder) if file_format(file)]
        splits = {file: split_in(file.relative_to(folder).as_posix()) for file in files}
        named = {
            file: split for file, split in splits.items() if split
        }  # a further file may hold all splits again
        for file, split in (named or splits).items():
            yield from ((split, row) for row in read_rows(file))
        if not splits:
            yield from class_folder_rows(folder)
    else:
        yield from hub_rows(source, config, SPLITS, streaming=False)


def class_folder_rows(folder: Path) -> Iterator[tuple[str, Row]]:
    """A row per visible file of a folder of classes, or of a folder of such folders that name
    splits.

    A class is named as its folder. Texts are UTF-8, or else Latin-1, as in older data sets.
    """
    folders = _subfolders(folder)
    splits = {split_in(one.name): one for one in folders}
    if not folders or NO_SPLIT in splits or len(splits) < len(folders):
        splits = {NO_SPLIT: folder}
    for split, place in splits.items():
        if not (classes := _subfolders(place)):
            mend = "name a data file, or put the texts of each class into a folder of its name"
            raise InputError(f"{place}: there is no folder in it; {mend}")
        for number, file in enumerate(
            (file for one in classes for file in visible_files(one)), start=1
        ):
            data, label = file.read_bytes(), file.relative_to(place).parts[0]
            try:
                text = data.decode("utf-8-sig")
            except UnicodeDecodeError:
                text = data.decode("latin-1")
            yield split, Row(str(file), number, {"text": text, "label": label})


def split_in(name: str) -> str:
    """The split in the name of a file or folder, such as `20news-bydate-train` or `dev.csv`; or
    NO_SPLIT.
    """
    match = SPLIT.search(name.lower())
    return NO_SPLIT if match is None else "validation" if match[1] in VALIDATION else match[1]


def _subfolders(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))


def read_examples(
    rows: Iterable[tuple[str, Row]],
    *,
    texts: Sequence[Sequence[str]],
    label: Sequence[str],
    where: str,
    skip_blank: bool = False,
    split_field: str | None = None,
) -> pd.DataFrame:
    """A row per example: split, its one or two texts (first, second), and label, a string. Raises
    InputError.

    rows: see `source_rows`; texts: for each text of an example the names that its field may have;
    label: those of the label; where: the source in messages; skip_blank: leave out rows without a
    text or a label, and log their number; split_field: names the split of a row, where a row has
    it.
    """
    examples: list[tuple[str, ...]] = []
    without_split, skipped = "", 0
    for split, row in rows:
        *names, last = (
            next((name for name in known if name in row.fields), known[0])
            for known in (*texts, label)
        )
        values = [row.fields[name] for name in (*names, last) if name in row.fields]
        if skip_blank and any(value is None or not str(value).strip() for value in values):
            skipped += 1
            continue
        found, value = (
            [text_of(row.fields, name, where=row.where) for name in names],
            row.fields.get(last),
        )
        if not isinstance(value, str | int) or not str(value).strip():
            given = f"but it is {value!r:.40}"
            needed = f"the field {last!r} must hold the class, a string or an integer, {given}"
            there = f"the row has the fields {', '.join(map(repr, row.fields))}"
            raise InputError(f"{row.where}: {needed}; write one, or name another field ({there})")
        if split_field is not None and split_field in row.fields:
            split = (
                "validation" if row.fields[split_field] in VALIDATION else row.fields[split_field]
            )
            if split not in SPLITS:
                given = f"the field {split_field!r} is {split!r:.40}"
                raise InputError(f"{row.where}: {given}; write one of {', '.join(SPLITS)}")
        without_split = without_split or (row.where if split == NO_SPLIT else "")
        examples.append((split, *found, str(value).strip()))
    if skipped:
        logger.warning("%s: %d rows without a class or a text are left out", where, skipped)
    if not examples:
        fields = ", ".join(names[0] for names in (*texts, label))
        raise InputError(f"{where}: it holds no example; add some with the fields {fields}")
    frame = pd.DataFrame(examples, columns=["split", *TEXTS[: len(texts)], "label"], dtype=object)
    if without_split and frame["split"].nunique() > 1:
        problem = "this row names no split, but other rows do"
        raise InputError(f"{without_split}: {problem}; name it in all of them or in none")
    return frame


def draw_splits(examples: pd.DataFrame, *, share: float, seed: int, where: str) -> pd.DataFrame:
    """Draw `share` of each class for test, as many for validation, the rest for train; the order of
    examples is kept.

    Equal texts, in either order, go to the same split, with the class of the first. examples: see
    `read_examples`.
    """
    rng, texts = (
        np.random.default_rng(seed),
        [examples[column] for column in TEXTS if column in examples],
    )
    key: Any = [frozenset(pair) for pair in zip(*texts, strict=True)]
    examples = examples.assign(key=key)
    distinct = examples.drop_duplicates("key").assign(split="train")
    for name, members in distinct.groupby("label"):
        held = max(1, round(share * len(members)))
        if len(members) <= 2 * held:
            few = f"{len(members)} examples are too few to draw train, validation and test from"
            raise InputError(
                f"{where}: class {name!r}: {few}; add some, or name the splits in the file"
            )
        drawn = members.index[rng.permutation(len(members))]
        distinct.loc[drawn[: 2 * held], "split"] = ["test"] * held + ["validation"] * held
    return examples.assign(split=examples["key"].map(distinct.set_index("key")["split"])).drop(
        columns="key"
    )


def head_task(name: str, examples: pd.DataFrame) -> Classification | Pairs:
    """Pairs where examples have two texts, else a classification. examples: see `read_examples`."""
    columns = [column for column in (*TEXTS, "label") if column in examples]
    kind: Any = LabelledPairs if len(columns) == 3 else Labelled
    parts = {split: examples[examples["split"] == split] for split in SPLITS}
    data = {
        split: kind(*(part[column].tolist() for column in columns))
        for split, part in parts.items()
        if len(part)
    }
    return Pairs(name, data) if len(columns) == 3 else Classification(name, data)


def own_task(settings: OwnTask) -> Task:
    if settings.kind == "retrieval":
        return Retrieval(settings.name, _own_rankings(settings))
    path = settings.path
    if isinstance(path, dict):
        return head_task(
            settings.name,
            pd.concat([_own_examples(settings, path[split], split) for split in path]),
        )
    examples = _own_examples(settings, path)
    if (examples["split"] == NO_SPLIT).all():
        examples = draw_splits(examples, share=settings.share, seed=settings.seed, where=str(path))
    return head_task(settings.name, examples)


def _own_examples(settings: OwnTask, place: Path, split: str | None = None) -> pd.DataFrame:
    """All examples of a file or of a folder of classes, those of a named split under that name."""
    texts = [[settings.text_field], [settings.second_field]][: 1 + (settings.kind == "pairs")]
    rows, split_field = source_rows(str(place)), settings.split_field if split is None else None
    if split is not None:
        rows = ((split, row) for _, row in rows)
    return read_examples(
        rows, texts=texts, label=[settings.label_field], where=str(place), split_field=split_field
    )


def task_files(settings: OwnTask) -> dict[str, tuple[Path, list[Path]]]:
    """Each place that a task names, and its files, by field and split, as in "relevance test".

    A path that is neither a file nor a folder stands for itself.
    """
    given = {"path": settings.path, "relevance": settings.relevance}
    splits = {
        field: place if isinstance(place, dict) else {"": place}
        for field, place in given.items()
        if place
    }
    places = {
        f"{field} {split}": place for field, own in splits.items() for split, place in own.items()
    }
    return {
        field: (place, visible_files(place) if place.is_dir() else [place])
        for field, place in places.items()
    }


def _own_rankings(settings: OwnTask) -> dict[str, Ranking]:
    """The whole pool in every split, with the queries of the relevance file of the split, or with
    drawn queries.
    """
    texts: dict[str, str] = {}
    for where, _, fields in read_rows(cast(Path, settings.path)):
        id = fields.get(settings.id_field)
        if not isinstance(id, str | int) or str(id) in texts:
            found = f"the field {settings.id_field!r} is {id!r:.40}"
            mend = "write a string or an integer that no earlier row has"
            raise InputError(f"{where}: {found}; {mend}")
        text = text_of(fields, settings.text_field, where=where)
        texts[str(id)] = (
            WORD.sub(lambda w: "" if w[0][0].isupper() else w[0], text)
            if settings.mask_names
            else text
        )
    if isinstance(settings.relevance, dict):
        return {
            split: make_ranking(texts, _own_links(file, texts))
            for split, file in settings.relevance.items()
        }
    links = _own_links(cast(Path, settings.relevance), texts)
    held = round(
        settings.share * len(links)
    )  # for validation; the rest for test, since nothing is trained
    drawn = set(np.random.default_rng(settings.seed).permutation(sorted(links))[:held].tolist())
    queries = {
        "validation": [id for id in links if id in drawn],
        "test": [id for id in links if id not in drawn],
    }
    shown = {
        split: {id: links[id] for id in ids}
        for split, ids in queries.items()
        if ids or split == "test"
    }
    return {split: make_ranking(texts, own) for split, own in shown.items()}


def _own_links(file: Path, texts: Mapping[str, str]) -> dict[str, list[str]]:
    """For each id the ids to retrieve, each once.

    CSV and TSV may start with a line of column names.
    """
    delimiter = {".csv": ",", ".tsv": "\t"}.get(file_format(file) or "")
    links: dict[str, dict[str, None]] = {}
    for where, number, fields in (
        read_csv(file, columns=LINK, delimiter=delimiter) if delimiter else read_rows(file)
    ):
        ids = [str(fields.get(column)) for column in LINK]
        if delimiter and number == 1 and ids == [*LINK]:
            continue
        if ids[0] == ids[1] or not {*ids} <= texts.keys():
            needed = "but it must name two different documents, source and target"
            raise InputError(f"{where}: the row has the ids {ids}, {needed}; mend it")
        links.setdefault(ids[0], {})[ids[1]] = None
    return {source: list(targets) for source, targets in links.items()}


def make_ranking(texts: Mapping[str, str], links: Mapping[str, Sequence[str]]) -> Ranking:
    """The ranking of texts by id, with the ids to retrieve for the id of each query."""
    row = {id: number for number, id in enumerate(texts)}
    relevant = [[row[id] for id in targets] for targets in links.values()]
    return Ranking(list(texts.values()), [row[id] for id in links], relevant)
