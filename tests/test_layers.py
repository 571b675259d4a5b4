"""The folders are layers: a module imports only from its own folder or from one above it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

LIBRARY = Path(__file__).resolve().parent.parent / "docemb_lib"
LAYERS = [
    "errors", "private", "progress", "projections", "hardware", "integrity", "worker_pool", "tokenizing", "pretrained", "settings", "workspace", "saving", "corpus", "teachers", "student", "losses", "doctor",
    "training", "evaluation", "experiments", "thesis", "figures", "views", "widgets", "bench", "cli"]  # fmt: skip


def imported(path: Path) -> set[str]:
    """The rooms of docemb_lib that a module imports, at any depth of its code."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("docemb_lib.")}
    return rooms - {"__version__"}


@pytest.mark.parametrize("path", sorted(LIBRARY.rglob("*.py")), ids=lambda p: str(p.relative_to(LIBRARY)))
def test_a_module_imports_only_from_above(path):
    room = path.relative_to(LIBRARY).parts[0].removesuffix(".py")
    if room == "__init__":
        return  # the public names, loaded when asked for
    for other in imported(path):
        assert LAYERS.index(other) <= LAYERS.index(room), f"{path.name} in {room} imports {other}, which lies below it"


def test_only_experiments_know_papermill():
    users = {p.relative_to(LIBRARY).parts[0] for p in LIBRARY.rglob("*.py") if "import papermill" in p.read_text()}
    assert users == {"experiments"}


def test_importing_loads_neither_torch_nor_dask_and_the_command_line_nothing_that_takes_long():
    code = """
import sys, docemb_lib.cli.__main__
print(sorted({"numpy", "pandas", "scipy", "torch"} & set(sys.modules)))
import docemb_lib.sweeps.plan, docemb_lib.sweeps.sweep, docemb_lib.widgets.monitor
from docemb_lib import Profile, Workspace, grid, records, sweep
grid("structural")
print(sorted({"torch", "dask", "distributed"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]
