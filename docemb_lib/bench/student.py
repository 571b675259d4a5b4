"""The student against stock `transformers.LongformerModel`: same weights, same documents, one process."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
import transformers
from transformers import LongformerModel

from docemb_lib.bench.equality import equality_rows
from docemb_lib.bench.memory import memory_rows
from docemb_lib.bench.report import Report, Row, machine, versions
from docemb_lib.bench.sides import Ours, Stock
from docemb_lib.bench.speed import DTYPES, compare_speed, failure, growth_rows, measure_growth, speed_rows, token_budget
from docemb_lib.bench.throughput import measure_throughput, throughput_rows
from docemb_lib.bench.workload import THESIS_MEAN, THESIS_STD, Workload, random_documents
from docemb_lib.errors import InputError
from docemb_lib.hardware import fast_bf16, matmul_peak
from docemb_lib.private import reset_compilation
from docemb_lib.progress import progress

EQUAL_LENGTHS = (8, 257, 513, 1000, 2500)  # tokens: at most a window, just beyond one and two halves, several


def bench_student(
    *,
    device: str | None = None,
    size: str | None = None,
    quick: bool = False,
    documents: int | None = None,
    repeats: int | None = None,
) -> Report:
    """Speed, share of the peak, memory, equality and growth of ours and stock; on a GPU full training too.

    device: cpu or cuda; None: a GPU where there is one. size: a key of GEOMETRIES; None: base on a GPU, else small.
    documents: of the thesis' lengths; repeats: of each timing; None: what takes some minutes. quick: to see that all
    runs; the numbers mean little. Raises InputError for values that cannot be had.
    """
    where = check_device(device)
    workload = Workload.choose(size, where.type, quick=quick, documents=documents, repeats=repeats)
    precisions = ("fp32", "bf16") if fast_bf16(where) else ("fp32",)
    budgets = {side: token_budget(where, side) for side in ("ours", "stock")}
    notes = ["dropout is 0 on both sides: flash attention for packed documents has none for the attention weights"]
    if "bf16" not in precisions:
        notes.append("bf16 is not timed: this processor has no instructions for it")
    if quick:
        notes.append("quick: one layer and short documents; the numbers mean little")
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # stock tells of its padding at every batch
    try:
        rows, points = _measure(workload, budgets, precisions, where, notes)
    finally:
        transformers.logging.set_verbosity(verbosity)
    settings = _settings(workload, budgets)
    return Report("student", "stock", machine(where), versions(), settings, rows, points, notes)


def check_device(device: str | None) -> torch.device:
    """Raises InputError for a device that is not here."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device not in ("cpu", "cuda"):
        raise InputError(f"device: got {device!r}, give cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("device: got cuda, torch sees no GPU here; give cpu")
    return torch.device(device)


def _measure(
    workload: Workload, budgets: dict[str, int], precisions: tuple[str, ...], device: torch.device, notes: list[str]
) -> tuple[list[Row], dict[str, list[dict[str, Any]]]]:
    seed = workload.seed
    rows: list[Row] = []
    points: dict[str, list[dict[str, Any]]] = {}
    bar: Any = progress(desc="bench", total=6 if device.type == "cuda" else 5, unit="parts")
    with bar:
        points["peak"] = [{"precision": p, "flops_per_s": matmul_peak(device, DTYPES[p])} for p in precisions]
        bar.update()

        torch.manual_seed(seed)
        model = LongformerModel(workload.config(), add_pooling_layer=False).to(device)
        stock, ours = Stock(model), Ours(copy.deepcopy(model), workload.longest)
        vocabulary = model.config.vocab_size
        equal = [min(length, workload.longest) for length in EQUAL_LENGTHS]
        rows += equality_rows(stock, ours, random_documents(equal, vocabulary, seed=seed), seed=seed, device=device)
        bar.update()

        speeds = compare_speed(
            stock,
            ours,
            random_documents(workload.lengths(), vocabulary, seed=seed),
            budgets=budgets,
            precisions=precisions,
            repeats=workload.repeats,
            seed=seed,
            device=device,
            notes=notes,
        )
        rows = speed_rows(speeds, device) + rows
        points["speed"] = [speed._asdict() for speed in speeds]
        bar.update()

        points |= measure_growth(
            ours,
            tokens=workload.growth_tokens,
            longest=workload.longest,
            budget=budgets["ours"],
            precision=precisions[-1],
            repeats=workload.repeats,
            seed=seed,
            device=device,
        )
        rows += growth_rows(points["growth_length"], points["growth_number"])
        bar.update()

        del model, stock, ours
        memory_precisions = precisions if device.type == "cuda" else ("fp32",)  # of stock, seconds on one, minutes here
        rows += memory_rows(workload, precisions=memory_precisions, device=device)
        bar.update()
        if device.type == "cuda":
            points["throughput"] = _throughput(workload, budgets["ours"], device, notes)
            rows += throughput_rows(points["throughput"])
            bar.update()
    return rows, points


def _throughput(workload: Workload, budget: int, device: torch.device, notes: list[str]) -> list[dict[str, Any]]:
    """Points of full training, eager and compiled."""
    points: list[dict[str, Any]] = []

    def measure(compiled: bool) -> None:
        torch.cuda.empty_cache()
        reset_compilation()
        point = measure_throughput(
            "base",
            workload.training_layers,
            steps=workload.training_steps,
            budget=budget,
            longest=workload.longest,
            compiled=compiled,
            seed=workload.seed,
            device=device,
        )
        points.append(point)

    measure(False)
    reason = failure(partial(measure, True))
    if reason is not None:
        notes.append(f"torch.compile failed in full training: {reason}")
    return points


def _settings(workload: Workload, budgets: dict[str, int]) -> dict[str, Any]:
    config: Any = workload.config()
    lengths = workload.lengths()
    return {
        "size": workload.size,
        "layers": workload.layers,
        "width": config.hidden_size,
        "heads": config.num_attention_heads,
        "feed_forward": config.intermediate_size,
        "window": config.attention_window[0],
        "vocabulary": config.vocab_size,
        "documents": workload.documents,
        "tokens": sum(lengths),
        "lengths": lengths,
        "lengths_drawn_from": f"log-normal, mean {THESIS_MEAN}, standard deviation {THESIS_STD}, cut at 4096 tokens",
        "batch_tokens": budgets["ours"],
        "stock_batch_tokens": budgets["stock"],
        "repeats": workload.repeats,
        "memory_documents": workload.memory_documents,
        "growth_tokens": workload.growth_tokens,
        "dropout": 0.0,
        "seed": workload.seed,
    }
