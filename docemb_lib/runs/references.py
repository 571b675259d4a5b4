"""The references of `docemb evaluate`: what a final evaluation has scored, or what needs no
training.
"""

from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.models import FORMS, Model, on_task_models, sbert_models
from docemb_lib.runs.pipeline import Stages
from docemb_lib.settings.profile import FINAL, Profile
from docemb_lib.workspace import Workspace


def references_of(stages: Stages, profile: Profile) -> list[Model]:
    """The recorded baselines that are scored on the tasks of `stages`; without any, the references
    without training.
    """
    if scored := [
        one for one in recorded_baselines(profile, stages.workspace) if stages.scores.is_scored(one)
    ]:
        return scored
    sbert = sbert_models(stages.teachers, together=True)
    return [*sbert, *on_task_models(stages.workspace, sbert, None)]


def recorded_baselines(profile: Profile, workspace: Workspace) -> list[Model]:
    """The baselines of the newest comparable final evaluation, without weights: their scores are
    artefacts.
    """
    if not (found := records.comparable(RunKey(FINAL[0], profile), workspace)):
        return []
    own = {f"{found[0].label}{form}" for form in FORMS}
    table = records.table_of(workspace, found[0], "models")
    kept = table.loc[~table["model"].isin(own), ["model", "fingerprint", "fitted on", "ranks_only"]]
    rows = kept.itertuples(index=False)
    return [Model(label, key, fitted_on=seen, ranks_only=only) for label, key, seen, only in rows]
