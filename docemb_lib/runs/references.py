"""The references of `docemb evaluate`: recorded baselines, or models that need no training."""

from docemb_lib.runs import records
from docemb_lib.runs.kinds import Kind
from docemb_lib.runs.models import Model, models_of_table, on_task_models, sbert_models
from docemb_lib.runs.run import Run
from docemb_lib.settings.notebooks import EVALUATION
from docemb_lib.settings.profile import Profile


def references_of(run: Run, profile: Profile) -> list[Model]:
    """The recorded baselines of a profile whose scores on the tasks of a run are there.

    If there are none, the references are SBERT and what is fitted on the texts of a task.
    """
    references = [model for model in recorded_baselines(profile) if run.scorer.is_scored(model)]
    if references:
        return references
    sbert = sbert_models(run.teachers)
    return [*sbert, *on_task_models(sbert, None)]


def recorded_baselines(profile: Profile) -> list[Model]:
    """The baselines of the newest comparable final evaluation, with their scores alone."""
    for record in records.comparable(Run(EVALUATION.name, profile)):
        table = record.table("models")
        return models_of_table(table[table["kind"] != Kind.STUDENT])
    return []
