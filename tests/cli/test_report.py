"""Pages of executed notebooks: formulas as MathML, and nothing that a browser must load."""

import nbformat
import pytest

from docemb_lib.cli.report import page_of


@pytest.mark.parametrize(
    ("text", "visible", "formulas"),
    [
        ("the loss $L_S$ of $y$", "the loss <math", 2),
        ("so\n\n$$L = \\frac1B\n\\sum_i \\lambda_i$$", "<mfrac><mn>1</mn><mi>B</mi></mfrac>", 1),
        ("$\\texttt{max\\_len}$", "max_len", 1),
        ("for $5\n\nor $6 or $7", "or $6 or $7", 0),
    ],
)
def test_formulas_of_a_page_are_mathml(text, visible, formulas):
    page = page_of(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)]))
    body = page[page.index("<body") :]
    assert visible in body
    assert body.count("<math") == formulas
    assert "<script src=" not in page
