"""The one place from a task's name to the task: embedded tasks, own tasks, benchmarks and tasks of mteb.

A task from outside the corpus has a fingerprint that is known without reading it, and an outline (its splits, the size
of its smallest class), which shows before a run starts whether the run can be scored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from docemb_lib.corpus.sources import files_fingerprint
from docemb_lib.errors import InputError
from docemb_lib.evaluation.benchmarks import BENCHMARKS, benchmark_task
from docemb_lib.evaluation.embedded import embedded_tasks
from docemb_lib.evaluation.mteb import find_task, mteb_fingerprint, mteb_task, retrieval_splits
from docemb_lib.evaluation.protocols import downsample
from docemb_lib.evaluation.readers import own_task, task_files
from docemb_lib.evaluation.soundness import warn_of_problems
from docemb_lib.evaluation.tasks import Retrieval, Task
from docemb_lib.settings import MTEB, Evaluation, OwnTask
from docemb_lib.workspace import VERSIONS, Workspace, write_text

if TYPE_CHECKING:
    from docemb_lib.settings.profile import Profile

OUTLINE = "outline.json"


class Outline(NamedTuple):
    """What a run must know of a task before it starts."""

    splits: list[str]
    smallest: int | None  # examples of the smallest class in train, as runs cut it; None: unknown, or nothing trained
    ranks: bool  # nothing is trained, so cross-validation cannot replace a validation split


class ProfileTasks(dict[str, Task]):
    """The tasks of a profile by name; each is built, and checked for problems, at the first access.

    pages: returns the pages of which embedded tasks are made.
    """

    def __init__(self, profile: Profile, pages: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        super().__init__()
        self.profile, self.pages = profile, pages

    def __missing__(self, name: str) -> Task:
        profile = self.profile
        task = load_task(name, profile.evaluation)
        if task is None:
            limit = profile.evaluation.documents
            (task,) = embedded_tasks(self.pages(), [name], seed=profile.corpus.seed, limit=limit)
        warn_of_problems(task)
        self[name] = task
        return task


def load_task(name: str, settings: Evaluation) -> Task | None:
    """The own task, benchmark task or task of mteb of that name; None for an embedded task."""
    if own := _own(name, settings):
        return own_task(own)
    if name.startswith(MTEB):
        return mteb_task(name)
    return benchmark_task(name, _place(name, settings)) if name in BENCHMARKS else None


def task_inputs(profile: Profile, name: str, corpus: Callable[[], str]) -> dict[str, Any]:
    """What determines a task, without building it. corpus: returns the corpus' fingerprint, for embedded tasks only."""
    if outside := task_fingerprint(name, profile.evaluation):
        return {"task": name, "files": outside}
    return {"task": name, "corpus": corpus(), "documents": profile.evaluation.documents}


def task_fingerprint(name: str, settings: Evaluation) -> str | None:
    """What identifies a task without reading it: its settings and files; None for an embedded task.

    Raises InputError where a file, or mteb, is missing.
    """
    if own := _own(name, settings):
        files = task_files(own)
        if missing := [file for file in files if not file.is_file()]:
            raise InputError(f"evaluation.own_tasks: {name}: {missing[0]} is no file; name the one that holds the data")
        return f"{VERSIONS['task']} {own.model_dump_json()} {files_fingerprint(files)}"
    if name.startswith(MTEB):
        return f"{VERSIONS['task']} {mteb_fingerprint(name)}"
    if name not in BENCHMARKS:
        return None
    place = _place(name, settings) or str(BENCHMARKS[name].hub)
    files = sorted(file for file in (Path(place), *Path(place).rglob("*")) if file.is_file())
    return f"{VERSIONS['task']} {place} {files_fingerprint(files)}"


def outline_of(name: str, settings: Evaluation) -> Outline | None:
    """The outline of a task; None for embedded tasks and for data sets of a hub, which are not fetched for it.

    Files are read; a task of mteb is outlined from its description. Raises InputError as `load_task` does.
    """
    if name.startswith(MTEB):
        task = find_task(name)
        ranks = task.metadata.type == "Retrieval"
        return Outline(list(retrieval_splits(task) if ranks else ("train", "test")), None, ranks)
    place = _place(name, settings)
    if _own(name, settings) is None and (place is None or not Path(place).exists()):
        return None
    loaded = load_task(name, settings)
    if loaded is None:
        return None
    if isinstance(loaded, Retrieval):
        return Outline(list(loaded.splits), None, ranks=True)
    labels = loaded.splits["train"].labels
    kept = Counter(labels[row] for row in downsample(labels, settings.limit))
    return Outline(list(loaded.splits), min(kept.values()), ranks=False)


def check_task(profile: Profile, workspace: Workspace, name: str, split: str) -> None:
    """Check that a task from outside the corpus can be read and scored on `split`. Raises InputError.

    The files are read once; the outline is kept until they change.
    """
    files = task_fingerprint(name, profile.evaluation)
    if files is None:
        return

    def build(folder: Path) -> None:
        write_text(folder / OUTLINE, json.dumps(outline_of(name, profile.evaluation)))

    folds, limit = profile.evaluation.folds, profile.evaluation.limit
    artefact = workspace.artefact("task", {"task": name, "files": files, "limit": limit}, build)
    found = json.loads((artefact.path / OUTLINE).read_text(encoding="utf-8"))
    if found is None or split in (outline := Outline(*found)).splits:
        return
    if split == "test" or outline.ranks:
        there = ", ".join(outline.splits)
        raise InputError(f"task {name}: has no split {split}, only {there}; add it, or leave the task out")
    if outline.smallest is not None and outline.smallest < folds:
        raise InputError(
            f"task {name}: has no split validation, and {outline.smallest} examples of its smallest class in train, "
            f"cut to evaluation.limit {limit}, too few for evaluation.folds {folds}; add examples, or lower folds"
        )


def _own(name: str, settings: Evaluation) -> OwnTask | None:
    return next((own for own in settings.own_tasks if own.name == name), None)


def _place(name: str, settings: Evaluation) -> str | None:
    """The folder or hub id that the profile gives for a benchmark task."""
    return next((place for benchmark, place in settings.benchmarks.items() if benchmark == name), None)
