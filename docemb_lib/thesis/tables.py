"""Table 5.7, Figures 5.3 to 5.6 and Figure 4.12 of the thesis from recorded runs, with the thesis' numbers beside them.

Scores are rows of model, round, task, metric, value, like `published("table_5_7")`; intervals add low and high.
MAP on GAMES is not fully comparable: the thesis ranks within the first 1,000 hits, docemb ranks all articles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from docemb_lib.evaluation.protocols import round_name
from docemb_lib.evaluation.scoreboard import MAIN_METRICS, normalised, with_interval
from docemb_lib.evaluation.uncertainty import OVERALL
from docemb_lib.experiments import records
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.experiments.scores import Final
from docemb_lib.thesis.comparison import STRUCTURAL, Entry, beside_baselines
from docemb_lib.thesis.values import BASELINE, ThesisValues, baseline_name, final_name, published

MEAN, NORMALISED = "mean", "normalised mean"  # the last columns of Table 5.7
CHAPTER_4 = (STRUCTURAL, "04_projections", "05_weighting")  # notebooks whose runs Figure 4.12 may show


def table_5_7(scores: pd.DataFrame, metric: str, *, over_rounds: bool = False) -> pd.DataFrame:
    """Models × tasks of one metric, best mean first: part (a) with accuracy, by round; part (b) with map.

    The last columns are the unweighted mean over tasks, and the mean of scores divided by the best model's score of the
    same round, or of all rounds if `over_rounds`. Retrieval trains no heads and has the same score in each round.
    """
    rows = scores[scores["metric"] == metric]
    if metric != "accuracy":
        rows = rows.drop_duplicates(["model", "task"]).drop(columns="round")
    rows = normalised(rows, over_rounds=over_rounds)
    index = ["round", "model"] if "round" in rows else ["model"]
    table = rows.pivot_table(index=index, columns="task", values="value").rename_axis(columns=None)
    table[[MEAN, NORMALISED]] = rows.groupby(index)[["value", "normalised"]].mean()
    table = table.sort_values(MEAN, ascending=False, kind="stable")
    return table.loc[list(rows["round"].unique())] if "round" in rows else table


def beside_thesis(scores: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Add a column `thesis`: the value in Table 5.7 of the same model, round, task and metric, or NaN.

    names: {model: name in Table 5.7}, without models that the table does not have.
    """
    keys = ["model", "round", "task", "metric"]
    table = published("table_5_7").fillna({"round": ""}).set_index(keys)["value"].rename("thesis")
    no_rounds = scores["metric"] != "accuracy"  # in the table, retrieval belongs to no round
    wanted = scores.assign(model=scores["model"].map(names), round=scores["round"].mask(no_rounds, ""))
    return scores.assign(thesis=wanted[keys].join(table, on=keys)["thesis"])


def deviations(scores: pd.DataFrame) -> pd.DataFrame:
    """A row per score that the thesis has, too: the difference, and whether the thesis' value is in the interval.

    scores: see `beside_thesis`, with low and high, the bounds of the 95% interval.
    """
    rows = scores[scores["thesis"].notna()]
    return pd.DataFrame(
        {
            **{name: rows[name] for name in ("round", "model", "task", "metric")},
            "here": [with_interval(*row) for row in rows[["value", "low", "high"]].itertuples(index=False)],
            "thesis": rows["thesis"],
            "difference": rows["value"] - rows["thesis"],
            "within interval": rows["thesis"].between(rows["low"], rows["high"]),
        }
    ).reset_index(drop=True)


class Finals(NamedTuple):
    """Several final evaluations, each model once."""

    scores: pd.DataFrame  # round, model, task, metric, value, low, high, and thesis: see `beside_thesis`
    labels: dict[str, str]  # {name in Table 5.7: model}
    fingerprints: dict[str, str]  # {model: fingerprint}
    masked: Mapping[str, Any] | None  # parameters of the run that is the thesis' cosine-masked

    @property
    def not_drawn(self) -> dict[str, str]:
        """{number of a figure of the thesis that cannot be drawn from these scores: reason}."""
        tasks = self.scores.groupby("metric")["task"].nunique()
        heads, rankings = (tasks.get(metric, 0) for metric in MAIN_METRICS)
        one_round = not heads or self.scores["round"].nunique() < 2
        reasons = {
            "5.3": heads < 2 and f"a box over tasks needs two tasks with heads, the profile has {heads}",
            "5.4": one_round and "with one round it equals the bars of each task",
            "5.5": rankings < 2 and f"a span over tasks needs two retrieval tasks, the profile has {rankings}",
            "5.6": not rankings and "the profile has no retrieval task",
        }
        return {number: reason for number, reason in reasons.items() if reason}

    @property
    def left_out(self) -> str:
        """`not_drawn` as text, a line per figure."""
        return "\n".join(f"Figure {number} is not drawn: {reason}." for number, reason in self.not_drawn.items())


