"""Tokens per second of both sides, their share of the machine's peak, and how ours grows with the documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch

from docemb_lib.bench.measure import interleaved
from docemb_lib.bench.report import Row
from docemb_lib.bench.sides import Batch, Ours, Side, forward, forward_backward
from docemb_lib.bench.workload import random_documents
from docemb_lib.hardware import free_memory, matmul_peak
from docemb_lib.student.longformer import forward_flops

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
FORWARD, TRAINING = "forward", "forward + backward"
# What ours must reach against stock, by kind of device, what is timed, our precision and stock's.
BUDGETS = {
    ("cpu", FORWARD, "fp32", "fp32"): 9.0,
    ("cpu", FORWARD, "bf16", "fp32"): 18.0,
    ("cpu", TRAINING, "fp32", "fp32"): 10.0,
    ("cpu", TRAINING, "bf16", "fp32"): 20.0,
    ("cuda", FORWARD, "bf16", "fp32"): 10.0,
    ("cuda", FORWARD, "bf16", "bf16"): 10.0,
    ("cuda", TRAINING, "bf16", "fp32"): 10.0,
    ("cuda", TRAINING, "bf16", "bf16"): 10.0,
}


class Speed(NamedTuple):
    """Of one side at one precision; tokens without padding."""

    what: str
    side: str
    precision: str
    seconds: float  # median of the repeats
    tokens_per_s: float
    share_of_peak: float
    repeats: list[float]  # seconds of each


def token_budget(device: torch.device, side: str) -> int:
    """Tokens of one batch: what keeps the device busy and surely fits into half of its memory.

    Training longformer-base takes about 0.6 MB a token of ours in float32, and 1.8 MB of stock.
    """
    if device.type == "cpu":
        return 8192
    most, bytes_per_token = {"ours": (65536, 2**20), "stock": (16384, 2**22)}[side]
    return max(4096, min(most, free_memory(device) // bytes_per_token))


def compare_speed(
    stock: Side,
    ours: Ours,
    documents: Sequence[np.ndarray],
    *,
    budgets: Mapping[str, int],
    precisions: Sequence[str],
    repeats: int,
    seed: int,
    device: torch.device,
    notes: list[str],
) -> list[Speed]:
    """Forward, and forward with backward, of stock and ours, and of ours compiled on a GPU, taking turns.

    budgets: tokens in a batch of each side; notes: gets the reason why compilation failed.
    """
    lengths = [len(document) for document in documents]
    config: Any = ours.model.config
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randn(len(documents), config.hidden_size, generator=generator).to(device)
    packed = ours.batches(documents, budgets["ours"])
    sides: dict[str, tuple[Side, list[Batch]]] = {
        "stock": (stock, stock.batches(documents, budgets["stock"])),
        "ours": (ours, packed),
    }
    found: list[Speed] = []
    for what, flops in ((FORWARD, forward_flops(config, lengths)), (TRAINING, 3 * forward_flops(config, lengths))):

        def run(side: Side, batches: list[Batch], precision: str, what: str = what) -> None:
            if what == FORWARD:
                forward(side, batches, precision, device)
            else:
                forward_backward(side, batches, targets, precision, device)

        runs: dict[str, Callable[[], None]] = {}
        for name, (side, batches) in sides.items():
            for precision in precisions:
                if name == "stock" and precision != "fp32" and device.type == "cpu":
                    continue  # slower there than in fp32, which is what ours has to beat
                # On a CPU the shortest batch suffices to warm up, and a long one of stock takes half a minute.
                run(side, batches if device.type == "cuda" else batches[-1:], precision)
                runs[f"{name} {precision}"] = partial(run, side, batches, precision)
        if device.type == "cuda" and "bf16" in precisions:
            compiled = partial(run_compiled, ours, partial(run, ours, packed, "bf16"))
            reason = failure(compiled)
            if reason is None:
                runs["compiled bf16"] = compiled
            else:
                notes.append(f"torch.compile failed in {what}: {reason}")
        for name, seconds in interleaved(runs, repeats, device).items():
            side_name, precision = name.split()
            share = flops / median(seconds) / matmul_peak(device, DTYPES[precision])
            tokens_per_s = sum(lengths) / median(seconds)
            found.append(Speed(what, side_name, precision, median(seconds), tokens_per_s, share, seconds))
        ours.model.zero_grad(set_to_none=True)
        stock.model.zero_grad(set_to_none=True)
    return found


def run_compiled(ours: Ours, run: Callable[[], None]) -> None:
    """Run with the student compiled, and leave it as it was."""
    ours.model.compiled = True
    try:
        run()
    finally:
        ours.model.compiled = False


def failure(run: Callable[[], object]) -> str | None:
    """Why a run fails, in one line; None: it does not. For what needs a compiler, which may be missing or at fault."""
    try:
        run()
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None


def speed_rows(speeds: Sequence[Speed], device: torch.device) -> list[Row]:
    """Ours against stock at the same and at stock's full precision, then the shares of the peak."""
    by_name = {(speed.what, speed.side, speed.precision): speed for speed in speeds}
    rows = []
    for (what, side, precision), speed in by_name.items():
        if side == "stock":
            continue
        for other in dict.fromkeys(("fp32", precision)):
            if (what, "stock", other) not in by_name:
                continue
            stock = by_name[what, "stock", other]
            ratios = [theirs / mine for theirs, mine in zip(stock.repeats, speed.repeats, strict=True)]
            rows.append(
                Row(
                    f"{what}: {side} {precision}, stock {other}",
                    speed.tokens_per_s,
                    "tokens/s",
                    peer=stock.tokens_per_s,
                    # Stock is not compiled, so that row is to be looked at, not judged.
                    at_least=BUDGETS.get((device.type, what, precision, other)) if side == "ours" else None,
                    spread=(min(ratios), max(ratios)),
                )
            )
    shares = []
    for (what, side, precision), speed in by_name.items():
        if side != "stock":
            peer = by_name.get((what, "stock", precision))
            share = None if peer is None else peer.share_of_peak
            shares.append(Row(f"{what}: share of {precision} peak, {side}", speed.share_of_peak, "%", peer=share))
    return rows + shares


