"""The two ways to install agree, and depend on what the code imports; a kernel of another environment says so."""

from __future__ import annotations

import ast
import logging
import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from docemb_lib import environment

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORT_NAMES = {
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "IPython": "ipykernel",
    "tokenizers": "transformers",
    "faiss": "faiss-cpu",
}


def test_environment_and_pyproject_pin_the_same_torch_and_python_and_install_the_same_extras():
    environment = yaml.safe_load((REPOSITORY / "environment.yml").read_text(encoding="utf-8"))
    conda = [line for line in environment["dependencies"] if isinstance(line, str)]
    (pip,) = [line["pip"] for line in environment["dependencies"] if isinstance(line, dict)]
    assert f"python{PROJECT['requires-python']}" in conda
    pinned = [line for line in PROJECT["dependencies"] if line.startswith("torch")]
    assert pinned == ["torch==2.13.0"]
    assert pinned[0] in pip
    (editable,) = [line for line in pip if line.startswith("-e .")]
    extras = set(re.findall(r"\w+", editable.removeprefix("-e .")))
    assert extras == set(PROJECT["optional-dependencies"])


def test_every_package_that_the_library_imports_is_a_dependency():
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for name, lines in extras.items() if name != "dev" for line in lines)]
    stated = {re.split(r"[<>=\[ ]", line)[0].lower() for line in lines}
    imported = set()
    for path in (REPOSITORY / "docemb_lib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    third_party = imported - set(sys.stdlib_module_names) - {"docemb_lib"}
    missing = {n for n in third_party if IMPORT_NAMES.get(n, n).replace("_", "-").lower() not in stated}
    assert not missing


def test_continuous_integration_calls_exactly_the_readmes_test_command():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"The tests:\n\n```bash\n(.+)\n```", readme)
    assert (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1] == command


def test_this_environment_is_the_one_asked_for_and_nothing_is_said(caplog):
    environment.warn_of_other_versions()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("numpy>=1000", [f"numpy {version('numpy')}, not >=1000"]),
        (f"torch=={version('torch').partition('+')[0]}", []),  # a build for one kind of hardware is that version too
        ("no-such-package>=1", ["no-such-package is missing"]),
        ('no-such-package>=1; sys_platform == "nowhere"', []),
        ('no-such-package>=1; extra == "cluster"', []),
    ],
)
def test_a_requirement_is_unmet_where_another_version_or_none_is_installed(line, said):
    assert environment.unmet_requirements([line]) == said


def test_an_old_environment_is_told_of_in_one_line_with_what_to_do(monkeypatch, tmp_path, caplog):
    project = '[project]\nrequires-python = ">=9"\ndependencies = ["numpy>=1000", "pandas>=1"]\n'
    (tmp_path / "pyproject.toml").write_text(project, encoding="utf-8")
    monkeypatch.setattr(environment, "PROJECT", tmp_path / "pyproject.toml")
    environment.warn_of_other_versions()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    python = ".".join(map(str, sys.version_info[:3]))
    assert f": python {python}, not >=9; numpy {version('numpy')}, not >=1000; choose another kernel" in record.message
    assert "\n" not in record.message
    assert "pandas" not in record.message
