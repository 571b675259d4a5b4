"""Whether ours computes what stock computes on each document alone: hidden states, embeddings and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from docemb_lib.bench.report import Row
from docemb_lib.bench.sides import Ours, Stock, autocast
from docemb_lib.student.packing import pack

HIDDEN, COSINE, GRADIENT, GRADIENT_COSINE = 1e-5, 0.9999, 1e-4, 0.99  # budgets


def equality_rows(
    stock: Stock, ours: Ours, documents: Sequence[np.ndarray], *, seed: int, device: torch.device
) -> list[Row]:
    """Both sides hold the same weights; gradients are those of the embeddings' products with random directions."""
    generator = torch.Generator().manual_seed(seed)
    D = ours.model.config.hidden_size
    targets = torch.randn(len(documents), D, generator=generator).to(device)
    student, model = ours.model.train(), stock.model.train()
    expected: list[Tensor] = []
    embeddings: list[Tensor] = []
    for document, target in zip(documents, targets, strict=True):
        input_ids = torch.from_numpy(document)[None].to(device)
        hidden = model(input_ids, attention_mask=torch.ones_like(input_ids)).last_hidden_state[0]  # (T, D)
        embeddings.append(hidden.mean(0))
        (embeddings[-1] @ target).backward()
        expected.append(hidden.detach())
    batch = pack(documents).to(device)
    with torch.no_grad():
        difference = (student.hidden(batch) - torch.cat(expected)).abs().max()
        with autocast(device, "bf16"):
            half = student(batch).float()
        cosine = torch.cosine_similarity(half, torch.stack(embeddings), dim=1).min()
    (student(batch) * targets).sum().backward()
    gradient = gradient_difference(student.model, model)
    student.zero_grad(set_to_none=True)
    with autocast(device, "bf16"):
        out = student(batch)
    (out.float() * targets).sum().backward()
    half_gradient = gradient_cosine(student.model, model)
    for side in (student, model):
        side.zero_grad(set_to_none=True)
    return [
        Row("hidden states fp32, largest difference", float(difference), "", at_most=HIDDEN),
        Row("embeddings bf16, smallest cosine to stock fp32", float(cosine), "", at_least=COSINE),
        Row("gradients fp32, largest relative difference", gradient, "", at_most=GRADIENT),
        Row("gradients bf16, smallest cosine to stock fp32", half_gradient, "", at_least=GRADIENT_COSINE),
    ]


def gradient_difference(model: Any, reference: Any) -> float:
    """Largest ||g - g'|| / ||g'|| over the parameters of two models of one kind.

    The keys' biases are left out: softmax cancels what they add, so their gradients are rounding errors on both sides.
    """
    differences = [(grad - other).norm() / other.norm() for grad, other in _gradients(model, reference)]
    return float(torch.tensor(differences).max())  # Python's max passes over NaN


def gradient_cosine(model: Any, reference: Any) -> float:
    """Smallest cosine between g and g' over the same parameters."""
    cosines = [
        torch.cosine_similarity(grad.flatten(), other.flatten(), dim=0) for grad, other in _gradients(model, reference)
    ]
    return float(torch.tensor(cosines).min())


def _gradients(model: Any, reference: Any) -> list[tuple[Tensor, Tensor]]:
    others = dict(reference.named_parameters())
    return [
        (parameter.grad, others[name].grad)
        for name, parameter in model.named_parameters()
        if others[name].grad is not None and not name.endswith("self.key.bias")
    ]
