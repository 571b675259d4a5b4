"""The masked-language heads of checkpoints, as ours computes them."""

from __future__ import annotations

import logging

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    LongformerConfig,
    LongformerForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
)

from docemb_lib.losses import MaskedLanguageHead
from docemb_lib.student.loading import load_masked_head

SIZES = {
    "vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.5,
}  # fmt: skip
MODELS = [
    (BertForMaskedLM, BertConfig(**SIZES)),
    (RobertaForMaskedLM, RobertaConfig(**SIZES)),
    (LongformerForMaskedLM, LongformerConfig(**SIZES, attention_window=[8], max_position_embeddings=40)),
    (ModernBertForMaskedLM, ModernBertConfig(**SIZES, cls_token_id=1, sep_token_id=2)),
]


@pytest.mark.parametrize(("model_class", "config"), MODELS, ids=lambda x: getattr(x, "model_type", ""))
def test_a_checkpoints_head_scores_words_as_its_model_does(model_class, config, tmp_path):
    torch.manual_seed(0)
    model = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name:
                parameter.uniform_()
    model.save_pretrained(tmp_path)
    head = MaskedLanguageHead(8, 50, norm_eps=getattr(config, "layer_norm_eps", 1e-5))
    head.load_state_dict(load_masked_head(str(tmp_path)))
    ids = torch.randint(3, 50, (1, 12))
    with torch.no_grad():
        scores = head(model.base_model(ids).last_hidden_state, model.get_input_embeddings().weight)
        torch.testing.assert_close(scores, model(ids).logits)


def test_an_encoder_alone_has_no_head_and_nobody_is_warned_of_it(minilm, tmp_path, caplog):
    BertModel(BertConfig(**SIZES)).save_pretrained(tmp_path)
    listened = logging.getLogger("transformers")
    listened.addHandler(caplog.handler)
    try:
        assert load_masked_head(str(tmp_path)) is None
        assert load_masked_head(minilm) is None
    finally:
        listened.removeHandler(caplog.handler)
    assert caplog.messages == []
