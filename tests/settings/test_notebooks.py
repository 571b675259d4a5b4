"""The registry of the notebooks agrees with the notebook parameters and with itself."""

import pytest

from docemb_lib.settings import notebooks
from docemb_lib.settings.notebooks import REGISTRY
from docemb_lib.settings.parameters import Parameters


@pytest.mark.parametrize("notebook", REGISTRY.values(), ids=lambda notebook: notebook.name)
def test_a_notebook_takes_and_fixes_known_parameters_and_none_twice(notebook):
    names = [*notebook.parameters, *notebook.fixed]
    assert set(names) <= set(Parameters.model_fields)
    assert len(set(names)) == len(names)


def test_notebooks_are_known_by_what_they_do():
    assert tuple(REGISTRY)[2:] == notebooks.TRAINING
    assert notebooks.SELF_SUPERVISED == ("07_simde",)
    assert notebooks.FINAL == ("06_evaluation", "07_simde")
    assert tuple(REGISTRY)[3:] == notebooks.BESIDE_CONTEXTUAL
