"""The page that holds the whole method: what it says of itself, and that it runs to its end."""

import re
from pathlib import Path

import jupytext
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
CELLS = jupytext.read(FOLDER / "00_one_page.py").cells
CODE = [cell.source for cell in CELLS if cell.cell_type == "code"]
PROSE = [cell.source for cell in CELLS if cell.cell_type == "markdown"]


def lines_of(source: str) -> list[str]:
    return [line for line in source.splitlines() if line.strip()]


def test_the_page_has_at_most_400_lines():
    assert sum(len(lines_of(cell.source)) for cell in CELLS) <= 400


def test_the_library_is_imported_in_the_last_section_only():
    *_, last = [n for n, cell in enumerate(CELLS) if cell.source.startswith("---\n## ")]
    codes = [
        [c.source for c in part if c.cell_type == "code"] for part in (CELLS[:last], CELLS[last:])
    ]
    before, after = map("\n".join, codes)
    assert "docemb_lib" not in before
    assert "from docemb_lib" in after


@pytest.fixture(scope="module")
def executed(execute_alone, tmp_path_factory):
    """The page on a few pages of two packages."""
    small = {"documents": 12, "max_tokens": 300}
    packages = {"learning_from": "seaborn gensim", "held_out": "seaborn"}
    return execute_alone("00_one_page", tmp_path_factory.mktemp("one-page"), **small, **packages)


@pytest.mark.slow
@pytest.mark.parametrize(
    "what", ["hidden states", "loss", "its parts", "gradients", "embeddings", "MAP"]
)
def test_the_library_gives_the_same_numbers_as_the_page(executed, what):
    (difference,) = re.findall(
        rf"^{what} .*largest difference (\S+)", executed.stdout, re.MULTILINE
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
        executed.stdout,
        re.MULTILINE,
    )
    structural = {lam: float(last) for lam, last, _ in losses}
    assert [*structural] == ["0", "0.5", "1"]
    assert structural["1"] < structural["0"]


@pytest.mark.slow
def test_the_page_warns_of_nothing(executed):
    assert executed.stderr == ""
