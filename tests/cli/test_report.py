"""Pages of executed notebooks: formulas as MathML, and nothing that a browser would have to load."""

import nbformat
import pytest

from docemb_lib.cli.report import page_of


@pytest.mark.parametrize(("text", "shown", "formulas"), [
    ("the loss $L_S$ of $y$", "the loss <math", 2),
    ("so\n\n$$L = \\frac1B\n\\sum_i \\lambda_i$$", "<mfrac><mn>1</mn><mi>B</mi></mfrac>", 1),
    ("$\\texttt{max\\_len}$", "max_len", 1),
    ("`$HOME` and `$x$`", "<code>$HOME</code> and <code>$x$</code>", 0),
    ("it costs $5\n\nor $6", "it costs $5</p>", 0)])  # fmt: skip
def test_formulas_of_a_page_are_mathml_and_other_dollars_stay(tmp_path, text, shown, formulas):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    nbformat.write(notebook, tmp_path / "one.ipynb")
    page = page_of(tmp_path / "one.ipynb")
    body = page[page.index("<body") :]
    assert shown in body
    assert body.count("<math") == formulas
    assert "<script src=" not in page
