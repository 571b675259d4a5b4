"""The steps of `docemb adapt` by hand, each of which the notebook asserts to be the library's."""

import papermill
import pytest
from conftest import REPOSITORY


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
    assert "docemb adapt beside 'the encoder, first 256 tokens': " in printed
