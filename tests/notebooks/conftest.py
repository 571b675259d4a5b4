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
    """The functions that the cells of the module's `NOTEBOOK` define.

    Nothing else is run but their imports from torch.
    """
    path = request.config.rootpath / "notebooks" / request.module.NOTEBOOK
    cells = [cell.source for cell in jupytext.read(path).cells if cell.cell_type == "code"]
    functions = []
    for cell in cells:
        for part in ast.parse(cell).body:
            of_torch = isinstance(part, ast.ImportFrom) and str(part.module).startswith("torch")
            if of_torch or isinstance(part, ast.FunctionDef):
                functions.append(part)
    names = {"torch": torch, "F": F, "np": np}
    exec(compile(ast.Module(functions, type_ignores=[]), str(path), "exec"), names)
    return SimpleNamespace(**names)
