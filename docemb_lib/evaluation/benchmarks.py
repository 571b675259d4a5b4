"""Published tasks, and their statistics: the thesis' eight, and the SimDE paper's five (Table 1).

The SimDE paper names no splits: where the files name none, a fifth of each class is drawn for test
and as much for validation. Its document matching is the task `aan`.
"""

import ast
import logging
import pickle
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.reader import Reading, Row, read_table, well_formed
from docemb_lib.evaluation.judged import make_ranking
from docemb_lib.evaluation.readers import examples_task, source_rows
from docemb_lib.evaluation.tasks import (
    SPLITS,
    HeadTask,
    Ranking,
    Retrieval,
    Task,
    documents_of,
    texts_of_examples,
)

logger = logging.getLogger(__name__)

SEPARATOR = "\x01"  # stands between the sentences of the pair files
LISTS = "gt"  # the lists of similar articles, a pickle
# The types of the published lists. Unpickling may call any function, so `PlainUnpickler` admits
# these alone. They are built in: a pickle may set attributes of what it builds, and these refuse.
PLAIN: dict[str, type] = {
    **{kind.__name__: kind for kind in (dict, list, set, frozenset, int, str, defaultdict)},
    "OrderedDict": dict,
    "Counter": dict,
}
# Python 2, in pickles of protocol 2 and below, calls the module of built-in types __builtin__.
MODULES = ("builtins", "__builtin__", "collections")


class Benchmark(NamedTuple):
    """The source of a published task.

    Tasks without `files` are read from any layout of `source_rows`.
    """

    hub: str | None = None  # id of the data set on a hub
    config: str | None = None  # the configuration of the data set, or the subfolder of a copy
    texts: Sequence[Sequence[str]] = (("text",),)  # the fields of the texts of an example
    label: Sequence[str] = ("label",)  # the names of its field in different layouts
    files: Sequence[str] = ()  # pairs: train, validation, test; similar articles: articles, lists
    size: int | None = None  # documents in Table 1 of the SimDE paper; None: a task of the thesis


def pair_files(name: str) -> Benchmark:
    """Return pairs in three files without a header; the columns are 0 or 1, and two texts."""
    files = [name.format(split) for split in ("train", "dev", "test")]
    return Benchmark(texts=(("1",), ("2",)), label=("0",), files=files)


BENCHMARKS: Mapping[str, Benchmark] = {
    "arxiv": Benchmark("ccdv/arxiv-classification", "no_ref"),
    "imdb": Benchmark("stanfordnlp/imdb", "plain_text"),
    "aan": pair_files("{}_cite.csv"),
    "oc": pair_files("{}_ai2_ab.csv"),
    "s2orc": pair_files("{}_ai2_gorc.csv"),
    "pan": pair_files("pla_{}.csv"),
    "wines": Benchmark(files=("wines.txt", LISTS)),
    "games": Benchmark(files=("video_games.txt", LISTS)),
    "fakenews": Benchmark(texts=[["content"]], label=("type", "label"), size=8_558_957),
    "20news": Benchmark("SetFit/20_newsgroups", label=("label_text", "label"), size=18_846),
    "arxiv-abstracts": Benchmark(
        texts=[["abstract"]], label=("categories", "label"), size=2_162_833
    ),
    "nyt": Benchmark(size=13_081),
    "bbcnews": Benchmark("SetFit/bbc-news", label=("label_text", "category", "label"), size=2_225),
}


def benchmark_task(name: str, source: str | None = None) -> Task:
    """Return a published task by name.

    source: a folder with the published files; for a task without `files` also a file or the id of a
    data set on a hub; None: the task's data set on the hub. Logs a size that differs from that in
    the SimDE paper; rows without text or class are left out of the tasks of that paper. Raises
    InputError for an unknown name and for data that do not fit.
    """
    if name not in BENCHMARKS:
        raise InputError(f"benchmark task {name!r} is not one of {', '.join(BENCHMARKS)}")
    benchmark = BENCHMARKS[name]
    source = source or benchmark.hub
    if source is None:
        raise InputError(
            f"benchmark task {name}: it is on no hub; name the folder or file that holds its data"
        )
    files = [_published(Path(source) / file) for file in benchmark.files]
    if LISTS in benchmark.files:
        return Retrieval(name, {"test": read_similar_articles(*files)})
    of_paper = benchmark.size is not None
    reading = Reading(skip_bad=of_paper)
    rows = _pair_rows(files, reading)
    if not files:
        rows = source_rows(source, reading, config=benchmark.config)
    task = examples_task(
        name,
        rows,
        reading,
        texts=benchmark.texts,
        label=benchmark.label,
        class_of=archive_of if name == "arxiv-abstracts" else str,
        where=f"task {name}",
        share=0.2 if of_paper else None,
    )
    size = sum(len(texts_of_examples(data)) for data in task.splits.values())
    if benchmark.size not in (None, size):
        message = "task %s has %d documents, and the paper has %d; scores are not comparable"
        logger.warning(message, name, size, benchmark.size)
    return task


def archive_of(categories: str) -> str:
    """Return the archive of the first category of a paper, math of `math.CO cs.DM`."""
    return categories.split()[0].split(".")[0]


