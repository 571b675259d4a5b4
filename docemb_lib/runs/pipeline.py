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
from docemb_lib.workspace import Workspace

if TYPE_CHECKING:
    from docemb_lib.runs.students import StudentStage


class Stages:
    """The stages of one run. Replace an attribute of a stage to replace what the stage makes.

    Example:
        >>> stages = Stages(RunKey.of("06_evaluation", Profile.load("tiny"), documents=60))
        >>> folder = stages.students.trained.path  # builds whatever is missing
    """

    def __init__(self, key: RunKey, workspace: Workspace | None = None) -> None:
        self.key = key
        self.workspace = workspace or Workspace()
        self.corpus = CorpusStage(key.profile, self.workspace)
        self.teachers = TeacherStage(key.profile, self.workspace, self.corpus)
        self.scores = ScoreStage(key.profile, self.workspace, self.corpus)

    @cached_property
    def students(self) -> StudentStage:
        from docemb_lib.runs.students import StudentStage  # imports torch

        return StudentStage(self.key, self.workspace, self.corpus, self.teachers)

    def check(self) -> None:
        """Check everything about the run that is cheap to check, before any long work.

        Raises InputError.
        """
        for check in self.checks():
            check()

    def checks(self) -> Iterator[Callable[[], object]]:
        """The checks of settings, data, models and hub that `check` calls in turn.

        Each of them raises InputError.
        """
        key = self.key
        yield key.check
        if key.own_loss is not None:
            yield partial(_check_loss, key.own_loss)
        for source in key.profile.text_sources:
            yield partial(source_fingerprint, source)
        if key.trains:
            yield partial(check_student, key, self.corpus)
        yield self.scores.check
        for model in self.models:
            yield partial(pretrained.require, model, stay_online=True)

    @property
    def checked_as(self) -> tuple[object, ...]:
        """What `checks` depend on: those of two runs with equal values have the same results.

        `RunKey.check` is not covered. It depends on all parameters, and a plan is resolved by it.
        """
        key = self.key
        return (key.notebook, key.sections, key.profile.parameters.documents, key.own_loss)

    @property
    def models(self) -> list[str]:
        """The pretrained models that the run loads, by name.

        A corpus to be built needs the tokenizers of student and structural teacher. A final
        evaluation compares with the models of `evaluation.beside`.
        """
        key = self.key
        profile = key.profile
        names = [] if self.corpus.is_built else profile.models
        if key.registered.final:
            names += profile.evaluation.beside
        if key.self_supervised and profile.simde.sentence_encoder:
            names.append(profile.simde.sentence_encoder)
        return names


def _check_loss(name: str) -> None:
    """Check that a loss of one's own is one. Raises InputError."""
    from docemb_lib.losses import structural  # imports torch

    structural.structural_loss(name)
