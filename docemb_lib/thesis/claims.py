"""The claims of the thesis and of the SimDE paper, checked on their numbers and on recorded scores.

`published/claims.yaml` lists the claims and says how each is checked. A claim about the order of
models holds if paired tests confirm all of its comparisons, with Holm's correction for their
number. It does not hold if a test confirms the opposite of any, and it is undecided otherwise.
Without per-example scores the verdict compares means only, and says so.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation.catalogue import kind_of_task
from docemb_lib.evaluation.protocols import round_name
from docemb_lib.evaluation.scoreboard import last_round, what_shows
from docemb_lib.evaluation.tasks import HeadTask, Score
from docemb_lib.evaluation.uncertainty import (
    ALPHA,
    DECIMALS,
    OVERALL,
    PairedError,
    holm,
    needed,
    paired_error,
    paired_p_value,
    side_by_side,
)
from docemb_lib.runs import records
from docemb_lib.runs.kinds import Form, Identity, Kind
from docemb_lib.runs.models import Model, scored_model
from docemb_lib.runs.run import Run
from docemb_lib.runs.scores import Final
from docemb_lib.settings.notebooks import CHAPTER_4, EVALUATION, SIMDE
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import Evaluation
from docemb_lib.thesis.comparison import Finals, recorded_finals, recorded_in_figures
from docemb_lib.thesis.values import (
    BASELINE,
    FIGURES,
    baseline_label,
    paper_name,
    published,
    read_file,
    rows_of,
    thesis_tasks,
)

HOLDS = "holds"
FAILS = "does not hold"
UNDECIDED = "undecided"
UNTESTED = "not tested"
NO_INTERVAL = " (no interval)"  # added to a verdict that rests on means alone
OTHERS = "others"  # a member of a group: all other students of the figure
# Rounds of published results.
ALL = "all"
FEW_SHOT = "few-shot"
LISTED = 4  # missing runs that a reason names

# The section of a notebook above the table of its claims.
SECTION = """## What the thesis claims

