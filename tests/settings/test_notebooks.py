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


@pytest.mark.parametrize("name", ["00", "09_own_documents"])
def test_a_notebook_that_makes_no_run_is_refused_with_the_way_to_execute_it(refused, name):
    refused("make no run of a profile: open them in JupyterLab", notebooks.notebook_named, name)


@pytest.mark.parametrize("name", ["03", "3", 3, "03_structural"])
def test_a_notebook_is_known_by_its_number_with_and_without_the_zero(name):
    assert notebooks.notebook_named(name) == "03_structural"


def test_the_registry_is_in_the_order_of_the_names():
    assert list(REGISTRY) == sorted(REGISTRY)
