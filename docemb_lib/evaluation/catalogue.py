"""Tasks from outside the corpus, by the names that a profile gives them: benchmark tasks, mteb's and one's own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from docemb_lib.corpus.origin import files_fingerprint
from docemb_lib.errors import InputError
from docemb_lib.evaluation.benchmarks import benchmark_task, published_tasks
from docemb_lib.evaluation.mteb import find_task, mteb_fingerprint, mteb_task, retrieval_splits
from docemb_lib.evaluation.protocols import downsample
from docemb_lib.evaluation.readers import own_task, task_files
from docemb_lib.evaluation.simde import SIMDE_TASKS, simde_task
from docemb_lib.evaluation.tasks import Retrieval, Task
from docemb_lib.settings import MTEB, BenchmarkName, Evaluation, OwnTask
from docemb_lib.workspace import VERSIONS, Workspace, write_text

if TYPE_CHECKING:
    from docemb_lib.evaluation.tasks import Task
    from docemb_lib.settings.profile import Profile


# ---- tasks from outside the corpus


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
        return f"{VERSIONS['task']} {own.model_dump_json()} {files_fingerprint(files)}"
    if name.startswith(MTEB):
        return f"{VERSIONS['task']} {mteb_fingerprint(name)}"
    if name in SIMDE_TASKS:
        place = _place(name, settings) or str(SIMDE_TASKS[name].hub)
    elif name in get_args(BenchmarkName):
        place = _place(name, settings) or published_tasks()["sources"][name].get("hub")
    else:
        return None
    files = sorted(file for file in (Path(place), *Path(place).rglob("*")) if file.is_file())
    return f"{VERSIONS['task']} {place} {files_fingerprint(files)}"


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


# ---- the tasks of a profile


OUTLINE = "outline.json"


class ProfileTasks(dict[str, "Task"]):
    """Each task is made, and what is odd about it told, when it is first asked for: where scores are there, never.

    pages: called for the pages that embedded tasks are made of.
    """

    def __init__(self, profile: Profile, pages: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        super().__init__()
        self.profile, self.pages = profile, pages

    def __missing__(self, name: str) -> Task:
        from docemb_lib.evaluation import load_task
        from docemb_lib.evaluation.embedded import embedded_tasks
        from docemb_lib.evaluation.soundness import warn_of_problems

        profile = self.profile
        task = load_task(name, profile.evaluation)
        if task is None:
            limit = profile.evaluation.documents
            (task,) = embedded_tasks(self.pages(), [name], seed=profile.corpus.seed, limit=limit)
        warn_of_problems(task)
        self[name] = task
        return task


def task_inputs(profile: Profile, name: str, corpus: Callable[[], str]) -> dict[str, Any]:
    """What a task depends on, known without making it. corpus: called for its fingerprint, by embedded tasks alone."""
    if outside := task_fingerprint(name, profile.evaluation):
        return {"task": name, "files": outside}
    return {"task": name, "corpus": corpus(), "documents": profile.evaluation.documents}


def check_task(profile: Profile, workspace: Workspace, name: str, split: str) -> None:
    """That a task from outside the corpus can be read and scored on `split`. Raises InputError.

    Its files are read once for this; what was found is remembered until they change.
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
