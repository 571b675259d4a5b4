"""How large tasks are, how even their classes, how long their texts; beside the thesis (Tables 4.2, 5.3 to 5.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np
import pandas as pd

from docemb_lib.evaluation.benchmark_tasks import published_tasks
from docemb_lib.evaluation.tasks import Labelled, LabelledPairs, Ranking, Task, unique
from docemb_lib.progress import progress

LIMITS = (384, 512)  # tokens: how much SBERT sees in the thesis, and its tokenizer's own limit
BATCH = 256  # texts given to the counter at once

Protocol = Literal["final", "validation"]


def task_statistics(
    tasks: Iterable[Task],
    count_tokens: Callable[[list[str]], list[int]],
    *,
    protocol: Protocol = "final",
    limits: Sequence[int] = LIMITS,
) -> pd.DataFrame:
    """Tidy: a row per `task`, `split` and `statistic` with our `value` and the thesis', NaN where it has none.

    count_tokens: texts to their numbers of tokens, without special tokens; the thesis counts with all-mpnet-base-v2.
    protocol: which of the thesis' numbers stand beside: of the whole tasks (final), or cut down for chapter 4.

    | statistic                    | unit                                                          |
    |------------------------------|---------------------------------------------------------------|
    | examples, documents, queries | number; documents and queries of retrieval tasks              |
    | classes                      | number                                                        |
    | class_mean, class_std        | percent of the examples per class                             |
    | relevant_mean, relevant_std  | documents to be found per query                               |
    | over_384, over_512           | percent of the documents (both of a pair) with more tokens    |

    Deviations are those of the classes and queries at hand, not estimates.
    """
    rows = [
        {"task": task.name, "split": split, "statistic": statistic, "value": float(value)}
        for task in tasks
        for split, data in task.splits.items()
        for statistic, value in (
            _shape(data) | _lengths(data, count_tokens, limits, desc=f"{task.name} {split}")
        ).items()
    ]
    ours = pd.DataFrame(rows, columns=["task", "split", "statistic", "value"])
    return ours.merge(published_statistics(protocol), how="left", on=["task", "split", "statistic"], validate="1:1")


def published_statistics(protocol: Protocol) -> pd.DataFrame:
    """The thesis' numbers: task, split, statistic and `thesis`; see `task_statistics`."""
    published = published_tasks()
    frame = pd.DataFrame(published["rows"], columns=published["columns"]).query("protocol == @protocol")
    return frame.drop(columns="protocol").rename(columns={"value": "thesis"}).astype({"thesis": float})


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


def _lengths(
    data: Labelled | LabelledPairs | Ranking,
    count_tokens: Callable[[list[str]], list[int]],
    limits: Sequence[int],
    *,
    desc: str,
) -> dict[str, float]:
    texts = unique(data.texts)
    counts: dict[str, int] = {}
    for start in progress(range(0, len(texts), BATCH), desc=f"counting {desc}", unit="batches"):
        batch = texts[start : start + BATCH]
        counts.update(zip(batch, count_tokens(batch), strict=True))
    lengths = np.array([counts[text] for text in data.texts])
    return {f"over_{limit}": float(100 * (lengths > limit).mean()) for limit in limits}
