"""A workspace for what is damaged and killed: short texts, and an encoder of one small layer."""

from pathlib import Path

import pytest
from conftest import make_workspace, write_files
from transformers import AutoTokenizer, BertConfig, BertModel

from docemb_lib.base.pretrained import resolve

PROFILE = """
corpus: {source: local, path: ../texts, validation: 4, tasks: 24}
structural_teacher: {model: ../encoder, max_tokens: 64}
student: {model: ../encoder, max_tokens: 64, attention_window: 16, dropout: 0.0, words: 4}
training: {batch_size: 4, save_every: 100, log_every: 1, precision: fp32}
simde: {training: {batch_size: 4, save_every: 100, precision: fp32}}
contextual_teachers:
  DM: {dm: true, vector_size: 4, epochs: 1}
  DBOW: {dm: false, vector_size: 3, epochs: 1, dbow_words: false}
  PV:
    - {dm: false, vector_size: 3, epochs: 1, dbow_words: false}
    - {dm: true, vector_size: 4, epochs: 1}
  lsa_dim: 3
evaluation: {tasks: [topic], sweep_tasks: [topic], seeds: 1, head: {epochs: 1},
             own_tasks: [{name: topic, kind: classification, path: ../topic.jsonl}]}
parameters: {documents: 12, student_projection: "7", contextual_projection: "-",
             max_structural_len: null}
plan: [{notebook: 03_structural}]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace of 60 short texts, a task and an encoder of one small layer."""
    root = make_workspace(tmp_path / "workspace")
    words = [
        " ".join(f"Word{(n * 7 + k) % 23} follows. " * (k % 3) for k in range(30))
        for n in range(60)
    ]
    rows = [
        {"text": f"page {n} of {'red' if n % 2 else 'blue'}", "label": str(n % 2)}
        for n in range(30)
    ]
    texts = {f"texts/{n}.txt": f"Text {n} {of_text}" for n, of_text in enumerate(words)}
    write_files(root, {**texts, "topic.jsonl": rows, "params/faults.yaml": PROFILE})
    tokenizer = AutoTokenizer.from_pretrained(resolve("all-MiniLM-L6-v2"), model_max_length=64)
    size = {
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "intermediate_size": 8,
    }
    BertModel(BertConfig(vocab_size=tokenizer.vocab_size, **size)).save_pretrained(root / "encoder")
    tokenizer.save_pretrained(root / "encoder")
    return root
