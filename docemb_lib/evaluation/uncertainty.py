"""Confidence intervals of scores and paired tests between models, from single test examples.

A score is a mean over test examples or queries, and each of these is already a mean over the seeds
of the head. Intervals resample the examples; tests swap the results of two models on each example.
All models are resampled alike, so differences are paired. For a mean over tasks, the examples of
each task are resampled separately and weigh the more, the fewer they are.

`scipy.stats.bootstrap` gives the same intervals, but copies the examples for every resample and
every jackknife sample: for 20 models it takes 7 times as long on 1,000 examples, and 12 times on
3,000. It gives NaN where all examples are equal.

B: resamples; K: tasks; M: models; N: examples of a task.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation.tasks import Score

LEVEL = 0.95  # confidence level of intervals
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)  # the quantiles that bound them
ALPHA = 0.05  # significance level of tests
POWER = 0.8  # probability that a test shows a difference, for which `Needed` says what it takes
RESAMPLES = 2000  # of the examples, for an interval
PERMUTATIONS = 9999  # of the results of two models, so that the smallest p-value is 1e-4
CELLS = 4_000_000  # numbers drawn at a time; bounds the memory
DECIMALS = 12  # means are rounded to these, since sums in another order differ in the last bits
# Tokens between which `by_length` divides: SBERT teachers read 256 to 512, the student 4,096.
EDGES = (256, 384, 512, 1024, 2048, 4096)
LEAST = 10  # fewest examples between two of them

OVERALL = "mean over tasks"  # the name in the column `task` for the mean over several tasks
VERDICTS = ("better", "worse", "no difference shown")

Scores = Mapping[str, Mapping[str, Score]]  # {model: {task: score}}


class Needed(NamedTuple):
    """What it takes to show a difference with the probability POWER."""

    detectable: float  # the difference that the present number of examples can show
    examples: float  # the number of examples that can show the present difference


class Results(NamedTuple):
    """The results of M models on the examples of one task, or of all K tasks."""

    task: str  # or OVERALL
    metric: str
    models: list[str]  # the names of the M models
    examples: list[np.ndarray]  # for each task (M, N), means over seeds


def bootstrap_over_tasks(examples: Sequence[np.ndarray]) -> np.ndarray:
    """Return M means over K tasks and their BCa bootstrap intervals (Efron, 1987): (3, M).

    Each task is resampled separately (Davison and Hinkley, 1997, 5.3). Where all examples are
    equal, the interval is a point.

    examples: K arrays (M, N), the results of M models on the same N examples.
    """
    from scipy.special import ndtr, ndtri  # slow to import, and every command imports this module

    tasks = [np.asarray(X, dtype=np.float64) for X in examples]
    mean = np.mean([X.mean(axis=1) for X in tasks], axis=0).round(DECIMALS)
    by_task = [resampled_means(X, seed=k) for k, X in enumerate(tasks)]
    drawn = np.mean(by_task, axis=0).round(DECIMALS)  # (B, M)

    # Bias correction z0: the quantile of the mean among the resampled means; ties count half.
    below = ((drawn < mean).mean(axis=0) + (drawn <= mean).mean(axis=0)) / 2
    bias = ndtri(below.clip(0.5 / RESAMPLES, 1 - 0.5 / RESAMPLES))

    # Acceleration a: the skewness of the empirical influence values, for a mean the deviations.
    influence = side_by_side([X - X.mean(axis=1, keepdims=True) for X in tasks])
    spread = (influence**2).sum(axis=1) ** 1.5
    acceleration = (influence**3).sum(axis=1) / (6 * np.where(spread > 1e-12, spread, np.inf))

    bounds = [mean]
    for tail in TAILS:
        shifted = bias + ndtri(tail)
        shares = ndtr(bias + shifted / (1 - acceleration * shifted))
        bounds.append(np.array(list(map(np.quantile, drawn.T, shares))))
    return np.stack(bounds)


def side_by_side(examples: Sequence[np.ndarray]) -> np.ndarray:
    """Return the examples of K tasks as one array (M, sum of N) whose mean is that over tasks.

    examples: K arrays (M, N).
    """
    total = sum(X.shape[1] for X in examples)
    return np.concatenate([X * (total / (len(examples) * X.shape[1])) for X in examples], axis=1)


def resampled_means(examples: np.ndarray, *, seed: int) -> np.ndarray:
    """Return means over N examples drawn with replacement, the same for every model: (B, M).

    examples: (M, N).
    """
    N = examples.shape[1]
    rng = np.random.default_rng(seed)
    at_once = max(1, CELLS // N)
    means = []
    for start in range(0, RESAMPLES, at_once):
        b = min(at_once, RESAMPLES - start)
        drawn = rng.integers(N, size=(b, N)) + N * np.arange(b)[:, None]
        # How often each example is drawn: a product is faster than the examples themselves.
        counts = np.bincount(drawn.ravel(), minlength=b * N).reshape(b, N)
        means.append(counts.astype(np.float64) @ examples.T / N)
    return np.concatenate(means).round(DECIMALS)


def paired_p_value(differences: np.ndarray, *, permutations: int = PERMUTATIONS) -> float:
    """Return the two-sided p-value of equal models: each example's results are swapped at random.

    For right or wrong answers of a single head each this is McNemar's exact test, up to the draw of
    the permutations. The observed results count as one permutation.

    differences: (N,).
    """
    d = np.round(np.asarray(differences, dtype=np.float64), 9)
    # The signs of the c examples with the same |d| are independent: these examples sum to
    # |d| * (2 * Binomial(c, 1/2) - c). Many answers differ by few sizes, so few numbers are drawn.
    sizes, counts = np.unique(np.abs(d[d != 0]), return_counts=True)
    several = counts > 1
    observed = abs(d.sum()) - 1e-9 * len(d)
    rng = np.random.default_rng(0)
    at_once = max(1, CELLS // max(1, len(sizes)))
    extreme = 1
    for start in range(0, permutations, at_once):
        b = min(at_once, permutations - start)
        positive = rng.integers(2, size=(b, len(sizes)))
        positive[:, several] = rng.binomial(counts[several], 0.5, size=(b, several.sum()))
        extreme += int(np.sum(np.abs((2 * positive - counts) @ sizes) >= observed))
    return extreme / (1 + permutations)


class PairedError(NamedTuple):
    """How far the mean of N paired differences moves if models are equal."""

    error: float  # the deviation of the mean under the swaps of `paired_p_value`
    step: float  # half the distance of two values that N times the mean can take
    examples: int  # N, of all tasks


def paired_error(differences: Sequence[np.ndarray]) -> PairedError:
    """Return the error of a mean over K tasks: sqrt(sum over tasks of mean(d^2) / N) / K.

    differences: K arrays (N,).
    """
    variances = [np.mean(np.square(d, dtype=np.float64)) / len(d) for d in differences]
    sizes = np.abs(side_by_side([d[None] for d in differences])[0]).round(9)
    step = np.min(sizes, where=sizes > 0, initial=np.inf)
    return PairedError(
        error=float(np.sqrt(np.sum(variances))) / len(differences),
        step=float(step) if sizes.any() else 0.0,
        examples=len(sizes),
    )


def needed(
    difference: float, error: float, step: float, examples: int, *, alpha: float = ALPHA
) -> Needed:
    """Return what shows a difference by a two-sided paired test of level `alpha`, in POWER.

    The mean of N paired differences is nearly normal, with the deviation s0 / sqrt(N) if the models
    are equal and s1 / sqrt(N) around the difference d, where s1^2 = s0^2 - d^2. N examples show

        D = c / sqrt(N) + step / (2 N),  c = z(1 - alpha/2) s0 + z(POWER) s1

    with quantiles z of the normal distribution. The last term is half the correction for
    continuity: where answers are right or wrong, the exact power of McNemar's test is then .79 to
    .83; with the whole correction it is .81 to .87, and with none .75 to .78. The present d takes
    the N at which D is d, of each task in its present share.

    error, step, examples: see `PairedError`; s0 is error * sqrt(examples).
    """
    quantile = NormalDist().inv_cdf
    d = abs(difference)
    s0 = error * examples**0.5
    s1 = max(0.0, s0**2 - d**2) ** 0.5
    c = quantile(1 - alpha / 2) * s0 + quantile(POWER) * s1
    detectable = c / examples**0.5 + step / (2 * examples)
    if not d:
        return Needed(detectable, np.inf)
    root = (c + (c**2 + 2 * d * step) ** 0.5) / (2 * d)
    return Needed(detectable, root**2)


def holm(p_values: np.ndarray) -> np.ndarray:
    """Correct p-values for their number (Holm, 1979): they bound the probability of any error."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return corrected


