"""Tasks from data files, folders and data sets of a hub. Every error names the file and the row.

`source_rows` turns every layout into rows with a split, `read_examples` checks the fields of each
row, `draw_splits` divides examples whose splits are not named, and `own_task` reads the tasks of a
user's own files.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

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
        # A file that names no split may hold all splits of the others again.
        named = {file: split for file, split in splits.items() if split}
        for file, split in (named or splits).items():
            yield from ((split, row) for row in read_rows(file))
        if not files:
            yield from class_folder_rows(folder)
    else:
        yield from hub_rows(source, config, SPLITS, streaming=False)


def class_folder_rows(folder: Path) -> Iterator[tuple[str, Row]]:
    """A row per visible file of a folder of classes, or of such folders that name splits.

    A class is named as its folder. Texts are UTF-8, or else Latin-1, as in older data sets. Raises
    InputError where there is no folder of a class.
    """
    folders = _subfolders(folder)
    splits = {split_in(part.name): part for part in folders}
    if not folders or NO_SPLIT in splits or len(splits) < len(folders):
        splits = {NO_SPLIT: folder}
    for split, place in splits.items():
        classes = _subfolders(place)
        if not classes:
            raise InputError(
                f"{place}: there is no folder in it; name a data file, or put the texts of each "
                "class into a folder of its name"
            )
        files = [file for part in classes for file in visible_files(part)]
        for number, file in enumerate(files, start=1):
            data = file.read_bytes()
            try:
                text = data.decode("utf-8-sig")
            except UnicodeDecodeError:
                text = data.decode("latin-1")
            label = file.relative_to(place).parts[0]
            yield split, Row(str(file), number, {"text": text, "label": label})


def split_in(name: str) -> str:
    """The split in a name such as `20news-bydate-train` or `dev.csv`; or NO_SPLIT."""
    match = SPLIT.search(name.lower())
    return _canonical(match[1]) if match else NO_SPLIT


def _canonical(split: str) -> str:
    return "validation" if split in VALIDATION else split


def _subfolders(folder: Path) -> list[Path]:
    return sorted(
        part for part in folder.iterdir() if part.is_dir() and not part.name.startswith(".")
    )


def read_examples(
    rows: Iterable[tuple[str, Row]],
    *,
    texts: Sequence[Sequence[str]],
    label: Sequence[str],
    where: str,
    skip_blank: bool = False,
    split_field: str | None = None,
) -> pd.DataFrame:
    """A row per example: split, its one or two texts (first, second), and label, a string.

    rows: see `source_rows`; texts: for each text of an example the names that its field may have;
    label: those of the label; where: the source in messages; skip_blank: leave out rows without a
    text or a label, and log their number; split_field: names the split of a row, where a row has
    it. Raises InputError for a row that is no example, and where there is none.
    """
    examples: list[tuple[str, ...]] = []
    without_split = ""
    skipped = 0
    for split, row in rows:
        names = [_field_of(row, known) for known in (*texts, label)]
        values = [row.fields[name] for name in names if name in row.fields]
        if skip_blank and any(value is None or not str(value).strip() for value in values):
            skipped += 1
            continue
        documents = [text_of(row.fields, name, where=row.where) for name in names[:-1]]
        label_text = _label_of(row, names[-1])
        if split_field is not None and split_field in row.fields:
            split = _canonical(row.fields[split_field])
            if split not in SPLITS:
                raise InputError(
                    f"{row.where}: the field {split_field!r} is {split!r:.40}; write one of "
                    f"{', '.join(SPLITS)}"
                )
        if split == NO_SPLIT:
            without_split = without_split or row.where
        examples.append((split, *documents, label_text))
    if skipped:
        logger.warning("%s: %d rows without a class or a text are left out", where, skipped)
    if not examples:
        fields = ", ".join(known[0] for known in (*texts, label))
        raise InputError(f"{where}: it holds no example; add some with the fields {fields}")
    frame = pd.DataFrame(examples, columns=["split", *TEXTS[: len(texts)], "label"], dtype=object)
    if without_split and frame["split"].nunique() > 1:
        raise InputError(
            f"{without_split}: this row names no split, but other rows do; name it in all of them "
            "or in none"
        )
    return frame


def _field_of(row: Row, known: Sequence[str]) -> str:
    """The first of the known names that the row has, or the usual name."""
    return next((name for name in known if name in row.fields), known[0])


def _label_of(row: Row, field: str) -> str:
    value = row.fields.get(field)
    if isinstance(value, str | int) and str(value).strip():
        return str(value).strip()
    raise InputError(
        f"{row.where}: the field {field!r} must hold the class, a string or an integer, but it is "
        f"{value!r:.40}; write one, or name another field (the row has the fields "
        f"{', '.join(map(repr, row.fields))})"
    )


def draw_splits(examples: pd.DataFrame, *, share: float, seed: int, where: str) -> pd.DataFrame:
    """Draw `share` of each class for test, as many for validation, the rest for train.

    Equal texts, in either order, go to the same split, with the class of the first. The order of
    the examples is kept. examples: see `read_examples`. Raises InputError for a class of too few.
    """
    rng = np.random.default_rng(seed)
    texts = [examples[column] for column in TEXTS if column in examples]
    keys = pd.Series([frozenset(pair) for pair in zip(*texts, strict=True)], examples.index)
    distinct = examples.assign(split="train")[~keys.duplicated()]
    for name, members in distinct.groupby("label"):
        held = max(1, round(share * len(members)))
        if len(members) <= 2 * held:
            raise InputError(
                f"{where}: class {name!r}: {len(members)} examples are too few to draw train, "
                "validation and test from; add some, or name the splits in the file"
            )
        drawn = members.index[rng.permutation(len(members))]
        distinct.loc[drawn[: 2 * held], "split"] = ["test"] * held + ["validation"] * held
    split_of = dict(zip(keys[distinct.index], distinct["split"], strict=True))
    return examples.assign(split=[split_of[key] for key in keys])


def head_task(name: str, examples: pd.DataFrame) -> Classification | Pairs:
    """Pairs where examples have two texts, else a classification. examples: see `read_examples`."""
    columns = {}
    for split in SPLITS:
        part = examples[examples["split"] == split].drop(columns="split")
        if len(part):
            columns[split] = part.to_dict("list").values()
    if TEXTS[1] in examples:
        return Pairs(name, {split: LabelledPairs(*data) for split, data in columns.items()})
    return Classification(name, {split: Labelled(*data) for split, data in columns.items()})


def own_task(settings: OwnTask) -> Task:
    """The task of a user's own files. Raises InputError where they do not fit the settings."""
    path = settings.path
    if settings.kind == "retrieval":
        return Retrieval(settings.name, _own_rankings(settings))
    if isinstance(path, dict):
        parts = [_own_examples(settings, place, split) for split, place in path.items()]
        return head_task(settings.name, pd.concat(parts))
    examples = _own_examples(settings, path)
    if (examples["split"] == NO_SPLIT).all():
        examples = draw_splits(examples, share=settings.share, seed=settings.seed, where=str(path))
    return head_task(settings.name, examples)


