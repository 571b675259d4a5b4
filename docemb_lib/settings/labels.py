"""Names of students, and labels of runs, made of their parameters; both are for people.

A label begins with the name of the student, says all that tells it from others, and names its
folder. Of the settings of pairs and of SoftCCA it has what differs from the papers'.
"""

import re

from docemb_lib.settings.parameters import SINGLE, Parameters, label_of_paragraph_vector
from docemb_lib.settings.sections import CONTEXTUAL_LOSSES

PAPER = Parameters()  # the settings of the papers
LETTERS = {"delta": "δ", "beta": "β"}  # of SoftCCA
# Parts of the thesis' labels as figures print them.
PRINTED = {"no-weighting": "plain sum", "None;λ": "no mask;λ"}


def paragraph_vector_label(p: Parameters) -> str:
    """One Paragraph Vector, or the labels of several joined by +: `DM;100;lowercase;2`."""
    if p.compound is not None:
        return p.compound
    return label_of_paragraph_vector(**{name: getattr(p, name) for name in SINGLE})


def student_name(p: Parameters, *, from_pairs: bool = False) -> str:
    """The student in figures, tables and the log: `S (cosine)`, `S+PV masked, λ .2`, `SimDE`.

    S is the structural teacher; beside a contextual one its loss is named unless it is cosine, and
    λ unless it is .5, which trains nearly the student of the plain sum. C is a contextual teacher
    without a structural one, as in `C (PV)`; its loss is named unless it is SoftCCA.

    from_pairs: whether the student learns from pairs of texts.
    """
    if from_pairs:
        return "SimDE" if p.pairs == "halves" else "SimCSE"
    if p.structural_loss is None:
        loss = "" if p.contextual_loss == "soft-cca" else f", {p.contextual_loss}"
        return f"C ({p.contextual_teacher}{loss})"
    name = f"S ({p.structural_loss})"
    if p.contextual_teacher is not None:
        name = f"{name}+{p.contextual_teacher}".replace(" (cosine)", "")
    if p.max_structural_len is not None:
        name += " masked"
    if p.contextual_teacher is not None and p.lam not in (None, 0.5):
        name = typeset(f"{name};λ={p.lam}")
    return name


def student_label(p: Parameters) -> str:
    """A student that learns from teachers: its name, and what the name leaves out.

    An example is `S+PV masked, 384 tokens, λ .5, S:768(ReLU)x2048, C:-, 700 docs`.
    """
    parts = [student_name(p)]
    if p.structural_loss == "max-margin":
        parts.append(f"{p.distance};γ={p.gamma}")
    if p.structural_loss == "contrastive" and p.temperature is not None:
        parts.append(f"τ={p.temperature}")
    if p.structural_loss is not None and p.max_structural_len is not None:
        parts.append(f"{p.max_structural_len} tokens")
    if len(p.roles) == 2:
        if p.lam == 0.5:
            parts.append("λ=0.5")
        if p.lam is None or p.lam_by_length is not None:
            parts.append(p.lam_by_length or "plain sum")
        if p.weighting != "complement":
            parts.append(p.weighting)
    if p.contextual_teacher is not None:
        if p.contextual_loss != "soft-cca":
            parts.append(p.contextual_loss)
        parts.append(f"S:{p.student_projection};C:{p.contextual_projection}")
        for name in CONTEXTUAL_LOSSES[p.contextual_loss].parameters:
            value = getattr(p, name)
            if value != getattr(PAPER, name):
                parts.append(f"{LETTERS[name]}={value}")
    return typeset(";".join([*parts, sizes(p)]))


def pairs_label(p: Parameters) -> str:
    """The student that learns from pairs: `SimDE, 700 docs`.

    Settings that differ from the paper's are named: `SimCSE, τ .1, mlm=0.0, 700 docs`.
    """
    parts = [student_name(p, from_pairs=True)]
    if p.pair_temperature != PAPER.pair_temperature:
        parts.append(f"τ={p.pair_temperature}")
    if p.mlm_weight != PAPER.mlm_weight:
        parts.append(f"mlm={p.mlm_weight}")
    return typeset(";".join([*parts, sizes(p)]))


def typeset(label: str) -> str:
    """A label as figures print it: spaces between its parts, and short numbers.

    Example:
        >>> typeset("cosine;None;λ=0.5")
        'cosine, no mask, λ .5'
    """
    for text, printed in PRINTED.items():
        label = label.replace(text, printed)
    return re.sub(r"([λγτ]=)([\d.]+)", _short_number, label).replace(";", ", ")


def _short_number(match: re.Match[str]) -> str:
    """`λ .5` for `λ=0.5`."""
    name, value = match.groups()
    return f"{name[0]} {float(value):g}".replace(" 0.", " .")


def sizes(p: Parameters) -> str:
    """The number of documents, and the seed unless it is 0: `700 docs`."""
    return f"{p.documents} docs" + (f";seed {p.seed}" if p.seed else "")
