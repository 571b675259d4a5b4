"""The claims of the thesis' chapters 4 and 5, checked on its own figures and tables and on recorded
scores.

`published/claims.yaml` lists the claims and says how each is checked. A claim about the order of
models holds if paired tests confirm all of its comparisons, with Holm's correction for their
number. It does not hold if a test confirms the opposite of any, and it is undecided otherwise.
Without per-example scores the verdict compares means only, and says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation.tasks import HeadTask, Score
from docemb_lib.evaluation.uncertainty import (
    ALPHA,
    DECIMALS,
    OVERALL,
    holm,
    paired_p_value,
    side_by_side,
)
from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.models import Model
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.comparison import CHAPTER_4, Finals, recorded_finals, recorded_in_figures
from docemb_lib.thesis.values import (
    BASELINE,
    FIGURES,
    FINAL,
    baselines_of,
    published,
    read_file,
    rows_of,
    thesis_tasks,
)

HOLDS, FAILS, UNDECIDED, UNTESTED = "holds", "does not hold", "undecided", "not tested"
OTHERS = "others"  # a group of an order
LISTED = 4  # missing runs that a reason names
NO_INTERVAL = " (no interval)"  # added to a verdict that rests on means alone

# {round or figure: {model as named in Table 5.7 or in the figure: {task: score}}}
Rounds = Mapping[str, Mapping[str, Mapping[str, Score]]]
Claims = list[dict[str, Any]]
Tasks = Mapping[str, Sequence[str]]  # {metric: tasks}
Counts = Mapping[
    str, float
]  # {task: examples per example of the first round}, "masked": documents per unmasked one


class Verdict(NamedTuple):
    verdict: str
    because: str


class Mean(NamedTuple):
    """The scores of a model on the K tasks of a mean."""

    values: np.ndarray  # (K,)
    answers: list[np.ndarray] | None  # K arrays (N_k,), per-example scores; None: not known


class NotTestedError(Exception):
    """A claim needs a model, round, task or number that is missing."""


def recorded_claims(profile: str | Path) -> pd.DataFrame:
    """Check all claims on the recorded runs of a profile: chapter 4, then chapter 5.

    Raises InputError without runs.
    """
    run = Run(RunKey.of(FINAL, Profile.load(profile)))
    finals = recorded_finals(run)
    if finals.scores.empty and not recorded_in_figures(
        run, [claim["figure"] for claim in claims(*CHAPTER_4)]
    ):
        problem = "no run of chapter 4 and no final evaluation is recorded"
        mend = f"make one with `docemb run --profile {profile}`"
        raise InputError(f"profile {profile}: {problem}; {mend}")
    return pd.concat([claims_of_figures(run, CHAPTER_4), claims_of_run(run, finals)])


def claims_of_figures(run: Run, notebooks: Sequence[str] = ()) -> pd.DataFrame:
    """Check the claims of chapter 4 about the figures of `notebooks` (none given: of the run's
    own).

    Returns a table like `claims_of_run`. Scores are those of validation splits.
    """
    asked = claims(*notebooks or (run.notebook,))
    shown = pd.concat([rows_of(figure) for figure in FIGURES]).reset_index()
    shown = shown.assign(
        round=shown["source"], model=shown["label"], task=OVERALL, metric="accuracy"
    )
    in_thesis = check_claims(asked, scores_of_rows(shown), {"accuracy": [OVERALL]})
    return _verdicts(
        asked,
        in_thesis,
        _recorded_figures(run, asked),
        {"accuracy": thesis_tasks()["accuracy"]},
        {},
    )


def claims_of_run(run: Run, finals: Finals) -> pd.DataFrame:
    """Check the claims of chapter 5 on the thesis' Table 5.7, on recorded scores of its tasks, and
    on other tasks'.

    Returns a row per claim: claim (a sentence), `in the thesis`, `on thesis tasks`, `on other
    tasks` (verdicts), and because: the reason of the verdict on the thesis' tasks, or of both
    verdicts on recorded scores if that is "not tested". A claim is about the tasks of the thesis;
    others illustrate it without testing it.
    """
    sizes = published("tasks").query(
        "protocol == 'final' and split == 'train' and statistic == 'examples'"
    )
    counts = {
        **(sizes.set_index("task")["value"] / 1000),
        "masked": 100 / (100 - 71),
    }  # 71%: Table 5.1
    in_thesis = check_claims(
        claims(FINAL), scores_of_rows(published("table_5_7")), thesis_tasks(), counts
    )
    recorded, counted = _recorded_scores(run, finals), _recorded_counts(run, finals)
    return _verdicts(claims(FINAL), in_thesis, recorded, thesis_tasks(), counted)


def tested(table: pd.DataFrame, profile: str) -> pd.DataFrame:
    """The claims that recorded scores of `profile` test, of such a table; a line is printed about
    the others.
    """
    known = table["on thesis tasks"].ne(UNTESTED) | table["on other tasks"].ne(UNTESTED)
    if not known.all():
        print(
            f"{(~known).sum()} of {len(table)} claims are not tested, because runs or tasks of theirs are missing."
        )
        print(
            f"`docemb results --claims {profile}` lists these; the profiles thesis and thesis-mini have all."
        )
    return table[known]


def _verdicts(
    asked: Claims, in_thesis: pd.DataFrame, rounds: Rounds, tasks: Tasks, counts: Counts
) -> pd.DataFrame:
    present = {
        (metric, task)
        for models in rounds.values()
        for scores in models.values()
        for task, score in scores.items()
        for metric in (score.metric, *score.extra)
    }
    others = {
        metric: sorted({task for own, task in present if own == metric} - {*tasks[metric]})
        for metric in tasks
    }
    on_tasks, on_others = (check_claims(asked, rounds, names, counts) for names in (tasks, others))
    one_reason = on_tasks["verdict"].ne(UNTESTED) | on_tasks["because"].eq(on_others["because"])
    names = pd.Series(
        {claim["id"]: ", ".join(others[claim.get("metric", "accuracy")]) for claim in asked}
    )
    both_reasons = (
        on_tasks["because"]
        + "; on "
        + names.where(names != "", "other tasks")
        + ": "
        + on_others["because"]
    )
    table = pd.DataFrame(
        {"claim": pd.Series({claim["id"]: claim["says"] for claim in asked})}
    ).rename_axis("id")
    verdicts = {
        "in the thesis": in_thesis,
        "on thesis tasks": on_tasks,
        "on other tasks": on_others,
    }
    table = table.assign(**{name: found["verdict"] for name, found in verdicts.items()})
    return table.assign(because=on_tasks["because"].where(one_reason, both_reasons))


def check_claims(
    asked: Claims, rounds: Rounds, tasks: Tasks, counts: Counts | None = None
) -> pd.DataFrame:
    """Check each claim. Returns columns verdict and because, by the claim's id.

    rounds: scores by round, the round with most training examples last, or by figure; tasks: the
    tasks of a mean, by metric, each model of a claim needs scores on all of them.
    """
    found = {}
    for claim in asked:
        try:
            found[claim["id"]] = _check(claim, rounds, tasks, counts or {})
        except NotTestedError as reason:
            found[claim["id"]] = Verdict(UNTESTED, str(reason))
    return pd.DataFrame.from_dict(found, orient="index", columns=Verdict._fields).rename_axis("id")


def claims(*notebooks: str) -> Claims:
    """The claims about the figures that these notebooks draw; the final notebook has those of
    chapter 5.
    """
    of_figure = {figure.source: figure.notebook for figure in FIGURES}
    return [
        one
        for one in read_file("claims")["claims"]
        if of_figure.get(one.get("figure"), FINAL) in notebooks
    ]


def scores_of_rows(rows: pd.DataFrame) -> Rounds:
    """Scores from rows of model, round, task, metric, value.

    A row without a round belongs to each round.
    """
    found: dict[str, dict[str, dict[str, Score]]] = {}
    for name in rows["round"].dropna().unique():
        of_round = rows[(rows["round"] == name) | rows["round"].isna()]
        for (model, task), values in of_round.groupby(["model", "task"]):
            (metric, value), *further = zip(values["metric"], values["value"], strict=True)
            found.setdefault(name, {}).setdefault(model, {})[task] = Score(
                metric, (value,), extra=dict(further)
            )
    return found


def _check(claim: Mapping[str, Any], rounds: Rounds, tasks: Tasks, counts: Counts) -> Verdict:
    figure, metric = claim.get("figure"), claim.get("metric", "accuracy")
    if figure and figure not in rounds:
        raise NotTestedError(f"no run of {figure}")
    if not (wanted := tasks.get(metric, ())):
        raise NotTestedError(f"no tasks with {metric}")
    scored = {task for models in rounds.values() for by_task in models.values() for task in by_task}
    if missing := sorted({*wanted} - scored):
        raise NotTestedError(f"no scores on {', '.join(missing)}")
    orders, compared = orders_of(claim), []
    models, names = (
        dict.fromkeys(chain(*chain(*orders))),
        [figure] if figure else claim.get("rounds", [*rounds][-1:]),
    )
    means = {name: _means(models, name, rounds, metric, wanted) for name in names}
    if "between" in claim:
        counted = [counts.get(name, np.nan) for name in claim.get("counts", wanted)]
        return check_numbers(
            [best_share(orders[0][0], means)] if models else counted, claim["between"]
        )
    for name, of_round in means.items():
        shown = {} if figure else {name: of_round}
        if figure or claim.get("normalised"):
            shown[f"{name}, normalised"] = normalised_means(of_round)
        compared += [
            comparisons(order, values, where) for where, values in shown.items() for order in orders
        ]
    return check_order(pd.concat(compared))


def orders_of(claim: Mapping[str, Any]) -> list[list[list[str]]]:
    """The orders of a claim, in which `others` are the students of its figure that the claim does
    not name.
    """
    orders = claim.get("orders") or [claim.get("order", [])]
    named = {model for group in chain(*orders) if group != OTHERS for model in group}
    rows = [
        row
        for figure in FIGURES
        if figure.source == claim.get("figure")
        for row in rows_of(figure).itertuples()
    ]
    others = [str(row.Index) for row in rows if row.kind != BASELINE and row.Index not in named]
    return [[others if group == OTHERS else group for group in order] for order in orders]


def _means(
    models: Iterable[str], name: str, rounds: Rounds, metric: str, tasks: Sequence[str]
) -> dict[str, Mean]:
    """The means of the models in a round.

    Raises NotTestedError for the first round, model or score that is missing.
    """
    if name not in rounds:
        raise NotTestedError(f"no round {name}")
    if absent := [model for model in models if model not in rounds[name]]:
        more = f" and {len(absent) - LISTED} more" if len(absent) > LISTED else ""
        raise NotTestedError(f"no run of {', '.join(absent[:LISTED])}{more}")
    means = {}
    for model in models:
        if missing := sorted({*tasks} - {*rounds[name][model]}):
            raise NotTestedError(f"no scores of {model} on {', '.join(missing)}")
        scores = [rounds[name][model][task] for task in tasks]
        values = [score.mean if score.metric == metric else score.extra[metric] for score in scores]
        known = all(metric in score.per_example for score in scores)
        answers = (
            [score.per_example[metric].mean(axis=0, dtype=np.float64) for score in scores]
            if known
            else None
        )
        means[model] = Mean(np.array(values), answers)
    return means


def comparisons(
    order: Sequence[Sequence[str]], means: Mapping[str, Mean], where: str
) -> pd.DataFrame:
    """Compare each model of a group with each model of all later groups: columns ahead, behind,
    where, difference, p.

    where: the round, and whether scores are normalised; p: of the paired test, NaN without
    per-example scores.
    """
    pairs = (product(group, chain(*order[place:])) for place, group in enumerate(order, start=1))
    rows = []
    for ahead, behind in chain.from_iterable(pairs):
        first, second = means[ahead], means[behind]
        difference, p = (first.values - second.values).mean().round(DECIMALS), np.nan
        if first.answers and second.answers:
            by_task = zip(first.answers, second.answers, strict=True)
            p = paired_p_value(side_by_side([(own - other)[None] for own, other in by_task])[0])
        rows.append((ahead, behind, where, difference, p))
    return pd.DataFrame(rows, columns=["ahead", "behind", "where", "difference", "p"])


def normalised_means(means: Mapping[str, Mean]) -> dict[str, Mean]:
    """Scores divided by the best score of the given models on each task, taken as exact."""
    best = np.max([mean.values for mean in means.values()], axis=0)

    def over(mean: Mean) -> Mean:
        return Mean(
            mean.values / best,
            mean.answers and [a / b for a, b in zip(mean.answers, best, strict=True)],
        )

    return {model: over(mean) for model, mean in means.items()}


def best_share(models: Iterable[str], by_round: Mapping[str, Mapping[str, Mean]]) -> float:
    """The largest mean of `models` in the first round, with scores divided by the best of their
    task in all rounds.
    """
    first, *_ = by_round.values()
    best = np.max([mean.values for means in by_round.values() for mean in means.values()], axis=0)
    return max(float((first[model].values / best).mean()) for model in models)


def check_numbers(numbers: Sequence[float], bounds: tuple[float, float]) -> Verdict:
    if np.isnan(numbers).any():
        raise NotTestedError("documents or examples are not counted, or none")
    (low, high), least, most = bounds, min(numbers), max(numbers)
    verdict = (HOLDS if low <= least and most <= high else FAILS) + NO_INTERVAL
    return Verdict(verdict, " to ".join(dict.fromkeys(f"{number:.4g}" for number in (least, most))))


def check_order(compared: pd.DataFrame) -> Verdict:
    least, total = compared.iloc[compared["difference"].argmin()], len(compared)
    detail = f"least: {least['ahead']} minus {least['behind']} {least['difference']:+.3f} ({least['where']})"
    ahead = compared["difference"].to_numpy() > 0
    if compared["p"].isna().any():
        verdict = (HOLDS if ahead.all() else FAILS) + NO_INTERVAL
        return Verdict(verdict, f"{ahead.sum()} of {total} differences as claimed; {detail}")
    significant = holm(compared["p"].to_numpy()) < ALPHA
    confirmed, opposite = (significant & ahead).sum(), (significant & ~ahead).sum()
    verdict = FAILS if opposite else HOLDS if confirmed == total else UNDECIDED
    counter = f", {opposite} significant in the opposite direction" if opposite else ""
    return Verdict(verdict, f"{confirmed} of {total} differences significant{counter}; {detail}")


def _recorded_scores(run: Run, finals: Finals) -> Rounds:
    """Recorded scores by the names of Table 5.7, per example where their files exist; nothing is
    built.
    """
    found: dict[str, dict[str, Mapping[str, Score]]] = {}
    for name, label in finals.labels.items():
        rows = finals.scores[finals.scores["model"] == label]
        for of_round, scores in _scores_of(
            run, Model(label, finals.fingerprints[label]), rows
        ).items():
            found.setdefault(of_round, {})[name] = scores[label]
    return found


def _recorded_counts(run: Run, finals: Finals) -> Counts:
    """What is known of this run's tasks and corpus; nothing is built."""
    if finals.scores.empty or not run.stages.corpus.is_built:
        return {}
    lengths = np.asarray(
        run.stages.corpus.split("train")["n_structural_tokens"][: run.parameters["documents"]]
    )
    kept = (
        lengths <= (run.profile.structural_teacher.max_tokens or 384)
    ).mean()  # the context of the thesis' SBERT
    first = run.profile.evaluation.rounds[0] or np.nan
    tasks = [(name, run.stages.scores.task(name)) for name in run.profile.evaluation.tasks]
    sizes = {
        name: len(task.splits["train"].labels) / first
        for name, task in tasks
        if isinstance(task, HeadTask)
    }
    return {"masked": 1 / (kept or np.nan), **sizes}


