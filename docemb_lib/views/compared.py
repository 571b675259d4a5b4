"""What a chapter has found: paired tests between recorded models, by their short names."""

from docemb_lib.evaluation.scoreboard import listed, over_tasks, told, with_interval
from docemb_lib.evaluation.uncertainty import Scores, differences, score_intervals, verdicts
from docemb_lib.figures import short_names
from docemb_lib.runs.models import models_of_table
from docemb_lib.runs.run import Run
from docemb_lib.runs.scores import Final
from docemb_lib.settings.labels import student_name, typeset
from docemb_lib.settings.notebooks import CHAPTER_4, EVALUATION
from docemb_lib.thesis.comparison import LINES
from docemb_lib.thesis.findings import recorded_model


def recorded(run: Run, final: Final | None = None) -> Scores:
    """The scores of the models that a run can be compared with, by short name.

    These are its own model, its references, and the students of recorded runs of chapter 4 from as
    many documents and with the same seed. The name of a student that is taken already is replaced
    by the label of its run.

    final: the final evaluation; its students are those of other final evaluations. Beside a student
    that learns from pairs of texts they are the distilled ones, too, from any number of documents.
    """
    models = {}
    of_run = models_of_table((final or run.evaluation).models)
    names = short_names(run, of_run)
    for model in of_run:
        models[names[model.label]] = model
    fingerprints = {model.fingerprint for model in of_run}
    notebooks = [run.registered] if final is not None else CHAPTER_4
    size = ["documents", "seed"]
    if run.self_supervised:
        notebooks = [run.registered, EVALUATION]
        size.remove("documents")
    for notebook in notebooks:
        for record in sorted(run.comparable(notebook.name), key=lambda record: record.label):
            key = run.of_record(record)
            name = student_name(key.profile.parameters, from_pairs=key.self_supervised)
            if name in models or not key.trains:
                name = typeset(record.label)
            student = recorded_model(record, record.label, name)
            if student is None or key.only(*size) != run.only(*size):
                continue
            if student.fingerprint not in fingerprints:  # two notebooks may share a student
                models[name] = student
                fingerprints.add(student.fingerprint)
    scores = run.scorer.recorded(models.values())
    return {name: scores[model.label] for name, model in models.items() if model.label in scores}


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
