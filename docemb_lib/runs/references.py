"""The references of `docemb evaluate`: recorded baselines, or models that need no training."""

import logging

from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.kinds import Kind
from docemb_lib.runs.models import Model, models_of_table, on_task_models, sbert_models
from docemb_lib.runs.pipeline import Stages
from docemb_lib.runs.records import Record
from docemb_lib.runs.run import Run
from docemb_lib.settings.notebooks import EVALUATION
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace

logger = logging.getLogger(__name__)


def references_of(stages: Stages, profile: Profile) -> list[Model]:
    """The recorded baselines that are scored on the tasks of `stages`.

    A baseline whose score is recorded and no longer there is scored again where it can be made, and
    else named in a warning: without it, fewer tests would be corrected for. If there are no
    baselines, the references are SBERT and what is fitted on the texts of a task.
    """
    newest = _newest(profile, stages.workspace)
    references = []
    lost = []
    for model in recorded_baselines(profile, stages.workspace):
        if stages.scores.is_scored(model):
            references.append(model)
        elif newest is not None and _was_scored(model, newest, stages):
            references.append(model)
            lost.append(model)
    if references and not lost:
        return references
    sbert = sbert_models(stages.teachers)
    untrained = [*sbert, *on_task_models(stages.workspace, sbert, None)]
    if lost:
        rebuilt = {model.fingerprint: model for model in untrained}
        if not all(model.fingerprint in rebuilt for model in lost):  # their teachers are loaded now
            run = Run(stages.key, stages.workspace)
            rebuilt |= {model.fingerprint: model for model in run.references}
        _warn("scored again", [model for model in lost if model.fingerprint in rebuilt])
        gone = [model for model in lost if model.fingerprint not in rebuilt]
        _warn("left out, and not corrected for", gone)
        kept = [model for model in references if model not in gone]
        references = [rebuilt[m.fingerprint] if m in lost else m for m in kept]
    return references or untrained


def recorded_baselines(profile: Profile, workspace: Workspace) -> list[Model]:
    """The baselines of the newest comparable final evaluation.

    They are models without weights: only their scores can be read, which are artefacts.
    """
    newest = _newest(profile, workspace)
    if newest is None:
        return []
    table = records.table_of(workspace, newest, "models")
    baselines = table[table["kind"] != Kind.STUDENT]
    return models_of_table(baselines)


def _newest(profile: Profile, workspace: Workspace) -> Record | None:
    return next(iter(records.comparable(RunKey(EVALUATION.name, profile), workspace)), None)


def _was_scored(model: Model, record: Record, stages: Stages) -> bool:
    """Whether the record has scores on all tasks of `stages`, and some of this model."""
    scores = records.table_of(stages.workspace, record)
    if scores.empty:
        return False
    asked = set(stages.key.profile.evaluation.tasks)
    of_model = scores.loc[scores["model"] == model.label, "task"]
    return asked <= set(scores["task"]) and bool(asked & set(of_model))


def _warn(what: str, models: list[Model]) -> None:
    if models:
        labels = ", ".join(model.label for model in models)
        problem = "their recorded scores are missing or damaged"
        logger.warning("references that are %s: %s: %s", what, labels, problem)
