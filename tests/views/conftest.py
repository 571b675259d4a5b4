"""Runs of the small profile."""

from __future__ import annotations

import pytest

from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings import FurtherTeacher
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace


@pytest.fixture
def make_run(workspace_root):
    def make(notebook, further=(), changes=None, **parameters):
        teachers = [FurtherTeacher(**teacher) for teacher in further]
        profile = Profile.load("small").model_copy(update={"further_teachers": teachers, **(changes or {})})
        return Run(RunKey.of(notebook, profile, **parameters), Workspace(workspace_root))

    return make
