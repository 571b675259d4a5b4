"""Masked-language modelling beside another loss: the head that BERT and its kin share, and its cross-entropy."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from docemb_lib.losses.contextual import full_precision

NO_LABEL = -100  # of tokens that are not to be guessed


class MaskedLanguageHead(nn.Module):
    """Hidden states to scores of all V words: a layer, GELU, LayerNorm, then the product with the word embeddings.

    Those are the encoder's own and given with each call: a head that held them would store them twice, which
    safetensors refuses.
    """

    def __init__(self, dim: int, vocabulary: int, *, norm_eps: float = 1e-12) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=norm_eps)
        self.bias = nn.Parameter(self.dense.weight.new_zeros(vocabulary))

    def forward(self, hidden: Tensor, words: Tensor) -> Tensor:
        """hidden: (M, D), words: (V, D). Returns (M, V)."""
        return F.linear(self.norm(F.gelu(self.dense(hidden))), words, self.bias)

    def loss(self, hidden: Tensor, labels: Tensor, words: Tensor) -> Tensor:
        """Sum of the cross-entropies over the tokens that have a label, (). hidden: (T, D), labels: (T,), the rest
        `NO_LABEL`. Scores are computed for labelled tokens alone."""
        guessed = labels != NO_LABEL
        scores = self(hidden[guessed], words)  # (M, V)
        return F.cross_entropy(full_precision(scores), labels[guessed], reduction="sum")
