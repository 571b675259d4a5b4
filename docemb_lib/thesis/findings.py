"""What a notebook concludes: paired tests of its run on each task and in the mean over the tasks.

A teacher may help one task and harm another, which a mean hides. Runs are compared only with runs
from as many documents and with the same seed.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd

from docemb_lib.evaluation.scoreboard import (
    BETTER,
    RELATIONS,
    UNCLEAR,
    WORSE,
    listed,
    over_tasks,
    told,
    with_interval,
    would_show,
)
from docemb_lib.evaluation.uncertainty import (
    OVERALL,
    Scores,
    differences,
    over_seeds,
    score_intervals,
    verdicts,
)
from docemb_lib.runs.kinds import SHORT_TITLES, TITLES, Form, Identity, Kind
from docemb_lib.runs.models import Model, models_of_table, scored_model
from docemb_lib.runs.records import Record
from docemb_lib.runs.run import Run
from docemb_lib.runs.scores import Final
from docemb_lib.settings.labels import typeset
from docemb_lib.settings.notebooks import STRUCTURAL_LOSS
from docemb_lib.thesis.comparison import LINES, Entry, entries_beside, short_labels

FIRST = "It is the first recorded run: make another, and execute this cell again to compare them."

# How the sentence on the contextual teacher begins.
WITHOUT_CONTEXTUAL = "Beside the same student without the contextual teacher"

ELSEWHERE = "with other numbers of documents or seeds"

NAMED = 4  # runs that a clause names before "and N others"


class Other(NamedTuple):
    """A recorded run from as many documents as the run that concludes."""

    key: Run
    model: Model  # only its scores are asked for


def conclusion(run: Run, final: Final | None = None) -> str:
    """At most five sentences on the scores of the run's model, each decided by paired tests.

    They say, in this order:

    - that the student has collapsed, and what to change then;
    - how its mean over the tasks stands beside the references;
    - what the contextual teacher has added on each task, where a student of the same structural
      loss alone is recorded, and otherwise the tasks on which training has changed the student;
      nothing of a collapsed student, nor of a final student of both teachers, which 06 compares;
    - which recorded run is best;
    - which model to use, after a final evaluation, and how much to trust this without labels.

    final: the final evaluation; None: the validation scores.
    """
    # The settings of a run, the first table of its notebook, have its whole label.
    called = {TITLES[kind]: title for kind, title in SHORT_TITLES.items()}
    tokens = run.profile.structural_teacher.max_tokens or "truncated"
    called[TITLES[Kind.SBERT_TRUNCATED]] = f"SBERT-{tokens}"
    called[run.label] = "this student" if run.trains else "this model"
    evaluation = (final or run.evaluation).called(called)
    others, elsewhere = _others(run, is_final=final is not None)
    scores = _scores(run, evaluation, others)
    # A model without a start is compared with the structural teacher by the second sentence.
    sentences = [run.collapse_note, evaluation.standing(practice=evaluation.before is not None)]
    if not run.collapse_note and (final is None or len(run.roles) < 2):
        sentences.append(_contextual_teacher(run, evaluation, others, scores))
    sentences.append(_recorded(run, scores, elsewhere, is_final=final is not None))
    if final is not None:
        model, reason = evaluation.choice()
        sentences += [f"Take {model}: {reason}.", evaluation.without_labels]
    return "\n".join(map(LINES.fill, filter(None, sentences)))


def _others(run: Run, *, is_final: bool) -> tuple[dict[str, Other], int]:
    """The comparable recorded runs by their names in figures, and the number of others.

    Comparable are runs from as many documents and with the same seed.
    """
    if is_final:
        entries: list[Entry] = []
        keys = {record.label: run.of_record(record) for record in run.comparable()}
        short = short_labels({label: key for label, key in keys.items() if _is_as_large(key, run)})
        for record in run.comparable():
            label = short.get(record.label, record.label)
            entries.append(Entry(label, record.label, keys[record.label], pd.DataFrame(), record))
    else:
        entries = entries_beside(run, run.evaluation.scores)[1:]
    others = {}
    elsewhere = 0
    for entry in entries:
        if not _is_as_large(entry.key, run):
            elsewhere += 1
            continue
        if entry.record is None:
            continue
        name = typeset(entry.label)
        model = recorded_model(entry.record, entry.model, name)
        if model is not None:
            others[name] = Other(entry.key, model)
    return others, elsewhere


def _is_as_large(key: Run, run: Run) -> bool:
    """Whether both runs learn from as many documents, with the same seed."""
    return key.only("documents", "seed") == run.only("documents", "seed")


def recorded_model(record: Record, label: str, name: str) -> Model | None:
    """The student of a record, in the form that is compared, with a name; None: it has none."""
    table = record.table("models")
    forms = {}
    for model in [] if table.empty else models_of_table(table):
        if model.identity._replace(form=Form.SAVED).label == label:
            forms[model.form] = model
    if not forms:
        return None
    compared = forms.get(Form.ADAPTED) or forms[Form.SAVED]
    return scored_model(Identity(Kind.STUDENT, name=name), compared.fingerprint)


def over_recorded_seeds(run: Run) -> pd.DataFrame:
    """What the contextual teacher has added, beyond the recorded seeds and the examples.

    The student of this run is compared with that of the structural loss alone, in each seed for
    which runs of this notebook have recorded both. Columns task, seeds, examples, difference, low,
    high and p, see `over_seeds`; there are no rows for fewer than two seeds.
    """
    columns = ["task", "seeds", "examples", "difference", "low", "high", "p"]
    empty = pd.DataFrame(columns=columns)
    if "contextual" not in run.roles:
        return empty
    student = run.evaluation.model(run.evaluation.student)
    both: dict[object, Model] = {run.parameters["seed"]: student}
    alone: dict[object, Model] = {}
    for record in run.comparable():
        key = run.of_record(record)
        seed = key.parameters["seed"]
        model = recorded_model(record, record.label, f"{record.label}, seed {seed}")
        if model is None or key.only("documents") != run.only("documents"):
            continue
        if key.same_but("seed") == run.same_but("seed"):
            both.setdefault(seed, model)
        elif _is_structural_alone(key, run):
            alone.setdefault(seed, model)
    pairs = []
    for seed, model in both.items():
        pair = [model, alone.get(seed, model)]
        if seed in alone and all(map(run.scorer.is_scored, pair)):
            pairs.append(pair)
    if len(pairs) < 2:
        return empty
    scores = run.scorer.recorded(chain(*pairs))
    by_task = {}
    for task in scores[pairs[0][0].label]:
        rows = []
        for pair in pairs:
            first, second = (scores[model.label][task] for model in pair)
            rows.append(first.of_examples() - second.of_examples())
        by_task[task] = np.stack(rows)  # (S, N)
    frames = [(task, [d]) for task, d in by_task.items()]
    if len(frames) > 1:
        frames.append((OVERALL, list(by_task.values())))
    lines = []
    for task, parts in frames:
        examples = sum(d.shape[1] for d in parts)
        lines.append((task, len(pairs), examples, *over_seeds(parts)))
    return pd.DataFrame(lines, columns=columns)


def _scores(run: Run, evaluation: Final, others: Mapping[str, Other]) -> Scores:
    """The scores of the evaluated model and of the other runs, with the answer to each example.

    A run whose answers are gone is left out.
    """
    model = evaluation.model(evaluation.student)
    scores = run.scorer.recorded([model, *(other.model for other in others.values())])
    return scores if model.label in scores else {}


def _is_structural_alone(key: Run, beside: Run) -> bool:
    """Whether a run has the structural loss of another one and no other teacher."""
    alone = key.roles == {"structural"}
    return alone and key.only(*STRUCTURAL_LOSS) == beside.only(*STRUCTURAL_LOSS)


def _contextual_teacher(
    run: Run, evaluation: Final, others: Mapping[str, Other], scores: Scores
) -> str:
    """What the contextual teacher has added, or without a run to compare with, see `by_task`."""
    students = []  # with the structural loss of this run alone
    for label, other in others.items():
        if label in scores and _is_structural_alone(other.key, run):
            students.append(label)
    if "contextual" not in run.roles or not students:
        return evaluation.by_task()
    alone = students[0]
    pair = {name: scores[name] for name in (evaluation.student, alone)}
    tests = verdicts(differences(pair, alone))
    single = tests[tests["task"] != OVERALL]
    given = [*single.loc[single["verdict"] == BETTER, "task"]]
    taken = [*single.loc[single["verdict"] == WORSE, "task"]]
    sentence = f"{WITHOUT_CONTEXTUAL} ({alone}) it is {told(tests)}"
    if given and taken:
        sentence += (
            f": what the contextual teacher gives to {listed(given)}, it takes from {listed(taken)}"
        )
    return f"{sentence}."


def _recorded(run: Run, scores: Scores, elsewhere: int, *, is_final: bool) -> str:
    """The model with the best mean, and which others are shown to be worse or better on which task.

    At the end stand those that are not shown to differ in the mean.

    elsewhere: the number of runs that are not compared.
    """
    others = len(scores) - 1
    if others < 1:
        if elsewhere:
            runs = "run" if elsewhere == 1 else "runs"
            return f"Not compared: {elsewhere} recorded {runs} {ELSEWHERE}."
        return "" if is_final else FIRST
    means = over_tasks(score_intervals(scores)).set_index("model")
    best = str(means["value"].idxmax())
    documents = run.counting.get("documents")
    of = "" if documents is None else f" from {documents:,} documents"
    if elsewhere:
        of += f" (not compared: {elsewhere} {ELSEWHERE})"
    mean = with_interval(*means.loc[best, ["value", "low", "high"]])
    sentence = (
        f"Of {others + 1} recorded runs{of}, {_names([best], others)} ({mean}) has the best mean"
    )
    ties = means.index[means["value"] == means["value"][best]].drop(best)
    if len(ties):
        sentence += f", the same as {_names(ties, others)}"

    tests = verdicts(differences(scores, best))
    relations = []
    for relation, verdict, rows in (
        # Each test is of another model: where that is worse, the best one is better.
        (BETTER, WORSE, tests),
        (WORSE, BETTER, tests),
        (UNCLEAR, UNCLEAR, over_tasks(tests)),
    ):
        places: dict[tuple[str, ...], list[str]] = {}  # by the models of the verdict there
        for task, of_task in rows[rows["verdict"] == verdict].groupby("task", sort=False):
            place = "in the mean" if task == OVERALL else f"on {task}"
            places.setdefault(tuple(of_task["model"]), []).append(place)
        for models, where in places.items():
            relations.append(f"{RELATIONS[relation]} {_names(models, others)} {listed(where)}")
    takes = would_show(over_tasks(tests))  # of the last relation
    return f"{sentence}; by paired tests it is {'; '.join(relations)}{takes}."


def _names(models: Iterable[str], others: int) -> str:
    """Five names at most; of more models, four and the number of the rest, or `all 7 others`.

    Names of several parts are in quotation marks. others: the number of runs beside the best one.
    """
    names = [f"“{model}”" if "," in model else model for model in models]
    if len(names) > NAMED + 1:
        if len(names) == others:
            return f"all {others} others"
        names[NAMED:] = [f"{len(names) - NAMED} others"]
    return listed(names)
