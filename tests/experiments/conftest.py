"""What tests of runs share: a workspace, and plans of its small profile."""

import pytest

from docemb_lib.experiments.plan import resolve_plan
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace


@pytest.fixture
def workspace(workspace_root):
    return Workspace(workspace_root)


@pytest.fixture
def params(workspace_root):
    """The folder of profiles, with a grid of two λ and another profile beside the small one."""
    folder = workspace_root / "params"
    (folder / "grids").mkdir()
    (folder / "grids" / "lams.yaml").write_text("{notebook: 05_weighting, axes: {lam: [0.5, 0.8]}}", encoding="utf-8")
    (folder / "other.yaml").write_text("base: small.yaml\nname: other\nparameters: {documents: 30}", encoding="utf-8")
    return folder


@pytest.fixture
def plan_of(workspace, params):
    def resolve(runs, **selection):
        small, path = (params / "small.yaml").read_text(encoding="utf-8"), params / "planned.yaml"
        path.write_text(small[: small.index("plan:")].replace("name: small", "name: planned") + f"plan: {runs}\n")
        return resolve_plan(Profile.load(path), str(path), workspace, **selection)

    return resolve
