"""Pages of executed notebooks: formulas as MathML, and nothing that a browser must load."""

from types import SimpleNamespace

import nbformat
import pytest
from conftest import docemb

from docemb_lib.cli.report import collapsed_runs, page_of
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.records import COLLAPSE_MEND, find_done
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile


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


def test_the_runs_whose_students_have_collapsed_are_named_with_what_to_change(workspace):
    planned = []
    for lam, spread, collapsed in ((0.2, 0.003, 1), (0.8, 0.4, 0)):
        run = Run(RunKey.of("05_weighting", Profile.load("small"), lam=lam), workspace)
        run.finish({"spread": spread, "spread_before": 0.2, "collapsed": collapsed})
        record = find_done(workspace, run.notebook, run.fingerprint)
        planned.append(SimpleNamespace(record=lambda _, record=record: record))
    (line,) = collapsed_runs(planned, workspace)
    assert line.startswith("05_weighting")
    assert "λ=0.2" in line
    assert line.endswith(COLLAPSE_MEND)


def test_a_run_whose_executed_notebook_is_missing_is_named(workspace_root, caplog):
    run = Run(RunKey("01_corpus", Profile.load("small")))
    run.finish({})
    done = docemb("report", "--profile", "small")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"left out: 01_corpus ({run.label}): the executed notebook is missing" in caplog.text
