"""How often a sample of the size that docemb names shows a difference: python check.py OUTPUTS.

OUTPUTS is the folder `outputs` of a working folder in which `docemb run` has ended.
"""

import json
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from docemb_lib.evaluation.uncertainty import (
    ALPHA,
    OVERALL,
    needed,
    paired_error,
    paired_p_value,
    side_by_side,
)
from docemb_lib.runs.scores import read_scores

PAIRS = 30  # of models on each task, drawn at random
SAMPLES = 400  # of each pair
SIZES = (30, 5000)  # needed examples of the pairs that are drawn
outputs = Path(sys.argv[1])

labels = {}
for file in outputs.glob("records/06_evaluation/*/models.json"):
    for row in json.loads(file.read_text()):
        labels[row["fingerprint"]] = row["model"]
answers: dict[str, dict[str, np.ndarray]] = {}  # (N,) by task and model
for file in sorted(outputs.glob("artefacts/scores/*/artefact.json")):
    inputs = json.loads(file.read_text())["inputs"]
    if "rounds" in inputs and inputs["model"] in labels:
        score = read_scores(file.parent)["all"]
        results = score.per_example[score.metric].mean(axis=0, dtype=np.float64)
        answers.setdefault(inputs["task"], {})[labels[inputs["model"]]] = results

rng = np.random.default_rng(0)
everywhere = set.intersection(*map(set, answers.values()))
rows = []
for task in [*answers, OVERALL]:
    models = sorted(everywhere if task == OVERALL else answers[task])
    pairs = []
    for first, second in combinations(models, 2):
        names = list(answers) if task == OVERALL else [task]
        by_task = [answers[name][first] - answers[name][second] for name in names]
        difference = float(np.mean([d.mean() for d in by_task]))
        examples = sum(map(len, by_task))
        takes = needed(difference, *paired_error(by_task))
        if SIZES[0] <= takes.examples <= SIZES[1]:
            pairs.append((first, second, by_task, difference, examples, takes))
    for number in rng.permutation(len(pairs))[:PAIRS]:
        first, second, by_task, difference, examples, takes = pairs[number]
        shown = 0
        for _ in range(SAMPLES):
            sample = []
            for d in by_task:
                size = max(1, round(len(d) * takes.examples / examples))
                sample.append(rng.choice(d, size=(1, size)))
            p = paired_p_value(side_by_side(sample)[0].round(6), permutations=999)
            shown += p < ALPHA
        rows.append((task, first, second, difference, examples, *takes, shown / SAMPLES))
    print(task, len(pairs), np.mean([row[-1] for row in rows if row[0] == task]), flush=True)
columns = ["task", "first", "second", "difference", "examples", "detectable", "needed", "shown"]
pd.DataFrame(rows, columns=columns).round(4).to_csv("pairs.csv", index=False)
