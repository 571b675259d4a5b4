"""The data of a task: problems that do not prevent scoring, and the statistics that the thesis' tables give.

A task refuses data that cannot be scored (no examples, one class, labels that train does not have) when it is
constructed. The problems found here are reported and not fixed, because published scores include them.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from docemb_lib.evaluation.benchmarks import published_tasks
from docemb_lib.evaluation.protocols import LIMIT, for_validation
from docemb_lib.evaluation.tasks import SPLITS, HeadTask, Labelled, LabelledPairs, Ranking, Retrieval, Task, unique
from docemb_lib.progress import progress

logger = logging.getLogger(__name__)

EMPTY = "without text"
LEAKED = "also in train (leakage)"
CONTRADICTED = "also in train with another label"
ABSENT = "classes of train without example"

LENGTHS = (384, 512)  # tokens: what SBERT reads in the thesis, and the limit of its tokenizer
BATCH = 256  # texts given to a counter at once
HERE, THESIS = "here", "thesis"

Protocol = Literal["final", "validation"]
Counters = Mapping[str, Callable[[list[str]], list[int]]]  # column -> function from texts to their numbers of tokens


def problems(task: HeadTask | Retrieval) -> pd.DataFrame:
    """One row per problem: task, split, problem, count, of, first.

    | problem                          | counts                                                |
    |----------------------------------|-------------------------------------------------------|
    | without text                     | examples with a text that is empty or white space     |
    | also in train (leakage)          | examples of another split whose texts stand in train  |
    | also in train with another label | leaked examples that have only other labels in train  |
    | classes of train without example | classes                                               |

    first: the row of the first such example, or the class. Retrieval tasks are checked for empty texts only.
    """
    train = None if isinstance(task, Retrieval) else task.splits["train"]
    train_labels: dict[tuple[str, ...], set[Hashable]] = defaultdict(set)
    if train:
        for texts, label in zip(zip(*train.documents, strict=True), train.labels, strict=True):
            train_labels[texts].add(label)
    rows = []
    for split, data in task.splits.items():
        documents = (data.texts,) if isinstance(data, Ranking) else data.documents
        examples = list(zip(*documents, strict=True))
        empty = [i for i, texts in enumerate(examples) if not all(text.strip() for text in texts)]
        found: list[tuple[str, Sequence[object], int]] = [(EMPTY, empty, len(examples))]
        if train and split != "train" and not isinstance(data, Ranking):
            leaked = [i for i, texts in enumerate(examples) if texts in train_labels]
            contradicted = [i for i in leaked if data.labels[i] not in train_labels[examples[i]]]
            absent = sorted(set(train.labels) - set(data.labels), key=str)
            found += [(LEAKED, leaked, len(examples)), (CONTRADICTED, contradicted, len(examples))]
            found.append((ABSENT, absent, len(set(train.labels))))
        rows += [(task.name, split, problem, len(which), of, which[0]) for problem, which, of in found if which]
    return pd.DataFrame(rows, columns=["task", "split", "problem", "count", "of", "first"])


def warn_of_problems(task: HeadTask | Retrieval) -> None:
    """Log a warning for each problem."""
    for row in problems(task).itertuples(index=False):
        message = "task %s, split %s: %d of %d %s, the first is %s"
        logger.warning(message, row.task, row.split, row.count, row.of, row.problem, row.first)


def task_lengths(task: Task, counters: Counters) -> pd.DataFrame:
    """Columns split and those of `counters`: a row per document of each split, for a pair one per document.

    Each text is counted once.
    """
    frames = []
    for split, data in task.splits.items():
        texts = unique(data.texts)
        counts: dict[str, list[int]] = {name: [] for name in counters}
        for start in progress(range(0, len(texts), BATCH), desc=f"counting {task.name} {split}", unit="batches"):
            for name, counter in counters.items():
                counts[name] += counter(texts[start : start + BATCH])
        frames.append(pd.DataFrame(counts, index=texts).loc[list(data.texts)].assign(split=split))
    return pd.concat(frames, ignore_index=True)[["split", *counters]]


def task_statistics(task: Task, lengths: pd.DataFrame, *, limit: int = LIMIT) -> pd.DataFrame:
    """Columns protocol, task, split, statistic and value.

    The protocol `final` counts the whole task; `validation` counts at most `limit` examples per split of a task with
    heads. lengths: `split` and `n_structural_tokens`, see `task_lengths`; the thesis counts with all-mpnet-base-v2.

    | statistic                    | unit                                                              |
    |------------------------------|-------------------------------------------------------------------|
    | examples, documents, queries | number; documents and queries of retrieval tasks                  |
    | classes                      | number                                                            |
    | class_mean, class_std        | percent of the examples per class                                 |
    | relevant_mean, relevant_std  | relevant documents per query                                      |
    | over_384, over_512           | percent of the documents with more tokens, in the whole task      |

    Deviations are population deviations over classes and queries.
    """
    rows = []
    for split, data in task.splits.items():
        tokens = lengths.loc[lengths["split"] == split, "n_structural_tokens"]
        over = {f"over_{length}": 100 * (tokens > length).mean() for length in LENGTHS}
        rows += [("final", task.name, split, name, float(value)) for name, value in (_sizes(data) | over).items()]
    if isinstance(task, HeadTask):
        for split, data in for_validation(task, limit).splits.items():
            rows += [("validation", task.name, split, name, value) for name, value in _sizes(data).items()]
    return pd.DataFrame(rows, columns=["protocol", "task", "split", "statistic", "value"])


def _sizes(data: Labelled | LabelledPairs | Ranking) -> dict[str, float]:
    if isinstance(data, Ranking):
        found = [len(rows) for rows in data.relevant]
        sizes: dict[str, float] = {"documents": len(data.texts), "queries": len(data.queries)}
        return sizes | {"relevant_mean": float(np.mean(found)), "relevant_std": float(np.std(found))}
    percent = 100 * np.array(list(Counter(data.labels).values())) / len(data.labels)
    sizes = {"examples": len(data.labels), "classes": len(percent)}
    return sizes | {"class_mean": float(percent.mean()), "class_std": float(percent.std())}


def published_statistics(protocol: Protocol) -> pd.DataFrame:
    """The numbers of the thesis: columns task, split, statistic and `thesis`; see `task_statistics`."""
    published = published_tasks()
    frame = pd.DataFrame(published["rows"], columns=published["columns"]).query("protocol == @protocol")
    return frame.drop(columns="protocol").rename(columns={"value": "thesis"}).astype({"thesis": float})


def beside_thesis(statistics: pd.DataFrame, protocol: Protocol, columns: Sequence[str]) -> pd.DataFrame:
    """A table of the thesis beside the present tasks: a row per task, split and `of` (here or thesis).

    statistics: rows of `task_statistics`; columns: the statistics of the table. Present tasks come first. Tasks and
    splits without any of the statistics are left out.
    """
    here = statistics.query("protocol == @protocol").assign(of=HERE)
    thesis = published_statistics(protocol).rename(columns={"thesis": "value"}).assign(of=THESIS)
    rows = pd.concat([here, thesis]).query("statistic in @columns")
    table = rows.pivot(index=["task", "split", "of"], columns="statistic", values="value").reindex(columns=[*columns])
    order = {name: place for place, name in enumerate([*rows["task"].unique(), *SPLITS, HERE, THESIS])}
    table = table.sort_index(key=lambda level: level.map(order))
    return table.rename_axis(columns=None).convert_dtypes()  # counts as integers
