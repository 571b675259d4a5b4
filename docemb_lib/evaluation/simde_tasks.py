"""The classification tasks of the SimDE paper (Table 1) from their published files.

| task              | asks                                     | from                                           |
|-------------------|------------------------------------------|------------------------------------------------|
| `fakenews`        | what kind of site is the article from?   | the CSV of several27/FakeNewsCorpus            |
| `20news`          | which newsgroup is the post from?        | a hub, or the folders of 20news-bydate         |
| `arxiv-abstracts` | which of 38 archives is the abstract in? | arXiv's metadata as on Kaggle, JSON lines      |
| `nyt`             | what is the article about?               | NYT-Small of X-Class, in LINES                 |
| `bbcnews`         | which section is the article from?       | a hub, the folders of bbc-fulltext, or its CSV |

The paper's document matching on AAN is the benchmark task `aan`. It names no splits: where the files name none, a fifth
of each class is drawn for test and as much for validation.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from docemb_lib.corpus.rows import Row, file_format, read_rows, read_text
from docemb_lib.errors import InputError
from docemb_lib.evaluation.benchmark_tasks import hub_splits
from docemb_lib.evaluation.class_folders import NO_SPLIT, read_class_folders, split_in, text_files
from docemb_lib.evaluation.examples import Example, labelled, read_example, refuse_blank
from docemb_lib.evaluation.own_tasks import draw_splits, split_of
from docemb_lib.evaluation.splits import SPLITS
from docemb_lib.evaluation.tasks import Classification

logger = logging.getLogger(__name__)

SHARE = 0.2  # of each class drawn for test, and as much for validation
LINES = ("dataset.txt", "labels.txt", "classes.txt")  # documents; numbers of their classes; names of these


class Published(NamedTuple):
    """What the paper and the published files say of a data set."""

    size: int  # documents, Table 1
    text: tuple[str, ...] = ("text",)  # the names that the field has in the different files
    label: tuple[str, ...] = ("label",)
    hub: str | None = None


SIMDE_TASKS: Mapping[str, Published] = {
    "fakenews": Published(8_558_957, text=("content",), label=("type",)),
    "20news": Published(18_846, label=("label_text", "label"), hub="SetFit/20_newsgroups"),
    "arxiv-abstracts": Published(2_162_833, text=("abstract",), label=("categories",)),
    "nyt": Published(13_081),
    "bbcnews": Published(2_225, label=("label_text", "category", "label"), hub="SetFit/bbc-news"),
}


def simde_task(name: str, source: str | None = None) -> Classification:
    """A task of the paper by name.

    source: a data file, a folder in any of the layouts of these data sets, or the id of a data set on a hub; None: its
    own there. Rows without a class or a text are left out, and how many is logged; so is another size than the paper's.
    Raises InputError, naming file and row.
    """
    source = source or SIMDE_TASKS[name].hub
    if source is None:
        raise InputError(f"benchmark task {name}: stands on no hub; name the file or folder that holds it")
    place = Path(source)
    if place.is_dir() and (place / LINES[0]).is_file():
        splits = {NO_SPLIT: list(_parallel_lines(place))}
    elif place.is_dir() and not _data_files(place):
        splits = read_class_folders(place)
    else:
        splits = _by_split(name, _rows(source))
    if set(splits) == {NO_SPLIT}:
        splits = draw_splits(splits[NO_SPLIT], share=SHARE, seed=0, where=source)
    if NO_SPLIT in splits:
        raise InputError(f"{source}: some rows name their split and some do not; name it in all of them or in none")
    task = Classification(name, {split: labelled(splits[split]) for split in SPLITS if split in splits})
    size = sum(map(len, splits.values()))
    if size != SIMDE_TASKS[name].size:
        logger.warning(
            "task %s: %d documents, the paper has %d; scores do not compare", name, size, SIMDE_TASKS[name].size
        )
    return task


def archive_of(categories: str) -> str:
    """The archive of a paper's first category, math of `math.CO cs.DM`: with the closed ones there are Table 1's 38."""
    return categories.split()[0].split(".")[0]


def _rows(source: str) -> Iterator[tuple[str, Row]]:
    """Every row, and the split that its file names."""
    place = Path(source)
    if place.is_dir():
        files = {file: split_in(file.relative_to(place).as_posix()) for file in _data_files(place)}
        named = {file: split for file, split in files.items() if split}  # beside them may stand all of it in one file
        for file, split in (named or files).items():
            yield from ((split, row) for row in read_rows(file))
    elif place.is_file():
        yield from ((NO_SPLIT, row) for row in read_rows(place))
    elif place.is_absolute() or source.startswith("."):
        raise InputError(f"{source}: no such file or folder; name the one that holds the published data")
    else:
        for split, rows in hub_splits(source, None).items():
            yield from ((split, row) for row in rows)


def _by_split(name: str, rows: Iterable[tuple[str, Row]]) -> dict[str, list[Example]]:
    published = SIMDE_TASKS[name]
    splits: dict[str, list[Example]] = {}
    left_out = 0
    for split, row in rows:
        text, label = _field(row, published.text), _field(row, published.label)
        if any(field in row.fields and _is_blank(row.fields[field]) for field in (text, label)):
            left_out += 1
            continue
        example = read_example(row, text_fields=[text], label_field=label)
        if name == "arxiv-abstracts":
            example = example._replace(label=archive_of(example.label))
        own = split_of(row, "split") if "split" in row.fields else split
        splits.setdefault(own, []).append(example)
    if left_out:
        logger.warning("task %s: %d rows without a class or a text are left out", name, left_out)
    if not splits:
        raise InputError(
            f"task {name}: holds no example; give rows with the fields {published.text[0]} and {published.label[0]}"
        )
    return splits


def _field(row: Row, names: Sequence[str]) -> str:
    """The first of the names that the row has; where it has none, the first one."""
    return next((name for name in names if name in row.fields), names[0])


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def _parallel_lines(folder: Path) -> Iterator[Example]:
    """The documents of a folder with LINES: what stands in the same line belongs together."""
    documents, labels, classes = (read_text(folder / name).removesuffix("\n").split("\n") for name in LINES)
    for number, (text, label) in enumerate(zip_longest(documents, labels), start=1):
        where = f"{folder}, line {number}"
        if text is None or label is None:
            raise InputError(
                f"{where}: {LINES[0]} has {len(documents)} lines, {LINES[1]} {len(labels)}; make them equal"
            )
        if not label.strip().isdecimal() or int(label) >= len(classes):
            raise InputError(
                f"{where}: the label is {label!r}, expected the number of a class from 0 to {len(classes) - 1}"
            )
        yield refuse_blank(Example((text,), classes[int(label)].strip()), where=where)


def _data_files(folder: Path) -> list[Path]:
    return [file for file in text_files(folder) if file_format(file)]
