"""The steps of `docemb adapt` by hand, each of which the notebook asserts to be the library's."""

import re

import papermill
import pytest
from conftest import REPOSITORY

NAMES = (
    "SBERT-256",
    "1 reads all",
    "2 weighs beginning",
    "3 centred",
    "4 whitened",
    "5 words alone",
    "6 both: adapt",
)


@pytest.mark.slow
def test_every_step_is_that_of_the_library_and_has_a_score(tmp_path):
    notebook = papermill.execute_notebook(
        str(REPOSITORY / "notebooks" / "08_adapt.ipynb"),
        str(tmp_path / "executed.ipynb"),
        parameters={"packages": "seaborn", "documents": 30},
        progress_bar=False,
    )
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    assert printed.count(": MAP ") == 7
    assert "The adapted student is " in printed
    said = " ".join(printed.split())  # its lines are wrapped
    steps = re.findall(r"'(\d [^']+)' after '([^']+)' \([+-]\d\.\d{3}", said)
    assert len(steps) == 6
    assert {after for after, _ in steps} == {*NAMES[1:5], NAMES[6]}
    assert {before for _, before in steps} == {*NAMES[:6]}
