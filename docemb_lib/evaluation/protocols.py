"""How models are scored on a task: the thesis' two protocols, and few-shot heads.

Validation (chapter 4): train and validation splits are cut to 10,000 examples; a task without a
validation split is cross-validated on its cut train split. Final evaluation (chapter 5): rounds
with heads on 1,000, 10,000 and all train examples, always scored on the whole test split. The heads
of all folds, rounds and seeds train together.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from docemb_lib.evaluation import tasks
from docemb_lib.evaluation.tasks import SEEDS, Embedder, HeadTask, Score, Task, warn_of_problems
from docemb_lib.settings.sections import HEADS, HeadSettings


def evaluate(
    model: Embedder,
    task: Task,
    *,
    split: str = "test",
    head: HeadSettings | None = None,
    seeds: int = SEEDS,
) -> Score:
    """Embed the texts of a task and score them; log the problems of the data. head: None is the
    thesis' settings.

    Example:
        >>> from docemb_lib.evaluation import Classification, Labelled
        >>> from docemb_lib.teachers import LSA
        >>> train, test = Labelled(["so good", "so bad"], ["+", "-"]), Labelled(["good", "bad"], ["+", "-"])
        >>> model = LSA(dim=2).fit(["so good", "so bad", "good", "bad"])
        >>> evaluate(model, Classification("tone", {"train": train, "test": test})).metric
        'accuracy'
    """
    warn_of_problems(task)
    return task.score(np.asarray(model.embed(task.texts(split))), split, head=head, seeds=seeds)


def round_name(limit: int | None) -> str:
    """The name of a round by its number of train examples: 1k, 10k, all."""
    return "all" if limit is None else f"{limit // 1000}k" if limit % 1000 == 0 else str(limit)


def downsample(labels: Sequence[Hashable], limit: int) -> np.ndarray:
    """The rows of `limit` examples with the class shares kept, grouped by class; all rows where
    there are no more.

    Of each class the first floor(share * limit). Then the smallest cut class that has examples left
    gets one more, until there are `limit`. A class without any takes one from the largest, so that
    heads know all classes of the other splits. Classes of equal size, and groups, follow the order
    of the class names.
    """
    if len(labels) <= limit:
        return np.arange(len(labels))
    available = Counter(labels)
    classes = sorted(available, key=str)
    wanted = {label: available[label] * limit // len(labels) for label in classes}
    while sum(wanted.values()) < limit:
        wanted[min((c for c in classes if wanted[c] < available[c]), key=wanted.__getitem__)] += 1
    for label in classes if limit >= len(classes) else ():
        if not wanted[label]:
            wanted[max(classes, key=wanted.__getitem__)] -= 1
            wanted[label] = 1
    rows: dict[Hashable, list[int]] = {label: [] for label in classes}
    for row, label in enumerate(labels):
        if len(rows[label]) < wanted[label]:
            rows[label].append(row)
    return np.array([row for label in classes for row in rows[label]])


def for_validation(task: HeadTask, limit: int) -> HeadTask:
    """The task with train and validation splits cut to `limit` examples, without a test split."""
    kept = {split: data for split, data in task.splits.items() if split != "test"}
    return replace(
        task,
        splits={split: data.take(downsample(data.labels, limit)) for split, data in kept.items()},
    )


def validation_texts(task: HeadTask) -> list[str]:
    """The texts that `validation_score` needs embedded."""
    return task.texts("validation" if "validation" in task.splits else "train")


def validation_score(
    task: HeadTask, embeddings: np.ndarray, *, head: HeadSettings, seeds: int, folds: int
) -> Score:
    """The score on the validation split, or by stratified, unshuffled cross-validation on train
    where there is none.

    task: cut by `for_validation`; embeddings: (N, D), row i belongs to `validation_texts(task)[i]`.
    A cross-validation is scored once over the predictions of all folds, so that examples count
    equally, as in `per_example`.
    """
    from sklearn.model_selection import StratifiedKFold

    if "validation" in task.splits:
        return task.score(embeddings, "validation", head=head, seeds=seeds)
    (train,) = task.head_inputs(embeddings, ("train",), head)
    split = list(StratifiedKFold(folds).split(train.features, train.labels))
    jobs = [(seen, seed) for seen, _ in split for seed in range(seeds)]
    by_fold = tasks.predict(train, train, jobs, head).reshape(folds, seeds, len(train.labels))
    predictions = np.empty_like(by_fold[0])
    for own, (_, unseen) in zip(by_fold, split, strict=True):
        predictions[:, unseen] = own[:, unseen]
    return tasks.score_predictions(task.metric, predictions, train.labels)


def final_scores(
    task: HeadTask,
    embeddings: np.ndarray,
    *,
    rounds: Mapping[str, int | None],
    head: HeadSettings,
    seeds: int,
) -> dict[str, Score]:
    """One score per round, on the whole test split.

    embeddings: (N, D), row i belongs to `task.texts("test")[i]`; rounds: number of train examples
    by name, None: all.
    """
    train, test = task.head_inputs(embeddings, ("train", "test"), head)
    labels = task.splits["train"].labels
    limits = [len(labels) if limit is None else limit for limit in rounds.values()]
    jobs = [(downsample(labels, limit), seed) for limit in limits for seed in range(seeds)]
    predictions = tasks.predict(train, test, jobs, head).reshape(
        len(rounds), seeds, len(test.labels)
    )
    by_round = zip(rounds, predictions, strict=True)
    return {name: tasks.score_predictions(task.metric, own, test.labels) for name, own in by_round}


def few_shot_scores(
    task: HeadTask,
    embeddings: np.ndarray,
    *,
    per_class: Sequence[int] = (5,),
    draws: int = 10,
    head: HeadSettings = HEADS["few-shot"],
) -> pd.DataFrame:
    """Columns per_class, draw, metric (accuracy, f1_macro) and value: one head per number and draw
    of examples.

    embeddings: (N, D), row i belongs to `task.texts("test")[i]`.
    """
    train, test = task.head_inputs(embeddings, ("train", "test"), head)
    runs = [(number, draw) for number in per_class for draw in range(draws)]
    jobs = [(draw_per_class(train.labels, number, draw=draw), draw) for number, draw in runs]
    predictions = tasks.predict(train, test, jobs, head)
    accuracy, f1_macro = (
        (predictions == test.labels).mean(axis=1),
        tasks.f1_macro(predictions, test.labels),
    )
    frame = pd.DataFrame(runs, columns=["per_class", "draw"]).assign(
        accuracy=accuracy, f1_macro=f1_macro
    )
    return frame.melt(["per_class", "draw"], var_name="metric", value_name="value")


def draw_per_class(labels: np.ndarray, number: int, *, draw: int) -> np.ndarray:
    """The rows of `number` examples of each class, or all of a smaller class, ascending.

    A larger number keeps the examples of a smaller one.
    """
    rng = np.random.default_rng(draw)
    kept = [
        rng.permutation(np.flatnonzero(labels == label))[:number] for label in np.unique(labels)
    ]
    return np.sort(np.concatenate(kept))
