"""Tiny random Longformers with MiniLM's true tokenizer, and MiniLM itself, converted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LongformerConfig, LongformerModel

from docemb_lib.student import Student
from docemb_lib.teachers.pretrained import resolve


@pytest.fixture(scope="session")
def minilm() -> str:
    return resolve("all-MiniLM-L6-v2")


@pytest.fixture(scope="session")
def make_student(minilm: str) -> Callable[..., Student]:
    def make(
        *,
        windows: list[int],
        head_dim: int = 8,
        heads: int = 2,
        max_tokens: int = 600,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> Student:
        tokenizer = AutoTokenizer.from_pretrained(minilm, model_max_length=max_tokens)
        torch.manual_seed(seed)
        config = LongformerConfig(
            vocab_size=tokenizer.vocab_size,
            hidden_size=head_dim * heads,
            num_attention_heads=heads,
            num_hidden_layers=len(windows),
            intermediate_size=32,
            attention_window=windows,
            max_position_embeddings=max_tokens + 1,
            pad_token_id=0,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
            initializer_range=0.3,  # attention far from uniform, so that a wrong mask shows
        )
        return Student(LongformerModel(config, add_pooling_layer=False), tokenizer).eval()

    return make


@pytest.fixture(scope="session")
def converted(minilm: str) -> Student:
    return Student.from_encoder(minilm, layers=[0, 2, 4], max_tokens=1024, attention_window=128)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Real text of mixed lengths: short, empty, not English, longer than 1,024 tokens."""
    return [
        str(torch.nn.LayerNorm.__doc__),
        "",
        "Die Sonne schien, da sie keine andere Wahl hatte, auf nichts Neues.",
        str(torch.nn.Transformer.__doc__) + str(torch.nn.MultiheadAttention.__doc__) * 3,
        "A tokenizer pads with [PAD], as in [CLS] short text [SEP] [PAD] [PAD].",
        "word",
        str(Path.__doc__),
    ]
