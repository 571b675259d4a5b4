"""Tasks from outside the corpus, by the names that a profile gives them: benchmark tasks, mteb's and one's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple, get_args

from docemb_lib.corpus.origin import files_fingerprint
from docemb_lib.errors import InputError
from docemb_lib.evaluation.benchmark_tasks import benchmark_task, published_tasks
from docemb_lib.evaluation.mteb_tasks import find_task, mteb_fingerprint, mteb_task, retrieval_splits
from docemb_lib.evaluation.own_tasks import own_task, task_files
from docemb_lib.evaluation.protocols import downsample
from docemb_lib.evaluation.simde_tasks import SIMDE_TASKS, simde_task
from docemb_lib.evaluation.tasks import Retrieval, Task
from docemb_lib.settings import MTEB, BenchmarkName, Evaluation, OwnTask

RECIPE = 1  # raised whenever the same files would make other tasks


class Outline(NamedTuple):
    """What a run needs to know of a task before it starts."""

    splits: list[str]
    smallest: int | None  # examples of the smallest class in train, as runs cut it; None: not known, or nothing trained
    ranks: bool  # nothing is trained, so cross-validation cannot stand in for a validation split


def load_task(name: str, settings: Evaluation) -> Task | None:
    """The own task, benchmark task or task of mteb of that name, whole; None for an embedded task."""
    if own := _own(name, settings):
        return own_task(own)
    if name.startswith(MTEB):
        return mteb_task(name)
    if name in SIMDE_TASKS:
        return simde_task(name, _place(name, settings))
    return benchmark_task(name, _place(name, settings)) if name in get_args(BenchmarkName) else None


def task_fingerprint(name: str, settings: Evaluation) -> str | None:
    """What identifies such a task without reading it: its settings and files; None for an embedded task.

    Raises InputError where a file, or mteb, is not there.
    """
    if own := _own(name, settings):
        files = task_files(own)
        if missing := [file for file in files if not file.is_file()]:
            raise InputError(f"evaluation.own_tasks: {name}: {missing[0]} is no file; name the one that holds the data")
        return f"{RECIPE} {own.model_dump_json()} {files_fingerprint(files)}"
    if name.startswith(MTEB):
        return f"{RECIPE} {mteb_fingerprint(name)}"
    if name in SIMDE_TASKS:
        place = _place(name, settings) or str(SIMDE_TASKS[name].hub)
    elif name in get_args(BenchmarkName):
        place = _place(name, settings) or published_tasks()["sources"][name].get("hub")
    else:
        return None
    files = sorted(file for file in (Path(place), *Path(place).rglob("*")) if file.is_file())
    return f"{RECIPE} {place} {files_fingerprint(files)}"


def outline_of(name: str, settings: Evaluation) -> Outline | None:
    """What such a task will have; None for what only a hub knows. Files are read, so that what is wrong shows now.

    Nothing is fetched: what a task of mteb has is known from its description. Raises InputError as `load_task` does.
    """
    if name.startswith(MTEB):
        theirs = find_task(name)
        ranks = theirs.metadata.type == "Retrieval"
        return Outline(list(retrieval_splits(theirs) if ranks else ("train", "test")), None, ranks)
    place = _place(name, settings)
    if _own(name, settings) is None and (place is None or not Path(place).exists()):
        return None
    task = load_task(name, settings)
    if task is None:
        return None
    if isinstance(task, Retrieval):
        return Outline(list(task.splits), None, ranks=True)
    labels = task.splits["train"].labels
    kept = Counter(labels[row] for row in downsample(labels, settings.limit))
    return Outline(list(task.splits), min(kept.values()), ranks=False)


def _own(name: str, settings: Evaluation) -> OwnTask | None:
    return next((own for own in settings.own_tasks if own.name == name), None)


def _place(name: str, settings: Evaluation) -> str | None:
    """The folder or hub id that the profile gives for a benchmark task."""
    return next((place for benchmark, place in settings.benchmarks.items() if benchmark == name), None)
