"""What tests of runs share: plans of the small profile."""

import pytest
from conftest import write_files

from docemb_lib.runs.plan import resolve_plan
from docemb_lib.settings.profile import Profile


@pytest.fixture
def params(workspace_root):
    """The folder of profiles, with a grid of two λ and another profile beside the small one."""
    grid = "{notebook: 05_weighting, axes: {lam: [0.5, 0.8]}}"
    other = "base: small.yaml\nname: other\nparameters: {documents: 30}"
    return write_files(workspace_root / "params", {"grids/lams.yaml": grid, "other.yaml": other})


@pytest.fixture
def plan_of(params):
    def resolve(runs, **selection):
        path = params / "planned.yaml"
        path.write_text(f"base: small.yaml\nname: planned\nplan: {runs}\n")
        return resolve_plan(Profile.load(path), **selection)

    return resolve
