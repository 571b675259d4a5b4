"""How sure is a score, and is one model better than another? Both from the same test examples, answered one by one.

A score is a mean over test examples or queries, each of them already a mean over the head's seeds. What is uncertain is
which examples there happened to be: intervals come from resampling them, tests from swapping two models' answers.
Every model is resampled alike, so differences are paired. In the mean over tasks each task's examples are resampled by
themselves, and count the more, the fewer they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from docemb_lib.errors import InputError
from docemb_lib.evaluation.tasks import Score

# ---- how sure is a score


RESAMPLES = 2000  # of the examples, for an interval
PERMUTATIONS = 9999  # of two models' answers, for a p-value, which so is 1e-4 at the least
CELLS = 4_000_000  # examples drawn at a time: bounds the memory
DECIMALS = 12  # means that differ later than that are equal: sums in another order

OVERALL = "mean over tasks"  # as a task of the frames, where there are several
VERDICTS = ("better", "worse", "no difference shown")


class Intervals(NamedTuple):
    """Means of M scores and the bounds of their confidence intervals, (M,) each."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Answers(NamedTuple):
    """What M models got on the examples of one task, or of each of K tasks that a mean is taken over."""

    task: str
    metric: str
    models: list[str]
    examples: list[np.ndarray]  # K arrays (M, N_k), means over seeds


