"""How large tasks are, how even their classes, how long their texts; beside the thesis (Tables 4.2, 5.3 to 5.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from docemb_lib.evaluation.benchmark_tasks import published_tasks
from docemb_lib.evaluation.lookup import unique
from docemb_lib.evaluation.protocols import LIMIT, for_validation
from docemb_lib.evaluation.splits import Labelled, LabelledPairs, Ranking
from docemb_lib.evaluation.tasks import HeadTask, Task
from docemb_lib.progress import progress

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
