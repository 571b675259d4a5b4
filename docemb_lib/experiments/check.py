"""Everything about a run that can be wrong and is cheap to find out, looked at before any long work."""

from __future__ import annotations

from docemb_lib import pretrained
from docemb_lib.corpus.origin import source_fingerprint
from docemb_lib.errors import InputError
from docemb_lib.evaluation.outside_tasks import task_fingerprint
from docemb_lib.experiments.stages import Stages
from docemb_lib.experiments.teacher_stages import PV_NAMES
from docemb_lib.profile import TRAINING, width
from docemb_lib.settings import ParagraphVectorSettings


def check(stages: Stages, notebook: str) -> None:
    """Sources, tasks, teachers' packages, widths and negatives of a run of `notebook`. Raises InputError."""
    profile, p = stages.profile, stages.profile.parameters
    source_fingerprint(profile.corpus)
    for task in (*profile.evaluation.tasks, *profile.evaluation.sweep_tasks):
        task_fingerprint(task, profile.evaluation)
    pretrained.resolve(profile.student.model)
    pretrained.resolve(profile.structural_teacher.model)
    for further in profile.further_teachers:
        if further.model:
            pretrained.resolve(further.model)
    stages.check_vocabulary(_paragraph_vectors(stages, notebook))
    if notebook not in TRAINING:
        return
    if profile.training.report_to:
        _check_trackers(profile.training.report_to)
    size = profile.training.batch_size
    if p.documents < size:
        raise InputError(f"documents: {p.documents} do not fill one batch; ask for training.batch_size {size} or more")
    stages.check_documents()
    stages.check_negatives()
    _check_widths(stages)


def _paragraph_vectors(stages: Stages, notebook: str) -> list[ParagraphVectorSettings]:
    """The Paragraph Vectors that a run trains, or loads."""
    if notebook == "02_paragraph_vector":
        return stages.asked_paragraph_vectors()
    further = stages.profile.further_teachers if notebook in TRAINING else []
    names = {str(teacher.teacher) for teacher in further if teacher.teacher}
    if notebook[:2] in {"04", "05", "06"}:
        names.update(PV_NAMES)  # students stand beside all of them
    return [member for name in sorted(names) for member in stages.members(name)]


def _check_widths(stages: Stages) -> None:
    """That the projections of each teacher meet, as far as widths are known without loading models."""
    profile, p = stages.profile, stages.profile.parameters
    meeting = []  # name, projections, width of the teacher's embeddings
    if p.contextual_teacher is not None:
        width_of = stages.contextual_width(p.contextual_teacher)
        meeting.append(("contextual", p.student_projection, p.contextual_projection, width_of))
    for further in profile.further_teachers:
        known = stages.contextual_width(further.teacher) if further.teacher else width(str(further.model))
        if known is not None:
            meeting.append((further.name, further.student_projection, further.teacher_projection, known))
    student_width = width(profile.student.model)
    if not meeting or student_width is None:
        return
    from docemb_lib.losses.projection import check_widths

    for name, student_spec, teacher_spec, teacher_width in meeting:
        check_widths(student_spec, student_width, teacher_spec, teacher_width, teacher=name)


def _check_trackers(names: list[str]) -> None:
    from transformers.integrations import get_available_reporting_integrations

    available = get_available_reporting_integrations()
    for name in names:
        if name not in available:
            raise InputError(
                f"training.report_to: {name} is unknown or not installed; there are {', '.join(available) or 'none'}"
            )
