"""What the thesis says of its results in chapter 5, checked on scores: its own, or recorded ones of the same models.

The claims are data (`published/claims.yaml`, which says how each is checked). One of models' order holds only where a
paired test shows every comparison that it makes, corrected for their number (Holm); it does not hold where a test shows
one the other way round; else it is undecided. Where it is not known what single examples got there is no test, and the
verdict says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml

from docemb_lib.errors import InputError
from docemb_lib.evaluation.soundness import published_statistics
from docemb_lib.evaluation.tasks import HeadTask, Score
from docemb_lib.evaluation.uncertainty import DECIMALS, bootstrap_over_tasks, holm, paired_p_value, side_by_side
from docemb_lib.experiments.models import scored_model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.tables import Finals, recorded_finals
from docemb_lib.thesis.values import FINAL, published

# ---- what the thesis says of its results in chapter 5


HOLDS, FAILS, UNDECIDED, UNTESTED = "holds", "does not hold", "undecided", "not tested"
UNSURE = " (no interval)"
LEVEL = 0.95

Rounds = Mapping[str, Mapping[str, Mapping[str, Score]]]  # {round: {model as the thesis calls it: {task: score}}}


class Verdict(NamedTuple):
    verdict: str
    because: str


class Comparison(NamedTuple):
    """Two models in the mean over tasks."""

    ahead: str
    behind: str
    where: str  # the round, and whether scores are normalised
    difference: float
    p: float | None  # None: answers to single examples are not known


class NotTestedError(Exception):
    """What a claim is about is not there, and why."""


def claims() -> list[dict[str, Any]]:
    """The claims as data: an `id`, what it `says`, and one of order, best_of and counts."""
    text = files("docemb_lib.thesis").joinpath("published", "claims.yaml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = yaml.safe_load(text)["claims"]
    return found


def check_claims(rounds: Rounds, tasks: Mapping[str, Sequence[str]], counts: Mapping[str, float]) -> pd.DataFrame:
    """A row for each claim: id, verdict, because.

    rounds: scores by round, the one with most examples last; tasks: by metric (accuracy, map, mrr) those that means are
    taken over, all of which every model of a claim must have; counts: what was counted, by its name in the claims.
    """
    rows = []
    for claim in claims():
        try:
            found = check_counts(claim["counts"], counts) if "counts" in claim else _check(claim, rounds, tasks)
        except NotTestedError as why:
            found = Verdict(UNTESTED, str(why))
        rows.append((claim["id"], *found))
    return pd.DataFrame(rows, columns=["id", "verdict", "because"])


def thesis_tasks() -> dict[str, list[str]]:
    """The tasks that the thesis has scores of, by metric."""
    table = published("table_5_7")
    return {str(metric): sorted(rows["task"].unique()) for metric, rows in table.groupby("metric")}


def thesis_scores() -> Rounds:
    """Table 5.7 itself; nothing is known of single examples."""
    table = published("table_5_7")
    names = list(table["round"].dropna().unique())
    found: dict[str, dict[str, dict[str, Score]]] = {}
    for name in names:
        rows = table[(table["round"] == name) | table["round"].isna()]
        for (model, task), own in rows.groupby(["model", "task"]):
            values = dict(zip(own["metric"], own["value"], strict=True))
            found.setdefault(name, {}).setdefault(model, {})[task] = score_of(values)
    return found


def score_of(values: Mapping[str, float]) -> Score:
    """A score of which only the values are known. values: by metric, the task's own one first."""
    (metric, value), *further = values.items()
    return Score(metric, (value,), extra=dict(further))


def check_counts(bounds: Mapping[str, Sequence[float]], counts: Mapping[str, float]) -> Verdict:
    """Whether every count lies between its bounds. Counts are exact."""
    if absent := [name for name in bounds if name not in counts]:
        raise NotTestedError(f"not counted: {absent[0]}")
    within = all(low <= counts[name] <= high for name, (low, high) in bounds.items())
    return Verdict(HOLDS if within else FAILS, "; ".join(f"{name}: {counts[name]:.2f}" for name in bounds))


def _check(claim: Mapping[str, Any], rounds: Rounds, tasks: Mapping[str, Sequence[str]]) -> Verdict:
    metric = claim["metric"]
    wanted = tasks.get(metric, ())
    if not wanted:
        raise NotTestedError(f"no tasks with {metric}")
    scored = {task for models in rounds.values() for own in models.values() for task in own}
    if missing := sorted({*wanted} - scored):
        raise NotTestedError(f"no scores on {', '.join(missing)}")
    read = partial(_means, rounds=rounds, metric=metric, tasks=wanted)
    if "best_of" in claim:
        return best_share(claim, {name: read(claim["among"], name) for name in rounds})
    models = [model for group in claim["order"] for model in group]
    compared: list[Comparison] = []
    for name in claim.get("rounds", list(rounds)[-1:]):
        means = read(models, name)
        compared += comparisons(claim["order"], means, name)
        if claim.get("normalised"):
            compared += comparisons(claim["order"], normalised_means(means), f"{name}, normalised")
    return check_order(compared)


