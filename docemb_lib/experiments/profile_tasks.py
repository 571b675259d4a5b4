"""The tasks of a profile by name: embedded ones from the pages held out of its corpus, benchmark tasks, one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from docemb_lib.evaluation.outside_tasks import task_fingerprint

if TYPE_CHECKING:
    from docemb_lib.evaluation.tasks import Task
    from docemb_lib.profile import Profile


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
