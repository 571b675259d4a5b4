"""Full training steps, on a CPU with a tiny model as on a GPU with a large one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from docemb_lib.bench import throughput
from docemb_lib.bench.throughput import _step, measure_throughput, throughput_rows, training_batches
from docemb_lib.bench.workload import thesis_lengths

CPU = torch.device("cpu")


def test_steps_are_filled_with_shuffled_documents_up_to_the_budget(sides):
    batches = training_batches(sides.ours, steps=5, budget=2000, longest=512, seed=0)
    assert len(batches) == 5
    sizes = [batch.inputs.sizes for batch in batches]
    assert all(2000 - 512 < sum(lengths) <= 2000 for lengths in sizes)
    assert all(max(lengths) > 5 * min(lengths) for lengths in sizes)
    assert [len(batch.documents) for batch in batches] == list(map(len, sizes))


def test_a_step_follows_the_clipped_gradient(sides):
    (batch,) = sides.ours.batches(sides.documents, 1000)
    targets = torch.randn(5, 48, generator=torch.Generator().manual_seed(0))
    model = sides.ours.model

    def loss():
        with torch.no_grad():
            return float((model(batch.inputs) * targets[batch.documents]).mean())

    before = loss()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3, fused=True)
    _step(sides.ours, batch, targets, optimizer, CPU)
    assert loss() < before - 1e-3
    assert all(parameter.grad is None for parameter in model.parameters())


def test_minutes_for_a_million_documents_are_their_tokens_by_the_speed(tiny, monkeypatch):
    monkeypatch.setattr(throughput, "matmul_peak", lambda device, dtype: 1e12)
    point = measure_throughput("base", 2, steps=3, budget=1024, longest=512, compiled=False, seed=0, device=CPU)
    assert point["steps"] == 3
    assert point["tokens_per_step"] <= 1024
    tokens = 1e6 * np.mean(thesis_lengths(3000, seed=5))
    minutes = tokens / point["training_tokens_per_s"] / 60
    assert point["training_minutes_per_million"] == pytest.approx(minutes, rel=0.01)
    forward = 2 * (4 * 48 * 48 + 2 * 48 * 64) * 2  # two layers' products a token; attention comes on top
    assert point["embedding_share_of_peak"] > forward * point["embedding_tokens_per_s"] / 1e12
    assert point["training_share_of_peak"] / point["training_tokens_per_s"] == pytest.approx(
        3 * point["embedding_share_of_peak"] / point["embedding_tokens_per_s"]
    )


def test_rows_are_judged_by_share_and_minutes():
    point = {
        "size": "base", "compiled": True, "steps": 2, "tokens_per_step": 60000.0, "seconds_per_step": 0.2,
        "training_tokens_per_s": 4e5, "training_share_of_peak": 0.39, "training_minutes_per_million": 44.0,
        "embedding_tokens_per_s": 2e6, "embedding_share_of_peak": 0.51, "embedding_minutes_per_million": 10.0,
    }  # fmt: skip
    rows = {row.name: (row.must_reach, row.verdict) for row in throughput_rows([point])}
    assert rows == {
        "training longformer-base bf16, compiled": ("", ""),
        "training longformer-base bf16, compiled, share of peak": ("≥ 40 %", "below"),
        "training longformer-base bf16, compiled, 1M documents": ("≤ 45", "ok"),
        "embedding longformer-base bf16, compiled": ("", ""),
        "embedding longformer-base bf16, compiled, share of peak": ("≥ 50 %", "ok"),
        "embedding longformer-base bf16, compiled, 1M documents": ("", ""),
    }
