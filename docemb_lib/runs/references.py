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
    """The recorded baselines that are scored on the tasks of `stages`.

    If there are none, the references are SBERT and what is fitted on the texts of a task.
    """
    baselines = recorded_baselines(profile, stages.workspace)
    scored = [model for model in baselines if stages.scores.is_scored(model)]
    if scored:
        return scored
    sbert = sbert_models(stages.teachers)
    return [*sbert, *on_task_models(stages.workspace, sbert, None)]


def recorded_baselines(profile: Profile, workspace: Workspace) -> list[Model]:
    """The baselines of the newest comparable final evaluation.

    They are models without weights: only their scores can be read, which are artefacts.
    """
    newest = next(iter(records.comparable(RunKey(EVALUATION.name, profile), workspace)), None)
    if newest is None:
        return []
    table = records.table_of(workspace, newest, "models")
    baselines = table[table["kind"] != Kind.STUDENT]
    return models_of_table(baselines)
