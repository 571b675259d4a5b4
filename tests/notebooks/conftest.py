"""What the tests of the cells of a notebook share."""

import ast
from types import SimpleNamespace

import jupytext
import numpy as np
import pytest
import torch
import torch.nn.functional as F


@pytest.fixture(scope="module")
def defined(request):
    """The functions that the cells of the module's `NOTEBOOK` define; nothing else is run."""
    path = request.config.rootpath / "notebooks" / request.module.NOTEBOOK
    cells = [cell.source for cell in jupytext.read(path).cells if cell.cell_type == "code"]
    functions = []
    for cell in cells:
        functions += [part for part in ast.parse(cell).body if isinstance(part, ast.FunctionDef)]
    names = {"torch": torch, "F": F, "np": np}
    exec(compile(ast.Module(functions, type_ignores=[]), str(path), "exec"), names)
    return SimpleNamespace(**names)
