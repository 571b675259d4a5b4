"""The examples in docstrings of losses run and print what they say."""

import doctest
import importlib

import pytest
import torch


@pytest.mark.parametrize("module", ["contextual", "projection", "structural"])
def test_examples_run(module):
    found = doctest.testmod(importlib.import_module(f"docemb_lib.losses.{module}"), extraglobs={"torch": torch})
    assert found.attempted > 0
    assert found.failed == 0
