"""The eight tasks of the thesis (Sections 4.3 and 5.2) from their published files.

| task           | kind           | asks                                        | from                        |
|----------------|----------------|---------------------------------------------|-----------------------------|
| arxiv          | classification | what subject is the paper of?               | a hub, He et al. 2019       |
| imdb           | classification | does the review praise?                     | a hub, Maas et al. 2011     |
| aan, oc, s2orc | pairs          | does one paper cite the other?              | files, Zhou et al. 2020     |
| pan            | pairs          | is a passage taken from the other document? | files, Zhou et al. 2020     |
| wines, games   | retrieval      | which articles do experts call similar?     | files, Ginzburg et al. 2021 |
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from docemb_lib.corpus.rows import Row, file_format, read_csv, read_rows
from docemb_lib.errors import InputError
from docemb_lib.evaluation.examples import Example, labelled, labelled_pairs, read_example
from docemb_lib.evaluation.similar_articles import read_ranking
from docemb_lib.evaluation.splits import SPLITS, Labelled, LabelledPairs
from docemb_lib.evaluation.tasks import Classification, Pairs, Retrieval, Task

logger = logging.getLogger(__name__)

PAIR_COLUMNS = ("label", "text_0", "text_1")
PAIR_LABELS = ("0", "1")
SEPARATOR = "\x01"  # stands between the sentences of the pair files
CONVERTED = "refs/convert/parquet"  # where a hub keeps as files what the data set's own main branch makes by a script


def benchmark_task(name: str, source: str | None = None) -> Task:
    """A benchmark task by name.

    source: a folder with its files, or the id of a data set on a hub; None: its own on the hub, for arxiv and imdb.
    A warning is logged where its sizes are not the thesis'. Raises InputError, naming file and row.
    """
    settings = published_tasks()["sources"].get(name)
    if settings is None:
        raise InputError(f"benchmark task {name!r} is not one of {', '.join(published_tasks()['sources'])}")
    source = source or settings.get("hub")
    if source is None:
        raise InputError(f"benchmark task {name}: stands on no hub; name the folder that holds its files")
    task: Task
    if "files" in settings:
        folder = _folder(source, settings["files"].values())
        task = Pairs(name, {split: read_pairs(_find(folder, file)) for split, file in settings["files"].items()})
    elif "articles" in settings:
        folder = _folder(source, [settings["articles"], settings["relevance"]])
        articles, relevance = _find(folder, settings["articles"]), _find(folder, settings["relevance"], packed=".json")
        task = Retrieval(name, {"test": read_ranking(articles, relevance)})
    else:
        folder = Path(source)
        rows = _local_splits(folder, settings) if folder.is_dir() else hub_splits(source, settings["config"])
        task = Classification(name, {split: _documents(found, settings) for split, found in rows.items()})
    _compare_sizes(task)
    return task


def read_pairs(file: Path) -> LabelledPairs:
    """A file of labelled pairs: no line of names; 0 or 1, the first text and the second, quoted with `"`."""
    return labelled_pairs(_pair(row) for row in read_csv(file, columns=PAIR_COLUMNS))


@cache
def published_tasks() -> dict[str, Any]:
    """The shipped data of the benchmark tasks: `sources`, and the thesis' statistics as `columns` and `rows`."""
    text = files("docemb_lib.evaluation").joinpath("published", "tasks.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)


def published_size(name: str, split: str) -> int | None:
    """Examples of a split, documents of a retrieval task; None where the thesis does not say."""
    sizes = {
        (task, split): value
        for protocol, task, split, statistic, value in published_tasks()["rows"]
        if protocol == "final" and statistic in {"examples", "documents"}
    }
    return sizes.get((name, split))


def _documents(rows: Iterable[Row], settings: Mapping[str, Any]) -> Labelled:
    text_fields, label_field = [settings["text_field"]], settings["label_field"]
    return labelled(read_example(row, text_fields=text_fields, label_field=label_field) for row in rows)


def _pair(row: Row) -> Example:
    example = read_example(row, text_fields=PAIR_COLUMNS[1:], label_field=PAIR_COLUMNS[0])
    if example.label not in PAIR_LABELS:
        raise InputError(f"{row.where}: the label is {example.label!r:.40}, expected 0 or 1; look for a shifted column")
    first, second = (text.replace(SEPARATOR, " ") for text in example.texts)
    return example._replace(texts=(first, second))


def _local_splits(folder: Path, settings: Mapping[str, Any]) -> dict[str, Iterable[Row]]:
    """The rows of each split of a copy of a hub's data set: `train-00000-of-00001.parquet`, `test/0000.parquet`, …"""
    if (folder / settings["config"]).is_dir():
        folder /= settings["config"]
    found: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*")):
        match = re.search(rf"(?:^|/)({'|'.join(SPLITS)})(?![a-z])", file.relative_to(folder).as_posix())
        if match and file.is_file() and file_format(file):
            found.setdefault(match[1], []).append(file)
    if "train" not in found or "test" not in found:
        raise InputError(f"{folder}: holds no data files of the splits train and test; copy the hub's folder there")
    return {split: (row for file in found[split] for row in read_rows(file)) for split in SPLITS if split in found}


def hub_splits(dataset: str, config: str | None) -> dict[str, Iterable[Row]]:
    """The rows of each split of a hub's data set."""
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    try:
        try:
            splits = load_dataset(dataset, config)
        except RuntimeError:  # its main branch is a script, which `datasets` runs no more
            splits = load_dataset(dataset, config, revision=CONVERTED)
    except (ValueError, OSError, DatasetsError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"dataset {dataset!r}: {reason}; or name a folder in evaluation.benchmarks") from error
    return {split: _hub_rows(splits[split], f"{dataset} [{split}]") for split in SPLITS if split in splits}


def _hub_rows(rows: Iterable[Mapping[str, Any]], where: str) -> Iterator[Row]:
    for number, fields in enumerate(rows, start=1):
        yield Row(f"{where}, row {number}", number, fields)


def _folder(source: str, wanted: Iterable[str]) -> Path:
    """The folder itself, or a copy of the wanted files of a hub's data set."""
    if Path(source).is_dir():
        return Path(source)
    if Path(source).is_absolute() or source.startswith("."):
        raise InputError(f"{source}: no such folder; name the one that holds {', '.join(wanted)}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, repo_type="dataset", allow_patterns=[f"{name}*" for name in wanted]))
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{source}: no such folder, and not found on the hub: {reason}") from error


def missing_files(name: str, source: str) -> list[str]:
    """What a folder lacks of a task's files: all of them where there is no such folder; nothing for a data set's id."""
    settings, folder = published_tasks()["sources"].get(name), Path(source)
    if not folder.is_absolute() and not folder.is_dir():
        return []
    if settings is None:  # a task that comes in several layouts
        return [] if folder.exists() else ["its published file or folder"]
    if "hub" in settings:
        return [] if folder.is_dir() else ["a copy of the hub's folder"]
    packed = dict.fromkeys(settings.get("files", {}).values(), ".gz")
    if "articles" in settings:
        packed = {settings["articles"]: ".gz", settings["relevance"]: ".json"}
    return [
        file
        for file, ending in packed.items()
        if not (folder / file).is_file() and not (folder / f"{file}{ending}").is_file()
    ]


def _find(folder: Path, name: str, *, packed: str = ".gz") -> Path:
    """`folder/name`, or the same file with another ending behind it."""
    for file in (folder / name, folder / f"{name}{packed}"):
        if file.is_file():
            return file
    raise InputError(f"{folder}: holds neither {name} nor {name}{packed}; put the published file there under this name")


def _compare_sizes(task: Task) -> None:
    """Warn where a split has another size than the thesis', and of blank texts."""
    for split, data in task.splits.items():
        size = len(data.labels) if isinstance(data, Labelled | LabelledPairs) else len(data.texts)
        expected = published_size(task.name, split)
        if expected not in (None, size):
            where = f"task {task.name}, split {split}"
            logger.warning("%s: %d examples, the thesis has %d; scores do not compare", where, size, expected)
        if blank := sum(not text.strip() for text in data.texts):
            logger.warning("task %s, split %s: %d texts are blank", task.name, split, blank)
