"""Confidence intervals of scores and paired tests between models, from the results on single test
examples.

A score is a mean over test examples or queries, each of them already a mean over the seeds of the
head. Intervals resample the examples; tests swap the results of two models on each example. All
models are resampled alike, so differences are paired. For a mean over tasks, the examples of each
task are resampled separately and weigh the more, the fewer they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation.tasks import Score

LEVEL, ALPHA = 0.95, 0.05  # confidence level of intervals, and significance level of tests
RESAMPLES = 2000  # of the examples, for an interval
PERMUTATIONS = 9999  # of the results of two models, so that the smallest p-value is 1e-4
CELLS = 4_000_000  # examples drawn at a time; bounds the memory
DECIMALS = 12  # means are rounded to these, since sums in another order differ in the last bits
EDGES = (
    256,
    384,
    512,
    1024,
    2048,
    4096,
)  # tokens; SBERT teachers read 256 to 512, the student 4,096
LEAST = 10  # fewest examples between two of them

OVERALL = "mean over tasks"  # the name in the column `task` for the mean over several tasks
VERDICTS = ("better", "worse", "no difference shown")

Scores = Mapping[str, Mapping[str, Score]]  # {model: {task: score}}


def bootstrap_over_tasks(
    examples: list[np.ndarray], *, level: float = LEVEL, resamples: int = RESAMPLES
) -> np.ndarray:
    """BCa bootstrap intervals (Efron, 1987) of M unweighted means over K tasks: the means, low and
    high bounds, (3, M).

    examples: K arrays (M, N_k), the results of M models on the same N_k examples; each task is
    resampled separately (Davison and Hinkley, 1997, 5.3). Where all examples are equal, the
    interval is a point.
    """
    from scipy.special import ndtr, ndtri  # slow to import, and every command imports this module

    tasks = [np.asarray(X, dtype=np.float64) for X in examples]
    mean = np.mean([X.mean(axis=1) for X in tasks], axis=0).round(DECIMALS)
    drawn = np.mean(
        [resampled_means(X, resamples=resamples, seed=k) for k, X in enumerate(tasks)], axis=0
    )
    drawn = drawn.round(DECIMALS)  # (B, M)
    # bias correction z0: the quantile of the mean among the resampled means, of which ties count
    # half
    below = ((drawn < mean).mean(axis=0) + (drawn <= mean).mean(axis=0)) / 2
    bias = ndtri(below.clip(0.5 / resamples, 1 - 0.5 / resamples))
    # acceleration a: the skewness of the empirical influence values, which for a mean are the
    # deviations from it
    influence = side_by_side([X - X.mean(axis=1, keepdims=True) for X in tasks])
    spread = (influence**2).sum(axis=1) ** 1.5
    acceleration = np.divide(
        (influence**3).sum(axis=1), 6 * spread, out=np.zeros(len(mean)), where=spread > 1e-12
    )
    found = [mean]
    for tail in ((1 - level) / 2, (1 + level) / 2):
        shifted = bias + ndtri(tail)
        share = ndtr(bias + shifted / (1 - acceleration * shifted))
        found.append(
            np.array([np.quantile(means, q) for means, q in zip(drawn.T, share, strict=True)])
        )
    return np.stack(found)


def side_by_side(examples: Sequence[np.ndarray]) -> np.ndarray:
    """The examples of K tasks as one array whose mean is the mean over tasks. examples: (M, N_k).

    Returns (M, sum).
    """
    total = sum(X.shape[1] for X in examples)
    return np.concatenate([X * (total / (len(examples) * X.shape[1])) for X in examples], axis=1)


def resampled_means(examples: np.ndarray, *, resamples: int, seed: int) -> np.ndarray:
    """Means over N examples drawn with replacement, the same for every row. examples: (M, N).

    Returns (B, M).
    """
    rng = np.random.default_rng(seed)
    N = examples.shape[1]
    means = []
    for start in range(0, resamples, at_once := max(1, CELLS // N)):
        b = min(at_once, resamples - start)
        drawn = rng.integers(N, size=(b, N)) + N * np.arange(b)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=b * N).reshape(b, N)
        means.append(counts.astype(np.float64) @ examples.T / N)
    return np.concatenate(means).round(DECIMALS)


def paired_p_value(differences: np.ndarray, *, permutations: int = PERMUTATIONS) -> float:
    """Two-sided p-value of equal models: their results on each example are swapped at random.
    differences: (N,).

    For right or wrong answers of one head each this is McNemar's exact test, up to the draw of the
    permutations. The observed results count as one permutation.
    """
    d = np.round(np.asarray(differences, dtype=np.float64), 9)
    # c examples with the same |d| change sign independently: their sum is |d| * (2 * Binomial(c,
    # 1/2) - c)
    sizes, counts = np.unique(np.abs(d[d != 0]), return_counts=True)
    rng = np.random.default_rng(0)
    observed, extreme = abs(d.sum()), 0
    for start in range(0, permutations, at_once := max(1, CELLS // max(1, len(sizes)))):
        b = min(at_once, permutations - start)
        signed = 2 * rng.binomial(counts, 0.5, size=(b, len(sizes))) - counts
        extreme += int(np.count_nonzero(np.abs(signed @ sizes) >= observed - 1e-9 * len(d)))
    return (1 + extreme) / (1 + permutations)


def holm(p_values: np.ndarray) -> np.ndarray:
    """p-values corrected for their number (Holm, 1979), which bounds the probability of any false
    rejection.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return corrected


