"""The folders are layers: a module imports only from its own folder or from one above it."""

import ast
import subprocess
import sys
from pathlib import Path

import networkx as nx
import pytest

LIBRARY = Path(__file__).resolve().parent.parent / "docemb_lib"
LAYERS = [
    "base",
    "settings",
    "corpus",
    "packed",
    "teachers",
    "student",
    "losses",
    "training",
    "evaluation",
    "runs",
    "thesis",
    "figures",
    "views",
    "widgets",
    "cli",
]


def imported(path: Path) -> set[str]:
    """The rooms of docemb_lib that a module imports, at any depth of its code."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("docemb_lib.")}
    return rooms - {"__version__"}


@pytest.mark.parametrize(
    "path", sorted(LIBRARY.rglob("*.py")), ids=lambda p: str(p.relative_to(LIBRARY))
)
def test_a_module_imports_only_from_above(path):
    room = path.relative_to(LIBRARY).parts[0].removesuffix(".py")
    if room == "__init__":
        return  # the public names, loaded when asked for
    for other in imported(path):
        assert LAYERS.index(other) <= LAYERS.index(room), (
            f"{path.name} in {room} imports {other}, which lies below it"
        )


def modules() -> dict[str, Path]:
    """Every module by its dotted name."""
    paths = {}
    for path in LIBRARY.rglob("*.py"):
        parts = path.relative_to(LIBRARY.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        paths[name] = path
    return paths


def test_no_module_imports_itself_by_way_of_others_not_even_for_types():
    known = modules()
    graph = nx.DiGraph()
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                places = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = (place if place in known else node.module for place in places)
                graph.add_edges_from((name, target) for target in targets)
    graph = graph.subgraph(known)
    assert [*nx.simple_cycles(graph)] == []
    assert graph.number_of_edges() > 200


def test_only_runs_know_papermill():
    users = set()
    for path in LIBRARY.rglob("*.py"):
        if "import papermill" in path.read_text():
            users.add(path.relative_to(LIBRARY).parts[0])
    assert users == {"runs"}


def test_importing_loads_no_torch_and_the_command_line_nothing_that_takes_long():
    code = """
import sys, docemb_lib.cli.__main__
print(sorted({"numpy", "pandas", "scipy", "torch"} & set(sys.modules)))
import docemb_lib.runs.plan, docemb_lib.runs.sweep
from docemb_lib import Profile, Run, grid, records, sweep
grid("structural")
print(sorted({"torch", "dask", "distributed"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "[]"]
