"""Projections: small networks that map both views to one width before the contextual loss (Tables 4.6 to 4.8).

Grammar: `block ("x" block)*`, or `-` for the identity. A block is `768` or `768(ReLU)`: a linear layer with bias to
768 features, then the activation if one is written. `768(ReLU)x4096(ReLU)x2048` is the largest of the thesis.
"""

import re
from typing import Any

from torch import Tensor, nn

from docemb_lib.errors import InputError

IDENTITY = "-"
_EXAMPLE = "768(ReLU)x4096(ReLU)x2048"
_BETWEEN_BLOCKS = re.compile(r"[x×](?![^(]*\))")  # an x outside parentheses: softmax has one inside
_BLOCK = re.compile(r"\s*([0-9]+)\s*(?:\(\s*(\w+)\s*\))?\s*")
_ACTIVATIONS: dict[str, Any] = {"relu": nn.ReLU, "linear": None, "sigmoid": nn.Sigmoid, "softmax": nn.Softmax}


class Projection(nn.Module):
    """The network that `spec` describes, from `in_features` to `out_features`.

    Layers have PyTorch's default initialisation, which draws from the global generator: seed before building.

    Example:
        >>> projection = Projection("8(ReLU)x4", in_features=16)
        >>> projection.widths, projection(torch.zeros(2, 16)).shape
        ((16, 8, 4), torch.Size([2, 4]))
    """

    def __init__(self, spec: str, in_features: int) -> None:
        super().__init__()
        self.spec = spec
        self.widths = projection_widths(spec, in_features)
        self.in_features, self.out_features = self.widths[0], self.widths[-1]
        self.layers = nn.Sequential()
        for width_in, (width, name) in zip(self.widths, parse_projection(spec), strict=False):
            self.layers.append(nn.Linear(width_in, width))
            if activation := _ACTIVATIONS[name]:
                self.layers.append(activation(dim=-1) if name == "softmax" else activation())

    def forward(self, view: Tensor) -> Tensor:  # (B, in_features) to (B, out_features)
        if view.shape[-1] != self.in_features:
            made = f"was made for a view of width {self.in_features}, got {view.shape[-1]}"
            raise InputError(f"projection {self.spec!r} {made}")
        return self.layers(view)

    def extra_repr(self) -> str:
        return f"{self.spec!r}, {_chain(self.widths)}"


def parse_projection(spec: str) -> tuple[tuple[int, str], ...]:
    """Width and activation of each block of a projection string, none for the identity."""
    if not isinstance(spec, str) or not spec.strip():
        raise InputError(f"projection {spec!r} is empty: write '{IDENTITY}' for none or blocks such as {_EXAMPLE!r}")
    if spec.strip() == IDENTITY:
        return ()
    blocks = []
    for text in _BETWEEN_BLOCKS.split(spec):
        match = _BLOCK.fullmatch(text)
        activation = ((match and match[2]) or "linear").lower()
        if match is None:
            problem = "is not a block; write a width, or a width and an activation in parentheses, joined by x"
        elif int(match[1]) < 1:
            problem = "has no features; write 1 or more"
        elif activation not in _ACTIVATIONS:
            problem = f"has the unknown activation {match[2]!r}; write one of {', '.join(_ACTIVATIONS)}"
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
        chains = f"student {_chain(student)}; {teacher} {_chain(other)}"
        mend = (
            f"student_projection ({student_spec!r}) end in {other[-1]} or {field} ({teacher_spec!r}) in {student[-1]}"
        )
        raise InputError(f"projections end in different widths: {chains}; let {mend}")
    return student[-1]


def _chain(widths: tuple[int, ...]) -> str:
    return " → ".join(map(str, widths))
