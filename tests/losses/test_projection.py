"""The projection grammar: what each string builds, and how one that builds nothing is refused."""

import re
from itertools import pairwise

import pytest
import torch
from torch import nn

from docemb_lib.losses import Projection
from docemb_lib.settings.projections import check_widths, with_widths

L = nn.Linear
R = nn.ReLU
BUILT = {  # spec: (input width, layers, widths)
    "768(ReLU)x4096(ReLU)x2048": (768, [L, R, L, R, L], (768, 768, 4096, 2048)),
    "768x1024": (1024, [L, L], (1024, 768, 1024)),
    "1024(relu)×2048": (768, [L, R, L], (768, 1024, 2048)),
    "8(SoftMax)x4(Sigmoid)": (3, [L, nn.Softmax, L, nn.Sigmoid], (3, 8, 4)),
    " 8 ( ReLU ) x 4 ": (3, [L, R, L], (3, 8, 4)),
    "-": (100, [], (100,)),
    "768(ReLU,drop0.1,norm)x1024": (100, [L, R, nn.Dropout, nn.LayerNorm, L], (100, 768, 1024)),
    "8( Norm , linear )x4(drop.5)": (3, [L, nn.LayerNorm, L, nn.Dropout], (3, 8, 4)),
}


@pytest.mark.parametrize("spec", BUILT)
def test_a_string_builds_its_layers_in_order(spec):
    width, kinds, widths = BUILT[spec]
    projection = Projection(spec, width)
    assert [type(layer) for layer in projection.layers] == kinds
    linear = [layer for layer in projection.layers if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == list(pairwise(widths))
    assert all(layer.bias is not None for layer in linear)
    assert (projection.in_features, projection.out_features, projection.widths) == (
        width,
        widths[-1],
        widths,
    )


def test_the_identity_computes_nothing():
    projection = Projection("-", 7)
    x = torch.randn(2, 7)
    assert torch.equal(projection(x), x)
    assert list(projection.parameters()) == []


def test_layers_are_computed_in_the_order_written_and_dropout_in_training_alone():
    torch.manual_seed(0)
    projection = Projection("6(norm,softmax,drop0.25)", 4).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    linear, norm, _, dropout = projection.layers
    y = x @ linear.weight.T + linear.bias
    y = (y - y.mean(1, keepdim=True)) / (y.var(1, unbiased=False, keepdim=True) + norm.eps).sqrt()
    expected = y.exp() / y.exp().sum(1, keepdim=True)
    assert dropout.p == 0.25
    torch.testing.assert_close(projection.eval()(x), expected)
    dropped = projection.train()(x)
    kept = dropped != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(dropped[kept], expected[kept] / 0.75)


def test_other_widths_leave_the_layers_as_they_are():
    assert (
        with_widths("768(ReLU,drop0.1,norm)x1024 x 7", [3, 44, 5]) == "3(ReLU,drop0.1,norm)x44 x 5"
    )


NOT_BLOCKS = {  # spec: what is no block of it
    "768(RelU": "768(RelU",
    "x768": "",
    "768x": "",
    "-768": "-768",
    "-x768": "-",
    "768,1024": "768,1024",
    "768(ReLU)(ReLU)": "768(ReLU)(ReLU)",
    "0x5": "0",
    "": "",
    "768(foo)": "768(foo)",
    "768(ReLU,drop1.5)": "768(ReLU,drop1.5)",
    "768(ReLU,)x5": "768(ReLU,)",
    "768(drop-0.1)": "768(drop-0.1)",
    "768(norm,drop0.1,NORM)": "768(norm,drop0.1,NORM)",
    "768(relu,sigmoid)": "768(relu,sigmoid)",
    "65537": "65537",
}


@pytest.mark.parametrize(("spec", "block"), NOT_BLOCKS.items())
def test_a_malformed_string_is_refused_naming_it_and_the_block(spec, block, refused):
    for said in (f"{block!r} is not a block", repr(spec), "768(ReLU)x4096(ReLU)x2048"):
        refused(re.escape(said), Projection, spec, 768)


def test_widths_that_end_apart_are_refused_with_both_chains(refused):
    said = "student 384 → 768 → 4096 → 2048; contextual teacher 100; let both end in one"
    refused(said, check_widths, "768(ReLU)x4096(ReLU)x2048", 384, "-", 100)