Each claim (`01_corpus` says when it holds) is checked on the thesis' own numbers, which have no
scores of single examples and therefore no tests, on recorded scores of its tasks, and on the other
tasks of this profile, which illustrate it but do not test it. A claim needs the runs of its grid or
table, with equally many documents and one seed."""

# A member of a group: a model, OTHERS, or the rows of a figure with these values in these columns.
Member = str | dict[str, str | int | list[str]]
Order = Sequence[Sequence[str]]  # groups of models, the best group first
Tasks = Mapping[str, Sequence[str]]  # {metric: tasks}
# {round or figure: {model as named in Table 5.7 or in the figure: {task: score}}}
Rounds = Mapping[str, Mapping[str, Mapping[str, Score]]]
# {task: examples per example of the first round}, and "masked": documents per unmasked one
Counts = Mapping[str, float]


class Claim(TypedDict, total=False):
    """A claim as `published/claims.yaml` has and explains it."""

    id: str
    source: str
    says: str
    notebook: str
    figure: str
    metric: str
    tasks: list[str]
    order: list[list[Member]]
    orders: list[list[list[Member]]]
    rounds: list[str]
    normalised: bool
    gain: Mapping[str, str]
    best_share_in: str
    like: Literal["classification", "pairs", "retrieval"]
    over_tasks: Literal["each", "span", "fall"]
    of_group: Literal["mean", "best", "deviation"]
    ahead: tuple[int, int]
    ties: bool
    between: tuple[float, float]
    relative: bool
    counts: list[str]


class Verdict(NamedTuple):
    verdict: str
    because: str


class Mean(NamedTuple):
    """The scores of a model on the K tasks of a mean."""

    # K arrays (N_k,), per-example scores; (1,), the score alone, where these are not known
    answers: list[np.ndarray]
    tested: bool = False  # whether all are per-example scores

    @property
    def values(self) -> np.ndarray:
        """The scores, (K,)."""
        return np.array([answers.mean() for answers in self.answers])

    def minus(self, other: "Mean") -> "Mean":
        differences = [a - b for a, b in zip(self.answers, other.answers, strict=True)]
        return Mean(differences, self.tested and other.tested)


Means = Mapping[str, Mean]  # by model


class NotTestedError(Exception):
    """A claim needs a model, round, task or number that is missing."""


def claims(*notebooks: str) -> list[Claim]:
    """The claims that these notebooks check.

    They are about the figures that a notebook draws, unless a claim names another notebook. The
    final notebook has those of chapter 5.
    """
    notebook_of = {figure.source: figure.notebook for figure in FIGURES}
    asked = []
    every: list[Claim] = read_file("claims")["claims"]
    for claim in every:
        notebook = notebook_of.get(claim.get("figure", ""), EVALUATION.name)
        if claim.get("notebook", notebook) in notebooks:
            asked.append(claim)
    return asked


def recorded_claims(profile: str | Path) -> pd.DataFrame:
    """Check all claims on the recorded runs of a profile: chapter 4, chapter 5, SimDE.

    Raises InputError without runs.
    """
    run = Run.of(EVALUATION.name, Profile.load(profile))
    finals = recorded_finals(run)
    of_chapter_4 = [notebook.name for notebook in CHAPTER_4]
    figures = [claim["figure"] for claim in claims(*of_chapter_4)]
    if finals.scores.empty and not recorded_in_figures(run, figures):
        raise InputError(
            f"profile {profile}: no run of chapter 4 and no final evaluation is recorded; "
            f"make one with `docemb run --profile {profile}`"
        )
    of_simde = Run.of(SIMDE.name, Profile.load(profile))
    tables = [
        claims_of_figures(run, of_chapter_4),
        claims_of_run(run, finals),
        claims_of_paper(of_simde),
    ]
    return pd.concat(tables)


def claims_of_figures(run: Run, notebooks: Sequence[str] = ()) -> pd.DataFrame:
    """Check the claims of chapter 4 about the figures of `notebooks`, or of the run's own.

    Returns a table like `claims_of_run`. Scores are those of validation splits.
    """
    asked = [claim for claim in claims(*notebooks or (run.notebook,)) if "figure" in claim]
    rows = pd.concat([rows_of(figure) for figure in FIGURES]).reset_index()
    rows = rows.rename(columns={"source": "round", "label": "model"})
    rows = rows.assign(task=OVERALL, metric="accuracy")
    in_thesis = check_claims(asked, scores_of_rows(rows), {"accuracy": [OVERALL]})
    tasks = {"accuracy": thesis_tasks()["accuracy"]}
    recorded = _recorded_figures(run, asked)
    return _verdicts(asked, in_thesis, recorded, tasks, {}, run.profile.evaluation)


def claims_of_run(run: Run, finals: Finals) -> pd.DataFrame:
    """Check the claims of chapter 5 on the thesis' Table 5.7 and on recorded scores.

    Returns a row per claim: claim (a sentence), `as published`, `on thesis tasks`, `on other tasks`
    (verdicts), and because: the reason of the verdict on the thesis' tasks, or of both verdicts on
    recorded scores if that is "not tested". A claim is about the tasks of the thesis; others
    illustrate it without testing it.
    """
    asked = claims(EVALUATION.name)
    tasks = thesis_tasks()
    examples = published("tasks").query(
        "protocol == 'final' and split == 'train' and statistic == 'examples'"
    )
    counts = dict(examples.set_index("task")["value"] / 1000)
    counts["masked"] = 100 / (100 - 71)  # 71%: Table 5.1
    in_thesis = check_claims(asked, scores_of_rows(published("table_5_7")), tasks, counts)
    recorded = _recorded_scores(run, finals)
    here = _recorded_counts(run, finals)
    return _verdicts(asked, in_thesis, recorded, tasks, here, run.profile.evaluation)


def claims_of_paper(
    run: Run, final: Final | None = None, few_shot: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Check the claims of the SimDE paper on its Table 2 and on recorded students of its notebook.

    Returns a table like `claims_of_run`. `final` and `few_shot` (see `Scorer.few_shot`) are
    scores of `run` that are not recorded; scores with few examples never are.
    """
    asked = claims(SIMDE.name)
    rows = published("simde").query("source == 'table 2'")
    tasks = {"f1_macro": [*rows["task"].unique()]}
    in_paper = check_claims(asked, scores_of_rows(rows), tasks)
    recorded = _recorded_in_paper(run, final, few_shot)
    return _verdicts(asked, in_paper, recorded, tasks, {}, run.profile.evaluation)


