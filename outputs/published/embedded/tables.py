"""The tables of this page: python tables.py OUTPUTS.

OUTPUTS is the folder `outputs` of a working folder in which `docemb run` has ended, and after it
`docemb sweep 05 --grid seeds.yaml` with the grid beside this file. Students of these runs are
scored on the test splits here.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from docemb_lib import Profile, Workspace
from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import (
    OVERALL,
    OverSeeds,
    differences,
    over_seeds,
    score_intervals,
    verdicts,
)
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.models import student_model
from docemb_lib.runs.pipeline import Stages
from docemb_lib.runs.scores import read_scores

EVALUATION = "06_evaluation"
MAIN = ("accuracy", "map", "mean")  # the metric that decides on each task
STRUCTURAL_LOSS = ("structural_loss", "distance", "gamma")
outputs = Path(sys.argv[1])


class Run(NamedTuple):
    """A record, the rows of its models, and the fingerprint of the model that it is about."""

    notebook: str
    record: dict
    models: list[dict]
    folder: Path

    @property
    def fingerprint(self) -> str:
        for row in self.models:
            if row["model"] == self.record["label"] and row["form"] == "saved":
                return row["fingerprint"]
        raise LookupError(self.record["label"])

    def parameter(self, name: str) -> object:
        return self.record["parameters"].get(name)

    def like(self, *names: str) -> tuple[object, ...]:
        return tuple(self.parameter(name) for name in names)


def table(file: Path) -> pd.DataFrame:
    return pd.DataFrame(json.loads(file.read_text()))


# ---- records, and the answers to each example: {is_final: {fingerprint: {task: Score}}}

runs = []
for file in sorted(outputs.glob("records/0[2-6]*/*/record.json")):
    record = json.loads(file.read_text())
    models = json.loads((file.parent / "models.json").read_text())
    runs.append(Run(record["notebook"], record, models, file.parent))
runs.sort(key=lambda run: (run.notebook, run.record["finished"]))
stages = Stages(RunKey.of(EVALUATION, Profile.load("tiny")), Workspace(outputs.parent))
for run in runs:
    if run.notebook == "05_weighting" and run.parameter("documents") == 2000:
        folder = outputs.parent / run.record["student"]
        stages.scores.by_round([student_model(run.record["label"], folder)], final=True)
answers: dict[bool, dict[str, dict[str, Score]]] = {False: {}, True: {}}
for file in sorted(outputs.glob("artefacts/scores/*/artefact.json")):
    inputs = json.loads(file.read_text())["inputs"]
    if inputs["head"]["hidden"]:  # that of the thesis, for its Table 5.7
        continue
    score = read_scores(file.parent)["all"]
    by_task = answers["rounds" in inputs].setdefault(inputs["model"], {})
    by_task[inputs["task"]] = score
first = [run for run in runs if run.parameter("seed") == 0]
trained = [run for run in first if run.notebook not in ("02_paragraph_vector", EVALUATION)]
final = [run for run in first if run.notebook == EVALUATION]

# ---- scores on validation

rows = []
named = {}
for run in [run for run in first if run.notebook != EVALUATION]:
    label = f"{run.notebook}|{run.record['label']}|{run.parameter('documents') or ''}"
    named[label] = run
scored = {label: answers[False][run.fingerprint] for label, run in named.items()}
for row in [row for run in trained for row in run.models]:
    if row["kind"] != "student":
        scored[f"reference|{row['model']}|"] = answers[False][row["fingerprint"]]
intervals = score_intervals(scored).query("metric in @MAIN")
for label, of_model in intervals.groupby("model", sort=False):
    notebook, model, documents = str(label).split("|")
    by_task = of_model.set_index("task")["value"]
    mean = of_model.set_index("task").loc[OVERALL, ["value", "low", "high"]]
    metrics = named[label].record["metrics"] if label in named else {}
    spreads = [metrics.get("spread"), metrics.get("spread_before")]
    tasks = [by_task["package"], by_task["see-also-retrieval"]]
    rows.append((notebook, model, documents, *tasks, *mean, *spreads))
columns = ["notebook", "model", "documents", "package", "see-also-retrieval", "mean"]
columns += ["low", "high", "spread", "spread_before"]
pd.DataFrame(rows, columns=columns).round(4).to_csv("runs.csv", index=False)

# ---- scores and tests on the test splits

tasks = pd.concat([table(run.folder / "intervals.json") for run in final])
if "round" in tasks:
    tasks = tasks[tasks["round"] == "all"].drop(columns="round")
tasks = tasks[tasks["metric"].isin([*MAIN, "mrr"])]
tasks = tasks.drop_duplicates(["model", "task", "metric"])
tasks.round(6).to_csv("tasks.csv", index=False)
tests = pd.concat([table(run.folder / "comparison.json") for run in final])
columns = ["task", "metric", "model", "kind", "form", "reference", "difference", "low", "high"]
columns += ["p", "p_holm", "verdict", "detectable", "needed"]
tests = tests.drop_duplicates(["model", "reference", "task"])
tests[columns].round(6).to_csv("differences.csv", index=False)

# ---- what the contextual teacher adds

both = [run for run in first if run.parameter("contextual_teacher")]
frames = []
for run in [run for run in both if run.parameter("structural_loss")]:
    is_final = run.notebook == EVALUATION
    names = (*STRUCTURAL_LOSS, "documents", "seed")
    for alone in final if is_final else trained:
        if alone.parameter("contextual_teacher") or alone.like(*names) != run.like(*names):
            continue
        pair = {"student": answers[is_final][run.fingerprint]}
        pair["alone"] = answers[is_final][alone.fingerprint]
        tested = verdicts(differences(pair, "alone"))
        found = {"notebook": run.notebook, "model": run.record["label"]}
        found |= {"documents": run.parameter("documents"), "reference": alone.record["label"]}
        frames.append(tested.drop(columns=["metric", "model", "reference"]).assign(**found))
        break
columns = ["notebook", "model", "documents", "reference", "task", "examples", "difference"]
columns += ["low", "high", "p", "p_holm", "verdict"]
pd.concat(frames)[columns].round(6).to_csv("contextual-teacher.csv", index=False)

# ---- beyond the seeds: students of 05 from 2,000 documents, in all their seeds

of_seed: dict[str, dict[object, Run]] = {}
for run in runs:
    if run.notebook == "05_weighting" and run.parameter("documents") == 2000:
        of_seed.setdefault(run.record["label"], {})[run.parameter("seed")] = run
alone_label = ""
for label, by in of_seed.items():
    if not by[min(by)].parameter("contextual_teacher"):
        alone_label = label
rows = []
for label, by in of_seed.items():
    for is_final in (False, True):
        seeds = []
        for seed, run in sorted(by.items()):
            other = of_seed.get(alone_label, {}).get(seed)
            both_are_scored = other is not None and (
                {run.fingerprint, other.fingerprint} <= answers[is_final].keys()
            )
            if both_are_scored:
                seeds.append(seed)
        if label == alone_label or len(seeds) < 2:
            continue
        by_task = {}
        for task in answers[is_final][by[0].fingerprint]:
            sides = []
            for seed in seeds:
                pair = [by[seed], of_seed[alone_label][seed]]
                scores = [answers[is_final][run.fingerprint][task] for run in pair]
                own, others = (score.per_example[score.metric].mean(axis=0) for score in scores)
                sides.append(own.astype(np.float64) - others)
            by_task[task] = np.stack(sides)  # (S, N)
        parts = {task: [d] for task, d in by_task.items()} | {OVERALL: list(by_task.values())}
        for task, ds in parts.items():
            examples = sum(d.shape[1] for d in ds)
            of_seeds = np.mean([d.mean(axis=1) for d in ds], axis=0)
            found = over_seeds(ds)
            splits = "test" if is_final else "validation"
            each = " ".join(f"{value:+.4f}" for value in of_seeds)
            listed = " ".join(map(str, seeds))
            rows.append((splits, label, task, listed, examples, each, *found))
if rows:
    columns = ["splits", "student", "task", "seeds", "examples", "in each seed", *OverSeeds._fields]
    pd.DataFrame(rows, columns=columns).round(6).to_csv("seeds.csv", index=False)

# ---- files of the run whose figures the page has

plain = max(final, key=lambda run: run.record["metrics"]["mean"])
for name in ("record.json", "models.json"):
    shutil.copy(plain.folder / name, name)
