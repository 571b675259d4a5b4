"""The grammar of projections, as text: what is checked of it needs no torch.

Grammar: `block ("x" block)*`, or `-` for the identity. A block is a linear layer with bias to so
many features, then the layers in parentheses, in their order: `768`, `768(ReLU)`,
`768(ReLU,drop0.1,norm)`. They are an activation, dropout with its probability, and layer
normalisation, each at most once. `768(ReLU)x4096(ReLU)x2048` is the thesis' largest.
"""

import re
from collections.abc import Sequence

from docemb_lib.base.errors import InputError

IDENTITY = "-"
ACTIVATIONS = {
    "relu": "ReLU",
    "linear": None,
    "sigmoid": "Sigmoid",
    "softmax": "Softmax",
}  # their classes in torch.nn
DROPOUT, NORM = "drop", "norm"
WIDEST = 2**16  # features: SoftCCA holds the square of them
_EXAMPLE = "768(ReLU)x4096(ReLU)x2048"
_BETWEEN_BLOCKS = re.compile(r"[x×](?![^(]*\))")  # an x outside parentheses: softmax has one inside
_BLOCK = re.compile(r"\s*([0-9]{1,9})\s*(?:\(([\w\s.,]+)\))?\s*")
_LAYER = re.compile(
    rf"(?P<activation>{'|'.join(ACTIVATIONS)})|(?P<dropout>{DROPOUT}0?\.[0-9]{{1,9}})|(?P<norm>{NORM})"
)


def parse_projection(spec: str) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """The blocks of a projection string, none for the identity: features, and the lower-case names
    of further layers.

    `8(linear)x4(ReLU,drop0.1)` gives ((8, ()), (4, ("relu", "drop0.1"))).
    """
    if spec.strip() == IDENTITY:
        return ()
    blocks = []
    for text in _BETWEEN_BLOCKS.split(spec):
        match = _BLOCK.fullmatch(text)
        names = [name.strip().lower() for name in match[2].split(",")] if match and match[2] else []
        kinds = [found and found.lastgroup for found in map(_LAYER.fullmatch, names)]
        if (
            match is None
            or not 1 <= int(match[1]) <= WIDEST
            or None in kinds
            or len(set(kinds)) < len(kinds)
        ):
            layers = f"an activation ({', '.join(ACTIVATIONS)}), {DROPOUT}0.1 and {NORM}, each at most once"
            mend = f"write a width from 1 to {WIDEST}, or one with layers in parentheses: {layers}; as in {_EXAMPLE!r}"
            raise InputError(
                f"projection {spec!r}: {text!r} is not a block; {mend}, or '{IDENTITY}'"
            )
        blocks.append((int(match[1]), tuple(name for name in names if name != "linear")))
    return tuple(blocks)


def with_widths(spec: str, widths: Sequence[int]) -> str:
    """The same blocks with other numbers of features."""
    blocks = _BETWEEN_BLOCKS.split(spec)
    return "x".join(
        re.sub(r"\d+", str(width), block, count=1)
        for block, width in zip(blocks, widths, strict=True)
    )


def projection_widths(spec: str, in_features: int) -> tuple[int, ...]:
    """The number of features before, between and after the layers of `spec`: (768, 1024, 2048) for
    `1024x2048`.
    """
    return (in_features, *(width for width, _ in parse_projection(spec)))


def check_widths(
    student_spec: str,
    student_dim: int,
    teacher_spec: str,
    teacher_dim: int,
    *,
    teacher: str = "contextual",
) -> None:
    """Raise InputError, showing all widths of both projections, unless both end in one width."""
    student, other = (
        projection_widths(student_spec, student_dim),
        projection_widths(teacher_spec, teacher_dim),
    )
    if student[-1] != other[-1]:
        field = "contextual_projection" if teacher == "contextual" else "teacher_projection"
        shown = [" → ".join(map(str, widths)) for widths in (student, other)]
        problem = f"projections end in different widths: student {shown[0]}; {teacher} {shown[1]}"
        if teacher == "structural":  # has no projections
            raise InputError(
                f"{problem}; choose student.model and structural_teacher.model of one width"
            )
        mend = f"let student_projection ({student_spec!r}) end in {other[-1]} or {field} ({teacher_spec!r}) in "
        raise InputError(f"{problem}; {mend}{student[-1]}")
