"""What all tests share: a small workspace of its own, and tiny models with real tokenizers."""

import csv
import gc
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from filelock import FileLock

if "PYTEST_XDIST_WORKER" in os.environ:  # one of several processes
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Numbers that are equal on every processor, in kernels and commands as well. `.ci/run` repeats the
# tests of models in bf16, and a test whose subject is a precision sets it.
os.environ.setdefault("DOCEMB_PRECISION", "fp32")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test reaches for a hub
os.environ.setdefault("MPLBACKEND", "agg")

REPOSITORY = Path(__file__).resolve().parent.parent
TEXTS = Path(__file__).parent / "data"
# What stands in there spares each process the seconds of a package that nothing here needs.
sys.path.insert(0, str(TEXTS / "quick"))
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(TEXTS / "quick"), os.environ.get("PYTHONPATH")))
)

os.environ.pop("COLUMNS", None)  # of a worker's terminal: tables are those of a pipe

from docemb_lib.base.hardware import tune_environment  # noqa: E402

tune_environment()
DOCEMB = [sys.executable, "-m", "docemb_lib.cli"]
# Of a command in a process of its own, whose kernels show figures as those of a user do.
AS_A_USER = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
del AS_A_USER["MPLBACKEND"]


def pytest_xdist_auto_num_workers() -> int:
    """Three processes for two cores, because tests wait for kernels and browsers."""
    return (3 * (os.cpu_count() or 1) + 1) // 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, so that the processes end at about the same time."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)  # stable


@pytest.fixture(scope="module", autouse=True)
def freeze() -> None:
    """Collections of garbage, of which each training makes one, need not pass over what was
    imported and kept before a file's tests.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture
def workspace_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is a docemb workspace: `params/` with the test profile, the notebooks, no
    outputs.
    """
    return make_workspace(tmp_path / "workspace", monkeypatch)


@pytest.fixture
def small(workspace_root: Path):
    from docemb_lib.settings.profile import Profile

    return Profile.load("small")


def make_workspace(root: Path, monkeypatch: pytest.MonkeyPatch | None = None) -> Path:
    (root / "params").mkdir(parents=True)
    for profile in (TEXTS / "small.yaml", REPOSITORY / "params" / "own.yaml"):
        shutil.copy(profile, root / "params")
    shutil.copytree(
        REPOSITORY / "notebooks",
        root / "notebooks",
        ignore=shutil.ignore_patterns(".ipynb_checkpoints"),
    )
    if monkeypatch is not None:
        monkeypatch.chdir(root)
    return root


def normal(*shape: int, seed: int):
    """Numbers in double precision, the same for a seed."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def write_rows(file: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A data file in the format that its name says, by the standard library and pyarrow; `rows`
    have the same keys.
    """
    if file.suffix == ".parquet":
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), file, row_group_size=2)
        return file
    with (gzip.open if file.suffix == ".gz" else open)(
        file, "wt", encoding="utf-8", newline=""
    ) as stream:
        if ".json" in file.name:
            stream.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(
                stream, list(rows[0]), delimiter="\t" if ".tsv" in file.name else ","
            )
            writer.writeheader()
            writer.writerows(rows)
    return file


def write_files(
    folder: Path, files: Mapping[str, str | bytes | Sequence[Mapping[str, Any]]]
) -> Path:
    """Text, bytes or rows as files in a folder and its subfolders."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            write_rows(folder / name, content)
        else:
            (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def write_texts(folder: Path, n: int) -> Path:
    """A folder of n different documents of 90 words."""
    files = {}
    for number in range(n):
        words = " ".join(f"word{(number * 7 + k) % 97}" for k in range(90))
        files[f"{number:03}.txt"] = f"Document {number}. {words}"
    return write_files(folder, files)


class Hostile:
    """Runs a function where it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