def bootstrap(examples: np.ndarray, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> Intervals:
    """BCa bootstrap intervals of the means of M scores over the same N examples (Efron, 1987).

    examples: (M, N). Where all examples are equal, the interval is a point: resampling cannot see what never happened.
    """
    return bootstrap_over_tasks([examples], level=level, resamples=resamples, seed=seed)


def bootstrap_over_tasks(
    examples: Sequence[np.ndarray], *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Intervals:
    """The same of M unweighted means over K tasks, whose examples are drawn apart (Davison and Hinkley, 1997, 5.3).

    examples: K arrays (M, N_k).
    """
    tasks = [np.asarray(X, dtype=np.float64) for X in examples]
    mean = np.mean([X.mean(axis=1) for X in tasks], axis=0).round(DECIMALS)
    drawn = np.mean([resampled_means(X, resamples=resamples, seed=seed + k) for k, X in enumerate(tasks)], axis=0)
    drawn = drawn.round(DECIMALS)  # (B, M)
    below = ((drawn < mean).mean(axis=0) + (drawn <= mean).mean(axis=0)) / 2
    bias = ndtri(below.clip(0.5 / resamples, 1 - 0.5 / resamples))
    influence = side_by_side([X - X.mean(axis=1, keepdims=True) for X in tasks])
    spread = (influence**2).sum(axis=1) ** 1.5
    acceleration = np.divide((influence**3).sum(axis=1), 6 * spread, out=np.zeros(len(mean)), where=spread > 1e-12)
    bounds = []
    for tail in ((1 - level) / 2, (1 + level) / 2):
        shifted = bias + ndtri(tail)
        share = ndtr(bias + shifted / (1 - acceleration * shifted))
        bounds.append(np.array([np.quantile(means, q) for means, q in zip(drawn.T, share, strict=True)]))
    return Intervals(mean, *bounds)


def side_by_side(examples: Sequence[np.ndarray]) -> np.ndarray:
    """The examples of K tasks as one array whose mean is the mean over tasks. examples: (M, N_k). Returns (M, sum)."""
    total = sum(X.shape[1] for X in examples)
    return np.concatenate([X * (total / (len(examples) * X.shape[1])) for X in examples], axis=1)


def resampled_means(examples: np.ndarray, *, resamples: int, seed: int) -> np.ndarray:
    """Means over N examples drawn with replacement, the same ones for every row. examples: (M, N). Returns (B, M)."""
    rng = np.random.default_rng(seed)
    N = examples.shape[1]
    means = []
    for start in range(0, resamples, at_once := max(1, CELLS // N)):
        b = min(at_once, resamples - start)
        drawn = rng.integers(N, size=(b, N)) + N * np.arange(b)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=b * N).reshape(b, N)
        means.append(counts.astype(np.float64) @ examples.T / N)
    return np.concatenate(means).round(DECIMALS)


def paired_p_value(differences: np.ndarray, *, permutations: int = PERMUTATIONS, seed: int = 0) -> float:
    """Two-sided p-value of "both models answer alike", by swapping their answers to each example at random.

    differences: (N,), of the two models' answers. With one head each and right or wrong answers this is McNemar's exact
    test, but for the draw of the permutations. The observed answers count as one of them.
    """
    d = np.round(np.asarray(differences, dtype=np.float64), 9)
    sizes, counts = np.unique(np.abs(d[d != 0]), return_counts=True)  # examples that differ alike are swapped together
    rng = np.random.default_rng(seed)
    observed, extreme = abs(d.sum()), 0
    for start in range(0, permutations, at_once := max(1, CELLS // max(1, len(sizes)))):
        b = min(at_once, permutations - start)
        signed = 2 * rng.binomial(counts, 0.5, size=(b, len(sizes))) - counts
        extreme += int(np.count_nonzero(np.abs(signed @ sizes) >= observed - 1e-9 * len(d)))
    return (1 + extreme) / (1 + permutations)


def holm(p_values: np.ndarray) -> np.ndarray:
    """p-values corrected for their number (Holm, 1979): at a level of 5%, any of them is wrong in 5% of all studies."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return corrected


def score_intervals(
    scores: Mapping[str, Mapping[str, Score]], *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Every score of {model: {task: score}} with its interval: model, task, metric, examples, value, low, high.

    Last, where there are several tasks, the mean of their own metrics: task OVERALL, metric "mean".
    """
    rows: list[tuple[object, ...]] = []
    for answers in all_answers(scores):
        found = bootstrap_over_tasks(answers.examples, level=level, resamples=resamples, seed=seed)
        count = sum(X.shape[1] for X in answers.examples)
        for model, row in zip(answers.models, np.transpose(found), strict=True):
            rows.append((model, answers.task, answers.metric, count, *row))
    return pd.DataFrame(rows, columns=["model", "task", "metric", "examples", "value", "low", "high"])


def compare(
    scores: Mapping[str, Mapping[str, Score]],
    reference: str,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> pd.DataFrame:
    """Every model of {model: {task: score}} against one of them: `differences` with `verdicts`."""
    found = differences(scores, reference, level=level, resamples=resamples, permutations=permutations, seed=seed)
    return verdicts(found, level=level)


def differences(
    scores: Mapping[str, Mapping[str, Score]],
    reference: str,
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> pd.DataFrame:
    """Every model of {model: {task: score}} against one of them, on each task's own metric and in their mean (OVERALL).

    Columns: task, metric, model, reference, difference (model minus reference), low and high (its interval), p. Raises
    InputError where models were not scored on the same examples.
    """
    if reference not in scores or len(scores) < 2:
        raise InputError(
            f"compare: {reference!r} and another model are needed, there are scores of {', '.join(scores)}"
        )
    rows: list[tuple[object, ...]] = []
    for task, metric, models, examples in all_answers(scores, further=False):
        place = models.index(reference)
        ahead = [np.delete(X, place, axis=0) - X[place] for X in examples]
        found = bootstrap_over_tasks(ahead, level=level, resamples=resamples, seed=seed)
        p_values = [paired_p_value(d, permutations=permutations, seed=seed) for d in side_by_side(ahead)]
        others = [model for model in models if model != reference]
        for model, row, p in zip(others, np.transpose(found), p_values, strict=True):
            rows.append((task, metric, model, reference, *row, p))
    return pd.DataFrame(rows, columns=["task", "metric", "model", "reference", "difference", "low", "high", "p"])


def verdicts(found: pd.DataFrame, *, level: float = 0.95) -> pd.DataFrame:
    """All `differences` that are looked at together, with p_holm (corrected for their number) and verdict: better or
    worse where p_holm < 1 - level, else "no difference shown", which is not to say that there is none."""
    corrected = holm(found["p"].to_numpy())
    better, worse, unclear = VERDICTS
    verdict = np.where(corrected < 1 - level, np.where(found["difference"] > 0, better, worse), unclear)
    return found.assign(p_holm=corrected, verdict=verdict)


def all_answers(scores: Mapping[str, Mapping[str, Score]], *, further: bool = True) -> Iterator[Answers]:
    """The answers to each task by its own metric, with `further` ones by others too, then all tasks' together.

    Raises InputError where models have other tasks or other numbers of examples than the first.
    """
    own = []
    for task, by_model in by_task(scores).items():
        first = next(iter(by_model.values()))
        for metric in dict.fromkeys([first.metric, *(first.per_example if further else ())]):
            answers = Answers(task, metric, list(by_model), [answers_of(task, metric, by_model)])
            own += [answers] if metric == first.metric else []
            yield answers
    if len(own) > 1:
        yield Answers(OVERALL, "mean", own[0].models, [examples for answers in own for examples in answers.examples])


def by_task(scores: Mapping[str, Mapping[str, Score]]) -> dict[str, dict[str, Score]]:
    """{task: {model: score}}. Raises InputError for a model without a score on a task of the first."""
    tasks = list(next(iter(scores.values()), {}))
    for model, own in scores.items():
        if set(own) != set(tasks):
            raise InputError(
                f"scores: {model!r} has scores on {', '.join(own)}, others on {', '.join(tasks)}; "
                "score all models on the same tasks"
            )
    return {task: {model: own[task] for model, own in scores.items()} for task in tasks}


def answers_of(task: str, metric: str, by_model: Mapping[str, Score]) -> np.ndarray:
    """What each model got on each example, mean over seeds: (M, N)."""
    for model, score in by_model.items():
        if metric not in score.per_example:
            raise InputError(f"scores: {model!r} on {task!r} has no {metric} of single examples; score it again")
    answers = [score.per_example[metric].mean(axis=0, dtype=np.float64) for score in by_model.values()]
    if len(sizes := {len(own) for own in answers}) > 1:
        raise InputError(f"scores: {task!r} was scored on {sorted(sizes)} examples; score all models on the same ones")
    return np.stack(answers)


# ---- does a model do as well on long documents? Scores


EDGES = (256, 384, 512, 1024, 2048, 4096)  # tokens; SBERT teachers read 256 to 512, the student 4,096


def by_length(
    per_example: np.ndarray, lengths: Sequence[int] | np.ndarray, edges: Sequence[int] = EDGES, *, seed: int = 0
) -> pd.DataFrame:
    """Tidy rows by length: bucket, examples, value, low, high (a 95% interval, see `bootstrap`).

    per_example: (seeds, N), as a score has it; lengths: (N,), see `example_lengths` of a task; edges: ascending, the
    last length of each bucket but the one beyond. A bucket without examples has no value, one with a single example no
    interval: both NaN.
    """
    answers = np.asarray(per_example).mean(axis=0, dtype=np.float64)  # (N,)
    lengths = np.asarray(lengths)
    if len(lengths) != len(answers):
        raise InputError(f"by_length: {len(lengths)} lengths for {len(answers)} examples, expected one each")
    if not len(edges) or list(edges) != sorted(set(edges)):
        raise InputError(f"by_length: edges must be ascending and at least one, got {list(edges)}")
    bucket_of = np.searchsorted(edges, lengths, side="left")
    rows = []
    for number, name in enumerate(bucket_names(edges)):
        own = answers[bucket_of == number]
        found = bootstrap(own[None], seed=seed) if len(own) > 1 else None
        low, high = (float(found.low[0]), float(found.high[0])) if found else (np.nan, np.nan)
        rows.append((name, len(own), own.mean() if len(own) else np.nan, low, high))
    return pd.DataFrame(rows, columns=["bucket", "examples", "value", "low", "high"])


def bucket_names(edges: Sequence[int]) -> list[str]:
    """How buckets are called: up to the first edge, between two, beyond the last."""
    between = [f"{low + 1}-{high}" for low, high in pairwise(edges)]
    return [f"≤ {edges[0]}", *between, f"> {edges[-1]}"]
