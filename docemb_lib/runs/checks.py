"""The checks of a run's parameters and settings, made before any long work.

A parameter is checked in three steps. `settings.profile.check_names` asks whether the notebook
takes it, `settings.parameters.Parameters` whether its value is allowed, and this module whether it
fits the other parameters, the teachers, the encoder and the corpus. `Run.checks` lists all
checks of a run, also those of files, tasks and the hub.
"""

from math import inf

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.settings.profile import Profile, local_config, width
from docemb_lib.settings.projections import check_widths
from docemb_lib.settings.sections import NO_PAIRS


def check_training(profile: Profile, *, self_supervised: bool) -> None:
    """Check that documents, batches, dropout, teachers and projections fit each other.

    self_supervised: the student learns from pairs of texts, without teachers. Raises InputError.
    """
    p = profile.parameters
    if self_supervised:
        profile.simde.training.check_fills_a_batch(p.documents, "simde.training")
        dropout = profile.simde.dropout
        if dropout is None:
            dropout = profile.student.dropout
        if p.pairs == "dropout" and dropout == 0:
            raise InputError(NO_PAIRS)
        return

    profile.training.check_fills_a_batch(p.documents)
    if p.contextual_teacher is None:
        return
    student_width = width(profile.student.model)
    if student_width is not None:  # of a model that is not loaded it may be unknown
        teacher_width = profile.contextual_teachers.width(p.contextual_teacher)
        f, g = p.student_projection, p.contextual_projection
        check_widths(f, student_width, g, teacher_width, teacher="contextual")
    # A batch of B documents has B - 1 canonical correlations; `cca:10` sums the first ten.
    size = profile.training.batch_size
    number = p.contextual_loss.partition(":")[2]
    if number.isdecimal() and int(number) >= size:
        few = (
            f"{p.contextual_loss} needs more correlations than the {size - 1} of a batch of {size}"
        )
        mend = f"raise training.batch_size far above {number}"
        raise InputError(f"contextual_loss: {few}; {mend}")


def check_layers(profile: Profile) -> None:
    """Check that the encoder has the layers that the student keeps. Raises InputError."""
    student = profile.student
    layers = local_config(pretrained.resolve(student.model)).get("num_hidden_layers", inf)
    if max(student.layers or [0]) >= layers:
        problem = f"{student.model} has the layers 0 to {layers - 1}"
        mend = "name some of these, or null for all"
        raise InputError(f"student.layers: got {student.layers}, but {problem}; {mend}")


def check_documents(
    profile: Profile, built_documents: int | None, *, has_lexical_half: bool
) -> None:
    """Check that the corpus has the documents to train on, and to fit a lexical half on.

    built_documents: number of documents in the train split of a corpus that is built; None: it is
    not built, and the numbers that the profile asks for count. Raises InputError.
    """
    asked = {"documents": profile.parameters.documents}
    if has_lexical_half:
        asked["student.lexical"] = profile.student.lexical
    available: float
    if built_documents is None:
        corpus = profile.corpus
        available = (corpus.documents or inf) - corpus.validation - corpus.tasks
    else:
        available = built_documents
    for name, number in asked.items():
        if number > available:
            held = "those of corpus.validation and corpus.tasks"
            problem = f"{name}: {number} are asked for, but besides {held} "
            mend = "ask for fewer, or add documents"
            raise InputError(f"{problem}the corpus has {available} documents; {mend}")
