"""Tasks from data files, folders and data sets of a hub. Every error names the file and the row.

`source_rows` turns every layout into rows with a split, `read_examples` checks the fields of each
row, `draw_splits` divides examples whose splits are not named, and `own_task` reads the tasks of a
user's own files.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.links import relevant_documents
from docemb_lib.corpus.reader import local_documents, no_field
from docemb_lib.corpus.rows import (
    Findings,
    Row,
    any_word,
    clean,
    ending_of,
    field_in,
    file_format,
    lines_of,
    listed,
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
from docemb_lib.settings.sections import OwnTask, SplitName

logger = logging.getLogger(__name__)

VALIDATION = ("dev", "val", "valid")  # other names of the validation split
SPLIT = any_word(*SPLITS, *VALIDATION)
NO_SPLIT = ""  # the split of rows for which no split is named
WORD = re.compile(r"\b[^\W\d_]\w*")  # begins with a letter
TEXTS = ("first", "second")  # columns of the texts of examples
OfQuery = TypeVar("OfQuery")
# One file, or one for each split.
Relevance = Path | Mapping[SplitName, Path] | Mapping[str, Path]


def source_rows(
    source: str, findings: Findings, *, config: str | None = None
) -> Iterator[tuple[str, Row]]:
    """The split and the fields of every row of a data set; NO_SPLIT where no split is named.

    source: a data file; a folder of data files or of classes; or the id of a data set on a hub.
    Folders of classes give the fields text and label. findings: collects bad rows, and counts the
    files that are passed over. config: the subfolder, or the configuration on the hub.
    """
    place = Path(source)
    if place.is_file():
        yield from ((NO_SPLIT, row) for row in read_rows(place, findings))
    elif place.is_dir():
        folder = place / config if config and (place / config).is_dir() else place
        inside = visible_files(folder, findings.left_out)
        files = [file for file in inside if file_format(file)]
        if not files:
            yield from class_folder_rows(folder, findings)
            return
        splits = {file: split_in(file.relative_to(folder).as_posix()) for file in files}
        # A file that names no split may hold all splits of the others again.
        named = {file: split for file, split in splits.items() if split}
        for file, split in (named or splits).items():
            yield from ((split, row) for row in read_rows(file, findings))
        findings.left_out.update(ending_of(file) for file in inside if file not in splits)
        if named and len(named) < len(splits):
            findings.left_out["file without a split in its name"] = len(splits) - len(named)
    else:
        yield from hub_rows(source, config, SPLITS, streaming=False)


def class_folder_rows(folder: Path, findings: Findings) -> Iterator[tuple[str, Row]]:
    """A row per visible file of a folder of classes, or of such folders that name splits.

    A class is named as its folder. findings: see `source_rows`. Raises InputError where there is no
    folder of a class.
    """
    folders = _subfolders(folder)
    splits = {split_in(part.name): part for part in folders}
    if not folders or NO_SPLIT in splits or len(splits) < len(folders):
        splits = {NO_SPLIT: folder}
    read = set()
    for split, place in splits.items():
        classes = _subfolders(place)
        if not classes:
            raise InputError(
                f"{place}: there is no folder in it; name a data file, or put the texts of each "
                "class into a folder of its name"
            )
        files = [file for part in classes for file in visible_files(part)]
        for number, file in enumerate(files, start=1):
            label = file.relative_to(place).parts[0]
            with findings.collecting():
                text = clean("".join(lines_of(file)))
                yield split, Row(str(file), number, {"text": text, "label": label})
        read.update(files)
    findings.left_out.update(ending_of(file) for file in visible_files(folder) if file not in read)


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
    findings: Findings,
    *,
    texts: Sequence[Sequence[str]],
    joined: bool = False,
    label: Sequence[str],
    where: str,
    skip_blank: bool = False,
    split_field: str | None = None,
) -> pd.DataFrame:
    """A row per example: split, its one or two texts (first, second), and label, a string.

    rows: see `source_rows`; findings: collects the rows that are no examples; texts: for each text
    of an example the names that its field may have, or if `joined` the fields whose texts are
    joined; label: the names that the field of the label may have; where: the source in messages;
    skip_blank: leave out rows without a text or a label, and log their number; split_field: names
    the split of a row; None: `split`, where a row has it; "": none does. Raises InputError for rows
    that are no examples, for a named field that no row has, and where there is no example.
    """
    examples = []
    known: dict[str, None] = {}  # the fields of all rows
    without_split = ""
    skipped = 0
    for split, row in rows:
        known |= dict.fromkeys(row.fields)
        written = [field_in(row.fields, *names) for names in (*texts, label)]
        values = [row.fields[name] for name in written if name is not None]
        if skip_blank and any(value is None or not str(value).strip() for value in values):
            skipped += 1
            continue
        with findings.collecting():
            documents = []
            for given, name in zip(texts, written, strict=False):
                fields = given if joined else name or given[0]
                documents.append(text_of(row.fields, fields, where=row.where))
            label_text = _label_of(row, label)
            if split_field != "":
                split = _split_of(row, split_field or "split") or split
            if split == NO_SPLIT:
                without_split = without_split or row.where
            examples.append((split, *documents, label_text))
    if known and joined:  # the names are a user's
        wanted = [("text_field", name) for name in texts[0]]
        wanted += [("second_field", name) for names in texts[1:] for name in names]
        wanted += [("label_field", label[0]), ("split_field", split_field or "")]
        for option, name in wanted:
            if name and field_in(known, name) is None:
                raise no_field(where, name, known, option)
    findings.end(where)
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


def _split_of(row: Row, field: str) -> str:
    """The split that a field names; NO_SPLIT where the row has no such field."""
    name = field_in(row.fields, field)
    if name is None:
        return NO_SPLIT
    split = _canonical(row.fields[name])
    if split not in SPLITS:
        raise InputError(
            f"{row.where}: the field {name!r} is {split!r:.40}; write one of {', '.join(SPLITS)}"
        )
    return split


def _label_of(row: Row, names: Sequence[str]) -> str:
    name = field_in(row.fields, *names) or names[0]
    value = row.fields.get(name)
    if isinstance(value, str | int) and str(value).strip():
        return clean(str(value).strip())
    raise InputError(
        f"{row.where}: the field {name!r} must hold the class, a string or an integer, but it is "
        f"{value!r:.40}; "
        f"write one, or name another field (the row has the fields {listed(row.fields)})"
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
    findings = Findings(skip_bad=settings.skip_bad)
    rows = source_rows(str(place), findings)
    if split is not None:
        rows = ((split, row) for _, row in rows)
    given = settings.text_field
    texts = [[given] if isinstance(given, str) else given]
    if settings.kind == "pairs":
        texts.append([settings.second_field])
    return read_examples(
        rows,
        findings,
        texts=texts,
        joined=True,
        label=[settings.label_field],
        where=str(place),
        split_field=settings.split_field if split is None else "",
    )


def task_files(settings: OwnTask) -> dict[str, tuple[Path, list[Path]]]:
    """Each place that a task names, and its files, by field and split, as in "relevance test".

    A path that is neither a file nor a folder stands for itself.
    """
    files = {}
    for field in ("path", "queries", "relevance"):
        given = getattr(settings, field)
        places = given if isinstance(given, dict) else {"": given} if given else {}
        for split, place in places.items():
            inside = visible_files(place) if place.is_dir() else [place]
            files[f"{field} {split}"] = (place, inside)
    return files


def _own_rankings(settings: OwnTask) -> dict[str, Ranking]:
    """The whole pool in every split, with queries of its relevance file, or with drawn queries."""
    texts = own_texts(cast(Path, settings.path), settings, settings.text_field)
    if settings.mask_names:
        for id, text in texts.items():
            texts[id] = WORD.sub(lambda word: "" if word[0][0].isupper() else word[0], text)

    def links_in(file: Path) -> dict[str, list[str]]:
        return relevant_documents(file, texts, skip_bad=settings.skip_bad)

    by_split = queries_by_split(cast(Relevance, settings.relevance), settings, links_in)
    return {split: make_ranking(texts, links) for split, links in by_split.items()}


def own_texts(file: Path, settings: OwnTask, text_field: str | Sequence[str]) -> dict[str, str]:
    """The texts of documents or queries of a task by id."""
    documents = local_documents(
        file, text_field=text_field, id_field=settings.id_field, skip_bad=settings.skip_bad
    )
    return {document.id: document.text for document in documents}


def queries_by_split(
    relevance: Relevance, settings: OwnTask, read: Callable[[Path], dict[str, OfQuery]]
) -> dict[str, dict[str, OfQuery]]:
    """The queries of each split, and what `read` finds of each in a file of relevance.

    Of a single file, a share of the queries is drawn for validation, and the rest is for test,
    since nothing is trained.
    """
    if not isinstance(relevance, Path):
        return {split: read(file) for split, file in relevance.items()}
    by_query = read(relevance)
    held = round(settings.share * len(by_query))
    order = np.random.default_rng(settings.seed).permutation(sorted(by_query))
    drawn = set(order[:held].tolist())
    splits: dict[str, dict[str, OfQuery]] = {"validation": {}, "test": {}}
    for query, value in by_query.items():
        splits["validation" if query in drawn else "test"][query] = value
    if not held:
        del splits["validation"]
    return splits


def make_ranking(texts: Mapping[str, str], links: Mapping[str, Sequence[str]]) -> Ranking:
    """The ranking of texts by id, with the ids to retrieve for the id of each query."""
    row = {id: number for number, id in enumerate(texts)}
    relevant = [list(map(row.__getitem__, targets)) for targets in links.values()]
    queries = [row[id] for id in links]
    return Ranking(list(texts.values()), queries, relevant, list(texts))