def score_intervals(scores: Scores) -> pd.DataFrame:
    """Columns model, task, metric, examples, value, low, high; for several tasks the mean (OVERALL,
    "mean"), last.
    """
    rows: list[tuple[object, ...]] = []
    for task, metric, models, examples in all_results(scores):
        count = sum(X.shape[1] for X in examples)
        intervals = bootstrap_over_tasks(examples).T
        rows += [
            (model, task, metric, count, *row) for model, row in zip(models, intervals, strict=True)
        ]
    return pd.DataFrame(
        rows, columns=["model", "task", "metric", "examples", "value", "low", "high"]
    )


def differences(scores: Scores, reference: str) -> pd.DataFrame:
    """Every other model against `reference`, on the own metric of each task and in the mean over
    tasks (OVERALL).

    Tasks on which one of the two was not scored are left out.

    Columns: task, metric, model, reference, difference (model minus reference), low and high (its
    interval), p.
    """
    if reference not in scores:
        there = ", ".join(scores)
        problem = f"there are no scores of {reference!r}, only of {there}"
        raise InputError(f"reference: {problem}; name one of these")
    rows: list[tuple[object, ...]] = []
    for task, metric, models, examples in all_results(scores, extra=False):
        if reference not in models or len(models) < 2:
            continue
        place = models.index(reference)
        ahead = [np.delete(X, place, axis=0) - X[place] for X in examples]
        others = [model for model in models if model != reference]
        by_model = zip(others, bootstrap_over_tasks(ahead).T, side_by_side(ahead), strict=True)
        rows += [
            (task, metric, model, reference, *row, paired_p_value(d)) for model, row, d in by_model
        ]
    return pd.DataFrame(
        rows, columns=["task", "metric", "model", "reference", "difference", "low", "high", "p"]
    )


def verdicts(found: pd.DataFrame) -> pd.DataFrame:
    """All `differences` of one comparison, with p_holm and verdict by ALPHA.

    p_holm is corrected for the number of tests of means over tasks, and for that of single tasks,
    each by itself: the means decide what is recommended, and the many tests of single tasks must
    not hide them.
    """
    means, corrected, (better, worse, unclear) = (
        (found["task"] == OVERALL).to_numpy(),
        np.empty(len(found)),
        VERDICTS,
    )
    for family in (means, ~means):
        corrected[family] = holm(found["p"].to_numpy()[family])
    verdict = np.where(corrected < ALPHA, np.where(found["difference"] > 0, better, worse), unclear)
    return found.assign(p_holm=corrected, verdict=verdict)


def all_results(
    scores: Scores, *, extra: bool = True
) -> Iterator[tuple[str, str, list[str], list[np.ndarray]]]:
    """The results on each task by its own metric, with `extra` by further ones too, then on all K
    tasks together.

    Yields task, metric, the names of the M models that were scored on it, and K arrays (M, N_k) of
    results on examples, means over seeds. Models without some task (BM25 ranks only) are missing
    there and in the mean over tasks.
    """
    tasks = list(dict.fromkeys(task for by_task in scores.values() for task in by_task))
    everywhere = [model for model, by_task in scores.items() if set(by_task) == set(tasks)]
    main = []
    for task in tasks:
        by_model = {model: by_task[task] for model, by_task in scores.items() if task in by_task}
        first = next(iter(by_model.values()))
        for metric in dict.fromkeys([first.metric, *(first.per_example if extra else ())]):
            results = {
                m: score.per_example[metric].mean(axis=0, dtype=np.float64)
                for m, score in by_model.items()
            }
            yield task, metric, list(results), [np.stack(list(results.values()))]
            if metric == first.metric and everywhere:
                main.append(np.stack([results[model] for model in everywhere]))
    if len(main) > 1:
        yield OVERALL, "mean", everywhere, main


def by_length(per_example: np.ndarray, lengths: Sequence[int] | np.ndarray) -> pd.DataFrame:
    """A score by document length: columns bucket, examples, value, low, high (a 95% interval).

    Buckets end at those of EDGES that leave LEAST examples or more on either side, up to the one
    before: so every example is in a bucket, and no bucket is too small to say something.
    per_example: (seeds, N); lengths: (N,).
    """
    results, lengths = (
        np.asarray(per_example).mean(axis=0, dtype=np.float64),
        np.asarray(lengths),
    )  # (N,)
    edges = [0]  # a single bucket is `> 0`
    for edge in EDGES:
        shorter, longer = (lengths > edges[-1]) & (lengths <= edge), lengths > edge
        edges += [edge] if min(shorter.sum(), longer.sum()) >= LEAST else []
    names = [f"{low + 1}-{high}" for low, high in pairwise(edges)] + [f"> {edges[-1]}"]
    bucket_of = np.searchsorted(edges[1:], lengths, side="left")
    parts = [results[bucket_of == number] for number in range(len(names))]
    rows = [
        (name, len(x), *bootstrap_over_tasks([x[None]]).ravel())
        for name, x in zip(names, parts, strict=True)
    ]
    return pd.DataFrame(rows, columns=["bucket", "examples", "value", "low", "high"])
