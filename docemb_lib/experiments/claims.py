"""The claims of the thesis' chapter 5 on recorded final evaluations, and on the thesis' own table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from docemb_lib.errors import InputError
from docemb_lib.evaluation import claims as checked
from docemb_lib.evaluation.task_statistics import published_statistics
from docemb_lib.evaluation.tasks import HeadTask
from docemb_lib.experiments.embedding_cache import Model
from docemb_lib.experiments.finals import Finals, recorded_finals
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.scoring import is_scored, scores_by_round
from docemb_lib.experiments.thesis import FINAL
from docemb_lib.profile import Profile
from docemb_lib.workspace import Workspace

# What is counted, as the claims call it.
RATIOS = ("fewest examples of a task per example of its first round", "most")
MASKED = "training documents per document with a structural loss"


def recorded_claims(profile: str | Path) -> pd.DataFrame:
    """The claims on the final evaluations of a profile that are recorded. Raises InputError where there are none."""
    loaded = Profile.load(profile)
    run = Run(FINAL, loaded.for_notebook(FINAL), Workspace(), {})
    finals = recorded_finals(run)
    if finals.scores.empty:
        others = dict.fromkeys(line.profile for line in loaded.plan if line.profile)
        mend = (
            f"its plan makes some of {', '.join(others)}; ask for that" if others else "`docemb run` with it makes one"
        )
        raise InputError(f"profile {profile}: no final evaluation is recorded; {mend}")
    return check_claims(run, finals)


def check_claims(run: Run, finals: Finals) -> pd.DataFrame:
    """The claims of the thesis' chapter 5: in its own Table 5.7, on its tasks in our runs, and on the profile's others.

    Columns: claim (its sentence), `in the thesis`, `on its tasks`, `on other tasks` (verdicts, see
    `docemb_lib.evaluation.claims`), because (of our verdict on its tasks; without one, of both). A claim is about the
    thesis' tasks and corpora: on others it is told, but not tested.
    """
    rounds = _answers(run, finals)
    theirs = checked.thesis_tasks()
    present = {name: own["task"].unique() for name, own in finals.scores.groupby("metric")}
    others = {metric: sorted(set(present.get(metric, ())) - set(theirs[metric])) for metric in theirs}
    columns = {
        "in the thesis": checked.check_claims(checked.thesis_scores(), theirs, _published_counts()),
        "on its tasks": checked.check_claims(rounds, theirs, _counts(run, finals, theirs["accuracy"], ours=False)),
        "on other tasks": checked.check_claims(rounds, others, _counts(run, finals, others["accuracy"], ours=True)),
    }
    table = pd.DataFrame({"claim": [claim["says"] for claim in checked.claims()]}, index=columns["in the thesis"]["id"])
    for name, found in columns.items():
        table[name] = found["verdict"].to_numpy()
    on_theirs, elsewhere = columns["on its tasks"], columns["on other tasks"]
    tested = on_theirs["verdict"].ne(checked.UNTESTED)
    both = on_theirs["because"] + "; other tasks: " + elsewhere["because"]
    said_once = tested | on_theirs["because"].eq(elsewhere["because"])
    table["because"] = on_theirs["because"].where(said_once, both).to_numpy()
    return table


def _answers(run: Run, finals: Finals) -> checked.Rounds:
    """{round: {the thesis' model: {task: score}}}, with what single examples got where the score files are there.

    Nothing is built: where the corpus is gone, the records alone are read.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for theirs, ours in finals.labels.items():
        model = Model(ours, finals.fingerprints[ours], _not_here)
        if run.stages.has_corpus and is_scored(run.stages, model):
            by_round = scores_by_round(run.stages, [model], final=True)
            own = {name: scores[ours] for name, scores in by_round.items()}
        else:
            rows = finals.scores[finals.scores["model"] == ours]
            own = {
                str(name): {
                    str(task): checked.score_of(dict(zip(few["metric"], few["value"], strict=True)))
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
    if not run.stages.has_corpus:
        return counts
    evaluation = run.profile.evaluation
    smallest, *larger = evaluation.rounds
    if smallest is not None and None in larger and tasks and {*tasks} <= {*evaluation.tasks}:
        heads = [task for name in tasks if isinstance(task := run.stages.tasks[name], HeadTask)]
        sizes = [len(task.splits["train"].labels) for task in heads]
        counts |= _ratios(np.array(sizes), smallest)
    if finals.masked is not None and ours != on_thesis_corpora(run.profile):
        lengths = np.asarray(run.stages.split("train")["n_structural_tokens"][: finals.masked["documents"]])
        kept = int((lengths <= finals.masked["max_structural_len"]).sum())
        counts[MASKED] = len(lengths) / kept if kept else float("inf")
    return counts


def _ratios(sizes: np.ndarray, smallest: int) -> dict[str, float]:
    return dict(zip(RATIOS, (float(sizes.min()) / smallest, float(sizes.max()) / smallest), strict=True))


def on_thesis_corpora(profile: Profile) -> bool:
    """Whether students learn from Wikipedia and RealNews, or what stands in for it, as in the thesis."""
    named = [f"{data.dataset} {data.config}".lower() for data in profile.corpus.datasets]
    return all(any(corpus in name for name in named) for corpus in ("wikipedia", "realnews"))


def _not_here() -> Any:
    raise AssertionError("a recorded model is only looked up where it is scored")
