"""The page that holds the whole method: what it says of itself, and that it runs to its end."""

import ast
import os
import re
import shutil
from pathlib import Path
from unittest import mock

import jupytext
import nbformat
import papermill
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
CELLS = jupytext.read(FOLDER / "00_one_page.py").cells
CODE = [cell.source for cell in CELLS if cell.cell_type == "code"]
PROSE = [cell.source for cell in CELLS if cell.cell_type == "markdown"]
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
SMALL = {
    "documents": 12,
    "max_tokens": 300,
    "learning_from": "seaborn gensim",
    "held_out": "seaborn",
}


def modules_of(source: str) -> set[str]:
    """The packages that code imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
    return {name.partition(".")[0] for name in found}


def lines_of(source: str) -> list[str]:
    return [line for line in source.splitlines() if line.strip()]


def test_the_page_has_at_most_400_lines():
    assert sum(len(lines_of(cell.source)) for cell in CELLS) <= 400


def test_the_library_is_imported_in_the_last_section_only():
    headings = [place for place, cell in enumerate(CELLS) if cell.source.startswith("---\n## ")]
    before = [cell.source for cell in CELLS[: headings[-1]] if cell.cell_type == "code"]
    after = [cell.source for cell in CELLS[headings[-1] :] if cell.cell_type == "code"]
    assert "docemb_lib" not in set().union(*map(modules_of, before))
    assert "docemb_lib" in set().union(*map(modules_of, after))
    assert not [source for source in before if "import_module" in source]


def test_the_method_is_defined_on_the_page():
    trees = [node for source in CODE for node in ast.parse(source).body]
    names = {node.name for node in trees if isinstance(node, DEFINITIONS)}
    assert {
        "read_pages",
        "tokenize",
        "banded_attention",
        "encode",
        "embed",
        "average_precision",
        "cosine_loss",
        "Decorrelation",
        "Objective",
        "schedule",
        "train",
    } <= names


def test_a_definition_has_at_most_25_lines():
    trees = [node for source in CODE for node in ast.parse(source).body]
    lengths = {
        node.name: node.end_lineno - node.lineno + 1
        for node in trees
        if isinstance(node, DEFINITIONS)
    }
    assert not {name: length for name, length in lengths.items() if length > 25}


def test_there_are_at_most_ten_words_for_a_line_of_code():
    words = sum(len(re.findall(r"\w+", text)) for text in PROSE)
    assert words <= 10 * sum(len(lines_of(source)) for source in CODE)


@pytest.fixture(scope="module")
def executed(tmp_path_factory) -> nbformat.NotebookNode:
    """The page, executed on its own in an empty folder."""
    folder = tmp_path_factory.mktemp("one-page")
    shutil.copy(FOLDER / "00_one_page.ipynb", folder)
    with mock.patch.dict(os.environ):
        os.environ.pop("MPLBACKEND", None)  # the kernel shows figures as that of a user does
        return papermill.execute_notebook(
            str(folder / "00_one_page.ipynb"),
            str(folder / "executed.ipynb"),
            parameters=SMALL,
            cwd=str(folder),
            progress_bar=False,
        )


def printed(notebook: nbformat.NotebookNode, name: str) -> str:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output["text"] for output in outputs if output.get("name") == name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", ["hidden states", "loss", "its parts", "gradients", "embeddings", "MAP"]
)
def test_the_library_gives_the_same_numbers_as_the_page(executed, what):
    (difference,) = re.findall(
        rf"^{what} .*largest difference (\S+)", printed(executed, "stdout"), re.MULTILINE
    )
    assert float(difference) < 2e-5


@pytest.mark.slow
def test_the_page_compares_its_three_students_and_draws_them(executed):
    (found,) = [cell for cell in executed.cells if "found" in cell.metadata.get("tags", [])]
    said = "".join(output["text"] for output in found.outputs)
    for other in ("start", "SBERT-256", "λ = 0", "λ = 1"):
        assert re.search(rf" {other} \(0\.\d{{3}}; [+-]\d\.\d{{3}} \[", said)
    (picture,) = [cell for cell in executed.cells if "picture" in cell.metadata.get("tags", [])]
    assert "image/png" in picture.outputs[0]["data"]


@pytest.mark.slow
def test_the_structural_loss_is_lowest_where_it_alone_counts(executed):
    losses = re.findall(
        r"^λ = (\S+) +structural \S+, \S+ → (\S+) +contextual \S+, \S+ → (\S+)",
        printed(executed, "stdout"),
        re.MULTILINE,
    )
    structural = {lam: float(last) for lam, last, _ in losses}
    assert [*structural] == ["0", "0.5", "1"]
    assert structural["1"] < structural["0"]


@pytest.mark.slow
def test_the_page_warns_of_nothing(executed):
    assert printed(executed, "stderr") == ""
