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


@pytest.fixture(scope="module")
def graph() -> nx.DiGraph:
    """An edge from each module to those that it imports, at any depth of its code."""
    known = {}
    for path in LIBRARY.rglob("*.py"):
        parts = path.relative_to(LIBRARY.parent).with_suffix("").parts
        known[".".join(parts).removesuffix(".__init__")] = path
    graph = nx.DiGraph()
    for name, path in known.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                graph.add_edges_from((name, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                places = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = (place if place in known else node.module for place in places)
                graph.add_edges_from((name, target) for target in targets)
    return graph.subgraph(known)


def test_a_module_imports_only_from_above(graph):
    for name, other in graph.edges:
        if LIBRARY.name not in (name, other):  # the public names, loaded when asked for
            room, above = (LAYERS.index(each.split(".")[1]) for each in (name, other))
            assert above <= room, f"{name} imports {other}, which lies below it"


def test_no_module_imports_itself_by_way_of_others_not_even_for_types(graph):
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
