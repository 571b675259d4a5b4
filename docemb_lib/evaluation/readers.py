"""Tasks with labels from data files, folders and data sets of a hub.

`source_rows` turns every layout into rows with a split, `read_examples` checks the fields of each
row, and `draw_splits` divides examples whose splits are not named. Every error names the file and
the row.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
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
)
from docemb_lib.settings.sections import OwnTask

VALIDATION = ("dev", "val", "valid")  # other names of the validation split
SPLIT = any_word(*SPLITS, *VALIDATION)
NO_SPLIT = ""  # the split of rows for which no split is named
TEXTS = ("first", "second")  # columns of the texts of examples


def source_rows(
    source: str, findings: Findings, *, config: str | None = None
) -> Iterator[tuple[str, Row]]:
    """Yield the split and the fields of every row of a data set; NO_SPLIT where none is named.

    Args:
        source: a data file; a folder of data files, or of classes, which hold a text in each file;
            or the id of a data set on a hub.
        findings: collects bad rows, and counts the files that are passed over.
        config: the subfolder, or the configuration on the hub.
    """
    place = Path(source)
    if place.is_file():
        yield from ((NO_SPLIT, row) for row in read_rows(place, findings))
    elif place.is_dir():
        folder = place / config if config and (place / config).is_dir() else place
        inside = visible_files(folder)
        splits = {file: split_in(file.relative_to(folder)) for file in inside if file_format(file)}
        # A file that names no split may hold all splits of the others again.
        splits = {file: split for file, split in splits.items() if split} or splits
        for file, split in splits.items():
            yield from ((split, row) for row in read_rows(file, findings))
        for file in inside:
            parent = file.relative_to(folder).parent  # the folder of a class, perhaps of a split
            if parent.name and not splits:
                with findings.collecting():
                    fields = {"text": clean("".join(lines_of(file))), "label": parent.name}
                    yield split_in(parent.parent), Row(str(file), 1, fields)
            elif file not in splits:
                findings.left_out[ending_of(file)] += 1
    else:
        yield from hub_rows(source, config, SPLITS, streaming=False)


def split_in(path: Path) -> str:
    """Return the split in a path such as `20news-bydate-train` or `dev.csv`; or NO_SPLIT."""
    match = SPLIT.search(path.as_posix().lower())
    return _canonical(match[1]) if match else NO_SPLIT


def _canonical(split: str) -> str:
    return "validation" if split in VALIDATION else split


def read_examples(
    rows: Iterable[tuple[str, Row]],
    findings: Findings,
    *,
    texts: Sequence[Sequence[str]],
    label: Sequence[str],
    where: str,
    split_field: str | None = None,
) -> pd.DataFrame:
    """Return a row per example: split, its one or two texts (first, second), and label, a string.

    Raises InputError for rows that are no examples, and where there is no example.

    Args:
        rows: see `source_rows`.
        findings: collects the rows that are no examples. Where it skips them, rows with a blank
            text are none.
        texts: for each text of an example the fields whose texts are joined.
        label: the names that the field of the label may have.
        where: the source in messages.
        split_field: names the split of a row; None: `split`, where a row has it; "": none does.
    """
    examples = []
    for split, row in rows:
        with findings.collecting():
            documents = [text_of(row.fields, names, where=row.where) for names in texts]
            if findings.skip_bad and not all(map(str.strip, documents)):
                raise InputError(f"{row.where}: a text is blank; write one")
            if split_field or (split_field is None and field_in(row.fields, "split")):
                split = _split_of(row, split_field or "split")
            examples.append((split, *documents, _label_of(row, label)))
    findings.end(where)
    frame = pd.DataFrame(examples, columns=["split", *TEXTS[: len(texts)], "label"], dtype=object)
    without = int((frame["split"] == NO_SPLIT).sum())
    if not examples:
        fields = ", ".join(names[0] for names in (*texts, label))
        raise InputError(f"{where}: it holds no example; add some with the fields {fields}")
    if 0 < without < len(frame):
        raise InputError(
            f"{where}: {without} rows name no split, but the others do; name it in all of them or "
            "in none"
        )
    return frame


def _split_of(row: Row, field: str) -> str:
    name = field_in(row.fields, field)
    value = row.fields[name] if name else None
    split = _canonical(str(value))
    if split not in SPLITS:
        raise InputError(
            f"{row.where}: the field {field!r} is {value!r:.40}; write one of {', '.join(SPLITS)}"
        )
    return split


def _label_of(row: Row, names: Sequence[str]) -> str:
    name = field_in(row.fields, *names) or names[0]
    value = row.fields.get(name)
    if isinstance(value, str | int) and str(value).strip():
        return clean(str(value).strip())
    raise InputError(
        f"{row.where}: the field {name!r} must hold the class, a string or an integer, but it is "
        f"{value!r:.40}; write one, or name another of the fields {listed(row.fields)}"
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
    """Return pairs where examples have two texts, else a classification; see `read_examples`."""
    columns = {}
    for split in SPLITS:
        part = examples[examples["split"] == split].drop(columns="split")
        if len(part):
            columns[split] = part.to_dict("list").values()
    if TEXTS[1] in examples:
        return Pairs(name, {split: LabelledPairs(*data) for split, data in columns.items()})
    return Classification(name, {split: Labelled(*data) for split, data in columns.items()})


def labelled_task(settings: OwnTask) -> Classification | Pairs:
    """Return an own classification or pairs task. Raises InputError for files that do not fit."""
    texts = [[settings.text_field] if isinstance(settings.text_field, str) else settings.text_field]
    if settings.kind == "pairs":
        texts.append([settings.second_field])
    parts = []
    places = settings.path if isinstance(settings.path, dict) else {NO_SPLIT: settings.path}
    for split, place in places.items():
        findings = Findings(skip_bad=settings.skip_bad)
        part = read_examples(
            source_rows(str(place), findings),
            findings,
            texts=texts,
            label=[settings.label_field],
            where=str(place),
            split_field="" if split else settings.split_field,
        )
        parts.append(part.assign(split=split) if split else part)
    examples = pd.concat(parts, ignore_index=True)
    if (examples["split"] == NO_SPLIT).all():
        share = settings.share
        examples = draw_splits(examples, share=share, seed=settings.seed, where=str(settings.path))
    return head_task(settings.name, examples)
