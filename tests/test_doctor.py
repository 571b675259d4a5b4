"""`docemb doctor` finds what is missing or slow; the ways to install agree with the imports."""

import ast
import logging
import re
import sys
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from threading import Thread
from types import SimpleNamespace

import pytest
import torch
import yaml
from conftest import REPOSITORY
from packaging.requirements import Requirement

from docemb_lib import doctor
from docemb_lib.base import hardware, pretrained

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORT_NAMES = {
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "IPython": "ipykernel",
    "tokenizers": "transformers",
    "PIL": "pillow",
}


ENVIRONMENT = yaml.safe_load((REPOSITORY / "environment.yml").read_text(encoding="utf-8"))
CI = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")


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


@pytest.mark.parametrize("untested", ["2.12.1", "2.15.0"])
def test_a_torch_that_the_tests_were_not_run_with_is_not_allowed(torch_versions, untested):
    assert untested not in torch_versions


def test_every_package_that_the_library_imports_is_a_dependency():
    extras = PROJECT["optional-dependencies"]
    lines = list(PROJECT["dependencies"])
    for name, further in extras.items():
        if name != "dev":
            lines += further
    stated = {re.split(r"[<>=\[ ]", line)[0].lower() for line in lines}
    imported = set()
    for path in (REPOSITORY / "docemb_lib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    third_party = imported - set(sys.stdlib_module_names) - {"docemb_lib"}
    packages = {IMPORT_NAMES.get(name, name).replace("_", "-").lower() for name in third_party}
    assert packages <= stated | {"openvino"}  # measured by a benchmark where it is installed


def test_continuous_integration_calls_exactly_the_readmes_test_command():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"\*\*The tests:\*\* `(.+)`", readme)
    assert CI.splitlines()[-1] == command


def test_an_environment_that_meets_the_requirements_gives_no_warning(caplog):
    doctor.warn_of_other_versions()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("line", "unmet"),
    [
        ("numpy>=1000", [f"numpy {version('numpy')}, not >=1000"]),
        # A build for one kind of hardware is this version, too.
        (f"torch=={version('torch').partition('+')[0]}", []),
        ("no-such-package>=1", ["no-such-package is missing"]),
        ('no-such-package>=1; sys_platform == "nowhere"', []),
        ('no-such-package>=1; extra == "cluster"', []),
    ],
)
def test_a_requirement_is_unmet_where_another_version_or_none_is_installed(
    monkeypatch, line, unmet
):
    monkeypatch.setattr(doctor, "requires", lambda name: [line])
    assert doctor.unmet() == unmet


@pytest.fixture
def old_environment(monkeypatch):
    monkeypatch.setattr(doctor, "requires", lambda name: ["numpy>=1000", "pandas>=1"])


def test_an_old_environment_gives_one_warning_that_says_what_to_do(old_environment, caplog):
    doctor.warn_of_other_versions()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f": numpy {version('numpy')}, not >=1000; choose another kernel" in record.message
    assert all(part not in record.message for part in ("\n", "pandas"))


@pytest.fixture
def slow_machine(monkeypatch):
    """Little memory and disk, no bf16, no GPU, and a silent hub."""
    monkeypatch.delenv("DOCEMB_PRECISION", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(hardware, "free_memory", lambda device: 2**30)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=2**20))
    monkeypatch.setattr(hardware, "fast_bf16", lambda device: False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")


def diagnosis() -> dict[str, doctor.Finding]:
    return {finding.name: finding for finding in doctor.diagnose()}


def test_what_is_slow_or_wrong_has_a_mend(old_environment, slow_machine, monkeypatch):
    monkeypatch.setattr("docemb_lib.base.pretrained.find_spec", lambda name: None)
    pretrained._packaged_folder.cache_clear()
    findings = diagnosis()
    assert {name: finding.status for name, finding in findings.items()} == {
        "python": "ok",
        "packages": "wrong",
        "embedded model": "wrong",
        "memory": "slow",
        "workspace": "wrong",
        "hub": "absent",
        "gpu": "absent",
        "precision": "slow",
    }
    assert all(finding.mend for finding in findings.values() if finding.status != "ok")
    assert all("\n" not in finding.value + finding.mend for finding in findings.values())
    assert "http://127.0.0.1:9 does not answer" in findings["hub"].value


@pytest.mark.parametrize(
    ("asked", "value", "mend"),
    [
        ("auto", "fp32", "trains two to three times as fast"),
        ("fp32", "fp32", "trains two to three times as fast"),
        ("bf16", "bf16", "unset DOCEMB_PRECISION"),
    ],
)
def test_the_precision_of_a_machine_without_bf16_is_slow(
    slow_machine, monkeypatch, asked, value, mend
):
    monkeypatch.setenv("DOCEMB_PRECISION", asked)
    finding = diagnosis()["precision"]
    expected = (f"{value} on cpu, DOCEMB_PRECISION={asked}", "slow")
    assert (finding.value, finding.status) == expected
    assert mend in finding.mend


def test_a_machine_with_a_new_gpu_is_ok(slow_machine, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(hardware, "fast_bf16", lambda device: device == "cuda:0")
    assert diagnosis()["gpu"].status == "ok"
    finding = diagnosis()["precision"]
    assert (finding.value, finding.status) == ("bf16 on cuda:0, DOCEMB_PRECISION=auto", "ok")


def test_a_hub_that_answers_is_reported(slow_machine, monkeypatch):
    # The server answers HEAD with an error.
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", address)
        assert diagnosis()["hub"].status == "ok"
        server.shutdown()


def test_a_hub_that_is_switched_off_is_reported(slow_machine, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert diagnosis()["hub"].status == "absent"
