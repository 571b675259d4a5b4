"""Confidence intervals of scores and paired tests between models, from single test examples.

A score is a mean over test examples or queries, and each of these is already a mean over the seeds
of the head. Intervals resample the examples; tests swap the results of two models on each example.
All models are resampled alike, so differences are paired. For a mean over tasks, the examples of
each task are resampled separately and weigh the more, the fewer they are.

`scipy.stats.bootstrap` and `permutation_test` give the same numbers, but treat one model at a time.

K: tasks; M: models; N: examples of a task.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation.tasks import Score

LEVEL = 0.95  # confidence level of intervals
TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)  # the quantiles that bound them
ALPHA = 0.05  # significance level of tests
POWER = 0.8  # probability that a test shows a detectable difference
RESAMPLES = 2000  # of the examples, for an interval
SWAPS = 100  # rounds of as many random swaps of two models, so that the smallest p-value is 1e-4
DECIMALS = 12  # means are rounded to these, since sums in another order differ in the last bits

OVERALL = "mean over tasks"  # the name in the column `task` for the mean over several tasks
VERDICTS = ("better", "worse", "no difference shown")

Scores = Mapping[str, Mapping[str, Score]]  # {model: {task: score}}


def bootstrap_over_tasks(examples: Sequence[np.ndarray]) -> np.ndarray:
    """Return M means over K tasks and their percentile bootstrap intervals: (3, M).

    Each task is resampled separately (Davison and Hinkley, 1997, 5.3).

    examples: K arrays (M, N), the results of M models on the same N examples.
    """
    means = np.mean([X.mean(axis=1) for X in examples], axis=0)
    drawn = np.mean([resampled_means(X, seed=k) for k, X in enumerate(examples)], axis=0)
    return np.stack([means, *np.quantile(drawn, TAILS, axis=0)]).round(DECIMALS)


def resampled_means(examples: np.ndarray, *, seed: int) -> np.ndarray:
    """Return means over N examples drawn with replacement, the same for every model.

    examples: (M, N); returns (RESAMPLES, M).
    """
    M, N = examples.shape
    rng = np.random.default_rng(seed)
    means = np.empty((RESAMPLES, M))
    for row in means:
        # How often each example is drawn: a product is faster than the examples themselves.
        counts = np.bincount(rng.integers(N, size=N), minlength=N)
        row[:] = examples @ counts / N
    return means


def side_by_side(examples: Sequence[np.ndarray]) -> np.ndarray:
    """Return the examples of K tasks as one array (M, sum of N) whose mean is that over tasks.

    examples: K arrays (M, N).
    """
    total = sum(X.shape[1] for X in examples)
    return np.concatenate([X * (total / (len(examples) * X.shape[1])) for X in examples], axis=1)


def paired_p_values(differences: np.ndarray) -> np.ndarray:
    """Return M two-sided p-values of equal models: each example's results are swapped at random.

    For right or wrong answers of a single head each this is McNemar's exact test, up to the draw of
    the swaps. The observed results count as one of them.

    differences: (M, N).
    """
    N = differences.shape[1]
    rng = np.random.default_rng(0)
    observed = abs(differences.sum(axis=1)) - 1e-9 * N  # sums in another order differ
    extreme = np.ones(len(differences))
    for _ in range(SWAPS):
        signs = 2.0 * rng.integers(2, size=(SWAPS, N), dtype=np.int8) - 1
        extreme += (abs(signs @ differences.T) >= observed).sum(axis=0)
    return extreme / (1 + SWAPS**2)


def holm(p_values: Sequence[float] | np.ndarray | pd.Series) -> np.ndarray:
    """Correct p-values for their number (Holm, 1979): they bound the probability of any error."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return stepped.clip(max=1)[np.argsort(order)]


def decided_by(scores: Scores, metric: str) -> Scores:
    """Return the scores with another main metric, on the tasks that have it for each example."""
    decided: dict[str, dict[str, Score]] = {}
    for model, by_task in scores.items():
        decided[model] = {task: score.decided_by(metric) for task, score in by_task.items()}
    return decided


def score_intervals(scores: Scores) -> pd.DataFrame:
    """Return columns model, task, metric, examples, value, low, high.

    For several tasks the rows of the mean over tasks (OVERALL, "mean") come last.
    """
    frames = []
    for frame, examples in all_results(scores):
        frame[["value", "low", "high"]] = bootstrap_over_tasks(examples).T
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def differences(scores: Scores, reference: str) -> pd.DataFrame:
    """Compare every other model with `reference`, on each task and in the mean over tasks.

    Tasks on which a model or the reference was not scored are left out.
    Columns: model, task, metric, examples, reference, difference (model minus reference), low and
    high (the interval of the difference), p, and error, the deviation of the difference under the
    swaps of `paired_p_values`. Raises InputError where `reference` has no scores.
    """
    if reference not in scores:
        there = ", ".join(scores)
        raise InputError(
            f"reference: there are no scores of {reference!r}, only of {there}; name one of these"
        )
    frames = []
    for frame, examples in all_results(scores, extra=False):
        for place in np.flatnonzero(frame["model"] == reference):  # none where it lacks the task
            ahead = [X - X[place] for X in examples]
            D = side_by_side(ahead)
            frame["reference"] = reference
            frame[["difference", "low", "high"]] = bootstrap_over_tasks(ahead).T
            frame["p"] = paired_p_values(D)
            frame["error"] = np.sqrt((D**2).sum(axis=1)) / D.shape[1]
            frames.append(frame.drop(index=place))
    return pd.concat(frames, ignore_index=True)