class NotingEmbedder:
    """Embeds a text as its length and the number of its e's, and notes the texts."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def embed(self, texts: Sequence[str]):
        import numpy as np

        self.asked.append(list(texts))
        return np.array([[len(text), text.count("e")] for text in texts], dtype="float32")


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def docemb(*arguments: object) -> Done:
    """The command in this process, in the folder that it is in: to start another takes seconds."""
    from typer.testing import CliRunner

    from docemb_lib.cli.__main__ import app
    from docemb_lib.cli.terminal import UNFOLDED, console

    console.width = UNFOLDED  # as in a pipe; an earlier test may have had a narrow terminal
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with mock.patch.dict(os.environ):
            result = CliRunner().invoke(app, [*map(str, arguments)])
    finally:
        signal.signal(signal.SIGTERM, handler)
    return Done(result.exit_code, result.stdout, result.stderr)


def succeed(*arguments: object) -> Done:
    """`docemb` of a command that must succeed."""
    done = docemb(*arguments)
    assert done.returncode == 0, done.stderr
    return done


def wait_until(condition: Callable[[], object], process: Any = None) -> None:
    """Wait, while a process runs, for what takes seconds."""
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)


def with_setting(profile: Any, section: str, **changed: Any) -> Any:
    """A profile with other values in a section."""
    settings = getattr(profile, section).model_copy(update=changed)
    return profile.model_copy(update={section: settings})


def labelled_rows(n: int) -> list[dict[str, str]]:
    rows = []
    for number in range(n):
        words = " ".join(f"word{(number * 7 + k) % 31}" for k in range(30))
        rows.append({"text": f"Number {number}. {words}", "label": "xy"[number % 2]})
    return rows


def write_own_task(folder: Path, rows: list[dict[str, str]]) -> None:
    """The profile `mine`, whose only task is to classify these rows."""
    task = "{name: own, kind: classification, path: rows.jsonl}"
    evaluation = f"{{tasks: [own], sweep_tasks: [own], own_tasks: [{task}]}}"
    profile = f"base: small.yaml\nevaluation: {evaluation}"
    write_files(folder, {"rows.jsonl": rows, "mine.yaml": profile})


@pytest.fixture(scope="session")
def refused():
    """Asserts that a call raises an InputError of one line that is not long, in which the pattern
    is found.
    """
    from docemb_lib.base.errors import InputError

    def check(message, call, *given, **named):
        with pytest.raises(InputError, match=message) as caught:
            call(*given, **named)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500

    return check


@pytest.fixture
def infer_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Infer in the calling process: embeddings of one process agree with each other, under any hash
    seed.
    """
    from docemb_lib.base.worker_pool import WorkerPool

    monkeypatch.setattr(
        WorkerPool, "map", lambda pool, function, arguments, *, jobs: starmap(function, arguments)
    )


def replace_notebook(root: Path, name: str, parameters: str, text: str) -> None:
    """Put two cells in place of a notebook of the workspace: one with the parameters, and one with
    its conclusion.
    """
    import nbformat

    first = nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    second = nbformat.v4.new_code_cell(text, metadata={"tags": ["conclusion"]})
    made = nbformat.v4.new_notebook(cells=[first, second], metadata={"kernelspec": kernel})
    (root / "notebooks" / f"{name}.py").unlink(missing_ok=True)  # it has other code
    nbformat.write(made, root / "notebooks" / f"{name}.ipynb")


@pytest.fixture
def write_notebook(workspace_root):
    return partial(replace_notebook, workspace_root)


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory) -> tuple[Path, Done]:
    """A workspace after `docemb run`, made once for all processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "whole-run"
    command = [*DOCEMB, "run", "--profile", "small"]
    options = {"cwd": folder, "env": AS_A_USER, "text": True, "stdin": subprocess.DEVNULL}
    with FileLock(folder.with_suffix(".lock")):
        if not folder.is_dir():
            make_workspace(folder)
            done = subprocess.run(command, capture_output=True, timeout=600, check=False, **options)
            folder.with_suffix(".json").write_text(
                json.dumps([done.returncode, done.stdout, done.stderr])
            )
        return folder, Done(*json.loads(folder.with_suffix(".json").read_text()))
