"""The student against stock `transformers.LongformerModel`: same random weights, same documents, one process."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig, BertModel, LongformerConfig, LongformerModel

from docemb_lib.bench import harness
from docemb_lib.bench.harness import LONGEST, THESIS_MEAN, Report, Row
from docemb_lib.errors import InputError
from docemb_lib.hardware import fast_bf16, free_memory, matmul_peak
from docemb_lib.progress import progress
from docemb_lib.student.longformer import forward_flops
from docemb_lib.student.packing import PackedBatch, embed_chunks, pack, token_batches
from docemb_lib.student.student import Student

GEOMETRIES = {
    "small": {"num_hidden_layers": 3, "hidden_size": 384, "intermediate_size": 1536, "vocab_size": 30522},  # MiniLM's
    "base": {"num_hidden_layers": 12, "hidden_size": 768, "intermediate_size": 3072, "vocab_size": 50265},
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
FORWARD, TRAINING = "forward", "forward + backward"
# Budgets. Shares of the measured peak on a CPU, by what is timed and its precision:
SHARES = {(FORWARD, "fp32"): 0.90, (TRAINING, "fp32"): 0.80, (FORWARD, "bf16"): 0.70, (TRAINING, "bf16"): 0.70}
HIDDEN, COSINE = 1e-5, 0.9999  # equality
LENGTH_RATIO, MEMORY_RATIO = 1.15, 0.25  # time per token of 4,096 against 256 tokens; peak memory against stock
GPU_SHARE, GPU_MINUTES = 0.40, 45.0  # of full training on a GPU; of a million documents
CHUNK = 256  # tokens that a sentence encoder reads
EQUAL_LENGTHS = (8, 257, 513, 1000, 2500)  # tokens: below a window, just above one and two halves of it, several


@dataclass(frozen=True)
class Workload:
    """How much is measured. The defaults take three or four minutes on two cores."""

    size: str = "small"  # a key of GEOMETRIES
    layers: int = 3
    documents: int = 6  # of the thesis' lengths
    repeats: int = 3  # of each timing
    longest: int = LONGEST  # tokens; the thesis' lengths are scaled with it
    memory_documents: int = 6  # of `longest` tokens each
    growth_tokens: int = 4096  # in documents of one length together
    training_steps: int = 12  # of full training, on a GPU
    seed: int = 0

    def config(self) -> LongformerConfig:
        """longformer-base-4096 but for its size, without dropout."""
        size = {**GEOMETRIES[self.size], "num_hidden_layers": self.layers, "attention_window": [512] * self.layers}
        dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return LongformerConfig(
            **size, **dropout, max_position_embeddings=LONGEST + 2, type_vocab_size=1, layer_norm_eps=1e-5
        )

    def drawn(self, documents: int) -> list[np.ndarray]:
        return self.tokens(harness.thesis_lengths(documents, seed=self.seed, scale=self.longest / LONGEST))

    def tokens(self, lengths: Sequence[int]) -> list[np.ndarray]:
        """Random token ids, none of them special, of documents of these lengths."""
        generator = np.random.default_rng(self.seed)
        return [generator.integers(5, self.config().vocab_size - 5, length) for length in lengths]


def both_sides(model: LongformerModel, longest: int) -> tuple[Student, Student]:
    """Stock and ours with the same weights; stock pads documents of similar length to the longest of them."""
    stock, ours = (Student(one, SimpleNamespace(model_max_length=longest)) for one in (model, copy.deepcopy(model)))
    stock.packed = False
    return stock, ours


def batches_of(
    documents: Sequence[np.ndarray], budget: int, device: torch.device, *, window: int = 1
) -> list[PackedBatch]:
    """The documents in batches of at most `budget` tokens, longest first; each counts as whole windows, as padded."""
    rows = token_batches([-(-len(one) // window) * window for one in documents], budget)
    return [pack([documents[k] for k in some]).to(device) for some in rows]


def token_budget(student: Student) -> int:
    """Tokens of one batch that keep the device busy and fit into half of its memory.

    Training longformer-base in fp32 takes about 0.6 MB a token of the student and 1.8 MB of stock.
    """
    if student.device.type == "cpu":
        return 8192
    most, bytes_per_token = (65536, 2**20) if student.packed else (16384, 2**22)
    return max(4096, min(most, free_memory(student.device) // bytes_per_token))


def autocast(device: torch.device, precision: str) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def forward(student: Student, batches: Sequence[PackedBatch], *, precision: str) -> None:
    student.eval()
    with torch.inference_mode(), autocast(student.device, precision):
        for batch in batches:
            student(batch)


def forward_backward(student: Student, batches: Sequence[PackedBatch], *, precision: str) -> None:
    """Leave the gradients of the embeddings' products with `direction_of(student)` in the parameters."""
    student.train()
    student.zero_grad(set_to_none=True)
    direction = direction_of(student)
    for batch in batches:
        with autocast(student.device, precision):
            embeddings = student(batch)
        (embeddings @ direction).sum().backward()


