"""What is odd about a task's data, though it can be scored: told, never mended, because published scores have it too.

What cannot be scored at all (no examples, one class, labels that train does not have) a task refuses when it is made.
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
from docemb_lib.evaluation.tasks import HeadTask, Labelled, LabelledPairs, Ranking, Retrieval, Task, unique
from docemb_lib.progress import progress

# ---- what is odd about a task's data


logger = logging.getLogger(__name__)

EMPTY = "without text"
LEAKED = "also in train (leakage)"
CONTRADICTED = "also in train with another label"
ABSENT = "classes of train without example"

Found = tuple[str, str, Sequence[object], int]  # split, problem, which rows or classes, of how many


def problems(task: HeadTask | Retrieval) -> pd.DataFrame:
    """One row per problem that there is: task, split, problem, count, of, first.

    | problem                          | counts                                                       |
    |----------------------------------|--------------------------------------------------------------|
    | without text                     | examples with a text that is empty or white space            |
    | also in train (leakage)          | examples of another split whose texts stand in train         |
    | also in train with another label | those of them that train labels otherwise, never the same    |
    | classes of train without example | classes                                                      |

    first: the row of the first such example, or the class. Of a retrieval task only the first problem is looked for.
    """
    rows: list[Found] = []
    if isinstance(task, Retrieval):
        for split, data in task.splits.items():
            rows.append((split, EMPTY, [i for i, text in enumerate(data.texts) if not text.strip()], len(data.texts)))
    else:
        rows = _of_examples(task)
    found = [(task.name, split, problem, len(which), of, which[0]) for split, problem, which, of in rows if which]
    return pd.DataFrame(found, columns=["task", "split", "problem", "count", "of", "first"])


def warn_of_problems(task: HeadTask | Retrieval) -> None:
    """Log a warning for each problem."""
    for row in problems(task).itertuples(index=False):
        logger.warning(
            "task %s, split %s: %d of %d %s, the first is %s",
            row.task,
            row.split,
            row.count,
            row.of,
            row.problem,
            row.first,
        )


def _of_examples(task: HeadTask) -> list[Found]:
    rows: list[Found] = []
    labels_of: dict[tuple[str, ...], set[Hashable]] = defaultdict(set)
    for texts, label in zip(
        zip(*task.splits["train"].documents, strict=True), task.splits["train"].labels, strict=True
    ):
        labels_of[texts].add(label)
    for split, data in task.splits.items():
        examples = list(zip(*data.documents, strict=True))
        empty = [i for i, texts in enumerate(examples) if not all(text.strip() for text in texts)]
        rows.append((split, EMPTY, empty, len(examples)))
        if split == "train":
            continue
        leaked = [i for i, texts in enumerate(examples) if texts in labels_of]
        contradicted = [i for i in leaked if data.labels[i] not in labels_of[examples[i]]]
        absent = sorted(set(task.splits["train"].labels) - set(data.labels), key=str)
        rows += [(split, LEAKED, leaked, len(examples)), (split, CONTRADICTED, contradicted, len(examples))]
        rows.append((split, ABSENT, absent, len(set(task.splits["train"].labels))))
    return rows


# ---- how large tasks are


LIMITS = (384, 512)  # tokens: how much SBERT sees in the thesis, and its tokenizer's own limit
BATCH = 256  # texts given to the counter at once
HERE, THESIS = "here", "thesis"

Protocol = Literal["final", "validation"]
Counters = Mapping[str, Callable[[list[str]], list[int]]]  # column -> texts to their numbers of tokens


def task_lengths(task: Task, counters: Counters) -> pd.DataFrame:
    """A row per document of each split, of a pair both: `split`, and the counters' columns. A text is counted once."""
    frames = []
    for split, data in task.splits.items():
        texts = unique(data.texts)
        counts: dict[str, list[int]] = {name: [] for name in counters}
        for start in progress(range(0, len(texts), BATCH), desc=f"counting {task.name} {split}", unit="batches"):
            for name, counter in counters.items():
                counts[name] += counter(texts[start : start + BATCH])
        frames.append(
            pd.DataFrame(counts, index=texts).loc[list(data.texts)].reset_index(drop=True).assign(split=split)
        )
    return pd.concat(frames, ignore_index=True)[["split", *counters]]