def _pair_rows(files: Sequence[Path], reading: Reading) -> Iterator[tuple[str, Row]]:
    """Yield the rows of a file for each split."""
    for split, file in zip(SPLITS, files, strict=True):
        for row in read_table(file, reading, delimiter=",", named=False):
            fields = {name: text.replace(SEPARATOR, " ") for name, text in row.fields.items()}
            yield split, row._replace(fields=fields)


def _published(file: Path) -> Path:
    """Return a published file, or its packed copy."""
    packed = file.with_name(f"{file.name}.gz")
    return packed if packed.is_file() else file


def missing_files(name: str, source: str) -> list[str]:
    """Return the files of a benchmark that a folder lacks; none for the id of a hub's data set."""
    folder = Path(source)
    wanted = BENCHMARKS[name].files
    if not wanted and folder.is_absolute() and not folder.exists():
        return ["its published file or folder"]
    return [file for file in wanted if not _published(folder / file).is_file()]


def read_similar_articles(articles: Path, relevance: Path) -> Ranking:
    """Return all articles as the pool, those with a list as queries.

    Titles without an article, the title of the list itself, and lists without a remaining title are
    left out and counted.
    """
    texts = read_articles(articles)
    lists = read_relevance(relevance)
    links = {}
    missing = 0
    for title, targets in lists.items():
        present = [target for target in targets if target in texts and target != title]
        missing += len(targets) - len(present)
        if title in texts and present:
            links[title] = dict.fromkeys(present, 1.0)
    if missing or len(links) < len(lists):
        message = "%s: without an article, %d of %d lists and %d relevant titles are left out"
        logger.warning(message, relevance, len(lists) - len(links), len(lists), missing)
    return make_ranking(texts, texts, links, str(articles))


def read_articles(file: Path) -> dict[str, str]:
    """Return the text of each article by its title, in file order: the title and every section.

    The second column is a Python literal: `"[('Taste', 'Sour.'), ('History', '')]"` gives `"Taste
    Sour."`; a section without a text is left out. Raises InputError for any other row and for a
    second article of a title.
    """
    reading = Reading()
    texts: dict[str, str] = {}
    for row in read_table(file, reading, delimiter=","):
        with reading.collecting():
            try:
                title, literal = row.fields.values()
                sections = ast.literal_eval(literal)
                parts = [title, *(f"{name} {text}" for name, text in sections if text.strip())]
            except Exception as error:  # what is no literal raises many kinds of errors
                raise InputError(
                    f"{row.where}: a row must hold a title and a Python list of (title, text), its "
                    "sections; mend it"
                ) from error
            if title in texts:
                problem = f"the title {title!r} stands in an earlier row too"
                raise InputError(f"{row.where}: {problem}; rename or delete one")
            texts[title] = well_formed(" ".join(parts))
    reading.end(file)
    return texts


class PlainUnpickler(pickle.Unpickler):
    """An unpickler that admits the types in PLAIN only."""

    def find_class(self, module: str, name: str) -> type:
        if module not in MODULES or name not in PLAIN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return PLAIN[name]


def read_relevance(file: Path) -> dict[str, list[str]]:
    """Return for each title the titles to retrieve, each once; inner mappings are lists with votes.

    Raises InputError for what is no pickle of plain containers of this form.
    """
    lists = {}
    try:
        with file.open("rb") as stream:
            for title, targets in PlainUnpickler(stream).load().items():
                ordered = sorted(targets) if isinstance(targets, set | frozenset) else targets
                lists[title] = list(dict.fromkeys(ordered))
    except Exception as error:  # a broken pickle may raise anything
        problem = f"the lists are refused ({str(error) or type(error).__name__})"
        raise InputError(f"{file}: {problem}; copy the published file again") from error
    return lists


def task_lengths(
    task: Task, counters: Mapping[str, Callable[[list[str]], list[int]]]
) -> pd.DataFrame:
    """Return the columns split and those of `counters`, with a row per document, two for a pair.

    counters: for each column a function from texts to their numbers of tokens, which is given the
    text of each document of a split once.
    """
    frames = []
    for split, data in task.splits.items():
        documents = documents_of(task.name, data)
        columns = {name: count([*documents.values()]) for name, count in counters.items()}
        ids = [id for column in data.columns for id in column.ids]
        frames.append(pd.DataFrame(columns, [*documents]).loc[ids].assign(split=split))
    return pd.concat(frames, ignore_index=True)[["split", *counters]]


def task_statistics(task: Task, lengths: pd.DataFrame) -> pd.DataFrame:
    """Return the columns split, statistic and value.

    over_384 is the percentage of the documents with more tokens than SBERT reads in the thesis.
    lengths: `split` and `n_structural_tokens`, see `task_lengths`.
    """
    rows: list[tuple[str, str, float]] = []
    for split, data in task.splits.items():
        if isinstance(data, Ranking):
            rows.append((split, "documents", len(data.texts)))
            rows.append((split, "queries", len(data.queries)))
            rows.append((split, "relevant_mean", float(np.mean([*map(len, data.relevant)]))))
        else:
            rows.append((split, "examples", len(data.labels)))
            if isinstance(task, HeadTask):
                rows.append((split, "classes", len(set(data.labels))))
        tokens = lengths.loc[lengths["split"] == split, "n_structural_tokens"]
        rows.append((split, "over_384", 100 * float((tokens > 384).mean())))
    return pd.DataFrame(rows, columns=["split", "statistic", "value"])
