"""Train one student without a notebook, alone or in several processes: the `docemb train` command."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from docemb_lib.errors import InputError
from docemb_lib.experiments.check import check
from docemb_lib.experiments.labels import slug_of
from docemb_lib.experiments.processes import is_first, together
from docemb_lib.experiments.stages import Stages
from docemb_lib.profile import Profile
from docemb_lib.workspace import Workspace

NOTEBOOK = "06_evaluation"  # whose parameters a student has, and which finds it trained


class Trained(NamedTuple):
    folder: str  # as people are told it
    before: float  # mean validation loss
    after: float


def distil(profile: str | Path, parameters: dict[str, Any]) -> Trained | None:
    """The student of a profile with these parameters, trained if it is not there yet; None in all processes but the
    first. Raises InputError for values that do not fit, before anything starts."""
    resolved = Profile.load(profile).for_notebook(NOTEBOOK, **parameters)
    stages = Stages(resolved, Workspace())
    check(stages, NOTEBOOK)
    with together():
        student = stages.trained_student()
    if not is_first():
        return None
    _, validation = stages.history(student)
    link = stages.workspace.link("students", slug_of(NOTEBOOK, resolved), student.path)
    losses = validation["loss"]
    return Trained(stages.workspace.shown(link), float(losses.iloc[0]), float(losses.iloc[-1]))


def parse_parameters(given: list[str]) -> dict[str, Any]:
    """`NAME=VALUE` each, values as in YAML, and None as papermill reads it. Raises InputError for anything else."""
    parameters: dict[str, Any] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise InputError(f"-p {text}: write NAME=VALUE, as in -p lam=0.5")
        try:
            parsed = None if value.strip() == "None" else yaml.safe_load(value)
        except yaml.YAMLError:
            parsed = value
        parameters[name.strip()] = value if isinstance(parsed, list | dict) else parsed  # "-" is a projection
    return parameters