def task_statistics(task: Task, lengths: pd.DataFrame, *, limit: int = LIMIT) -> pd.DataFrame:
    """Tidy: a row per `protocol`, `task`, `split` and `statistic` with its `value`.

    The whole task is what the protocol `final` has; `validation` cuts a task with heads to `limit` examples a split.
    lengths: `split` and `n_structural_tokens`, see `task_lengths`; the thesis counts with all-mpnet-base-v2.

    | statistic                    | unit                                                          |
    |------------------------------|---------------------------------------------------------------|
    | examples, documents, queries | number; documents and queries of retrieval tasks              |
    | classes                      | number                                                        |
    | class_mean, class_std        | percent of the examples per class                             |
    | relevant_mean, relevant_std  | documents to be found per query                               |
    | over_384, over_512           | percent of the documents (both of a pair) with more tokens    |

    Deviations are those of the classes and queries at hand, not estimates. The lengths are those of the whole task.
    """
    rows = []
    for split, data in task.splits.items():
        tokens = lengths.loc[lengths["split"] == split, "n_structural_tokens"]
        over = {f"over_{limit}": 100 * (tokens > limit).mean() for limit in LIMITS}
        rows += [("final", task.name, split, name, float(value)) for name, value in (_shape(data) | over).items()]
    if isinstance(task, HeadTask):
        for split, data in for_validation(task, limit).splits.items():
            rows += [("validation", task.name, split, name, value) for name, value in _shape(data).items()]
    return pd.DataFrame(rows, columns=["protocol", "task", "split", "statistic", "value"])


def published_statistics(protocol: Protocol) -> pd.DataFrame:
    """The thesis' numbers: task, split, statistic and `thesis`; see `task_statistics`."""
    published = published_tasks()
    frame = pd.DataFrame(published["rows"], columns=published["columns"]).query("protocol == @protocol")
    return frame.drop(columns="protocol").rename(columns={"value": "thesis"}).astype({"thesis": float})


def beside_thesis(statistics: pd.DataFrame, protocol: Protocol, columns: Sequence[str]) -> pd.DataFrame:
    """A table of the thesis with the tasks at hand first: a row per task, split and `of` (here or thesis).

    statistics: rows of `task_statistics`, of any tasks; columns: the table's statistics. Tasks and splits of which
    neither has any of them are left out.
    """
    ours = statistics.query("protocol == @protocol").assign(of=HERE)
    theirs = published_statistics(protocol).rename(columns={"thesis": "value"}).assign(of=THESIS)
    rows = pd.concat([ours, theirs]).query("statistic in @columns")
    order = {name: place for place, name in enumerate(dict.fromkeys(rows["task"]))}
    table = rows.pivot(index=["task", "split", "of"], columns="statistic", values="value").reindex(
        columns=list(columns)
    )
    splits = {"train": 0, "validation": 1, "test": 2}
    places = [(order[task], splits.get(split, 3), of) for task, split, of in table.index]
    sorted_rows = sorted(range(len(table)), key=places.__getitem__)
    return table.iloc[sorted_rows].rename_axis(columns=None).convert_dtypes()  # counts as integers


def _shape(data: Labelled | LabelledPairs | Ranking) -> dict[str, float]:
    if isinstance(data, Ranking):
        found = [len(rows) for rows in data.relevant]
        return {
            "documents": len(data.texts),
            "queries": len(data.queries),
            "relevant_mean": float(np.mean(found)),
            "relevant_std": float(np.std(found)),
        }
    percent = 100 * np.array(list(Counter(data.labels).values())) / len(data.labels)
    return {
        "examples": len(data.labels),
        "classes": len(percent),
        "class_mean": float(percent.mean()),
        "class_std": float(percent.std()),
    }
