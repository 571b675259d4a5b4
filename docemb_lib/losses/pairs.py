"""Learning from pairs of texts without a teacher (SimDE, Section 3).

The objective is the sum of InfoNCE and masked-language modelling.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from docemb_lib.losses.contextual import InfoNCE, full_precision
from docemb_lib.losses.structural import Described

NO_LABEL = -100  # label of tokens that are not predicted, as in transformers


class MaskedLanguageHead(nn.Module):
    """Map hidden states to scores of all V words.

    A layer, GELU and LayerNorm precede the product with the word embeddings. These belong to the
    encoder and are an argument: held here they would be stored twice, which safetensors refuses.
    """

    def __init__(self, dim: int, vocabulary: int, *, norm_eps: float = 1e-12) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=norm_eps)
        self.bias = nn.Parameter(self.dense.weight.new_zeros(vocabulary))

    def forward(self, hidden: Tensor, words: Tensor) -> Tensor:
        """Compute the scores, (M, V). hidden: (M, D), words: (V, D)."""
        return F.linear(self.norm(F.gelu(self.dense(hidden))), words, self.bias)

    def loss(self, hidden: Tensor, labels: Tensor, words: Tensor) -> Tensor:
        """Sum the cross-entropies over the labelled tokens, (). hidden: (T, D), labels: (T,)."""
        labelled = labels != NO_LABEL
        scores = full_precision(self(hidden[labelled], words))  # (M, V)
        return F.cross_entropy(scores, labels[labelled], reduction="sum")


class PairObjective(Described):
    """`L = mean over i of InfoNCE_i + mlm_weight * MLM`.

    MLM is the mean cross-entropy over the masked tokens of all texts of the batch; without a head
    there is none. The student reads each text twice, as it is and masked.
    """

    student: Any  # a `Student`, or another module with what the caller needs of one

    def __init__(
        self,
        student: nn.Module,
        *,
        contrast: InfoNCE,
        head: MaskedLanguageHead | None = None,
        mlm_weight: float = 0.1,
    ) -> None:
        super().__init__()
        self.student = student
        self.contrast = contrast
        self.head = head
        self.mlm_weight = mlm_weight if head is not None else 0.0
