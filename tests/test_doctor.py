"""`docemb doctor` finds what is missing or slow; the two ways to install agree with each other and
with the imports.
"""

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
}


def test_environment_and_pyproject_install_the_same_python_and_extras_and_a_torch_that_both_allow():
    environment = yaml.safe_load((REPOSITORY / "environment.yml").read_text(encoding="utf-8"))
    (pip,) = [line["pip"] for line in environment["dependencies"] if isinstance(line, dict)]
    assert f"python{PROJECT['requires-python']}" in environment["dependencies"]
    (torch_range,) = [
        one for one in map(Requirement, PROJECT["dependencies"]) if one.name == "torch"
    ]
    (pin,) = [line.removeprefix("torch==") for line in pip if line.startswith("torch==")]
    assert pin in torch_range.specifier
    assert f"pip install --quiet torch=={pin}" in (REPOSITORY / ".ci" / "run").read_text(
        encoding="utf-8"
    )
    not_run_with = ("2.12.1", "2.15.0")  # the tests
    assert not any(version in torch_range.specifier for version in not_run_with)
    (editable,) = [line for line in pip if line.startswith("-e .")]
    assert set(re.findall(r"\w+", editable.removeprefix("-e ."))) == set(
        PROJECT["optional-dependencies"]
    )


def test_every_package_that_the_library_imports_is_a_dependency():
    extras = PROJECT["optional-dependencies"]
    lines = [
        *PROJECT["dependencies"],
        *(line for name, lines in extras.items() if name != "dev" for line in lines),
    ]
    stated = {re.split(r"[<>=\[ ]", line)[0].lower() for line in lines}
    imported = set()
    for path in (REPOSITORY / "docemb_lib").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    third_party = imported - set(sys.stdlib_module_names) - {"docemb_lib"}
    assert not {
        n for n in third_party if IMPORT_NAMES.get(n, n).replace("_", "-").lower() not in stated
    }


def test_continuous_integration_calls_exactly_the_readmes_test_command():
    (command,) = re.findall(
        r"The tests:\n\n```bash\n(.+)\n```", (REPOSITORY / "README.md").read_text(encoding="utf-8")
    )
    assert (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1] == command


def test_an_environment_that_meets_the_requirements_gives_no_warning(caplog):
    doctor.warn_of_other_versions()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("line", "unmet"),
    [
        ("numpy>=1000", [f"numpy {version('numpy')}, not >=1000"]),
        (
            f"torch=={version('torch').partition('+')[0]}",
            [],
        ),  # a build for one kind of hardware is that version too
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
    """Two of four cores, little memory and disk, no bf16 instructions, no GPU, and a hub that
    nobody answers for.
    """
    monkeypatch.delenv("DOCEMB_PRECISION", raising=False)
    monkeypatch.setattr("dask.system.CPU_COUNT", 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(hardware, "free_memory", lambda device: 2**30)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=2**20))
    monkeypatch.setattr(hardware, "fast_bf16", lambda device: False)
    monkeypatch.setattr(
        hardware, "matmul_peak", lambda device, dtype: 5e10 if dtype == torch.float32 else 9e10
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")


def test_what_is_slow_or_wrong_has_a_mend(old_environment, slow_machine, monkeypatch):
    monkeypatch.setattr("docemb_lib.base.pretrained.find_spec", lambda name: None)
    pretrained._packaged_folder.cache_clear()
    found = {finding.name: finding for finding in doctor.diagnose()}
    assert {name: finding.status for name, finding in found.items()} == {
        "python": "ok",
        "packages": "wrong",
        "embedded model": "wrong",
        "cores": "slow",
        "memory": "slow",
        "workspace": "wrong",
        "gpu": "slow",
        "hub": "slow",
        "precision": "ok",
        "cpu speed": "slow",
    }
    assert all(finding.mend for finding in found.values() if finding.status != "ok")
    assert all("\n" not in finding.value + finding.mend for finding in found.values())
    assert (found["cores"].value, found["cpu speed"].value) == (
        "4, torch uses 2",
        "fp32 50 GFLOP/s",
    )
    assert "http://127.0.0.1:9 does not answer" in found["hub"].value


@pytest.mark.parametrize(
    ("asked", "value", "status"),
    [("auto", "fp32", "ok"), ("fp32", "fp32", "ok"), ("bf16", "bf16", "slow")],
)
def test_the_precision_is_reported_and_emulated_bf16_is_slow(
    slow_machine, monkeypatch, asked, value, status
):
    monkeypatch.setenv("DOCEMB_PRECISION", asked)
    found = {finding.name: finding for finding in doctor.diagnose()}["precision"]
    assert (found.value, found.status) == (f"{value}, DOCEMB_PRECISION={asked}", status)
    assert "unset DOCEMB_PRECISION" in found.mend


def test_a_machine_with_a_new_gpu_is_ok_and_an_older_one_is_slow(slow_machine, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Name")
    monkeypatch.setattr(
        torch.cuda, "get_device_capability", lambda device: (9 - 2 * device.index, 0)
    )
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(hardware, "free_memory", lambda device: 80 * 2**30)
    monkeypatch.setattr(hardware, "fast_bf16", lambda device: True)
    found = {finding.name: finding for finding in doctor.diagnose()}
    assert "gpu" not in found
    assert (found["cuda:0"].status, found["cuda:0"].value) == (
        "ok",
        "Name, 80 GiB free, bf16, flash attention",
    )
    assert (found["cuda:1"].status, found["cuda:1"].value) == (
        "slow",
        "Name, 80 GiB free, bf16, no flash attention",
    )
    assert found["cpu speed"].value == "bf16 90 GFLOP/s"


def test_a_hub_that_answers_or_is_switched_off_is_reported(slow_machine, monkeypatch):
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), BaseHTTPRequestHandler
    ) as server:  # answers HEAD with an error
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(
            "huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}"
        )
        assert {finding.name: finding.status for finding in doctor.diagnose()}["hub"] == "ok"
        server.shutdown()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert {finding.name: finding.status for finding in doctor.diagnose()}["hub"] == "slow"
