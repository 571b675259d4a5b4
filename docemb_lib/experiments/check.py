"""Everything about a run that can be wrong and is cheap to find out, looked at before any long work."""

from __future__ import annotations

from docemb_lib import pretrained
from docemb_lib.corpus.origin import source_fingerprint
from docemb_lib.errors import InputError
from docemb_lib.experiments.stages import Stages
from docemb_lib.profile import TRAINING, width


def check(stages: Stages, notebook: str) -> None:
    """Sources, teachers' packages and widths of a run of `notebook`. Raises InputError."""
    profile, p = stages.profile, stages.profile.parameters
    source_fingerprint(profile.corpus)
    pretrained.resolve(profile.student.model)
    pretrained.resolve(profile.structural_teacher.model)
    if notebook not in TRAINING:
        return
    if profile.training.report_to:
        _check_trackers(profile.training.report_to)
    size = profile.training.batch_size
    if p.documents < size:
        raise InputError(f"documents: {p.documents} do not fill one batch; ask for training.batch_size {size} or more")
    stages.check_documents()
    student_width = width(profile.student.model)
    if p.contextual_teacher is None or student_width is None:
        return
    from docemb_lib.losses.projection import check_widths

    teacher_width = stages.contextual_width(p.contextual_teacher)
    check_widths(p.student_projection, student_width, p.contextual_projection, teacher_width)


def _check_trackers(names: list[str]) -> None:
    from transformers.integrations import get_available_reporting_integrations

    available = get_available_reporting_integrations()
    for name in names:
        if name not in available:
            raise InputError(
                f"training.report_to: {name} is unknown or not installed; there are {', '.join(available) or 'none'}"
            )