def _recorded_figures(run: Run, asked: Claims) -> Rounds:
    """Validation scores by figure and by label there, per example where their files exist; nothing
    is built.

    The baselines of a figure are those that the newest of its runs was compared with.
    """
    baselines = baselines_of(run.profile)
    found: dict[str, dict[str, Mapping[str, Score]]] = {}
    for source, recorded in recorded_in_figures(run, [claim["figure"] for claim in asked]).items():
        known: dict[str, tuple[Model, pd.DataFrame]] = {}
        for label, record in recorded.items():
            rows, described = (
                records.table_of(run.workspace, record, name) for name in (records.SCORES, "models")
            )
            means = rows.groupby(["model", "task", "metric"], sort=False, as_index=False)[
                "value"
            ].mean()
            fingerprints = described.reindex(columns=["model", "fingerprint"]).set_index("model")[
                "fingerprint"
            ]
            for model, of_model in means.assign(round=source).groupby("model"):
                if name := {record.label: label, **baselines}.get(model):
                    known[name] = Model(model, fingerprints.get(model, "")), of_model
        found[source] = {}
        for name, (one, of_model) in known.items():
            (scores,) = _scores_of(run, one, of_model, final=False).values()
            found[source][name] = scores[one.label]
    return found


def _scores_of(run: Run, model: Model, rows: pd.DataFrame, *, final: bool = True) -> Rounds:
    """The scores of a model per example where their files exist, otherwise from recorded rows."""
    if run.stages.corpus.is_built and run.stages.scores.is_scored(model, final=final):
        return run.stages.scores.by_round([model], final=final)
    return scores_of_rows(rows)