def verdicts(tests: pd.DataFrame) -> pd.DataFrame:
    """Add p_holm and the verdict by ALPHA, detectable and needed to `differences`.

    p_holm is corrected for the number of tests of means over tasks, and separately for the number
    of tests of single tasks: the means decide what is recommended, and the many tests of single
    tasks must not hide them.

    A paired mean of N differences is nearly normal. If the models differ by `detectable`, which is
    (z(1 - level/2) + z(POWER)) * error with quantiles z of the normal distribution, N examples show
    it with the probability POWER, at the level of the next test that Holm's correction would find;
    `needed` is the number of examples, of each task in its present share, that show the present
    difference.

    tests: all `differences` of one comparison.
    """
    from scipy.special import ndtri  # slow to import, and every command imports this module

    family = tests["task"] == OVERALL
    p_holm = tests.groupby(family)["p"].transform(holm)
    unclear = p_holm >= ALPHA
    better, worse, no_difference = VERDICTS
    direction = np.where(tests["difference"] > 0, better, worse)
    level = ALPHA / unclear.groupby(family).transform("sum").clip(lower=1)
    detectable = (ndtri(1 - level / 2) + ndtri(POWER)) * tests["error"]
    return tests.assign(
        p_holm=p_holm,
        verdict=np.where(unclear, no_difference, direction),
        detectable=detectable,
        needed=tests["examples"] * (detectable / tests["difference"]) ** 2,
    )


def all_results(
    scores: Scores, *, extra: bool = True
) -> Iterator[tuple[pd.DataFrame, list[np.ndarray]]]:
    """Yield for each task a frame with a row per model, and the M models' results, [(M, N)].

    Results are means over seeds, by the main metric of a task and, with `extra`, by all others. In
    the end come those by the main metrics on all tasks, OVERALL: K arrays (M, N). Models without
    some task (BM25 ranks only) are missing there. Columns: model, task, metric, examples.
    """
    table = pd.DataFrame(scores)  # tasks x models; NaN: not scored
    everywhere = list(map(str, table.dropna(axis=1)))
    main = []
    for task, row in table.iterrows():
        by_model = row.dropna()
        first = by_model.iloc[0]
        for metric in first.per_example if extra else [first.metric]:
            X = np.stack([score.of_examples(metric) for score in by_model])
            yield _described(list(by_model.index), str(task), metric, X.shape[1]), [X]
        if everywhere:
            main.append(np.stack([score.of_examples() for score in row[everywhere]]))
    if len(main) > 1:
        examples = sum(X.shape[1] for X in main)
        yield _described(everywhere, OVERALL, "mean", examples), main


def _described(models: list[str], task: str, metric: str, examples: int) -> pd.DataFrame:
    return pd.DataFrame({"model": models, "task": task, "metric": metric, "examples": examples})


def over_seeds(differences: Sequence[np.ndarray]) -> tuple[float, float, float, float]:
    """Return the mean over K tasks, S seeds and examples, its interval (low, high) and its p-value.

    Both reach beyond these seeds and these examples. Seeds and examples are crossed, as readers and
    cases are in the analysis of Obuchowski and Rockette: d_si = mean + seed_s + example_i +
    rest_si. The variances of the mean over seeds V_s, over examples V_i, and of the rest V_r, which
    both of these contain, give the variance

        V = V_s + max(0, V_i - V_r)

    and a t distribution with (S - 1) (V / V_s)^2 degrees of freedom (Hillis, 2007). With two seeds
    its intervals are too narrow, with three or more they cover as they say.

    differences: K arrays (S, N), S >= 2, of one model minus another in all seeds.
    """
    from scipy.stats import t  # slow to import, and every command imports this module

    of_seeds = side_by_side(differences).mean(axis=1)
    mean = of_seeds.mean()
    rest = side_by_side([d - d.mean(axis=1, keepdims=True) for d in differences])
    S, N = rest.shape
    V_s = of_seeds.var(ddof=1) / S
    beyond = (rest.mean(axis=0) ** 2).sum() - rest.var(axis=0, ddof=1).sum() / S  # N^2 (V_i - V_r)
    V = max(V_s + max(0, beyond / N**2), 1e-30)  # of models that agree on all examples
    freedom = (S - 1) * (V / max(V_s, 1e-6 * V)) ** 2
    error = np.sqrt(V)
    return mean, *t.interval(LEVEL, freedom, mean, error), 2 * t.sf(abs(mean) / error, freedom)
