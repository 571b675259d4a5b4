"""Full training steps and embedding at longformer-base's size, on documents of the thesis' lengths: hours of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LongformerModel

from docemb_lib.bench.measure import interleaved
from docemb_lib.bench.report import Row
from docemb_lib.bench.sides import Batch, Ours, autocast, forward
from docemb_lib.bench.workload import LONGEST, THESIS_MEAN, longformer_config, random_documents, thesis_lengths
from docemb_lib.hardware import matmul_peak
from docemb_lib.student.longformer import forward_flops

TRAINING_SHARE, EMBEDDING_SHARE, MINUTES = 0.40, 0.50, 45.0  # budgets
MILLION = 1_000_000


def measure_throughput(
    size: str, layers: int, *, steps: int, budget: int, longest: int, compiled: bool, seed: int, device: torch.device
) -> dict[str, Any]:
    """In bf16: `steps` training steps (forward, backward, clipping, fused AdamW) of at most `budget` tokens each, and
    embedding the same documents. Each step is waited for."""
    torch.manual_seed(seed)
    ours = Ours(LongformerModel(longformer_config(size, layers), add_pooling_layer=False).to(device), longest)
    student: Any = ours.model
    student.compiled = compiled
    batches = training_batches(ours, steps=steps, budget=budget, longest=longest, seed=seed)
    optimizer = torch.optim.AdamW([p for p in student.parameters() if p.requires_grad], lr=2e-5, fused=True)
    targets = torch.randn(max(len(batch.documents) for batch in batches), student.dim, device=device)
    training = _timed([partial(_step, ours, batch, targets, optimizer, device) for batch in batches], device)
    optimizer.zero_grad(set_to_none=True)
    embedding = _timed([partial(forward, ours, [batch], "bf16", device) for batch in batches], device)

    sizes = [batch.inputs.sizes for batch in batches]
    tokens = sum(map(sum, sizes))
    flops = sum(forward_flops(student.config, lengths) for lengths in sizes)
    peak = matmul_peak(device, torch.bfloat16)
    million = MILLION * float(np.mean(thesis_lengths(10_000, seed=seed)))  # tokens of as many documents
    return {
        "size": size,
        "compiled": compiled,
        "steps": len(batches),
        "tokens_per_step": tokens / len(batches),
        "seconds_per_step": median(training),
        "training_tokens_per_s": tokens / sum(training),
        "training_share_of_peak": 3 * flops / sum(training) / peak,
        "training_minutes_per_million": million * sum(training) / tokens / 60,
        "embedding_tokens_per_s": tokens / sum(embedding),
        "embedding_share_of_peak": flops / sum(embedding) / peak,
        "embedding_minutes_per_million": million * sum(embedding) / tokens / 60,
    }


def training_batches(ours: Ours, *, steps: int, budget: int, longest: int, seed: int) -> list[Batch]:
    """Documents in random order, as many to a batch as fit the budget."""
    scale = longest / LONGEST
    lengths = thesis_lengths(3 * steps * budget // round(THESIS_MEAN * scale), seed=seed, scale=scale)
    documents = random_documents(lengths, ours.model.config.vocab_size, seed=seed)
    groups: list[list[np.ndarray]] = [[]]
    for document in documents:
        if sum(map(len, groups[-1])) + len(document) > budget:
            groups.append([])
        groups[-1].append(document)
    return [ours.batches(group, budget)[0] for group in groups[:steps]]


def _step(ours: Ours, batch: Batch, targets: Tensor, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    ours.model.train()
    with autocast(device, "bf16"):
        embeddings = ours.embed(batch.inputs)
    (embeddings.float() * targets[batch.documents]).mean().backward()
    torch.nn.utils.clip_grad_norm_(ours.model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _timed(runs: Sequence[Callable[[], None]], device: torch.device) -> list[float]:
    """Seconds of each run, after all have run once."""
    for run in runs:
        run()
    return [once for (once,) in interleaved(dict(enumerate(runs)), 1, device).values()]


def throughput_rows(points: Sequence[dict[str, Any]]) -> list[Row]:
    """What a million documents take, and how much of the peak is used."""
    rows = []
    for point in points:
        how = f"longformer-{point['size']} bf16, {'compiled' if point['compiled'] else 'eager'}"
        step = f"{point['seconds_per_step']:.3g} s a step of {point['tokens_per_step']:,.0f} tokens"
        rows += [
            Row(f"training {how}", point["training_tokens_per_s"], "tokens/s", note=step),
            Row(f"training {how}, share of peak", point["training_share_of_peak"], "%", at_least=TRAINING_SHARE),
            Row(f"training {how}, 1M documents", point["training_minutes_per_million"], "min", at_most=MINUTES),
            Row(f"embedding {how}", point["embedding_tokens_per_s"], "tokens/s"),
            Row(f"embedding {how}, share of peak", point["embedding_share_of_peak"], "%", at_least=EMBEDDING_SHARE),
            Row(f"embedding {how}, 1M documents", point["embedding_minutes_per_million"], "min"),
        ]
    return rows
