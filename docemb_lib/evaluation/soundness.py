"""What is odd about a task's data, though it can be scored: told, never mended, because published scores have it too.

What cannot be scored at all (no examples, one class, labels that train does not have) a task refuses when it is made.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Hashable, Sequence

import pandas as pd

from docemb_lib.evaluation.tasks import HeadTask, Retrieval

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
