"""A workspace of its own for what is damaged and killed: short texts, and an encoder of one small layer."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import make_workspace
from transformers import AutoTokenizer, BertConfig, BertModel

from docemb_lib.pretrained import resolve

PROFILE = """
corpus: {source: local, path: ../texts, validation: 4, tasks: 24}
structural_teacher: {model: ../encoder, max_tokens: 64}
student: {model: ../encoder, max_tokens: 64, attention_window: 16, dropout: 0.0, lexical: 4}
training: {batch_size: 4, save_every: 100, log_every: 1, precision: fp32}
simde: {training: {batch_size: 4, save_every: 100, precision: fp32}}
contextual_teachers:
  DM: {dm: true, vector_size: 4, epochs: 1}
  DBOW: {dm: false, vector_size: 3, epochs: 1, dbow_words: false}
  PV: [{dm: false, vector_size: 3, epochs: 1, dbow_words: false}, {dm: true, vector_size: 4, epochs: 1}]
  lsa_dim: 3
evaluation: {tasks: [topic], sweep_tasks: [topic], seeds: 1, head: {epochs: 1},
             own_tasks: [{name: topic, kind: classification, path: ../topic.jsonl}]}
parameters: {documents: 12, student_projection: "7", contextual_projection: "-", max_structural_len: null}
plan: [{notebook: 03_structural}]
"""


@pytest.fixture
def make() -> Callable[[Path], None]:
    """Makes a workspace of 60 short texts, a task and an encoder of one small layer."""
    return _make


def _make(root: Path) -> None:
    make_workspace(root)
    (root / "texts").mkdir()
    for n in range(60):
        words = f"Text {n} " + " ".join(f"Word{(n * 7 + k) % 23} follows. " * (k % 3) for k in range(30))
        (root / "texts" / f"{n}.txt").write_text(words, encoding="utf-8")
    rows = [{"text": f"page {n} of {'red' if n % 2 else 'blue'}", "label": str(n % 2)} for n in range(30)]
    (root / "topic.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    tokenizer = AutoTokenizer.from_pretrained(resolve("all-MiniLM-L6-v2"), model_max_length=64)
    size = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=tokenizer.vocab_size, **size)).save_pretrained(root / "encoder")
    tokenizer.save_pretrained(root / "encoder")
    (root / "params" / "faults.yaml").write_text(PROFILE, encoding="utf-8")