class Mean(NamedTuple):
    """A model's score on each task that a mean is taken over, and what it got on single examples."""

    values: np.ndarray  # (K,)
    answers: list[np.ndarray] | None  # K arrays (N_k,); None: not known

    def over(self, best: np.ndarray) -> Mean:
        """Divided by the best score of each task, which is taken as given."""
        answers = self.answers and [own / most for own, most in zip(self.answers, best, strict=True)]
        return Mean(self.values / best, answers)


def comparisons(order: Sequence[Sequence[str]], means: Mapping[str, Mean], where: str) -> list[Comparison]:
    """Every model of a group with every model of the groups behind it."""
    found = []
    for place, group in enumerate(order):
        for ahead in group:
            for behind in (model for later in order[place + 1 :] for model in later):
                ours, theirs = means[ahead], means[behind]
                difference = float((ours.values - theirs.values).mean().round(DECIMALS))
                p = None
                if ours.answers and theirs.answers:
                    pairs = zip(ours.answers, theirs.answers, strict=True)
                    (answers,) = side_by_side([(own - other)[None] for own, other in pairs])
                    p = paired_p_value(answers)
                found.append(Comparison(ahead, behind, where, difference, p))
    return found


def normalised_means(means: Mapping[str, Mean]) -> dict[str, Mean]:
    """Scores divided by the best of these models on each task."""
    best = np.max([mean.values for mean in means.values()], axis=0)
    return {model: mean.over(best) for model, mean in means.items()}


def check_order(compared: Sequence[Comparison]) -> Verdict:
    """Whether the first model of each comparison is ahead of the second."""
    least = min(compared, key=lambda one: one.difference)
    told = f"least: {least.ahead} minus {least.behind} {least.difference:+.3f} ({least.where})"
    p_values = [one.p for one in compared if one.p is not None]
    if len(p_values) < len(compared):
        ahead = sum(one.difference > 0 for one in compared)
        verdict = HOLDS if ahead == len(compared) else FAILS
        return Verdict(verdict + UNSURE, f"{ahead} of {len(compared)} differences as said; {told}")
    shown = holm(np.array(p_values)) < 1 - LEVEL
    right = sum(bool(s) and one.difference > 0 for s, one in zip(shown, compared, strict=True))
    against = int(shown.sum()) - right
    verdict = FAILS if against else HOLDS if right == len(compared) else UNDECIDED
    against_told = f", {against} shown the other way round" if against else ""
    return Verdict(verdict, f"{right} of {len(compared)} differences shown{against_told}; {told}")


def best_share(claim: Mapping[str, Any], by_round: Mapping[str, Mapping[str, Mean]]) -> Verdict:
    """Whether the best model's mean in a round, as a share of the best of each task over all rounds, is as said."""
    name, (low, high) = claim["round"], claim["between"]
    if name not in by_round:
        raise NotTestedError(f"no round {name}")
    best = np.max([mean.values for means in by_round.values() for mean in means.values()], axis=0)
    shares = {model: by_round[name][model].over(best) for model in claim["best_of"]}
    model = max(shares, key=lambda one: float(shares[one].values.mean()))
    share = shares[model]
    value = float(share.values.mean())
    if share.answers is None:
        return Verdict((HOLDS if low <= value <= high else FAILS) + UNSURE, f"{model}: {value:.4f}")
    found = bootstrap_over_tasks([answers[None] for answers in share.answers], level=LEVEL)
    least, most = float(found.low[0]), float(found.high[0])
    told = f"{model}: {value:.4f} [{least:.3f}, {most:.3f}]"
    if low <= least and most <= high:
        return Verdict(HOLDS, told)
    return Verdict(FAILS if most < low or least > high else UNDECIDED, told)


def _means(models: Iterable[str], name: str, *, rounds: Rounds, metric: str, tasks: Sequence[str]) -> dict[str, Mean]:
    """What a claim needs of a round. Raises NotTestedError naming the first thing that is not there."""
    models = list(models)
    if name not in rounds:
        raise NotTestedError(f"no round {name}")
    if absent := [model for model in models if model not in rounds[name]]:
        raise NotTestedError(f"no run of {', '.join(absent)}")
    for model in models:
        if missing := sorted({*tasks} - set(rounds[name][model])):
            raise NotTestedError(f"no scores of {model} on {', '.join(missing)}")
    return {model: _mean([rounds[name][model][task] for task in tasks], metric) for model in models}


def _mean(scores: Sequence[Score], metric: str) -> Mean:
    values = [score.mean if score.metric == metric else score.extra[metric] for score in scores]
    known = all(metric in score.per_example for score in scores)
    answers = [score.per_example[metric].mean(axis=0, dtype=np.float64) for score in scores] if known else None
    return Mean(np.array(values), answers)


# ---- the claims of the thesis' chapter 5 on recorded final evaluations


# What is counted, as the claims call it.
RATIOS = ("fewest examples of a task per example of its first round", "most")
MASKED = "training documents per document with a structural loss"