def direction_of(student: Student) -> Tensor:
    """(D,), the same random numbers for both sides: LayerNorm makes the sum of an embedding constant."""
    return torch.randn(student.dim, generator=torch.Generator().manual_seed(0)).to(student.device)


def bench_student(
    *, device: str | None = None, size: str | None = None, quick: bool = False, documents: int | None = None,
    repeats: int | None = None,
) -> Report:  # fmt: skip
    """Measure the student beside stock Longformer.

    device: cpu or cuda (None: a GPU where there is one); size: small or base (None: base on a GPU); quick: one layer
    and short documents, to see that all parts run; documents, of the thesis' lengths, and repeats of each timing (None:
    a few minutes). Raises InputError for a device that is not there, or an unknown size.
    """
    if device not in (None, "cpu", "cuda"):
        raise InputError(f"device: got {device!r}; give cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("device: got cuda, but torch sees no GPU here; give cpu")
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    size = size or ("base" if where.type == "cuda" else "small")
    if size not in GEOMETRIES:
        raise InputError(f"size: got {size!r}; give {' or '.join(GEOMETRIES)}")
    given: dict[str, Any] = {"size": size, "layers": GEOMETRIES[size]["num_hidden_layers"]}
    notes = ["dropout is 0 on both sides: flash attention for packed documents has none for the attention weights"]
    precisions = ["fp32", "bf16"] if fast_bf16(where) else ["fp32"]
    if "bf16" not in precisions:
        notes.append("bf16 is not timed: this processor has no instructions for it")
    if where.type == "cuda":
        given |= {"documents": 128, "growth_tokens": 65536}
    elif size == "base":
        given |= {"layers": 2, "documents": 2, "repeats": 2}  # stock takes minutes for each
    if quick:
        given |= {"layers": 1, "longest": 512, "documents": 4, "repeats": 1}
        given |= {"memory_documents": 2, "growth_tokens": 1024, "training_steps": 2}
        notes.append("quick: one layer and short documents; the numbers mean little")
    workload = Workload(**given | {k: n for k, n in (("documents", documents), ("repeats", repeats)) if n})
    torch.manual_seed(workload.seed)
    model = LongformerModel(workload.config(), add_pooling_layer=False).to(where)
    stock, ours = both_sides(model, workload.longest)
    compared = workload.tokens([min(n, workload.longest) for n in EQUAL_LENGTHS])
    parts: list[Callable[[], list[Row]]] = [
        partial(speed, stock, ours, workload, precisions),
        partial(equality, stock, ours, compared),
        partial(growth, ours, workload, precisions[-1]),
        partial(embedding, ours, workload, precisions[-1]),
        partial(memory, stock, ours, workload),
    ]
    if where.type == "cuda":
        parts.append(partial(throughput, ours, workload))
    with ExitStack() as stack:  # without stock's message on padding
        stack.callback(transformers.logging.set_verbosity, transformers.logging.get_verbosity())
        transformers.logging.set_verbosity_error()
        rows = [row for part in progress(parts, desc="bench", unit="parts") for row in part()]
    settings = asdict(workload) | {"tokens": sum(map(len, workload.drawn(workload.documents)))}
    return Report("student", "stock", settings, rows, notes, where.type)


def speed(stock: Student, ours: Student, workload: Workload, precisions: Sequence[str]) -> list[Row]:
    """Forward, and forward with backward: shares of the measured peak, and tokens a second beside stock in fp32."""
    device, documents = ours.device, workload.drawn(workload.documents)
    lengths = [len(document) for document in documents]
    window = {stock: max(stock.config.attention_window), ours: 1}
    batches = {side: batches_of(documents, token_budget(side), device, window=n) for side, n in window.items()}
    sides = [("stock", stock, "fp32"), *(("ours", ours, precision) for precision in precisions)]
    peaks = {precision: matmul_peak(str(device), DTYPES[precision]) for precision in precisions}
    shares, ratios = [], []
    for what, passes, run in ((FORWARD, 1, forward), (TRAINING, 3, forward_backward)):
        runs: dict[tuple[str, str], Callable[[], None]] = {}
        for name, side, precision in sides:
            # The shortest batch warms a CPU up; a long one of stock takes half a minute.
            run(side, batches[side] if device.type == "cuda" else batches[side][-1:], precision=precision)
            runs[name, precision] = partial(run, side, batches[side], precision=precision)
        seconds = harness.interleaved(runs, workload.repeats, device)
        for precision in precisions:
            own = seconds["ours", precision]
            share = passes * forward_flops(ours.config, lengths) / median(own) / peaks[precision]
            budget = SHARES[what, precision] if device.type == "cpu" else None
            shares.append(Row(f"{what} {precision}, share of peak", share, "%", at_least=budget))
            name = f"{what} {precision}, stock in fp32"
            ratios.append(harness.ratio_row(name, sum(lengths), "tokens/s", own, seconds["stock", "fp32"]))
    for side in (ours, stock):
        side.zero_grad(set_to_none=True)
    return shares + ratios


def equality(stock: Student, ours: Student, documents: Sequence[np.ndarray]) -> list[Row]:
    """Largest differences to stock over the same documents: hidden states, embeddings."""
    (batch,) = batches_of(documents, sum(map(len, documents)), ours.device)
    with torch.no_grad():
        difference = (ours.hidden(batch) - stock.hidden(batch)).abs().max()
        with autocast(ours.device, "bf16"):
            embeddings = ours(batch)
        cosine = torch.cosine_similarity(embeddings, stock(batch), dim=1).min()
    return [
        Row("hidden states fp32, largest difference", float(difference), "", at_most=HIDDEN),
        Row("embeddings bf16, smallest cosine to stock fp32", float(cosine), "", at_least=COSINE),
    ]


def growth(ours: Student, workload: Workload, precision: str) -> list[Row]:
    """Time per token of forward and backward, of long documents against short ones, `growth_tokens` in all."""
    short, long = workload.longest // 16, workload.longest
    runs: dict[int, Callable[[], None]] = {}
    for length in (short, long):
        documents = workload.tokens([length] * (workload.growth_tokens // length))
        batches = batches_of(documents, token_budget(ours), ours.device)
        runs[length] = partial(forward_backward, ours, batches, precision=precision)
        runs[length]()
    seconds = harness.interleaved(runs, workload.repeats, ours.device)
    ours.zero_grad(set_to_none=True)
    name = f"time per token {precision}, {long} tokens a document against {short}"
    arithmetic = forward_flops(ours.config, [long]) / long / (forward_flops(ours.config, [short]) / short)
    note = f"{arithmetic:.3g} times the arithmetic: more keys lie within the window"
    return [Row(name, median(seconds[long]) / median(seconds[short]), "×", at_most=LENGTH_RATIO, note=note)]


def embedding(ours: Student, workload: Workload, precision: str) -> list[Row]:
    """Embedding long documents in one pass, beside a stock BERT of the same size over chunks, without tokenising."""
    device = ours.device
    geometry = {name: getattr(ours.config, name) for name in (*GEOMETRIES["small"], "num_attention_heads")}
    config = BertConfig(**geometry, max_position_embeddings=CHUNK)
    bert = BertModel(config, add_pooling_layer=False).eval().to(device)
    lengths = np.linspace(workload.longest // 4, workload.longest, workload.documents).astype(int).tolist()
    documents = workload.tokens(lengths)
    cut = [document[start : start + CHUNK] for document in documents for start in range(0, len(document), CHUNK)]
    parts = [torch.from_numpy(chunk) for chunk in sorted(cut, key=len, reverse=True)]
    step = token_budget(ours) // CHUNK

    def in_chunks() -> None:
        with torch.inference_mode(), autocast(device, precision):
            for batch in (parts[start : start + step] for start in range(0, len(parts), step)):
                mask = pad_sequence([torch.ones_like(part) for part in batch], batch_first=True).to(device)
                hidden = bert(pad_sequence(batch, batch_first=True).to(device), attention_mask=mask).last_hidden_state
                (hidden * mask[:, :, None]).sum(1).float().cpu()

    one_pass = partial(embed_chunks, ours, [documents], None, None, precision == "bf16", int)
    runs: dict[str, Callable[[], object]] = {"ours": lambda: list(one_pass()), "chunks": in_chunks}
    harness.interleaved(runs, 1, device)  # warms both up
    seconds = harness.interleaved(runs, workload.repeats, device)
    name = f"embedding {precision}, the same encoder over chunks of {CHUNK}"
    row = harness.ratio_row(name, sum(lengths), "tokens/s", seconds["ours"], seconds["chunks"], at_least=1.0)
    return [replace(row, note=f"documents of {lengths[0]} to {lengths[-1]} tokens")]


def memory(stock: Student, ours: Student, workload: Workload) -> list[Row]:
    """Peak memory of forward and backward in fp32 over documents of the greatest length."""
    name = "peak memory of forward + backward, fp32"
    note = f"{workload.memory_documents} documents of {workload.longest} tokens"
    device, documents = ours.device, workload.tokens([workload.longest] * workload.memory_documents)
    peaks = []
    for side in (stock, ours):
        run = partial(forward_backward, side, precision="fp32")
        run(batches_of(workload.tokens([64]), 64, device))  # libraries take memory of their own once
        batches = batches_of(documents, sum(map(len, documents)), device)
        side.zero_grad(set_to_none=True)
        try:
            peaks.append(harness.peak_memory(partial(run, batches), device))
        except torch.OutOfMemoryError:
            return [Row(name, None, "bytes", note=f"{note} do not fit into the GPU's memory")]
        finally:
            side.zero_grad(set_to_none=True)
    if None in peaks:
        return [Row(name, None, "bytes", note="this system does not report the peak of a process")]
    return [Row(name, peaks[1], "bytes", peer=peaks[0], at_most=MEMORY_RATIO, note=note)]


def throughput(ours: Student, workload: Workload) -> list[Row]:
    """Full training steps in bf16: forward, backward, clipping, fused AdamW."""
    per_step = max(1, token_budget(ours) // round(THESIS_MEAN * workload.longest / LONGEST))
    documents = workload.drawn(per_step * workload.training_steps)
    groups = [documents[start : start + per_step] for start in range(0, len(documents), per_step)]
    optimizer = torch.optim.AdamW(ours.parameters(), lr=2e-5, fused=True)

    def step(batches: list[PackedBatch]) -> None:
        forward_backward(ours, batches, precision="bf16")
        torch.nn.utils.clip_grad_norm_(ours.parameters(), 1.0)
        optimizer.step()

    runs = {k: partial(step, batches_of(group, sum(map(len, group)), ours.device)) for k, group in enumerate(groups)}
    for run in runs.values():
        run()
    seconds = sum(times[0] for times in harness.interleaved(runs, 1, ours.device).values())
    ours.zero_grad(set_to_none=True)
    tokens = sum(map(len, documents))
    share = 3 * forward_flops(ours.config, [len(one) for one in documents]) / seconds
    million = 1e6 * float(np.mean(harness.thesis_lengths(10_000, seed=workload.seed)))  # tokens of as many documents
    name = f"training longformer-{workload.size} bf16"
    return [
        Row(name, tokens / seconds, "tokens/s"),
        Row(f"{name}, share of peak", share / matmul_peak(str(ours.device), torch.bfloat16), "%", at_least=GPU_SHARE),
        Row(f"{name}, 1M documents", million * seconds / tokens / 60, "min", at_most=GPU_MINUTES),
    ]
