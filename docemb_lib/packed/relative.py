"""A Longformer that adds a bias to the score of two tokens, which depends on their offset alone.

MPNet has such biases (Song et al. 2020). docemb copies this file into the folder of a student that
has them, so it imports nothing of docemb; transformers runs it with `trust_remote_code=True`.

H: heads of the attention; w: one-sided window.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from transformers import LongformerConfig, LongformerModel

FARTHEST = 128  # MPNet has one bias for all offsets from here on


class RelativeLongformerConfig(LongformerConfig):
    """The configuration of a Longformer under another name, so that stock code refuses it."""

    model_type = "relative_longformer"


class RelativeLongformer(LongformerModel):
    """A Longformer with one strip of biases for all layers, (H, 2 * FARTHEST + 1).

    The strip holds the offsets from -FARTHEST to FARTHEST, which is the place of the key less that
    of the query.
    """

    config_class = RelativeLongformerConfig

    def __init__(self, config: RelativeLongformerConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config, add_pooling_layer)
        strip = torch.zeros(config.num_attention_heads, 2 * FARTHEST + 1)
        self.encoder.offset_bias = nn.Parameter(strip)
        for layer in self.encoder.layer:
            attention = layer.attention.self
            # A private name of transformers, which docemb's tests check.
            products = attention._sliding_chunks_query_key_matmul
            attention._sliding_chunks_query_key_matmul = partial(self._scores, products)

    def _scores(
        self, products: Callable[..., Tensor], query: Tensor, key: Tensor, window: int
    ) -> Tensor:
        """Add the biases to the stock scores, (documents, tokens, H, 2 w + 1)."""
        scores = products(query, key, window)
        if query.shape[3] == 1:  # the mask of the padding, which is computed by the same products
            return scores
        return scores + of_offsets(self.encoder.offset_bias, -window, window)


def of_offsets(strip: Tensor, low: int, high: int) -> Tensor:
    """Return the bias of each offset from low to high, (H, high - low + 1)."""
    offsets = torch.arange(low, high + 1, device=strip.device)
    return strip[:, offsets.clamp(-FARTHEST, FARTHEST) + FARTHEST]