def tested(table: pd.DataFrame, profile: str) -> pd.DataFrame:
    """The claims of such a table that recorded scores of `profile` test.

    If there are some, two lines are printed about the others.
    """
    known = table["on thesis tasks"].ne(UNTESTED) | table["on other tasks"].ne(UNTESTED)
    if known.any() and not known.all():
        print(
            f"{(~known).sum()} of {len(table)} claims are not tested, because runs or tasks of "
            f"theirs are missing.\n`docemb results --claims {profile}` lists these; the profiles "
            "thesis and thesis-mini have all."
        )
    return table[known]


def _verdicts(
    asked: Sequence[Claim],
    as_published: pd.DataFrame,
    rounds: Rounds,
    tasks: Tasks,
    counts: Counts,
    evaluation: Evaluation,
) -> pd.DataFrame:
    """The table of `claims_of_run`, from the verdicts as published and from recorded scores."""
    present = defaultdict(set)  # tasks by metric
    for task, score in _scores_in(rounds):
        for metric in (score.metric, *score.extra):
            present[metric].add(task)
    others = {metric: sorted(present[metric] - {*names}) for metric, names in tasks.items()}
    kinds: dict[str, list[str]] = {}
    for task in sorted({*chain(*others.values())}):
        kinds.setdefault(kind_of_task(task, evaluation), []).append(task)
    largest = round_name(evaluation.largest_round)
    on_tasks = check_claims(asked, rounds, tasks, counts, largest_round=largest)
    on_others = check_claims(asked, rounds, {**others, **kinds}, counts, largest_round=largest)

    rows = {}
    for claim in asked:
        name = claim["id"]
        verdict, because = on_tasks.loc[name]
        elsewhere, because_elsewhere = on_others.loc[name]
        if verdict == UNTESTED and because != because_elsewhere:
            names = ", ".join(others[claim.get("metric", "accuracy")]) or "other tasks"
            because = f"{because}; on {names}: {because_elsewhere}"
        published_verdict = as_published["verdict"][name]
        rows[name] = (claim["says"], published_verdict, verdict, elsewhere, because)
    columns = ["claim", "as published", "on thesis tasks", "on other tasks", "because"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("id")


def _scores_in(rounds: Rounds) -> Iterable[tuple[str, Score]]:
    """All scores with their task."""
    return chain.from_iterable(
        scores.items() for models in rounds.values() for scores in models.values()
    )


def check_claims(
    asked: Iterable[Claim],
    rounds: Rounds,
    tasks: Tasks,
    counts: Counts | None = None,
    *,
    largest_round: str = ALL,
) -> pd.DataFrame:
    """Check each claim. Returns columns verdict and because, by the claim's id.

    `rounds` has the scores by round or by figure; `largest_round` is the round with most training
    examples. `tasks` has the tasks of a mean by metric, and by kind those that illustrate a claim
    about other tasks of this kind; each model of a claim needs scores on all of them.
    """
    verdicts = {}
    for claim in asked:
        try:
            verdicts[claim["id"]] = _check(claim, rounds, tasks, counts or {}, largest_round)
        except NotTestedError as reason:
            verdicts[claim["id"]] = Verdict(UNTESTED, str(reason))
    table = pd.DataFrame.from_dict(verdicts, orient="index", columns=Verdict._fields)
    return table.rename_axis("id")


def scores_of_rows(rows: pd.DataFrame) -> Rounds:
    """Scores from rows of model, round, task, metric, value.

    A row without a round belongs to each round.
    """
    rounds: dict[str, dict[str, dict[str, Score]]] = {}
    for name in rows["round"].dropna().unique():
        models: dict[str, dict[str, Score]] = {}
        of_round = rows[(rows["round"] == name) | rows["round"].isna()]
        for (model, task), values in of_round.groupby(["model", "task"]):
            (metric, value), *extra = zip(values["metric"], values["value"], strict=True)
            models.setdefault(model, {})[task] = Score(metric, (value,), extra=dict(extra))
        rounds[name] = models
    return rounds


def _check(
    claim: Claim, rounds: Rounds, tasks: Tasks, counts: Counts, largest_round: str
) -> Verdict:
    figure = claim.get("figure")
    metric = claim.get("metric", "accuracy")
    names = tasks.get(metric, ())
    if figure and figure not in rounds:
        raise NotTestedError(f"no run of {figure}")
    if not names:
        raise NotTestedError(f"no tasks with {metric}")
    if "tasks" in claim:
        alike = tasks.get(claim.get("like", ""), ())
        of_claim = [name for name in claim["tasks"] if name in names]
        names = of_claim or [name for name in alike if name in names]
        if not names:
            raise NotTestedError(f"the claim is about {', '.join(claim['tasks'])}")
    if claim.get("over_tasks") == "span" and len(names) < 2:
        raise NotTestedError(f"{names[0]} alone has no span")
    missing = sorted({*names} - {task for task, _ in _scores_in(rounds)})
    if missing:
        raise NotTestedError(f"no scores on {', '.join(missing)}")

    orders = orders_of(claim)
    models = list(dict.fromkeys(chain(*chain(*orders))))
    means = {}
    for name in [figure] if figure else claim.get("rounds", [largest_round]):
        means[name] = _means(models, name, rounds, metric, names)
    if "between" in claim:
        return check_numbers(_numbers(claim, orders, means, counts, names), claim["between"])

    compared = []
    for where, of_models in _variants(claim, means, names).items():
        for order in orders:
            groups, of_groups = _grouped(claim, order, of_models)
            compared.append(comparisons(groups, of_groups, where))
    return check_order(pd.concat(compared), ahead=claim.get("ahead"), ties=claim.get("ties", False))


def _numbers(
    claim: Claim,
    orders: Sequence[Order],
    means: Mapping[str, Means],
    counts: Counts,
    tasks: Sequence[str],
) -> list[float]:
    """The numbers of a claim that gives their bounds, see `published/claims.yaml`."""
    order = orders[0]
    if not order:
        return [counts.get(name, np.nan) for name in claim.get("counts", tasks)]
    if claim.get("relative"):
        (of_round,) = means.values()
        (ahead,), (behind,) = order
        shares = of_round[ahead].values / of_round[behind].values
        return [float(shares.mean()) - 1]
    if "best_share_in" in claim:
        students = order[0]
        shares = normalised_means(means[claim["best_share_in"]], *means.values())
        return [max(float(shares[model].values.mean()) for model in students)]
    numbers = []
    for of_models in _variants(claim, means, tasks).values():
        (group,), of_groups = _grouped(claim, order, of_models)
        numbers += [float(of_groups[name].values.mean()) for name in group]
    return numbers


def _variants(claim: Claim, means: Mapping[str, Means], tasks: Sequence[str]) -> dict[str, Means]:
    """The means of the models that a claim compares, by where they are compared."""
    variants = {}
    for name, of_round in means.items():
        if "figure" not in claim:
            variants[name] = of_round
        if "figure" in claim or claim.get("normalised"):
            variants[f"{name}, normalised"] = normalised_means(of_round)
    if "gain" in claim:
        few = claim["gain"]["from"]
        more = claim["gain"]["to"]
        gains = {model: mean.minus(means[few][model]) for model, mean in means[more].items()}
        variants = {f"{more} minus {few}": gains}

    over_tasks = claim.get("over_tasks")
    if over_tasks == "each":
        each: dict[str, Means] = {}
        for name, of_models in variants.items():
            for place, task in enumerate(tasks):
                only = {}
                for model, mean in of_models.items():
                    only[model] = Mean([mean.answers[place]], mean.tested)
                each[f"{name}, {task}"] = only
        return each
    if over_tasks is not None:
        for name, of_models in variants.items():
            numbers = {}
            for model, mean in of_models.items():
                values = mean.values
                number = -np.ptp(values) if over_tasks == "span" else values[0] - values[-1]
                numbers[model] = Mean([np.array([number])])
            variants[name] = numbers
    return variants


def _grouped(claim: Claim, order: Order, means: Means) -> tuple[Order, Means]:
    """The order with one number for each group, where the claim compares groups, and the means."""
    statistic = claim.get("of_group")
    if statistic is None:
        return order, means
    names = []
    of_groups = {}
    for group in order:
        members = [means[model] for model in group]
        if statistic == "best":
            best = max(group, key=lambda model: means[model].values.mean())
            names.append([best])
            of_groups[best] = means[best]
            continue
        name = group[0] if len(group) == 1 else f"{statistic} of {group[0]} … {group[-1]}"
        if statistic == "deviation":
            deviation = np.std([member.values.mean() for member in members], ddof=1)
            of_groups[name] = Mean([np.array([deviation])])
        else:
            by_task = zip(*(member.answers for member in members), strict=True)
            answers = [sum(of_task, np.zeros(1)) / len(group) for of_task in by_task]
            of_groups[name] = Mean(answers, all(member.tested for member in members))
        names.append([name])
    return names, of_groups


def orders_of(claim: Claim) -> list[Order]:
    """The orders of a claim, with models in place of `others` and of values of columns.

    `others` are the students of its figure that the claim does not name.
    """
    orders = claim.get("orders") or [claim.get("order", [])]
    rows = pd.DataFrame()
    for figure in FIGURES:
        if figure.source == claim.get("figure"):
            rows = rows_of(figure)

    def chosen(member: Member) -> list[str]:
        if isinstance(member, str):
            return [member]
        fits = pd.Series(True, index=rows.index)
        for column, value in member.items():
            fits &= rows[column].isin(value if isinstance(value, list) else [value])
        return [str(label) for label in rows.index[fits]]

    named = {
        model for member in chain(*chain(*orders)) if member != OTHERS for model in chosen(member)
    }
    others = []
    if len(rows):
        students = rows.index[rows["kind"] != BASELINE]
        others = [str(label) for label in students if label not in named]
    resolved: list[Order] = []
    for order in orders:
        groups = []
        for group in order:
            members = [others if member == OTHERS else chosen(member) for member in group]
            groups.append(list(chain(*members)))
        resolved.append(groups)
    return resolved


def _means(
    models: Iterable[str], name: str, rounds: Rounds, metric: str, tasks: Sequence[str]
) -> dict[str, Mean]:
    """The means of the models in a round.

    Raises NotTestedError for the first round, model or score that is missing.
    """
    if name not in rounds:
        raise NotTestedError(f"no round {name}")
    absent = [model for model in models if model not in rounds[name]]
    if absent:
        more = f" and {len(absent) - LISTED} more" if len(absent) > LISTED else ""
        raise NotTestedError(f"no run of {', '.join(absent[:LISTED])}{more}")
    means = {}
    for model in models:
        by_task = rounds[name][model]
        missing = sorted({*tasks} - {*by_task})
        if missing:
            raise NotTestedError(f"no scores of {model} on {', '.join(missing)}")
        answers = []
        for score in (by_task[task] for task in tasks):
            if metric in score.per_example:
                answers.append(score.per_example[metric].mean(axis=0, dtype=np.float64))
            else:
                value = score.mean if score.metric == metric else score.extra[metric]
                answers.append(np.array([value]))
        tested = all(metric in by_task[task].per_example for task in tasks)
        means[model] = Mean(answers, tested)
    return means


def comparisons(order: Order, means: Means, where: str) -> pd.DataFrame:
    """Compare each model of a group with each model of all later groups.

    `where` names the round and says whether scores are normalised. Returns the columns ahead,
    behind, where, difference, p, the p-value of the paired test, and those of `PairedError` (p and
    these NaN without per-example scores).
    """
    rows = []
    for place, group in enumerate(order, start=1):
        for ahead, behind in product(group, chain(*order[place:])):
            differences = means[ahead].minus(means[behind])
            tested = [np.nan] * (1 + len(PairedError._fields))
            if differences.tested:
                by_example = side_by_side([d[None] for d in differences.answers])[0]
                tested = [paired_p_value(by_example), *paired_error(differences.answers)]
            mean = differences.values.mean().round(DECIMALS)
            rows.append((ahead, behind, where, mean, *tested))
    columns = ["ahead", "behind", "where", "difference", "p", *PairedError._fields]
    return pd.DataFrame(rows, columns=columns)


def normalised_means(means: Means, *rounds: Means) -> dict[str, Mean]:
    """Scores divided by the best score of the given models on each task, taken as exact.

    rounds: whose scores count for the best, too.
    """
    best = np.max([mean.values for each in (means, *rounds) for mean in each.values()], axis=0)
    normalised = {}
    for model, (answers, tested) in means.items():
        normalised[model] = Mean([a / b for a, b in zip(answers, best, strict=True)], tested)
    return normalised


def check_numbers(numbers: Sequence[float], bounds: tuple[float, float]) -> Verdict:
    if np.isnan(numbers).any():
        raise NotTestedError("documents or examples are not counted, or none")
    low, high = bounds
    least = min(numbers)
    most = max(numbers)
    verdict = HOLDS if low <= least and most <= high else FAILS
    because = " to ".join(dict.fromkeys((f"{least:.4g}", f"{most:.4g}")))
    return Verdict(verdict + NO_INTERVAL, because)


def check_order(
    compared: pd.DataFrame, *, ahead: tuple[int, int] | None = None, ties: bool = False
) -> Verdict:
    """The verdict on comparisons, all of which must be ahead.

    With `ahead`, the number of models that are ahead in all of their comparisons must lie within
    these bounds. With `ties`, equal means are as claimed, too.
    """
    positive = compared["difference"].to_numpy() > 0
    if ties:
        positive |= compared["difference"].to_numpy() == 0
    least = compared.iloc[compared["difference"].argmin()]
    detail = (
        f"least: {least['ahead']} minus {least['behind']} {least['difference']:+.3f} "
        f"({least['where']})"
    )
    tested = not compared["p"].isna().any()
    significant = holm(compared["p"].to_numpy()) < ALPHA if tested else np.ones(len(compared), bool)
    verdicts = pd.DataFrame(
        {"confirmed": significant & positive, "opposite": significant & ~positive}
    )
    unit = "differences"
    if ahead is not None:
        unit = "models"
        by_model = verdicts.groupby(compared["ahead"].to_numpy(), sort=False)
        verdicts = by_model.agg({"confirmed": "all", "opposite": "any"})
    total = len(verdicts)
    low, high = (total, total) if ahead is None else ahead
    confirmed = int(verdicts["confirmed"].sum())
    opposite = int(verdicts["opposite"].sum())
    if confirmed > high or total - opposite < low:
        verdict = FAILS
    elif confirmed >= low and total - opposite <= high:
        verdict = HOLDS
    else:
        verdict = UNDECIDED
        if "error" in compared and not significant[compared["difference"].argmin()]:
            alpha = ALPHA / int(np.sum(~significant))
            takes = needed(*least[["difference", *PairedError._fields]], alpha=alpha)
            detail += f"; {what_shows(int(least['examples']), takes)}"
    if not tested:
        what = f"{unit} as claimed" if ahead is None else f"{unit} ahead"
        return Verdict(verdict + NO_INTERVAL, f"{confirmed} of {total} {what}; {detail}")
    what = f"{unit} significant" if ahead is None else f"{unit} significantly ahead"
    counter = f", {opposite} significant in the opposite direction" if opposite else ""
    return Verdict(verdict, f"{confirmed} of {total} {what}{counter}; {detail}")


# ---- recorded runs; nothing is built


def _recorded_scores(run: Run, finals: Finals) -> Rounds:
    """Recorded scores by the names of Table 5.7, per example where their files exist."""
    rounds: dict[str, dict[str, Mapping[str, Score]]] = {}
    for name, model in finals.models.items():
        rows = finals.scores[finals.scores["model"] == model.label]
        for round_, scores in _scores_of(run, model, rows, final=True).items():
            rounds.setdefault(round_, {})[name] = scores[model.label]
    return rounds


def _recorded_counts(run: Run, finals: Finals) -> Counts:
    """What is known of this run's tasks and corpus."""
    if finals.scores.empty or not run.corpus.is_built:
        return {}
    documents = run.profile.parameters.documents
    lengths = run.teachers.structural_lengths("train", documents)
    limit = run.profile.structural_teacher.max_tokens or 384  # the context of the thesis' SBERT
    unmasked = (lengths <= limit).mean()
    counts = {"masked": 1 / (unmasked or np.nan)}
    first = run.profile.evaluation.rounds[0] or np.nan
    for name in run.profile.evaluation.tasks:
        task = run.scorer.task(name)
        if isinstance(task, HeadTask):
            counts[name] = len(task.splits["train"].labels) / first
    return counts


def _recorded_figures(run: Run, asked: Iterable[Claim]) -> Rounds:
    """Validation scores by figure and by label there, per example where their files exist.

    The baselines of a figure are those that the newest of its runs was compared with.
    """
    figures: dict[str, dict[str, Mapping[str, Score]]] = {}
    for source, recorded in recorded_in_figures(run, [claim["figure"] for claim in asked]).items():
        scored: dict[str, tuple[Model, pd.DataFrame]] = {}
        for label, record in recorded.items():
            models = record.table("models")
            fingerprints = models.reindex(columns=["model", "fingerprint"]).set_index("model")
            rows = record.table()
            by = ["model", "kind", "form", "task", "metric"]
            means = rows.groupby(by, sort=False, as_index=False)["value"].mean()
            for name, of_model in means.groupby("model"):
                kind, form = of_model[["kind", "form"]].iloc[0]
                in_figure = label if name == record.label else baseline_label(kind, form)
                if in_figure is not None:
                    fingerprint = fingerprints["fingerprint"].get(name, "")
                    identity = Identity(Kind(kind), Form(form), str(name))
                    model = scored_model(identity, fingerprint)
                    scored[in_figure] = (model, of_model.assign(round=source))
        figures[source] = {}
        for label, (model, rows) in scored.items():
            (scores,) = _scores_of(run, model, rows, final=False).values()
            figures[source][label] = scores[model.label]
    return figures


def _recorded_in_paper(run: Run, final: Final | None, few_shot: pd.DataFrame | None) -> Rounds:
    """The scores of this run and of recorded ones by the names of the SimDE paper's Table 2.

    The means over seeds are those of heads on all examples; the paper's few examples of each class
    are those of `evaluation.few_shot_table`. Of several runs of a name, this one counts, then the
    newest.
    """
    evaluated: list[tuple[Run, str, Final]] = []
    if final is not None:
        evaluated.append((run, run.label, final))
    for record in records.comparable(Run(SIMDE.name, run.profile)):
        if final is None or record.folder != run.recorded:
            recorded = Final.of_record(record, record.label)
            evaluated.append((run.of_record(record), record.label, recorded))

    names: dict[str, str] = {}  # in the paper, by label
    frames = []
    for key, label, evaluation in evaluated:
        of_run = []
        for model, row in evaluation.models.set_index("model").iterrows():
            name = paper_name(key, row, is_own=model == label)
            if name is not None and name not in names.values():
                names[str(model)] = name
                of_run.append(model)
        last = last_round(evaluation.scores)
        frames.append(last[last["model"].isin(of_run)].assign(round=ALL))
    if few_shot is not None:
        per_class = run.profile.evaluation.few_shot_table
        in_table = few_shot["task"].map(per_class).fillna(per_class.get("other", 0))
        few = few_shot[few_shot["per_class"] == in_table]
        frames.append(few[few["model"].isin(names)].assign(round=FEW_SHOT))
    if not frames:
        return {}
    rows = pd.concat(frames, ignore_index=True)
    by = ["round", "model", "task", "metric"]
    means = rows.groupby(by, sort=False, as_index=False)["value"].mean()
    return scores_of_rows(means.assign(model=means["model"].map(names)))


def _scores_of(run: Run, model: Model, rows: pd.DataFrame, *, final: bool) -> Rounds:
    """The scores of a model per example where their files exist, otherwise from recorded rows."""
    if run.corpus.is_built and run.scorer.is_scored(model, final=final):
        return run.scorer.by_round([model], final=final)
    return scores_of_rows(rows)
