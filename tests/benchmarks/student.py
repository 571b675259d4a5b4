"""Forward pass and update of the packed student beside stock Longformer: time and memory.

    python tests/benchmarks/student.py [--device cuda] [--documents N] [--repeats N] [--json]

Both have the same random weights and dropout 0, and take turns in one process on the same batches,
of documents as long as those of the thesis. The model has three layers of MiniLM's size on a CPU,
and is as large as longformer-base on a GPU, where the student is compiled. Stock computes in fp32,
the student also in bf16 where the device is fast at it, and with biases by offset, all 0, as an
MPNet has them. Seconds are medians; memory is the peak of an update above the level before, in GiB.
`--documents 2 --repeats 1` shows that all parts run.
"""

import argparse
import copy
import ctypes
import gc
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from timeit import timeit
from types import SimpleNamespace

import numpy as np
import pandas as pd
import psutil
import torch
from scipy.stats import lognorm
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.benchmark import timer  # waits for a GPU
from transformers import LongformerConfig, LongformerModel

from docemb_lib.base import __version__
from docemb_lib.base.hardware import uses_bf16
from docemb_lib.packed.packing import pack, token_batches
from docemb_lib.packed.relative import RelativeLongformer, RelativeLongformerConfig
from docemb_lib.student import Student

WINDOW = 512  # both directions together
LONGEST = 4096
MEAN = 1371  # tokens of a training document and their deviation (thesis, Section 4.1)
DEVIATION = 1723
BATCH_TOKENS = {"cpu": 8192, "cuda": 16384}  # with stock's padding
# layers, width, inner width, words
SIZES = {"cpu": (3, 384, 1536, 30522), "cuda": (12, 768, 3072, 50265)}

Documents = Sequence[np.ndarray]  # token ids of each
Embed = Callable[[Documents], Tensor]


def options(description: str, documents: int) -> argparse.ArgumentParser:
    """Define the options of both scripts. documents: how many by default."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--documents", type=int, default=documents)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    return parser


def thesis_documents(n: int, words: int) -> Documents:
    """Draw random tokens, with n evenly spaced quantiles of the thesis' lengths, cut."""
    variance = math.log(1 + (DEVIATION / MEAN) ** 2)
    lengths = lognorm(math.sqrt(variance), scale=MEAN * math.exp(-variance / 2))
    sizes = lengths.ppf((np.arange(n) + 0.5) / n).clip(8, LONGEST).astype(int)
    generator = np.random.default_rng(0)
    return [generator.integers(5, words, size) for size in sizes]


def embed_by_stock(model: LongformerModel, documents: Documents) -> Tensor:
    """Average the states of documents that are padded to the longest, (B, D)."""
    padding = model.config.pad_token_id
    ids = pad_sequence(list(map(torch.from_numpy, documents)), True, padding)
    tokens = ids.to(model.device)
    mask = (tokens != padding).long()
    states = model(tokens, attention_mask=mask).last_hidden_state
    return (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)


def embed_by_student(student: Student, bf16: bool, documents: Documents) -> Tensor:
    """Embed documents in one packed batch, (B, D)."""
    batch = pack(documents).to(student.device)
    with torch.autocast(student.device.type, torch.bfloat16, enabled=bf16):
        return student(batch)


def forward(embed: Embed, batches: Sequence[Documents]) -> Tensor:
    """Embed all batches, (N, D)."""
    with torch.inference_mode():
        return torch.cat([embed(documents) for documents in batches])


def update(embed: Embed, model: torch.nn.Module, batches: Sequence[Documents]) -> None:
    """Accumulate the gradients of all batches, then make a first step of AdamW, of length 0."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
    for documents in batches:
        X = embed(documents)
        # A plain sum of normalised states would be constant.
        (X @ torch.linspace(-1, 1, X.shape[1], device=X.device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def medians(runs: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Seconds of each run. They take turns, so that a machine that slows down slows all of them."""
    seconds = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            seconds[name].append(timeit(run, timer=timer, number=1))
    return {name: median(values) for name, values in seconds.items()}