def decided_by(scores: Scores, metric: str, *, alone: bool = False) -> Scores:
    """Return the scores with another main metric, on the tasks that have it for each example.

    alone: leave out other tasks, and models without such a task.
    """
    decided: dict[str, dict[str, Score]] = {}
    for model, by_task in scores.items():
        for task, score in by_task.items():
            if metric in score.per_example:
                decided.setdefault(model, {})[task] = score.decided_by(metric)
            elif not alone:
                decided.setdefault(model, {})[task] = score
    return decided


def score_intervals(scores: Scores) -> pd.DataFrame:
    """Return columns model, task, metric, examples, value, low, high.

    For several tasks the rows of the mean over tasks (OVERALL, "mean") come last.
    """
    columns = ["model", "task", "metric", "examples", "value", "low", "high"]
    rows: list[tuple[object, ...]] = []
    for task, metric, models, examples in all_results(scores):
        count = sum(X.shape[1] for X in examples)
        for model, interval in zip(models, bootstrap_over_tasks(examples).T, strict=True):
            rows.append((model, task, metric, count, *interval))
    return pd.DataFrame(rows, columns=columns)


def differences(scores: Scores, reference: str, *, tested: bool = True) -> pd.DataFrame:
    """Compare every other model with `reference`, on each task and in the mean over tasks.

    Tasks on which a model or the reference was not scored are left out.
    Columns: task, metric, model, reference, difference (model minus reference), low and high (the
    interval of the difference), p, and those of `PairedError`. p is NaN without `tested`, which
    takes most of the time. Raises InputError where `reference` has no scores.
    """
    if reference not in scores:
        there = ", ".join(scores)
        raise InputError(
            f"reference: there are no scores of {reference!r}, only of {there}; name one of these"
        )
    columns = ["task", "metric", "model", "reference", "difference", "low", "high", "p"]
    rows: list[tuple[object, ...]] = []
    for task, metric, models, examples in all_results(scores, extra=False):
        if reference not in models or len(models) < 2:
            continue
        place = models.index(reference)
        ahead = [X - X[place] for X in examples]
        by_model = zip(models, bootstrap_over_tasks(ahead).T, side_by_side(ahead), strict=True)
        for number, (model, interval, by_example) in enumerate(by_model):
            if model != reference:
                p = paired_p_value(by_example) if tested else np.nan
                error = paired_error([X[number] for X in ahead])
                rows.append((task, metric, model, reference, *interval, p, *error))
    return pd.DataFrame(rows, columns=[*columns, *PairedError._fields])