def _own_examples(settings: OwnTask, place: Path, split: str | None = None) -> pd.DataFrame:
    """All examples of a file or of a folder of classes; all are in `split` where it is given."""
    rows = source_rows(str(place))
    if split is not None:
        rows = ((split, row) for _, row in rows)
    texts = [[settings.text_field]]
    if settings.kind == "pairs":
        texts.append([settings.second_field])
    return read_examples(
        rows,
        texts=texts,
        label=[settings.label_field],
        where=str(place),
        split_field=settings.split_field if split is None else None,
    )


def task_files(settings: OwnTask) -> dict[str, tuple[Path, list[Path]]]:
    """Each place that a task names, and its files, by field and split, as in "relevance test".

    A path that is neither a file nor a folder stands for itself.
    """
    files = {}
    for field in ("path", "relevance"):
        given = getattr(settings, field)
        places = given if isinstance(given, dict) else {"": given} if given else {}
        for split, place in places.items():
            inside = visible_files(place) if place.is_dir() else [place]
            files[f"{field} {split}"] = (place, inside)
    return files


def _own_rankings(settings: OwnTask) -> dict[str, Ranking]:
    """The whole pool in every split, with queries of its relevance file, or with drawn queries."""
    texts = _own_pool(settings)
    relevance = settings.relevance
    if isinstance(relevance, dict):
        links = {split: _own_links(file, texts) for split, file in relevance.items()}
        return {split: make_ranking(texts, queries) for split, queries in links.items()}
    all_links = _own_links(cast(Path, relevance), texts)
    # The rest of the queries is for test, since nothing is trained.
    held = round(settings.share * len(all_links))
    order = np.random.default_rng(settings.seed).permutation(sorted(all_links))
    drawn = set(order[:held].tolist())
    validation = {id: targets for id, targets in all_links.items() if id in drawn}
    test = {id: targets for id, targets in all_links.items() if id not in drawn}
    rankings = {"validation": make_ranking(texts, validation)} if validation else {}
    return rankings | {"test": make_ranking(texts, test)}


def _own_pool(settings: OwnTask) -> dict[str, str]:
    """The text of each document by its id."""
    texts: dict[str, str] = {}
    for where, _, fields in read_rows(cast(Path, settings.path)):
        id = fields.get(settings.id_field)
        if not isinstance(id, str | int) or str(id) in texts:
            raise InputError(
                f"{where}: the field {settings.id_field!r} is {id!r:.40}; write a string or an "
                "integer that no earlier row has"
            )
        text = text_of(fields, settings.text_field, where=where)
        if settings.mask_names:
            text = WORD.sub(lambda word: "" if word[0][0].isupper() else word[0], text)
        texts[str(id)] = text
    return texts


def _own_links(file: Path, texts: Mapping[str, str]) -> dict[str, list[str]]:
    """For each id the ids to retrieve, each once.

    CSV and TSV may start with a line of column names.
    """
    delimiter = {".csv": ",", ".tsv": "\t"}.get(file_format(file) or "")
    rows = read_csv(file, columns=LINK, delimiter=delimiter) if delimiter else read_rows(file)
    links: dict[str, dict[str, None]] = {}
    for where, number, fields in rows:
        source, target = (str(fields.get(column)) for column in LINK)
        if delimiter and number == 1 and (source, target) == LINK:
            continue
        if source == target or not {source, target} <= texts.keys():
            raise InputError(
                f"{where}: the row has the ids {[source, target]}, but it must name two different "
                "documents, source and target; mend it"
            )
        links.setdefault(source, {})[target] = None
    return {source: list(targets) for source, targets in links.items()}


def make_ranking(texts: Mapping[str, str], links: Mapping[str, Sequence[str]]) -> Ranking:
    """The ranking of texts by id, with the ids to retrieve for the id of each query."""
    row = {id: number for number, id in enumerate(texts)}
    relevant = [list(map(row.__getitem__, targets)) for targets in links.values()]
    queries = [row[id] for id in links]
    return Ranking(list(texts.values()), queries, relevant, list(texts))
