"""The stages of one run, wired together: corpus, teachers, students, scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING

from docemb_lib.base import pretrained
from docemb_lib.corpus.sources import source_fingerprint
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.scores import ScoreStage
from docemb_lib.runs.stages import CorpusStage, TeacherStage, check_student
from docemb_lib.settings.profile import FINAL
from docemb_lib.workspace import Workspace

if TYPE_CHECKING:
    from docemb_lib.runs.students import StudentStage


class Stages:
    """The stages of one run. Replace an attribute of a stage to replace what it makes.

    Example:
        >>> stages = Stages(RunKey.of("06_evaluation", Profile.load("tiny"), documents=60))
        >>> folder = stages.students.trained.path  # builds whatever is missing
    """

    def __init__(self, key: RunKey, workspace: Workspace | None = None) -> None:
        self.key, self.workspace = key, workspace or Workspace()
        self.corpus = CorpusStage(key.profile, self.workspace)
        self.teachers = TeacherStage(key.profile, self.workspace, self.corpus)
        self.scores = ScoreStage(key.profile, self.workspace, self.corpus)

    @cached_property
    def students(self) -> StudentStage:
        from docemb_lib.runs.students import StudentStage  # with torch

        return StudentStage(self.key, self.workspace, self.corpus, self.teachers)

    def check(self) -> None:
        """Check everything about the run that is cheap to check, before any long work.

        Raises InputError.
        """
        for check in self.checks():
            check()

    def checks(self) -> Iterator[Callable[[], object]]:
        """The checks of settings, data, models and hub that `check` calls in turn; each raises
        InputError.
        """
        yield self.key.check
        yield from (partial(source_fingerprint, source) for source in self.key.profile.text_sources)
        if self.key.trains:
            yield partial(check_student, self.key, self.corpus)
        yield self.scores.check
        further = self.key.profile.further_teachers if self.key.taught else []
        fitted = bool(self.key.paragraph_vectors) or any(teacher.teacher for teacher in further)
        yield partial(self.corpus.check_hub, teachers=fitted)
        for model in self.models:
            yield partial(pretrained.require, model, stay_online=True)

    @property
    def models(self) -> list[str]:
        """The pretrained models that must be at hand: of a corpus to be built, of further teachers,
        those beside.
        """
        profile, final = self.key.profile, self.key.notebook in FINAL
        further = [str(teacher.model) for teacher in profile.further_teachers if teacher.model]
        found = [
            *(further if self.corpus.is_built else profile.models),
            *(profile.evaluation.beside if final else ()),
        ]
        return [
            *found,
            *filter(None, [profile.simde.sentence_encoder if self.key.self_supervised else None]),
        ]
