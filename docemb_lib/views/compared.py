"""What a chapter has found: paired tests between recorded models, by their short names."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from docemb_lib.evaluation.scoreboard import listed, over_tasks, told, with_interval
from docemb_lib.evaluation.uncertainty import Scores, differences, score_intervals, verdicts
from docemb_lib.figures import short_names
from docemb_lib.runs.models import Model, models_of_table, student_model, teacher_model
from docemb_lib.runs.run import Run
from docemb_lib.runs.scores import Final
from docemb_lib.settings.notebooks import CHAPTER_4, EVALUATION
from docemb_lib.thesis.comparison import LINES
from docemb_lib.views.students import recorded_students


def recorded(run: Run, final: Final | None = None) -> Scores:
    """The scores of the models that a run can be compared with, by short name.

    These are its own model, its references, and the students of recorded runs of chapter 4 from as
    many documents and with the same seed. A student whose name is taken has the label of its
    run, or its projection added where that is another than in this run.

    final: the final evaluation; its students are those of other final evaluations. Beside a student
    that learns from pairs of texts they are the distilled ones, too, from any number of documents.
    """
    of_run = models_of_table((final or run.evaluation).models)
    names = short_names(run, of_run)
    models = {names[model.label]: model for model in of_run}
    notebooks = [run.registered] if final is not None else CHAPTER_4
    if run.self_supervised:
        notebooks = [run.registered, EVALUATION]
    for name, _, student in recorded_students(run, notebooks, models):
        models[name] = student
    scores = run.scorer.recorded(models.values())
    return {name: scores[model.label] for name, model in models.items() if model.label in scores}


def held_out_embeddings(run: Run) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The embeddings of N documents of the sweep tasks, which no training has seen.

    Returns those of the students among the models of `recorded`, (N, D) each, by the same names,
    and those of the contextual teacher, (N, C), which is PV for a run without one.
    """
    own = [run.untrained, run.model]
    names = short_names(run, own)
    students = {names[model.label]: model for model in own}
    for name, record, _ in recorded_students(run, CHAPTER_4, students):
        if record.student_folder is not None:
            students[name] = student_model(name, record.student_folder)
    contextual = run.teachers.contextual(run.profile.parameters.contextual_teacher or "PV")
    texts = run.scorer.texts()
    embedded = {name: student.embed(texts) for name, student in students.items()}
    return embedded, teacher_model(contextual, name="").embed(texts)


class Weighted(NamedTuple):
    """A student, and how the losses of its two teachers were weighted."""

    lam: float  # of the structural loss
    max_structural_len: int | None
    model: Model  # for its scores
    folder: Path | None  # of the student; None: it is gone


def by_weighting(run: Run) -> dict[str, Weighted]:
    """This run's student and recorded ones that differ from it in λ and mask alone, by short name.

    The plain sum has λ .5. A student of one of the two teachers alone has λ 1 or 0. This run comes
    first, the others follow by λ, those without a mask before those with one.
    """
    own = run.model.called(run.name)
    students = recorded_students(
        run,
        CHAPTER_4,
        {own.label: own},
        is_comparable=lambda key: _differs_in_weights(key, run),
    )
    others = []
    for _, record, student in students:
        others.append(_weighted(run.of_record(record), student, record.student_folder))
    others.sort(key=lambda each: (each.lam, each.max_structural_len or 0))
    return {each.model.label: each for each in [_weighted(run, own, run.student), *others]}


def _weighted(key: Run, model: Model, folder: Path | None) -> Weighted:
    p = key.profile.parameters
    lam = 0.5 if p.lam is None else p.lam
    if len(p.roles) < 2:
        lam = 1.0 if "structural" in p.roles else 0.0
    return Weighted(lam, p.max_structural_len, model, folder)


def _differs_in_weights(key: Run, run: Run) -> bool:
    """Whether a recorded student differs from that of a run in λ and mask alone.

    Teachers that the recorded student lacks do not count.
    """
    settings = dict(key.counting)
    for name in ("lam", "max_structural_len"):
        settings.pop(name, None)
    return key.trains and settings.items() <= run.counting.items()


def compared(scores: Scores, first: str, second: str) -> str:
    """Write how one model stands beside another, decided by paired tests on each task.

    An example is `S+PV (.821 [.81, .84]) beside S (cosine) (.799 [.78, .81]): better in the mean
    (+.022, p < .001).` Models that are not recorded are named.
    """
    missing = [name for name in (first, second) if name not in scores]
    if missing:
        return LINES.fill(f"Not compared, because it is not recorded: {listed(missing)}.")
    pair = {name: scores[name] for name in (first, second)}
    means = over_tasks(score_intervals(pair)).set_index("model")
    both = [
        f"{name} ({with_interval(*means.loc[name, ['value', 'low', 'high']])})" for name in pair
    ]
    tests = verdicts(differences(pair, second))
    return LINES.fill(f"{both[0]} beside {both[1]}: {told(tests)}.")