def recorded_claims(profile: str | Path) -> pd.DataFrame:
    """The claims on the final evaluations of a profile that are recorded. Raises InputError where there are none."""
    loaded = Profile.load(profile)
    run = Run(RunKey.of(FINAL, loaded))
    finals = recorded_finals(run)
    if finals.scores.empty:
        others = dict.fromkeys(line.profile for line in loaded.plan if line.profile)
        mend = (
            f"its plan makes some of {', '.join(others)}; ask for that" if others else "`docemb run` with it makes one"
        )
        raise InputError(f"profile {profile}: no final evaluation is recorded; {mend}")
    return claims_of_run(run, finals)


def claims_of_run(run: Run, finals: Finals) -> pd.DataFrame:
    """The claims of the thesis' chapter 5: in its own Table 5.7, on its tasks in our runs, and on the profile's others.

    Columns: claim (its sentence), `in the thesis`, `on its tasks`, `on other tasks` (verdicts, see
    `docemb_lib.thesis.claims`), because (of our verdict on its tasks; without one, of both). A claim is about the
    thesis' tasks and corpora: on others it is told, but not tested.
    """
    rounds = _answers(run, finals)
    theirs = thesis_tasks()
    present = {name: own["task"].unique() for name, own in finals.scores.groupby("metric")}
    others = {metric: sorted(set(present.get(metric, ())) - set(theirs[metric])) for metric in theirs}
    columns = {
        "in the thesis": check_claims(thesis_scores(), theirs, _published_counts()),
        "on its tasks": check_claims(rounds, theirs, _counts(run, finals, theirs["accuracy"], ours=False)),
        "on other tasks": check_claims(rounds, others, _counts(run, finals, others["accuracy"], ours=True)),
    }
    table = pd.DataFrame({"claim": [claim["says"] for claim in claims()]}, index=columns["in the thesis"]["id"])
    for name, found in columns.items():
        table[name] = found["verdict"].to_numpy()
    on_theirs, elsewhere = columns["on its tasks"], columns["on other tasks"]
    tested = on_theirs["verdict"].ne(UNTESTED)
    both = on_theirs["because"] + "; other tasks: " + elsewhere["because"]
    said_once = tested | on_theirs["because"].eq(elsewhere["because"])
    table["because"] = on_theirs["because"].where(said_once, both).to_numpy()
    return table


def _answers(run: Run, finals: Finals) -> Rounds:
    """{round: {the thesis' model: {task: score}}}, with what single examples got where the score files are there.

    Nothing is built: where the corpus is gone, the records alone are read.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for theirs, ours in finals.labels.items():
        model, stage = scored_model(ours, finals.fingerprints[ours]), run.stages.scores
        if run.stages.corpus.is_built and stage.is_scored(model):
            by_round = stage.by_round([model], final=True)
            own = {name: scores[ours] for name, scores in by_round.items()}
        else:
            rows = finals.scores[finals.scores["model"] == ours]
            own = {
                str(name): {
                    str(task): score_of(dict(zip(few["metric"], few["value"], strict=True)))
                    for task, few in of_round.groupby("task")
                }
                for name, of_round in rows.groupby("round", sort=False)
            }
        for name, scores in own.items():
            found.setdefault(name, {})[theirs] = scores
    return found


def _published_counts() -> dict[str, float]:
    rows = published_statistics("final").query("split == 'train' and statistic == 'examples'")
    return _ratios(rows["thesis"].to_numpy(), 1000)


def _counts(run: Run, finals: Finals, tasks: list[str], *, ours: bool) -> dict[str, float]:
    """What the claims count: of the thesis' corpora and tasks, or of `ours`, the profile's where it has others; nothing
    where they are not here."""
    counts: dict[str, float] = {}
    if not run.stages.corpus.is_built:
        return counts
    evaluation = run.profile.evaluation
    smallest, *larger = evaluation.rounds
    if smallest is not None and None in larger and tasks and {*tasks} <= {*evaluation.tasks}:
        heads = [task for name in tasks if isinstance(task := run.stages.scores.tasks[name], HeadTask)]
        sizes = [len(task.splits["train"].labels) for task in heads]
        counts |= _ratios(np.array(sizes), smallest)
    if finals.masked is not None and ours != on_thesis_corpora(run.profile):
        lengths = np.asarray(run.stages.corpus.split("train")["n_structural_tokens"][: finals.masked["documents"]])
        kept = int((lengths <= finals.masked["max_structural_len"]).sum())
        counts[MASKED] = len(lengths) / kept if kept else float("inf")
    return counts


def _ratios(sizes: np.ndarray, smallest: int) -> dict[str, float]:
    return dict(zip(RATIOS, (float(sizes.min()) / smallest, float(sizes.max()) / smallest), strict=True))


def on_thesis_corpora(profile: Profile) -> bool:
    """Whether students learn from Wikipedia and RealNews, or what stands in for it, as in the thesis."""
    named = [f"{data.dataset} {data.config}".lower() for data in profile.corpus.datasets]
    return all(any(corpus in name for name in named) for corpus in ("wikipedia", "realnews"))
