"""Texts of others in files for spreadsheets."""

import io

import pandas as pd
import pytest
from conftest import docemb

from docemb_lib.base.errors import spreadsheet_cell
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile

FORMULAS = ["=1+1", "=cmd|' /C calc'!A0", "+1", "@SUM(A1)", "\t=1", "-1+cmd|' /C calc'!A0"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_a_spreadsheet_would_run_begins_with_an_apostrophe(text):
    assert spreadsheet_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-", "-0.5", "-2e-5", "a=b", "cosine;λ=0.5", "", 1.5, None, -3])
def test_other_values_stay_as_they_are(value):
    assert spreadsheet_cell(value) == value


def test_results_as_csv_hold_no_formula_of_a_profiles_name(workspace_root):
    name = "=HYPERLINK(1)"
    run = Run("01_corpus", Profile.load("small").model_copy(update={"name": name}))
    run.finish({"documents": 3, "share": -0.5})
    done = docemb("results", "--csv")
    (row,) = pd.read_csv(io.StringIO(done.stdout)).to_dict("records")
    assert (row["profile"], row["documents"], row["share"]) == (f"'{name}", 3, -0.5)
