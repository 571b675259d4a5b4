"""The tasks of a profile by name: embedded ones from the pages held out of its corpus, benchmark tasks, one's own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docemb_lib.errors import InputError
from docemb_lib.evaluation.outside_tasks import Outline, outline_of, task_fingerprint
from docemb_lib.workspace import Workspace, write_text

if TYPE_CHECKING:
    from docemb_lib.evaluation.tasks import Task
    from docemb_lib.profile import Profile

OUTLINE = "outline.json"


class ProfileTasks(dict[str, "Task"]):
    """Each task is made, and what is odd about it told, when it is first asked for: where scores are there, never.

    pages: called for the pages that embedded tasks are made of.
    """

    def __init__(self, profile: Profile, pages: Callable[[], Iterable[Mapping[str, Any]]]) -> None:
        super().__init__()
        self.profile, self.pages = profile, pages

    def __missing__(self, name: str) -> Task:
        from docemb_lib.evaluation import embedded_tasks, load_task
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
