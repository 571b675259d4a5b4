"""Tasks from outside the corpus, by the names that a profile gives them: benchmark tasks and one's own."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from docemb_lib.corpus.origin import files_fingerprint
from docemb_lib.errors import InputError
from docemb_lib.evaluation.benchmark_tasks import benchmark_task, published_tasks
from docemb_lib.evaluation.own_tasks import own_task, task_files
from docemb_lib.evaluation.tasks import Task
from docemb_lib.settings import BenchmarkName, Evaluation, OwnTask

RECIPE = 1  # raised whenever the same files would make other tasks


def load_task(name: str, settings: Evaluation) -> Task | None:
    """The own task or benchmark task of that name, whole; None where it is neither: an embedded task."""
    if own := _own(name, settings):
        return own_task(own)
    return benchmark_task(name, _place(name, settings)) if name in get_args(BenchmarkName) else None


def task_fingerprint(name: str, settings: Evaluation) -> str | None:
    """What identifies such a task without reading it: its settings and files; None for an embedded task.

    Raises InputError where a file is not there.
    """
    if own := _own(name, settings):
        files = task_files(own)
        if missing := [file for file in files if not file.is_file()]:
            raise InputError(f"evaluation.own_tasks: {name}: {missing[0]} does not exist; name its file")
        return f"{RECIPE} {own.model_dump_json()} {files_fingerprint(files)}"
    if name not in get_args(BenchmarkName):
        return None
    place = _place(name, settings) or published_tasks()["sources"][name].get("hub")
    files = sorted(file for file in Path(place).rglob("*") if file.is_file()) if Path(place).is_dir() else []
    return f"{RECIPE} {place} {files_fingerprint(files)}"


def _own(name: str, settings: Evaluation) -> OwnTask | None:
    return next((own for own in settings.own_tasks if own.name == name), None)


def _place(name: str, settings: Evaluation) -> str | None:
    """The folder or hub id that the profile gives for a benchmark task."""
    return next((place for benchmark, place in settings.benchmarks.items() if benchmark == name), None)
