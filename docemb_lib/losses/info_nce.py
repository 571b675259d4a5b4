"""InfoNCE: find a text's partner among those of the other documents of the batch (SimDE, Section 3)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from docemb_lib.errors import InputError


class InfoNCE(nn.Module):
    """Cross-entropy of finding the second text of a pair by its first, among the second texts of the batch.

    loss_i = -log( exp(cos(h_i, h+_i) / temperature) / sum_j exp(cos(h_i, h+_j) / temperature) )

    The paper leaves open which texts of the other pairs are negatives: here the second ones. `symmetric` takes the mean
    of this and of finding the first text by its second.
    """

    def __init__(self, temperature: float = 0.05, *, symmetric: bool = False) -> None:
        super().__init__()
        if not 0 < temperature < float("inf"):
            raise InputError(f"temperature must be a number above 0, got {temperature}")
        self.temperature, self.symmetric = temperature, symmetric

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """first, second: (B, D), row i of both is a pair. Returns (B,). Raises InputError for a single pair, which has
        no negatives."""
        B = len(first)
        if first.shape != second.shape:
            raise InputError(f"first and second must hold pairs: got {tuple(first.shape)} and {tuple(second.shape)}")
        if B < 2:
            raise InputError("a batch of one pair has no negatives to tell its partner from; give two pairs or more")
        logits = F.normalize(first, dim=1) @ F.normalize(second, dim=1).T / self.temperature  # (B, B)
        partners = torch.arange(B, device=first.device)
        losses = F.cross_entropy(logits, partners, reduction="none")
        if self.symmetric:
            losses = (losses + F.cross_entropy(logits.T, partners, reduction="none")) / 2
        return losses

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, symmetric={self.symmetric}"
