"""Operations are counted as torch counts those of a real forward pass, visible keys as a loop over tokens does."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModel, BertConfig, ModernBertConfig

from docemb_lib.student import pack
from docemb_lib.student.longformer import forward_flops, visible_pairs

LENGTHS = [1, 2, 5, 6, 40, 17]


def counted(forward) -> dict[str, int]:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        forward()
    return {str(operator): flops for operator, flops in counter.get_flop_counts()["Global"].items()}


def pairs_by_loop(lengths, window):
    return sum(abs(i - j) <= window for length in lengths for i in range(length) for j in range(length))


@pytest.mark.parametrize("window", [1, 2, 4, 5, 39, 40, 100])
def test_pairs_are_those_that_a_loop_over_tokens_finds(window):
    assert sum(visible_pairs(length, window) for length in LENGTHS) == pairs_by_loop(LENGTHS, window)


def test_a_longformer_counts_its_products_and_its_visible_keys_layer_by_layer(make_student):
    student = make_student(windows=[4, 20], head_dim=8, heads=2)
    batch = pack([list(range(5, 5 + length)) for length in LENGTHS])
    linear = counted(lambda: student(batch))["aten.addmm"]
    pairs = pairs_by_loop(LENGTHS, 2) + pairs_by_loop(LENGTHS, 10)
    assert forward_flops(student.config, LENGTHS) == linear + 2 * 2 * student.dim * pairs


def test_one_window_for_all_layers_is_as_many_of_the_same(make_student):
    config = make_student(windows=[6, 6]).config
    listed = forward_flops(config, LENGTHS)
    config.attention_window = 6
    assert forward_flops(config, LENGTHS) == listed


@pytest.mark.parametrize(
    "config",
    [
        BertConfig(hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=48, vocab_size=60),
        ModernBertConfig(
            hidden_size=32, num_hidden_layers=3, num_attention_heads=2, intermediate_size=48, vocab_size=60, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, global_attn_every_n_layers=1,
        ),
    ],
    ids=["BERT", "ModernBERT"],
)  # fmt: skip
def test_another_encoder_with_full_attention_counts_what_torch_does(config):
    config._attn_implementation = "eager"
    model = AutoModel.from_config(
        config, **({"add_pooling_layer": False} if config.model_type == "bert" else {})
    ).eval()
    found = counted(lambda: [model(torch.full((1, length), 7)) for length in LENGTHS])
    assert forward_flops(config, LENGTHS) == sum(found.values())
