"""Read a pickle that holds plain data and nothing else.

A pickle is a program: loading one from elsewhere may run whatever its author wished. This reader knows no function and
no class but Python's own containers and numbers, so that such a program stops at the first it asks for.
"""

from __future__ import annotations

import ast
import collections
import io
import json
import logging
import pickle
import pickletools
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from docemb_lib.corpus.rows import Row, file_format, read_csv, read_rows, read_text, without_surrogates
from docemb_lib.errors import InputError
from docemb_lib.evaluation.readers import Example, labelled, labelled_pairs, read_example
from docemb_lib.evaluation.tasks import SPLITS, Classification, Labelled, LabelledPairs, Pairs, Ranking, Retrieval, Task

# ---- Read a pickle that holds plain data and nothing else.


# Built-in types only: a pickle may also set attributes of whatever it is given, which those refuse.
ADMITTED: dict[tuple[str, str], type] = {
    **{("builtins", kind.__name__): kind for kind in (dict, list, tuple, set, frozenset, str, int, float, bool)},
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "OrderedDict"): dict,
    ("collections", "Counter"): dict,
}
# Tuples are made without asking for a class. Python takes their hash by a recursion in C without a limit, so a tower
# of them, as a key, would end the process; this many are no danger, however they are stacked.
MOST_TUPLES = 10_000
OLD_NAMES = {"__builtin__": "builtins"}  # of Python 2, in pickles of protocol 2 and below


class PlainUnpickler(pickle.Unpickler):
    """An unpickler that admits the containers and numbers in ADMITTED only."""

    def find_class(self, module: str, name: str) -> Any:
        """Whatever a pickle wants to call or build goes through here."""
        try:
            return ADMITTED[OLD_NAMES.get(module, module), name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def read_plain_pickle(file: Path) -> Any:
    """The data of a pickle of dicts, lists, tuples, sets, strings and numbers; InputError for any other file."""
    try:
        data = file.read_bytes()
        if sum(opcode.name.startswith("TUPLE") for opcode, _, _ in pickletools.genops(data)) > MOST_TUPLES:
            raise pickle.UnpicklingError(f"it holds more than {MOST_TUPLES:,} tuples")
        return PlainUnpickler(io.BytesIO(data)).load()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); look for the file and its permissions") from error
    except Exception as error:  # a broken pickle may raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{file}: refused, is no whole pickle of plain containers ({reason}); write the mapping as JSON instead"
        ) from error


# ---- wikipedia articles and the lists of similar ones


logger = logging.getLogger(__name__)


def read_ranking(articles: Path, relevance: Path) -> Ranking:
    """All articles as the pool, those with a list as queries.

    Titles without an article, and a list's own title, are left out, and so are lists that this leaves empty; both are
    counted in the log. Raises InputError, naming file and row.
    """
    texts = read_articles(articles)
    row = {title: number for number, title in enumerate(texts)}
    queries: list[int] = []
    relevant: list[list[int]] = []
    lists = read_relevance(relevance)
    missing = 0
    for title, targets in lists.items():
        found = [row[target] for target in targets if target in row and target != title]
        missing += len(targets) - len(found)
        if title in row and found:
            queries.append(row[title])
            relevant.append(found)
    if left := len(lists) - len(queries):
        logger.warning("%s: %d of %d lists are left out: no article, or none to be found", relevance, left, len(lists))
    if missing:
        logger.warning("%s: %d titles to be found are left out: they have no article", relevance, missing)
    if not queries:
        raise InputError(f"{relevance}: no list belongs to the articles of {articles}; both must be one task's")
    return Ranking(list(texts.values()), queries, relevant)


def read_articles(file: Path) -> dict[str, str]:
    """Text of each article by its title, in their order: the title, then every section that is not empty."""
    texts: dict[str, str] = {}
    for row in read_csv(file):
        values = list(row.fields.values())
        if len(values) != 2:
            raise InputError(f"{file}: has {len(values)} columns, expected two, an article's title and its sections")
        title = without_surrogates(values[0])
        if title in texts:
            raise InputError(f"{row.where}: the title {title!r} stands in an earlier row too; rename or delete one")
        texts[title] = without_surrogates(" ".join([title, *_sections(values[1], where=row.where)]))
    if not texts:
        raise InputError(f"{file}: holds no article below its line of names; download it again")
    return texts


def _sections(literal: str, *, where: str) -> list[str]:
    """`"[('Taste', 'Sour.'), ('History', '')]"` → `["Taste Sour."]`."""
    try:
        sections = ast.literal_eval(literal)
        return [f"{title} {text}" for title, text in sections if text.strip()]
    except (ValueError, TypeError, AttributeError, SyntaxError, MemoryError, RecursionError) as error:
        raise InputError(
            f"{where}: the sections must be a Python list of (title, text), found {literal[:40]!r}; mend the row"
        ) from error


def read_relevance(file: Path) -> dict[str, list[str]]:
    """The titles to be found for each title, each once; the inner values of a mapping (votes) are not looked at."""
    data = _read_json(file) if file.suffix == ".json" else read_plain_pickle(file)
    if not isinstance(data, Mapping) or not data:
        raise InputError(f"{file}: holds {type(data).__name__}, expected a mapping of titles; look at the file")
    lists: dict[str, list[str]] = {}
    for title, targets in data.items():
        if not isinstance(title, str):
            raise InputError(f"{file}: a title is {type(title).__name__}, expected a string; look at the file")
        if not isinstance(targets, Mapping | list | tuple | set | frozenset):
            raise InputError(f"{file}: {title!r} has {type(targets).__name__}, expected titles; look at the file")
        names = sorted(targets, key=str) if isinstance(targets, set | frozenset) else list(targets)
        if not all(isinstance(name, str) for name in names):
            raise InputError(f"{file}: {title!r} has a title that is no string; look at the file")
        lists[without_surrogates(title)] = list(dict.fromkeys(map(without_surrogates, names)))
    return lists


def _read_json(file: Path) -> Any:
    try:
        return json.loads(read_text(file))
    except json.JSONDecodeError as error:
        raise InputError(f"{file}: not JSON ({error.msg} in line {error.lineno}); mend it") from error
    except RecursionError:
        raise InputError(f"{file}: nested too deeply for a mapping of titles; look at the file") from None


# ---- the eight tasks of the thesis


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
    text = files("docemb_lib.thesis").joinpath("published", "tasks.yaml").read_text(encoding="utf-8")
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
