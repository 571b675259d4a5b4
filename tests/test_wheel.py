"""docemb from its wheel: `docemb init` makes a folder in which commands work."""

import json
import os
import subprocess
import sys

import pytest
from conftest import AS_A_USER, REPOSITORY, TEXTS, write_texts

pytestmark = pytest.mark.slow
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the installed wheel, which hides the checkout from processes that use it."""
    wheels = tmp_path_factory.mktemp("wheels")
    target = tmp_path_factory.mktemp("installed")
    alone = ["--no-deps", "--no-index"]
    build = [*PIP, "wheel", *alone, "--no-build-isolation", "-w", wheels, REPOSITORY]
    subprocess.run(build, check=True, timeout=300)
    (wheel,) = wheels.iterdir()
    subprocess.run([*PIP, "install", *alone, "--target", target, wheel], check=True, timeout=300)
    # An editable installation adds its checkout to sys.path; Python imports this module after that.
    hidden = (
        "[path for path in sys.path if not os.path.isfile(os.path.join(path, 'pyproject.toml'))]"
    )
    (target / "sitecustomize.py").write_text(f"import os, sys\nsys.path[:] = {hidden}\n")
    return target


@pytest.fixture(scope="module")
def command(installed):
    def run(folder, *arguments):
        env = {**AS_A_USER, "PYTHONPATH": os.pathsep.join((str(installed), str(TEXTS / "quick")))}
        given = [sys.executable, *map(str, arguments)]
        return subprocess.run(
            given, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
        )

    return run


@pytest.fixture(scope="module")
def working_folder(command, tmp_path_factory):
    """A folder after `docemb init` on 90 documents elsewhere, and what the command printed."""
    documents = write_texts(tmp_path_factory.mktemp("texts") / "my_docs", 90)
    folder = tmp_path_factory.mktemp("empty")
    done = command(folder, "-m", "docemb_lib.cli", "init", documents)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def files(folder, *patterns):
    paths = [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_the_library_comes_from_the_wheel_and_nothing_from_the_checkout(
    command, installed, tmp_path
):
    code = "import docemb_lib, json, sys; print(json.dumps([docemb_lib.__file__, sys.path]))"
    file, path = json.loads(command(tmp_path, "-c", code).stdout)
    assert file == str(installed / "docemb_lib" / "__init__.py")
    with_docemb = [folder for folder in path if (tmp_path / folder / "docemb_lib").exists()]
    assert with_docemb == [str(installed)]


def test_init_copies_the_notebooks_and_params_of_the_checkout(working_folder):
    folder, printed = working_folder
    assert f"{folder}: notebooks and params copied" in printed
    names = {path.name for path in folder.iterdir()}
    assert names == {"notebooks", "params", "outputs", "my_docs.yaml"}
    patterns = (
        "notebooks/*.py",
        "notebooks/*.ipynb",
        "notebooks/jupytext.toml",
        "params/**/*.yaml",
        "params/*.py",
    )
    carried = files(REPOSITORY, *patterns)
    assert files(folder, "notebooks/**/*", "params/**/*") == carried
    assert len(carried) > 30


def test_the_written_profile_can_run_there(command, working_folder):
    folder, _ = working_folder
    done = command(folder, "-m", "docemb_lib.cli", "run", "--profile", "my_docs.yaml", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "missing:" not in done.stdout
    assert "6 runs, 0 of them already there" in done.stdout
