"""The head of masked-language modelling, against those of transformers."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LongformerConfig,
    LongformerForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from docemb_lib.losses.pairs import NO_LABEL, MaskedLanguageHead

SIZES = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
MODELS = [
    (BertForMaskedLM, BertConfig(**SIZES)),
    (RobertaForMaskedLM, RobertaConfig(**SIZES)),
    (LongformerForMaskedLM, LongformerConfig(**SIZES, attention_window=[8], max_position_embeddings=40)),
]


@pytest.mark.parametrize(("model_class", "config"), MODELS, ids=lambda x: getattr(x, "model_type", ""))
def test_it_scores_words_and_adds_losses_as_transformers_does(model_class, config):
    torch.manual_seed(0)
    model = model_class(config).eval()
    theirs = model.cls.predictions if hasattr(model, "cls") else model.lm_head
    transform = getattr(theirs, "transform", theirs)
    norm = getattr(transform, "LayerNorm", None) or transform.layer_norm
    with torch.no_grad():
        norm.weight.uniform_()
        theirs.bias.uniform_()
    head = MaskedLanguageHead(8, 50, norm_eps=config.layer_norm_eps)
    head.dense, head.norm, head.bias = transform.dense, norm, theirs.bias

    ids = torch.randint(3, 50, (1, 12))
    labels = torch.where(torch.rand(1, 12) < 0.4, ids, NO_LABEL)
    expected = model(input_ids=ids, labels=labels)
    hidden = model.base_model(ids).last_hidden_state[0]
    words = model.get_input_embeddings().weight
    torch.testing.assert_close(head(hidden, words), expected.logits[0])
    guessed = (labels != NO_LABEL).sum()
    torch.testing.assert_close(head.loss(hidden, labels[0], words) / guessed, expected.loss)


def test_without_a_hidden_token_the_loss_is_zero_and_has_a_gradient():
    head = MaskedLanguageHead(8, 50)
    loss = head.loss(torch.randn(6, 8), torch.full((6,), NO_LABEL), torch.randn(50, 8))
    loss.backward()
    assert loss.item() == 0
    assert head.dense.weight.grad.abs().sum() == 0


def test_the_words_are_not_stored_twice():
    assert {name: list(tensor.shape) for name, tensor in MaskedLanguageHead(8, 50).state_dict().items()} == {
        "bias": [50], "dense.weight": [8, 8], "dense.bias": [8], "norm.weight": [8], "norm.bias": [8],
    }  # fmt: skip