def measure_growth(
    ours: Ours,
    *,
    tokens: int,
    longest: int,
    budget: int,
    precision: str,
    repeats: int,
    seed: int,
    device: torch.device,
) -> dict[str, list[dict[str, Any]]]:
    """Seconds per token of forward and backward: `growth_length` as documents grow and there are as many as make
    `tokens`, `growth_number` as more of a middle length come."""
    few = max(1, tokens // (8 * (longest // 4)))
    series = {
        "growth_length": [(tokens // length, length) for length in (longest // 2**k for k in range(4, -1, -1))],
        "growth_number": [(documents, longest // 4) for documents in (few, 2 * few, 4 * few, 8 * few)],
    }
    config: Any = ours.model.config
    runs: dict[tuple[int, int], Callable[[], None]] = {}
    for count, length in dict.fromkeys(series["growth_length"] + series["growth_number"]):
        documents = random_documents([length] * count, config.vocab_size, seed=seed)
        batches = ours.batches(documents, budget)
        targets = torch.ones(count, config.hidden_size, device=device)
        runs[count, length] = partial(forward_backward, ours, batches, targets, precision, device)
        runs[count, length]()
    seconds = interleaved(runs, repeats, device)
    ours.model.zero_grad(set_to_none=True)
    return {
        name: [
            {
                "documents": count,
                "tokens_per_document": length,
                "seconds_per_token": median(seconds[count, length]) / (count * length),
                "flops_per_token": 3 * forward_flops(config, [length]) / length,
            }
            for count, length in shapes
        ]
        for name, shapes in series.items()
    }


def growth_rows(by_length: Sequence[dict[str, Any]], by_number: Sequence[dict[str, Any]]) -> list[Row]:
    """Time per token of the longest documents against the shortest, and of most documents against one."""
    (short, *_, long), (one, *_, many) = by_length, by_number
    arithmetic = long["flops_per_token"] / short["flops_per_token"]
    return [
        Row(
            f"time per token, {long['tokens_per_document']} tokens a document against {short['tokens_per_document']}",
            long["seconds_per_token"] / short["seconds_per_token"],
            "×",
            note=f"{arithmetic:.3g} times the arithmetic: more keys lie within the window",
        ),
        Row(
            f"time per token, {many['documents']} documents against {one['documents']}",
            many["seconds_per_token"] / one["seconds_per_token"],
            "×",
        ),
    ]
