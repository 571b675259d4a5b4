"""InfoNCE against SciPy; a head of masked-language modelling with nothing to guess.

`tests/student/test_loading.py` compares the head with those of transformers.
"""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.special import log_softmax

from docemb_lib.losses import InfoNCE, MaskedLanguageHead
from docemb_lib.losses.contextual import NO_LABEL


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_it_is_the_papers_formula(dtype, temperature):
    first, second = torch.randn(2, 5, 3, dtype=dtype, generator=torch.Generator().manual_seed(1))
    cosines = 1 - cdist(first, second, "cosine")
    expected = -np.diag(log_softmax(cosines / temperature, axis=1))
    losses = InfoNCE(temperature)(first, second)
    torch.testing.assert_close(losses, torch.tensor(expected, dtype=dtype))


def test_texts_that_are_no_pairs_are_refused(refused):
    for sizes in ((1, 1), (3, 2)):
        refused(
            "must have one shape, of two pairs or more: got",
            InfoNCE(),
            *(torch.ones(size, 2) for size in sizes),
        )


def test_without_a_hidden_token_the_loss_of_a_head_is_zero():
    head = MaskedLanguageHead(8, 50)
    loss = head.loss(torch.randn(6, 8), torch.full((6,), NO_LABEL), torch.randn(50, 8))
    loss.backward()
    assert (loss.item(), head.dense.weight.grad.abs().sum()) == (0, 0)


def test_a_head_does_not_store_the_words_again():
    state = MaskedLanguageHead(8, 50).state_dict()
    assert {name: list(tensor.shape) for name, tensor in state.items()} == {
        "bias": [50],
        "dense.weight": [8, 8],
        "dense.bias": [8],
        "norm.weight": [8],
        "norm.bias": [8],
    }
