"""The grammar of projections, as text: what is checked of it needs no torch.

Grammar: `block ("x" block)*`, or `-` for the identity. A block is `768` or `768(ReLU)`: a linear layer with bias to
768 features, then the activation if one is written. `768(ReLU)x4096(ReLU)x2048` is the largest of the thesis.
"""

import re

from docemb_lib.errors import InputError

IDENTITY = "-"
ACTIVATIONS = {"relu": "ReLU", "linear": None, "sigmoid": "Sigmoid", "softmax": "Softmax"}  # their classes in torch.nn
LONGEST = 500  # characters of a projection
WIDEST = 2**16  # features: SoftCCA holds the square of them
_EXAMPLE = "768(ReLU)x4096(ReLU)x2048"
_BETWEEN_BLOCKS = re.compile(r"[x×](?![^(]*\))")  # an x outside parentheses: softmax has one inside
_BLOCK = re.compile(r"\s*([0-9]{1,9})\s*(?:\(\s*(\w+)\s*\))?\s*")


def parse_projection(spec: str) -> tuple[tuple[int, str], ...]:
    """Width and activation of each block of a projection string, none for the identity."""
    if not isinstance(spec, str) or not spec.strip():
        raise InputError(f"projection {spec!r} is empty: write '{IDENTITY}' for none or blocks such as {_EXAMPLE!r}")
    if len(spec) > LONGEST:
        raise InputError(f"projection of {len(spec):,} characters: write at most {LONGEST}, as in {_EXAMPLE!r}")
    if spec.strip() == IDENTITY:
        return ()
    blocks = []
    for text in _BETWEEN_BLOCKS.split(spec):
        match = _BLOCK.fullmatch(text)
        activation = ((match and match[2]) or "linear").lower()
        if match is None:
            problem = "is not a block; write a width, or a width and an activation in parentheses, joined by x"
        elif not 1 <= int(match[1]) <= WIDEST:
            problem = f"has no features, or too many; write 1 to {WIDEST}"
        elif activation not in ACTIVATIONS:
            problem = f"has the unknown activation {match[2]!r}; write one of {', '.join(ACTIVATIONS)}"
        else:
            blocks.append((int(match[1]), activation))
            continue
        raise InputError(f"projection {spec!r}: {text!r} {problem}, as in {_EXAMPLE!r}")
    return tuple(blocks)


def projection_widths(spec: str, in_features: int) -> tuple[int, ...]:
    """The number of features before, between and after the layers of `spec`: (768, 1024, 2048) for `1024x2048`."""
    return (in_features, *(width for width, _ in parse_projection(spec)))


def check_widths(
    student_spec: str, student_dim: int, teacher_spec: str, teacher_dim: int, *, teacher: str = "contextual"
) -> int:
    """The width in which both projections end. Raises InputError, showing all widths of both, if they differ."""
    student, other = projection_widths(student_spec, student_dim), projection_widths(teacher_spec, teacher_dim)
    if student[-1] != other[-1]:
        field = "contextual_projection" if teacher == "contextual" else "teacher_projection"
        chains = f"student {chain(student)}; {teacher} {chain(other)}"
        mend = (
            f"student_projection ({student_spec!r}) end in {other[-1]} or {field} ({teacher_spec!r}) in {student[-1]}"
        )
        raise InputError(f"projections end in different widths: {chains}; let {mend}")
    return student[-1]


def chain(widths: tuple[int, ...]) -> str:
    return " → ".join(map(str, widths))
