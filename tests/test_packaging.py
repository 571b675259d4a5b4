"""CITATION.cff and .ci/constraints.txt agree with the package and with the published results."""

import json
import re
import tomllib

import yaml
from conftest import REPOSITORY
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import docemb_lib

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CONSTRAINTS = (REPOSITORY / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines()


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
    extras = PROJECT["optional-dependencies"]
    lines = list(PROJECT["dependencies"])
    for name in ("offline", "onnx", "docs", "dev"):
        lines += extras[name]
    for wanted in map(Requirement, lines):
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
