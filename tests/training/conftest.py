"""The small distillation of `distil.py`, as a module."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

PROGRAM = Path(__file__).parent / "distil.py"


@pytest.fixture(scope="session")
def distil() -> ModuleType:
    specification = importlib.util.spec_from_file_location("distil", PROGRAM)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
