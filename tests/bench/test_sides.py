"""Both sides get the same documents and do the same work on them, however they are batched."""

from __future__ import annotations

import pytest
import torch

from docemb_lib.bench.sides import forward_backward, padded_batches

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("lengths", "budget", "batches"),
    [
        ([4, 10, 3, 9], 20, [[1, 3], [0, 2]]),
        ([4, 10, 3, 9], 19, [[1], [3, 0], [2]]),
        ([4, 10, 3, 9], 40, [[1, 3, 0, 2]]),
        ([50, 2], 10, [[0], [1]]),  # longer than the budget: alone
    ],
)
def test_padded_batches_count_what_padding_adds(lengths, budget, batches):
    assert padded_batches(lengths, budget, step=1) == batches


def test_stock_rounds_lengths_up_to_its_window():
    assert padded_batches([60] * 5, 1024, step=512) == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize("side", ["stock", "ours"])
def test_embeddings_are_the_means_of_each_document_alone_in_any_batch(sides, side):
    expected = [
        sides.stock.model(torch.from_numpy(document)[None]).last_hidden_state[0].mean(0) for document in sides.documents
    ]
    chosen = getattr(sides, side)
    for budget in (300, 320, 10_000):
        found = torch.full((5, 48), torch.nan)
        for batch in chosen.batches(sides.documents, budget):
            found[batch.documents] = chosen.embed(batch.inputs).detach()
        torch.testing.assert_close(found, torch.stack(expected).detach(), atol=2e-6, rtol=0)


@pytest.mark.parametrize("side", ["stock", "ours"])
def test_gradients_are_those_of_all_documents_together(sides, side):
    targets = torch.randn(5, 48, generator=torch.Generator().manual_seed(1))
    loss = sum(
        sides.stock.model(torch.from_numpy(document)[None]).last_hidden_state[0].mean(0) @ target
        for document, target in zip(sides.documents, targets, strict=True)
    )
    weight = sides.stock.model.encoder.layer[0].output.dense.weight
    (expected,) = torch.autograd.grad(loss, weight)
    chosen = getattr(sides, side)
    model = getattr(chosen.model, "model", chosen.model)
    for _ in range(2):  # a second time: nothing is left of the first
        forward_backward(chosen, chosen.batches(sides.documents, 320), targets, "fp32", CPU)
        torch.testing.assert_close(model.encoder.layer[0].output.dense.weight.grad, expected, atol=1e-5, rtol=1e-4)
