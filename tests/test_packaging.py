"""CITATION.cff and .ci/constraints.txt agree with the package and with the records of the published
results.
"""

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
    """{package: version} of the constraints file, every line of which is a comment or one pinned
    version.
    """
    lines = [line for line in CONSTRAINTS if line and not line.startswith("#")]
    found = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines]
    assert all(found)
    versions = {canonicalize_name(match[1]): match[2] for match in found}
    assert len(versions) == len(lines)
    return versions


def test_the_citation_has_the_fields_of_its_format_and_the_version_of_the_package():
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == docemb_lib.__version__
    assert citation["license"] == PROJECT["license"]
    holder = re.search(
        r"Copyright \(c\) \d+ (.+)", (REPOSITORY / "LICENSE").read_text(encoding="utf-8")
    )[1]
    assert [author["name"].lower() for author in citation["authors"]] == [holder.lower()]
    references = citation["references"]
    assert all({"type", "title", "authors", "year"} <= reference.keys() for reference in references)
    names = [
        [author["family-names"] for author in reference["authors"]] for reference in references
    ]
    assert names == [
        ["Beltagy", "Peters", "Cohan"],
        ["Reimers", "Gurevych"],
        ["Le", "Mikolov"],
        ["Chang", "Xiang", "Hospedales"],
    ]


def test_the_constraints_have_a_version_of_every_dependency_that_the_package_allows():
    versions, extras = constrained(), PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *extras["offline"], *extras["docs"], *extras["dev"]]
    for wanted in map(Requirement, lines):
        if wanted.name != PROJECT["name"]:
            assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), wanted


def test_the_constraints_have_the_versions_that_the_published_results_record():
    record = json.loads(
        (REPOSITORY / "outputs" / "published" / "embedded" / "record.json").read_text(
            encoding="utf-8"
        )
    )
    packages = {
        name: version
        for name, version in record["versions"].items()
        if name not in ("python", "docemb")
    }
    versions = constrained()
    assert len(packages) > 5
    for name, version in packages.items():
        assert versions[canonicalize_name(name)] == Version(version).public, (
            name
        )  # without the build, as in +cpu
