"""What the tests of the cells of a notebook share."""

import __future__

import ast
import os
import shutil
from types import SimpleNamespace
from unittest import mock

import jupytext
import numpy as np
import papermill
import pytest
import torch
import torch.nn.functional as F
from conftest import REPOSITORY


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
    # Annotations may name what the cells import: they are not evaluated.
    lazily = __future__.annotations.compiler_flag
    exec(compile(ast.Module(functions, type_ignores=[]), str(path), "exec", lazily), names)
    return SimpleNamespace(**names)


@pytest.fixture(scope="session")
def execute_alone():
    """Execute a notebook in a folder that holds nothing else of docemb.

    Returns the folder, the cells, their outputs, and what they printed to stdout and stderr.
    """

    def execute(name, folder, **parameters):
        shutil.copy(REPOSITORY / "notebooks" / f"{name}.ipynb", folder)
        files = [str(folder / file) for file in (f"{name}.ipynb", "executed.ipynb")]
        options = {"parameters": parameters, "cwd": str(folder), "progress_bar": False}
        with mock.patch.dict(os.environ):
            os.environ.pop("MPLBACKEND", None)  # the kernel shows figures as that of a user does
            cells = papermill.execute_notebook(*files, **options).cells
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        printed = {"stdout": "", "stderr": ""}
        for output in outputs:
            if output.output_type == "stream":
                printed[output.name] += output.text
        return SimpleNamespace(folder=folder, cells=cells, outputs=outputs, **printed)

    return execute
