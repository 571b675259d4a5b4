"""Everything about a run that can be wrong and is cheap to find out, looked at before any long work."""

from __future__ import annotations

from collections.abc import Sequence

from docemb_lib import pretrained
from docemb_lib.corpus.sources import source_fingerprint
from docemb_lib.errors import InputError
from docemb_lib.evaluation.benchmarks import missing_files
from docemb_lib.evaluation.catalogue import check_task
from docemb_lib.experiments.stages import PV_NAMES
from docemb_lib.experiments.students import SIMDE, Stages, check_dropout
from docemb_lib.settings import Evaluation, ParagraphVectorSettings
from docemb_lib.settings.profile import TRAINING, width


def check(stages: Stages, notebook: str) -> None:
    """Sources, tasks, teachers' packages, widths and negatives of a run of `notebook`. Raises InputError."""
    profile, p = stages.profile, stages.profile.parameters
    for texts in profile.text_sources:
        source_fingerprint(texts)
    evaluation = profile.evaluation
    check_benchmarks(evaluation, (*evaluation.tasks, *evaluation.sweep_tasks))
    for names, split in ((evaluation.tasks, "test"), (evaluation.sweep_tasks, "validation")):
        for name in names:
            check_task(profile, stages.workspace, name, split)
    pretrained.resolve(profile.student.model)
    pretrained.resolve(profile.structural_teacher.model)
    for further in profile.further_teachers:
        if further.model:
            pretrained.resolve(further.model)
    stages.check_vocabulary(_paragraph_vectors(stages, notebook))
    if notebook not in TRAINING:
        return
    on_pairs = notebook == SIMDE
    section, training = ("simde.training", profile.simde.training) if on_pairs else ("training", profile.training)
    if training.report_to:
        _check_trackers(training.report_to, section)
    size = training.batch_size
    if p.documents < size:
        raise InputError(f"documents: {p.documents} do not fill one batch; ask for {section}.batch_size {size} or more")
    stages.check_documents()
    if on_pairs:
        check_dropout(profile)
        if p.beside_teachers is None:
            return
    stages.check_negatives()
    _check_widths(stages)


def check_benchmarks(evaluation: Evaluation, tasks: Sequence[str]) -> None:
    """Refuse those of the tasks that are benchmarks whose published files are missing; all are named at once."""
    places = [(name, place) for name, place in evaluation.benchmarks.items() if name in tasks]
    missing = [f"{name} needs {', '.join(files)} in {at}" for name, at in places if (files := missing_files(name, at))]
    if missing:
        raise InputError(
            f"evaluation.benchmarks: {'; '.join(missing)}; put the published files there (docs/data.md says where they "
            "come from), name other folders, or leave these tasks out of evaluation.tasks and "
            "evaluation.sweep_tasks"
        )


def _paragraph_vectors(stages: Stages, notebook: str) -> list[ParagraphVectorSettings]:
    """The Paragraph Vectors that a run trains, or loads."""
    if notebook == "02_paragraph_vector":
        return stages.asked_paragraph_vectors()
    further = stages.profile.further_teachers if notebook in TRAINING else []
    names = {str(teacher.teacher) for teacher in further if teacher.teacher}
    if notebook[:2] >= "04":
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


def _check_trackers(names: list[str], section: str) -> None:
    from transformers.integrations import get_available_reporting_integrations

    available = get_available_reporting_integrations()
    for name in names:
        if name not in available:
            raise InputError(
                f"{section}.report_to: {name} is unknown or not installed; there are {', '.join(available) or 'none'}"
            )