def peak_memory(run: Callable[[], object], device: str) -> float:
    """GiB that a run takes at its peak: tensors on a GPU; elsewhere the process, with Linux."""
    gc.collect()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        return (torch.cuda.max_memory_allocated() - before) / 2**30
    ctypes.CDLL(None).malloc_trim(0)  # memory that is free already would not be counted
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = psutil.Process().memory_info().rss
    run()
    (kibibytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return (int(kibibytes) * 1024 - before) / 2**30


def show(rows: Sequence[Mapping[str, object]], settings: object, as_json: bool) -> None:
    """Print the rows as a table, or as JSON with settings, machine and versions."""
    if not as_json:
        print(pd.DataFrame(rows).to_string(index=False, float_format="{:.5g}".format))
        return
    machine = {
        "cpu": torch.cpu.get_capabilities().get("cpu_name"),
        "gpus": [torch.cuda.get_device_name(gpu) for gpu in range(torch.cuda.device_count())],
        "threads": torch.get_num_threads(),
        "load_average": psutil.getloadavg()[0],
        "docemb": __version__,
        "torch": torch.__version__,
    }
    content = {"machine": machine, "settings": vars(settings), "results": rows}
    print(json.dumps(content, indent=1))


def main() -> None:
    parser = options(__doc__, documents=6)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    device = given.device
    layers, width, inner, words = SIZES[device]
    config = LongformerConfig(
        num_hidden_layers=layers,
        hidden_size=width,
        intermediate_size=inner,
        vocab_size=words,
        attention_window=[WINDOW] * layers,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        max_position_embeddings=LONGEST + 2,
    )
    torch.manual_seed(0)
    stock = LongformerModel(config, add_pooling_layer=False).to(device)
    student = Student(copy.deepcopy(stock), SimpleNamespace(model_max_length=LONGEST))
    documents = thesis_documents(given.documents, words)
    padded = [WINDOW * math.ceil(len(document) / WINDOW) for document in documents]
    batches = []
    for numbers in token_batches(padded, BATCH_TOKENS[device]):
        batches.append([documents[number] for number in numbers])

    embed = partial(embed_by_student, student)
    sides = [
        ("stock", stock, partial(embed_by_stock, stock)),
        ("student fp32", student, partial(embed, False)),
    ]
    biased = RelativeLongformer(RelativeLongformerConfig(**config.to_dict()), False).to(device)
    biased.load_state_dict(stock.state_dict(), strict=False)
    with_biases = Student(biased, student.tokenizer)
    sides.append(("with biases fp32", with_biases, partial(embed_by_student, with_biases, False)))
    if uses_bf16(device):
        sides.append(("student bf16", student, partial(embed, True)))
        sides.append(
            ("with biases bf16", with_biases, partial(embed_by_student, with_biases, True))
        )
    if device == "cuda":
        student.compile_if_possible(partial(forward, partial(embed, True), batches))
    forwards = {}
    updates = {}
    for name, model, embed_by in sides:
        forwards[name] = partial(forward, embed_by, batches)
        updates[name] = partial(update, embed_by, model, batches)
        updates[name]()  # warms up
    X = forwards["stock"]()
    forward_seconds = medians(forwards, given.repeats)
    update_seconds = medians(updates, given.repeats)
    rows = []
    for name in forwards:
        rows.append(
            {
                "model": name,
                "forward_seconds": forward_seconds[name],
                "times_stock": forward_seconds["stock"] / forward_seconds[name],
                "update_seconds": update_seconds[name],
                "update_times_stock": update_seconds["stock"] / update_seconds[name],
                "update_memory": peak_memory(updates[name], device),
                "largest_difference": float((forwards[name]() - X).abs().max()),
            }
        )
    show(rows, given, given.json)


if __name__ == "__main__":
    main()
