"""The references of `docemb evaluate`: recorded baselines, or models that need no training."""

from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.kinds import Kind
from docemb_lib.runs.models import Model, models_of_table, on_task_models, sbert_models
from docemb_lib.runs.pipeline import Stages
from docemb_lib.settings.notebooks import EVALUATION
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace


def references_of(stages: Stages, profile: Profile) -> list[Model]:
    """The recorded baselines whose scores on the tasks of `stages` are there.

    If there are none, the references are SBERT and what is fitted on the texts of a task.
    """
    recorded = recorded_baselines(profile, stages.workspace)
    references = [model for model in recorded if stages.scores.is_scored(model)]
    if references:
        return references
    sbert = sbert_models(stages.teachers)
    return [*sbert, *on_task_models(stages.workspace, sbert, None)]


def recorded_baselines(profile: Profile, workspace: Workspace) -> list[Model]:
    """The baselines of the newest comparable final evaluation.

    They are models without weights: only their scores can be read, which are artefacts.
    """
    for record in records.comparable(RunKey(EVALUATION.name, profile), workspace):
        table = records.table_of(workspace, record, "models")
        return models_of_table(table[table["kind"] != Kind.STUDENT])
    return []
