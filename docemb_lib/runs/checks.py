"""The checks of a run's parameters and settings, made before any long work.

A parameter is checked in three steps. `settings.profile.check_names` asks whether the notebook
takes it, `settings.parameters.Parameters` whether its value is allowed, and this module whether it
fits the other parameters, the teachers, the encoder and the corpus. `Run.checks` lists all
checks of a run, also those of files, tasks and the hub.
"""

from math import inf

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.runs.identity import RunIdentity
from docemb_lib.runs.stages import Corpus
from docemb_lib.settings.profile import local_config, width
from docemb_lib.settings.projections import check_widths
from docemb_lib.settings.sections import NO_PAIRS


def dropout_of(run: RunIdentity) -> float | None:
    """The dropout of the student while it is trained, None for that of its checkpoint.

    Learning from pairs of texts may have another one than learning from teachers.
    """
    of_pairs = run.profile.simde.dropout
    if run.self_supervised and of_pairs is not None:
        return of_pairs
    return run.profile.student.dropout


def check_training(run: RunIdentity) -> None:
    """Check that documents, batches, dropout, teachers and projections of a student fit each other.

    Raises InputError.
    """
    profile = run.profile
    p = profile.parameters
    if run.self_supervised:
        run.training.check_fills_a_batch(p.documents, "simde.training")
        if p.pairs == "dropout" and dropout_of(run) == 0:
            raise InputError(NO_PAIRS)
        return

    run.training.check_fills_a_batch(p.documents)
    student_width = width(profile.student.model)
    # The width of a model that is not loaded may be unknown.
    if p.contextual_teacher is not None and student_width is not None:
        teacher_width = profile.contextual_teachers.width(p.contextual_teacher)
        check_widths(p.student_projection, student_width, p.contextual_projection, teacher_width)


def check_student(run: RunIdentity, corpus: Corpus) -> None:
    """Check that the encoder has the layers, and the corpus the documents, that the student needs.

    Of a corpus that is not built, the numbers that the profile asks for count. Raises InputError.
    """
    profile = run.profile
    student = profile.student
    layers = local_config(pretrained.resolve(student.model)).get("num_hidden_layers", inf)
    if max(student.layers or [0]) >= layers:
        problem = f"{student.model} has the layers 0 to {layers - 1}"
        mend = "name some of these, or null for all"
        raise InputError(f"student.layers: got {student.layers}, but {problem}; {mend}")

    settings = profile.corpus
    available = (settings.documents or inf) - settings.validation - settings.tasks
    if corpus.is_built:
        available = len(corpus.split("train"))
    asked = {"documents": profile.parameters.documents}
    if run.has_words:
        asked["student.words"] = student.words
    for name, number in asked.items():
        if number > available:
            held = "those of corpus.validation and corpus.tasks"
            problem = f"{name}: {number} are asked for, but besides {held} "
            mend = "ask for fewer, or add documents"
            raise InputError(f"{problem}the corpus has {available} documents; {mend}")
