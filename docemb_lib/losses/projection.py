"""Projections: small networks that map both views to one width before the contextual loss (Tables 4.6 to 4.8)."""

from torch import Tensor, nn

from docemb_lib.errors import InputError
from docemb_lib.projections import ACTIVATIONS, DROPOUT, NORM, chain, parse_projection, projection_widths


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
        for width_in, (width, names) in zip(self.widths, parse_projection(spec), strict=False):
            self.layers.append(nn.Linear(width_in, width))
            self.layers.extend(_layer(name, width) for name in names)

    def forward(self, view: Tensor) -> Tensor:  # (B, in_features) to (B, out_features)
        if view.shape[-1] != self.in_features:
            made = f"was made for a view of width {self.in_features}, got {view.shape[-1]}"
            raise InputError(f"projection {self.spec!r} {made}")
        return self.layers(view)

    def extra_repr(self) -> str:
        return f"{self.spec!r}, {chain(self.widths)}"


def _layer(name: str, width: int) -> nn.Module:
    """The layer after a linear one of this width, by its name in `parse_projection`."""
    if name == NORM:  # of each document alone: statistics of the batch would tie its documents to each other
        return nn.LayerNorm(width)
    if name.startswith(DROPOUT):
        return nn.Dropout(float(name.removeprefix(DROPOUT)))
    return getattr(nn, str(ACTIVATIONS[name]))(**({"dim": -1} if name == "softmax" else {}))