def verdicts(tests: pd.DataFrame) -> pd.DataFrame:
    """Add p_holm and the verdict by ALPHA, detectable and needed to `differences`.

    p_holm is corrected for the number of tests of means over tasks, and separately for the number
    of tests of single tasks: the means decide what is recommended, and the many tests of single
    tasks must not hide them. detectable and needed are those of `Needed`, at the level of the next
    test that Holm's correction would find.

    tests: all `differences` of one comparison.
    """
    p = tests["p"].to_numpy()
    means = (tests["task"] == OVERALL).to_numpy()
    corrected = np.empty(len(tests))
    level = np.empty(len(tests))
    for family in (means, ~means):
        corrected[family] = holm(p[family])
        level[family] = ALPHA / max(1, int(np.sum(corrected[family] >= ALPHA)))
    better, worse, unclear = VERDICTS
    direction = np.where(tests["difference"] > 0, better, worse)
    inputs = tests[["difference", *PairedError._fields]].itertuples(index=False)
    takes = [needed(*row, alpha=alpha) for row, alpha in zip(inputs, level, strict=True)]
    detectable = [each.detectable for each in takes]
    examples = [each.examples for each in takes]
    verdict = np.where(corrected < ALPHA, direction, unclear)
    return tests.assign(p_holm=corrected, verdict=verdict, detectable=detectable, needed=examples)


