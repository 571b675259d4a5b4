"""Labels: short, readable names of runs, as in the thesis' figures, made of their parameters.

Labels are for people: no code reads one. A label names only what differs from the papers' settings
of pairs and of SoftCCA.
"""

import re

from docemb_lib.settings.parameters import SINGLE, Parameters, label_of_paragraph_vector
from docemb_lib.settings.sections import CONTEXTUAL_LOSSES

STUDENT = "student "  # how the labels of final students begin
PAPER = Parameters()  # the settings of the papers
LETTERS = {"delta": "δ", "beta": "β"}  # of SoftCCA
# Parts of labels as figures print them.
PRINTED = {"no-weighting": "plain sum", "None;λ": "no mask;λ"}


def paragraph_vector_label(p: Parameters) -> str:
    """One Paragraph Vector, or the labels of several joined by +: `DM;100;lowercase;2`."""
    if p.compound is not None:
        return p.compound
    return label_of_paragraph_vector(**{name: getattr(p, name) for name in SINGLE})


def structural_label(p: Parameters) -> str:
    """The structural loss: `cosine`, `max-margin;MSE;γ=1.0`."""
    if p.structural_loss is None:
        return "only-contextual"
    if p.structural_loss == "mse":
        return "MSE"
    label = p.structural_loss
    if label == "max-margin":
        distance = "MSE" if p.distance == "mse" else "cosine"
        label = f"max-margin;{distance};γ={p.gamma}"
    if label == "contrastive" and p.temperature is not None:
        label = f"contrastive;τ={p.temperature}"
    return label


def contextual_label(p: Parameters) -> str:
    """The contextual loss: `PV;S:768(ReLU)x4096(ReLU)x2048;C:-`."""
    if p.contextual_teacher is None:
        return "only-structural"
    label = f"{p.contextual_teacher};S:{p.student_projection};C:{p.contextual_projection}"
    if p.contextual_loss != "soft-cca":
        label = f"{p.contextual_loss};{label}"
    for name in CONTEXTUAL_LOSSES[p.contextual_loss].parameters:
        value = getattr(p, name)
        if value != getattr(PAPER, name):
            label += f";{LETTERS[name]}={value}"
    return label


def losses_label(p: Parameters) -> str:
    """The structural and the contextual loss: `cosine;PV;S:384(ReLU)x200;C:-`."""
    return f"{structural_label(p)};{contextual_label(p)}"


def weighting_label(p: Parameters) -> str:
    """The structural loss, its mask and the weight λ: `cosine;384;λ=0.5`."""
    structural = structural_label(p)
    if p.contextual_teacher is None:
        masked = "" if p.max_structural_len is None else f";{p.max_structural_len}"
        return f"only-structural;{structural}{masked}"
    if p.structural_loss is None:
        return f"only-contextual;{p.contextual_teacher}"
    if p.lam is None and p.lam_by_length is None and p.max_structural_len is None:
        return f"{structural};no-weighting"
    by_length = "" if p.lam_by_length is None else f";{p.lam_by_length}"
    form = "" if p.weighting == "complement" else f";{p.weighting}"
    return f"{structural};{p.max_structural_len};λ={p.lam}{by_length}{form}"


def final_label(p: Parameters) -> str:
    """The student of a final evaluation: `student cosine;384;λ=0.5;DM;S:-;C:-;700 docs`."""
    label = STUDENT + weighting_label(p)
    if p.contextual_teacher is not None:
        label += f";{contextual_label(p)}"
    return f"{label};{sizes(p)}"


def student_name(p: Parameters, *, from_pairs: bool = False) -> str:
    """The student in figures and tables: `S (cosine)`, `S+PV masked`, `SimDE`.

    S is the structural teacher; beside a contextual one its loss is named unless it is cosine.
    from_pairs: whether the student learns from pairs of texts.
    """
    if from_pairs:
        return "SimDE" if p.pairs == "halves" else "SimCSE"
    if p.structural_loss is None:
        loss = "" if p.contextual_loss == "soft-cca" else f" ({p.contextual_loss})"
        return f"{p.contextual_teacher} alone{loss}"
    name = f"S ({p.structural_loss})"
    if p.contextual_teacher is not None:
        name = f"{name}+{p.contextual_teacher}".replace(" (cosine)", "")
    return name if p.max_structural_len is None else f"{name} masked"


def pairs_label(p: Parameters) -> str:
    """The student that learns from pairs: `SimDE;700 docs`.

    Settings that differ from the paper's are named: `SimCSE;τ=0.1;mlm=0.0;700 docs`.
    """
    parts = ["SimDE" if p.pairs == "halves" else "SimCSE"]
    if p.pair_temperature != PAPER.pair_temperature:
        parts.append(f"τ={p.pair_temperature}")
    if p.mlm_weight != PAPER.mlm_weight:
        parts.append(f"mlm={p.mlm_weight}")
    return ";".join([*parts, sizes(p)])


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
