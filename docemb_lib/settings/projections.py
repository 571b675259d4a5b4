"""The grammar of projections as text, which is checked without torch.

Grammar: `block ("x" block)*`, or `-` for the identity. A block is a linear layer with bias to so
many features, then the layers in parentheses, in their order: `768`, `768(ReLU)`,
`768(ReLU,drop0.1,norm)`. They are an activation, dropout with its probability, and layer
normalisation, each at most once. `768(ReLU)x4096(ReLU)x2048` is the thesis' largest.
"""

import re
from collections.abc import Sequence

from docemb_lib.base.errors import InputError

IDENTITY = "-"
# The activations and their classes in torch.nn.
ACTIVATIONS = {"relu": "ReLU", "linear": None, "sigmoid": "Sigmoid", "softmax": "Softmax"}
DROPOUT = "drop"
NORM = "norm"
WIDEST = 2**16  # features: SoftCCA holds the square of them
_EXAMPLE = "768(ReLU)x4096(ReLU)x2048"
_BETWEEN_BLOCKS = re.compile(r"[x×](?![^(]*\))")  # an x outside parentheses: softmax has one inside
_BLOCK = re.compile(r"\s*([0-9]{1,9})\s*(?:\(([\w\s.,]+)\))?\s*")
_LAYER = re.compile(
    rf"(?P<activation>{'|'.join(ACTIVATIONS)})"
    rf"|(?P<dropout>{DROPOUT}0?\.[0-9]{{1,9}})"
    rf"|(?P<norm>{NORM})"
)
Block = tuple[int, tuple[str, ...]]  # features, and the lower-case names of further layers


def parse_projection(spec: str) -> tuple[Block, ...]:
    """The blocks of a projection string, none for the identity.

    `8(linear)x4(ReLU,drop0.1)` gives ((8, ()), (4, ("relu", "drop0.1"))). Raises InputError for a
    string that does not follow the grammar.
    """
    if spec.strip() == IDENTITY:
        return ()
    return tuple(_parse_block(text, spec) for text in _BETWEEN_BLOCKS.split(spec))


def _parse_block(text: str, spec: str) -> Block:
    """The block that a part of a projection stands for. Raises InputError if it is none."""
    match = _BLOCK.fullmatch(text)
    if match is not None and 1 <= int(match[1]) <= WIDEST:
        names = [name.strip().lower() for name in match[2].split(",")] if match[2] else []
        kinds = {layer.lastgroup for layer in map(_LAYER.fullmatch, names) if layer}
        if len(kinds) == len(names):  # each name is a layer, and no two are of one kind
            return int(match[1]), tuple(name for name in names if name != "linear")
    raise InputError(
        f"projection {spec!r}: {text!r} is not a block; "
        f"write a width from 1 to {WIDEST}, or one with layers in parentheses: an activation "
        f"({', '.join(ACTIVATIONS)}), {DROPOUT}0.1 and {NORM}, each at most once; "
        f"as in {_EXAMPLE!r}, or '{IDENTITY}'"
    )


def with_widths(spec: str, widths: Sequence[int]) -> str:
    """The same blocks with other numbers of features."""
    blocks = zip(_BETWEEN_BLOCKS.split(spec), widths, strict=True)
    return "x".join(re.sub(r"\d+", str(width), block, count=1) for block, width in blocks)


def projection_widths(spec: str, in_features: int) -> tuple[int, ...]:
    """The number of features before each layer of `spec` and after the last one.

    For `1024x2048` on 768 features these are (768, 1024, 2048).
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
    """Raise InputError, with all widths of both projections, unless both end in one width."""
    student_widths = projection_widths(student_spec, student_dim)
    teacher_widths = projection_widths(teacher_spec, teacher_dim)
    if student_widths[-1] == teacher_widths[-1]:
        return
    views = f"student {_arrows(student_widths)}; {teacher} teacher {_arrows(teacher_widths)}"
    specs = f"{student_spec!r} and {teacher_spec!r}"
    raise InputError(f"projections {specs} end in different widths: {views}; let both end in one")


def _arrows(widths: Sequence[int]) -> str:
    return " → ".join(map(str, widths))