def all_results(scores: Scores, *, extra: bool = True) -> Iterator[Results]:
    """Yield the results on each task by its main metric, `extra` ones too, then those on all tasks.

    Models without some task (BM25 ranks only) are missing there and in the mean over tasks.
    """
    tasks = dict.fromkeys(task for by_task in scores.values() for task in by_task)
    everywhere = [model for model, by_task in scores.items() if len(by_task) == len(tasks)]
    main = []
    for task in tasks:
        by_model = {model: by_task[task] for model, by_task in scores.items() if task in by_task}
        first = next(iter(by_model.values()))
        for metric in dict.fromkeys([first.metric, *(first.per_example if extra else ())]):
            results = {}
            for model, score in by_model.items():
                results[model] = score.per_example[metric].mean(axis=0, dtype=np.float64)
            yield Results(task, metric, list(results), [np.stack(list(results.values()))])
            if metric == first.metric and everywhere:
                main.append(np.stack([results[model] for model in everywhere]))
    if len(main) > 1:
        yield Results(OVERALL, "mean", everywhere, main)


class OverSeeds(NamedTuple):
    """A mean difference of models trained with S seeds, beyond these seeds and these examples."""

    difference: float
    low: float
    high: float
    p: float


def over_seeds(differences: Sequence[np.ndarray]) -> OverSeeds:
    """Return the interval and the two-sided p-value of a mean over K tasks, seeds and examples.

    Seeds and examples are crossed, as readers and cases are in the analysis of Obuchowski and
    Rockette: d_si = mean + seed_s + example_i + rest_si. The variances of the mean over seeds V_s,
    over examples V_i, and of the rest V_r, which both of these contain, give the variance

        V = V_s + max(0, V_i - V_r)

    and a t distribution with (S - 1) (V / V_s)^2 degrees of freedom (Hillis, 2007). With two seeds
    its intervals are too narrow, with three or more they cover as they say.

    differences: K arrays (S, N), S >= 2, of one model minus another in all seeds.
    """
    from scipy.stats import t  # slow to import, and every command imports this module

    of_seeds = np.mean([d.mean(axis=1, dtype=np.float64) for d in differences], axis=0)
    mean = float(of_seeds.mean())
    S = len(of_seeds)
    seeds = of_seeds.var(ddof=1) / S
    beyond = 0.0  # V_i - V_r
    for d in differences:
        N = d.shape[1]
        centred = d - d.mean(axis=1, keepdims=True)
        rest = centred.var(axis=0, ddof=1).sum() / ((N - 1) * S)
        beyond += (d.mean(axis=0).var(ddof=1) - rest) / N
    variance = seeds + max(0.0, beyond) / len(differences) ** 2
    if variance < 1e-18:  # all seeds agree on all examples
        return OverSeeds(mean, mean, mean, float(abs(mean) < 1e-9))
    freedom = (S - 1) * (variance / max(seeds, 1e-6 * variance)) ** 2
    error = float(np.sqrt(variance))
    low, high = t.interval(LEVEL, freedom, mean, error)
    return OverSeeds(mean, float(low), float(high), float(2 * t.sf(abs(mean) / error, freedom)))


def by_length(
    per_example: np.ndarray,
    lengths: Sequence[int] | np.ndarray,
    group: np.ndarray | None = None,
) -> pd.DataFrame:
    """Return a score by document length: columns bucket, examples, value, low, high (95%).

    Buckets end at those of EDGES that leave LEAST examples or more on either side, up to the edge
    before. So every example is in a bucket, and no bucket is too small to say something.

    per_example: (seeds, N); lengths: (N,); group: (N,), results of a bucket with the same number
    are one example, their mean; None: each is one.
    """
    frame = pd.DataFrame({"length": lengths, "value": per_example.mean(axis=0, dtype=np.float64)})
    frame["group"] = frame.index if group is None else group
    edges = [0]  # a single bucket is `> 0`
    for edge in EDGES:
        short = frame["length"] <= edge
        sides = (short & (frame["length"] > edges[-1]), ~short)
        if min(frame["group"][side].nunique() for side in sides) >= LEAST:
            edges.append(edge)
    names = [f"{low + 1}-{high}" for low, high in pairwise(edges)] + [f"> {edges[-1]}"]
    bucket = np.searchsorted(edges[1:], frame["length"])
    rows = []
    for number, name in enumerate(names):
        results = frame[bucket == number].groupby("group")["value"].mean().to_numpy()
        rows.append((name, len(results), *bootstrap_over_tasks([results[None]])[:, 0]))
    return pd.DataFrame(rows, columns=["bucket", "examples", "value", "low", "high"])
