"""What a notebook concludes: paired tests of its run on each task and in the mean over the tasks.

Training may help one task and harm another, which a mean hides.
"""

from itertools import chain

import numpy as np
import pandas as pd

from docemb_lib.evaluation.uncertainty import OVERALL, over_seeds
from docemb_lib.runs.kinds import TITLES, Form, Identity, Kind, short_titles
from docemb_lib.runs.models import Model, models_of_table, scored_model
from docemb_lib.runs.records import Record
from docemb_lib.runs.run import Run
from docemb_lib.runs.scores import Final
from docemb_lib.settings.notebooks import STRUCTURAL_LOSS
from docemb_lib.thesis.comparison import LINES


def conclusion(run: Run, final: Final | None = None) -> str:
    """At most five sentences on the scores of the run's model, each decided by paired tests.

    They say, in this order:

    - that the student has collapsed, and what to change then;
    - how its mean over the tasks stands beside the references;
    - the tasks on which training has changed the student; nothing of a collapsed student;
    - which model to use, after a final evaluation, and how much to trust this without labels.

    What a notebook asks beyond that stands in its section "What was found".

    final: the final evaluation; None: the validation scores.
    """
    # The settings of a run, the first table of its notebook, have its whole label.
    titles = short_titles(run.profile.structural_teacher.max_tokens)
    called = {TITLES[kind]: title for kind, title in titles.items()}
    called[run.label] = "this student" if run.trains else "this model"
    evaluation = (final or run.evaluation).called(called)
    # A model without a start is compared with the structural teacher by the second sentence.
    sentences = [run.collapse_note, evaluation.standing(practice=evaluation.before is not None)]
    if not run.collapse_note:
        sentences.append(evaluation.by_task())
    if final is not None:
        model, reason = evaluation.choice()
        sentences += [f"Take {model}: {reason}.", evaluation.without_labels]
    return "\n".join(map(LINES.fill, filter(None, sentences)))


def recorded_model(record: Record, name: str) -> Model | None:
    """The student of a record, in the form that is compared, with a name; None: it has none."""
    table = record.table("models")
    forms = {}
    for model in [] if table.empty else models_of_table(table):
        if model.identity._replace(form=Form.SAVED).label == record.label:
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
        model = recorded_model(record, record.label)
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


def _is_structural_alone(key: Run, beside: Run) -> bool:
    """Whether a run has the structural loss of another one and no other teacher."""
    alone = key.roles == {"structural"}
    return alone and key.only(*STRUCTURAL_LOSS) == beside.only(*STRUCTURAL_LOSS)