def recorded_finals(run: Run, own: Final | None = None) -> Finals:
    """The final evaluation of this run and the comparable recorded ones.

    If several runs are the same student of the thesis, the run with most documents represents it, then the newest.

    Args:
        own: the evaluation of this run; None: as it is recorded, if it is.
    """
    found: list[tuple[str, RunKey, pd.DataFrame, pd.DataFrame]] = []  # label, key, intervals, models
    record = records.find(run.workspace, run.notebook, run.fingerprint)
    if own is not None:
        found.append((run.label, run.key, own.intervals, own.models))
        record = None
    for other in [*([record] if record is not None and record.status == "done" else []), *run.comparable()]:
        intervals, models = (records.table_of(run.workspace, other, name) for name in ("intervals", "models"))
        found.append((other.label, run.key_of(other), intervals, models))
    if not found:
        return Finals(pd.DataFrame(columns=["round", "model", "task", "metric", "value"]), {}, {}, None)
    only = round_name(run.profile.evaluation.rounds[-1])  # intervals of a single round do not name it
    rows = pd.concat([one if "round" in one else one.assign(round=only) for _, _, one, _ in found])
    rows = rows[rows["metric"].isin([*MAIN_METRICS, "mrr"]) & (rows["task"] != OVERALL)]
    rows = rows.drop_duplicates(["round", "model", "task", "metric"]).reset_index(drop=True)
    students = {label: key for label, key, *_ in sorted(found, key=lambda one: -one[1].counting["documents"])}
    names = {label: final_name(key) for label, key in students.items()}
    names |= {model: baseline_name(model, run.profile) for model in rows["model"].unique() if model not in students}
    known = {model: name for model, name in names.items() if name is not None}
    labels = {name: model for model, name in reversed(known.items())}  # the first model of a name
    fingerprints: dict[str, str] = {}
    for *_, models in reversed(found):  # the first of several evaluations of a model counts
        fingerprints |= dict(zip(models["model"], models["fingerprint"], strict=True))
    masked = students[labels["cosine-masked"]].parameters if "cosine-masked" in labels else None
    return Finals(beside_thesis(rows, known), labels, fingerprints, masked)


def best_of_chapter_4(run: Run) -> pd.DataFrame:
    """Validation scores for Figure 4.12: recorded runs of Table 4.10 and the baselines, as `plot_runs` takes them.

    All runs have one setting: that of `run`, or that of the newest run of Table 4.10. If a student was trained several
    times, the run with most documents is shown, then the newest. The frame is empty if no run of the table is recorded.
    """
    thesis = ThesisValues(run.notebook, run.profile)
    found = [
        (record, value)
        for notebook in CHAPTER_4
        for record in records.all_records(notebook, workspace=run.workspace)
        if record.status == "done" and (value := thesis.of_run(run.key_of(record))) is not None
    ]
    if not found:
        return pd.DataFrame()
    newest, _ = max(found, key=lambda one: (one[0].setting == run.key.setting, one[0].finished))
    found = [one for one in found if one[0].setting == newest.setting]
    found.sort(key=lambda one: (one[0].parameters["documents"], one[0].finished))
    shown = {value: record for record, value in found}  # the last run of each; a student has one value of its own
    entries = []
    for record in shown.values():
        label = f"only-structural;{record.label}" if record.notebook == STRUCTURAL else record.label
        scores = records.scores_of(run.workspace, record)
        entries.append(Entry(label, record.label, run.key_of(record), scores))
    rows = beside_baselines(entries, [{"group": "student", "thesis": value} for value in shown], thesis)
    rows = rows[rows["own"] | rows["thesis"].notna()]
    return rows.assign(group=pd.Categorical(rows["group"], categories=["student", BASELINE]))
