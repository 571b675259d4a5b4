"""Citation, constraints and the ways to install agree with the package and what it imports."""

import ast
import json
import re
import sys
import tomllib
from itertools import chain

import pytest
import yaml
from conftest import REPOSITORY
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import docemb_lib

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ENVIRONMENT = yaml.safe_load((REPOSITORY / "environment.yml").read_text(encoding="utf-8"))
CI = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
CONSTRAINTS = (REPOSITORY / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()
IMPORT_NAMES = {
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "IPython": "ipykernel",
    "tokenizers": "transformers",
    "accelerate": "transformers",  # its extra torch
    "distributed": "dask",  # its extra of this name
}


def dependencies(*extras):
    """The lines of the package's dependencies, and of those of these extras."""
    further = [PROJECT["optional-dependencies"][name] for name in extras]
    return [*PROJECT["dependencies"], *chain(*further)]


def constrained():
    """{package: version} of the constraints file, whose lines are comments or pinned versions."""
    lines = [line for line in CONSTRAINTS if line and not line.startswith("#")]
    pins = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines]
    assert all(pins)
    versions = {canonicalize_name(pin[1]): pin[2] for pin in pins}
    assert len(versions) == len(lines)
    return versions


def test_the_citation_has_the_fields_of_its_format_and_the_version_of_the_package():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == docemb_lib.__version__
    assert citation["license"] == PROJECT["license"]
    license_text = (REPOSITORY / "LICENSE").read_text(encoding="utf-8")
    holder = re.search(r"Copyright \(c\) \d+ (.+)", license_text)[1]
    assert [author["name"].lower() for author in citation["authors"]] == [holder.lower()]


def test_the_constraints_have_a_version_of_every_dependency_that_the_package_allows():
    versions = constrained()
    for wanted in map(Requirement, dependencies("offline", "onnx", "docs", "dev")):
        if wanted.name != PROJECT["name"]:
            assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), wanted


def test_the_constraints_have_the_versions_that_the_published_results_record():
    file = REPOSITORY / "outputs" / "published" / "embedded" / "record.json"
    recorded = json.loads(file.read_text(encoding="utf-8"))["versions"]
    packages = recorded.keys() - {"python", "docemb"}
    versions = constrained()
    assert len(packages) > 5
    for name in packages:
        public = Version(recorded[name]).public  # without the build, as in +cpu
        assert versions[canonicalize_name(name)] == public, name


@pytest.fixture(scope="module")
def from_pip():
    """The lines of environment.yml that pip reads."""
    (lines,) = [line["pip"] for line in ENVIRONMENT["dependencies"] if isinstance(line, dict)]
    return lines


@pytest.fixture(scope="module")
def torch_versions():
    """The versions of torch that pyproject.toml allows."""
    requirements = map(Requirement, PROJECT["dependencies"])
    (specifier,) = [line.specifier for line in requirements if line.name == "torch"]
    return specifier


def test_environment_and_pyproject_install_the_same_python():
    assert f"python{PROJECT['requires-python']}" in ENVIRONMENT["dependencies"]


def test_environment_and_pyproject_install_the_same_extras(from_pip):
    (editable,) = [line.removeprefix("-e .") for line in from_pip if line.startswith("-e .")]
    assert set(re.findall(r"\w+", editable)) == set(PROJECT["optional-dependencies"])


def test_environment_and_ci_install_a_torch_that_pyproject_allows(from_pip, torch_versions):
    (pin,) = [line.removeprefix("torch==") for line in from_pip if line.startswith("torch==")]
    assert pin in torch_versions
    assert f"pip install --quiet torch=={pin}" in CI


def test_every_package_that_the_library_imports_is_a_dependency():
    extras = PROJECT["optional-dependencies"].keys() - {"dev"}
    stated = {re.split(r"[<>=\[ ]", line)[0].lower() for line in dependencies(*extras)}
    imported = set()
    for path in (REPOSITORY / "docemb_lib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    third_party = imported - set(sys.stdlib_module_names) - {"docemb_lib"}
    packages = {IMPORT_NAMES.get(name, name).replace("_", "-").lower() for name in third_party}
    assert packages <= stated


def test_continuous_integration_calls_exactly_the_readmes_test_command():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"\*\*The tests:\*\* `(.+)`", readme)
    assert CI.splitlines()[-1] == command
