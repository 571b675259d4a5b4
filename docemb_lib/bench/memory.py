"""Peak memory of forward and backward over long documents of equal length, ours against stock."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from transformers import LongformerModel

from docemb_lib.bench.measure import peak_memory
from docemb_lib.bench.report import Row
from docemb_lib.bench.sides import Ours, Side, Stock, forward_backward
from docemb_lib.bench.workload import Workload, random_documents
from docemb_lib.hardware import free_memory

RATIO = 0.25  # budget
DEPTHS = (1, 2)  # layers to extrapolate from


def memory_rows(workload: Workload, *, precisions: Sequence[str], device: torch.device) -> list[Row]:
    """A row per precision. Where stock's whole depth would not fit, or would take a CPU minutes, both sides are
    measured at two depths and the rest is extrapolated; where even that would not fit, with fewer documents."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    free = 0.8 * free_memory(device)
    slow = device.type == "cpu" and workload.layers > 3
    whole = stock_bytes(workload, workload.layers, workload.memory_documents) <= free
    depths = DEPTHS if workload.layers > max(DEPTHS) and (slow or not whole) else (workload.layers,)
    fitting = (n for n in range(workload.memory_documents, 0, -1) if stock_bytes(workload, depths[-1], n) <= free)
    documents = next(fitting, 0)
    notes = [f"{documents} documents of {workload.longest} tokens"]
    if documents < workload.memory_documents:
        notes.append(f"{workload.memory_documents} would not fit into {free / 2**30:.1f} GiB")
    if len(depths) > 1:
        notes.append(f"extrapolated from {' and '.join(map(str, depths))} layers")
    rows = []
    for precision in precisions:
        name, note = f"peak memory of forward + backward, {precision}", ", ".join(notes)
        measured = measure(workload, depths, documents, precision, device) if documents else None
        if measured is None:
            why = "this system does not tell a process its peak" if documents else "stock does not fit"
            rows.append(Row(name, None, "bytes", note=why))
            continue
        stock, ours = (extrapolate(depths, peaks, workload.layers) for peaks in measured)
        rows.append(Row(name, ours, "bytes", peer=stock, at_most=RATIO, note=note))
    return rows


def measure(
    workload: Workload, depths: Sequence[int], documents: int, precision: str, device: torch.device
) -> tuple[list[int], list[int]] | None:
    """Bytes at the peak of stock and of ours, at each depth."""
    peaks: tuple[list[int], list[int]] = ([], [])
    for depth in depths:
        torch.manual_seed(workload.seed)
        model = LongformerModel(workload.config(layers=depth), add_pooling_layer=False).to(device)
        sides: tuple[Side, Side] = (Stock(model), Ours(copy.deepcopy(model), workload.longest))
        for side, found in zip(sides, peaks, strict=True):
            run = _run(side, workload, documents, precision, device)
            _run(side, workload, 1, precision, device, length=64)()  # libraries take their own memory once
            side.model.zero_grad(set_to_none=True)
            peak = peak_memory(run, device)
            side.model.zero_grad(set_to_none=True)
            if peak is None:
                return None
            found.append(peak)
    return peaks


def _run(
    side: Side,
    workload: Workload,
    documents: int,
    precision: str,
    device: torch.device,
    *,
    length: int | None = None,
) -> Callable[[], None]:
    config: Any = side.model.config
    lengths = [length or workload.longest] * documents
    batches = side.batches(random_documents(lengths, config.vocab_size, seed=workload.seed), sum(lengths))
    targets = torch.ones(documents, config.hidden_size, device=device)
    return partial(forward_backward, side, batches, targets, precision, device)


def stock_bytes(workload: Workload, layers: int, documents: int) -> float:
    """About what stock takes, rather too much: every layer keeps its scores four times, and so does the pass itself.

    A tenth is for what the allocator keeps: a process was seen to grow by 1.5% more than its tensors.
    """
    config: Any = workload.config()
    scores = 4 * config.num_attention_heads * (config.attention_window[0] + 1)
    hidden = 4 * 2 * (4 * config.hidden_size + config.intermediate_size)
    return 1.1 * documents * workload.longest * (4 * scores * (layers + 1) + hidden * layers)


def extrapolate(depths: Sequence[int], peaks: Sequence[int], layers: int) -> float:
    """Bytes at `layers` layers on the straight line through two depths; one depth: its own."""
    if len(depths) == 1:
        return float(peaks[0])
    slope = (peaks[1] - peaks[0]) / (depths[1] - depths[0])
    return peaks[0] + slope * (layers - depths[0])
