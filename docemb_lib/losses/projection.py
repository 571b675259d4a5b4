"""Projections: the small networks that carry both views to one width before the contextual loss (Tables 4.6 to 4.8).

Grammar: `block ("x" block)*`, or `-` for the identity. A block is `768` or `768(ReLU)`: a linear layer with bias to
768 features, then the activation if one is written. `768(ReLU)x4096(ReLU)x2048` is the largest of the thesis.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from torch import Tensor, nn

from docemb_lib.errors import InputError

IDENTITY = "-"

_EXAMPLE = "768(ReLU)x4096(ReLU)x2048"
_BETWEEN_BLOCKS = re.compile(r"[x×](?![^(]*\))")  # an x outside parentheses: softmax has one inside
_BLOCK = re.compile(r"\s*([0-9]+)\s*(?:\(\s*(\w+)\s*\))?\s*")
_ACTIVATIONS: dict[str, type[nn.Module] | None] = {
    "relu": nn.ReLU,
    "linear": None,
    "sigmoid": nn.Sigmoid,
    "softmax": nn.Softmax,
}


class Block(NamedTuple):
    """One linear layer and what follows it."""

    width: int  # features
    activation: str  # a key of _ACTIVATIONS


class Projection(nn.Module):
    """The network that `spec` describes, from `in_features` to `out_features`.

    Layers have PyTorch's default initialisation, which draws from the global generator: seed before building.
    """

    def __init__(self, spec: str, in_features: int) -> None:
        super().__init__()
        self.spec = spec
        self.widths = projection_widths(spec, in_features)  # in, ..., out
        self.layers = nn.Sequential()
        for width_in, block in zip(self.widths, parse_projection(spec), strict=False):
            self.layers.append(nn.Linear(width_in, block.width))
            if activation := _ACTIVATIONS[block.activation]:
                self.layers.append(activation(dim=-1) if activation is nn.Softmax else activation())

    @property
    def in_features(self) -> int:
        return self.widths[0]

    @property
    def out_features(self) -> int:
        return self.widths[-1]

    def forward(self, view: Tensor) -> Tensor:
        """view: (B, in_features). Returns (B, out_features)."""
        if view.shape[-1] != self.in_features:
            raise InputError(
                f"projection {self.spec!r} was made for a view of width {self.in_features}, got {view.shape[-1]}"
            )
        return self.layers(view)

    def extra_repr(self) -> str:
        return f"{self.spec!r}, {_chain(self.widths)}"


def parse_projection(spec: str) -> tuple[Block, ...]:
    """The blocks of a projection string; none for the identity. Raises InputError naming the block that is wrong."""
    if not isinstance(spec, str) or not spec.strip():
        raise InputError(f"projection {spec!r} is empty: write '{IDENTITY}' for none or blocks such as {_EXAMPLE!r}")
    if spec.strip() == IDENTITY:
        return ()
    blocks = []
    for text in _BETWEEN_BLOCKS.split(spec):
        match = _BLOCK.fullmatch(text)
        if match is None:
            raise InputError(
                f"projection {spec!r}: {text!r} is not a block; write a width, or a width and an activation "
                f"in parentheses, joined by x, as in {_EXAMPLE!r}"
            )
        width, activation = int(match[1]), (match[2] or "linear").lower()
        if width < 1:
            raise InputError(
                f"projection {spec!r}: block {text!r} has no features; write 1 or more, as in {_EXAMPLE!r}"
            )
        if activation not in _ACTIVATIONS:
            raise InputError(
                f"projection {spec!r}: block {text!r} has the unknown activation {match[2]!r}; "
                f"write one of {', '.join(_ACTIVATIONS)}, as in {_EXAMPLE!r}"
            )
        blocks.append(Block(width, activation))
    return tuple(blocks)


def projection_widths(spec: str, in_features: int) -> tuple[int, ...]:
    """The number of features before, between and after the layers of `spec`: (768, 1024, 2048) for `1024x2048`."""
    return (in_features, *(block.width for block in parse_projection(spec)))


def check_widths(
    student_spec: str, student_dim: int, teacher_spec: str, teacher_dim: int, *, teacher: str = "contextual"
) -> int:
    """The width at which both projections end. Raises InputError showing both chains where they end apart.

    student_dim, teacher_dim: widths of the embeddings; teacher: its name.
    """
    ours = projection_widths(student_spec, student_dim)
    theirs = projection_widths(teacher_spec, teacher_dim)
    if ours[-1] != theirs[-1]:
        field = "contextual_projection" if teacher == "contextual" else "teacher_projection"
        raise InputError(
            f"projections end in different widths: student {_chain(ours)}; {teacher} {_chain(theirs)}; "
            f"let student_projection ({student_spec!r}) end in {theirs[-1]} "
            f"or {field} ({teacher_spec!r}) in {ours[-1]}"
        )
    return ours[-1]


def _chain(widths: tuple[int, ...]) -> str:
    return " → ".join(map(str, widths))
