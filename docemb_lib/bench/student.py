"""The student against stock `transformers.LongformerModel`: same random weights, same documents,
one process.

Dropout is 0 on both sides, because flash attention for packed documents has none for the attention
weights.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertModel, LongformerConfig, LongformerModel

from docemb_lib.base.errors import InputError
from docemb_lib.base.hardware import free_memory, matmul_peak, uses_bf16
from docemb_lib.base.progress import progress
from docemb_lib.bench import harness
from docemb_lib.bench.harness import LONGEST, Report, Row
from docemb_lib.student.embedding import embed_chunks
from docemb_lib.student.packing import PackedBatch, pack, token_batches
from docemb_lib.student.student import Student

GEOMETRIES = {  # by device: MiniLM's with three layers, and Longformer-base's
    "cpu": {
        "num_hidden_layers": 3,
        "hidden_size": 384,
        "intermediate_size": 1536,
        "vocab_size": 30522,
    },
    "cuda": {
        "num_hidden_layers": 12,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "vocab_size": 50265,
    },
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
FORWARD, TRAINING = "forward", "forward + backward"
# Budgets. Shares of the measured peak on a CPU, by what is timed and its precision:
SHARES = {
    (FORWARD, "fp32"): 0.90,
    (TRAINING, "fp32"): 0.80,
    (FORWARD, "bf16"): 0.70,
    (TRAINING, "bf16"): 0.70,
}
HIDDEN, COSINE = 1e-5, 1e-4  # equality
LENGTH_RATIO, MEMORY_RATIO = (
    1.15,
    0.25,
)  # time per token of 4,096 against 256 tokens; peak memory against stock
GPU_SHARE = 0.40  # of full training on a GPU
CHUNK = 256  # tokens that a sentence encoder reads
EQUAL_LENGTHS = (
    8,
    257,
    513,
    1000,
    2500,
)  # tokens: below a window, just above one and two halves of it, several


@dataclass(frozen=True)
class Workload:
    """How much is measured. The defaults take three or four minutes on two cores."""

    device: str = "cpu"
    layers: int = 3
    documents: int = 6  # of the thesis' lengths
    repeats: int = 3  # of each timing
    longest: int = LONGEST  # tokens; the thesis' lengths are scaled with it
    long_documents: int = 6  # of `longest` tokens each, for the peak of memory
    growth_tokens: int = 4096  # in all documents of one length together

    def config(self) -> LongformerConfig:
        """The configuration of longformer-base-4096 in another size and without dropout."""
        size = {
            **GEOMETRIES[self.device],
            "num_hidden_layers": self.layers,
            "attention_window": [512] * self.layers,
        }
        fixed = {
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "layer_norm_eps": 1e-5,
        }
        return LongformerConfig(
            **size, **fixed, max_position_embeddings=LONGEST + 2, type_vocab_size=1
        )

    def drawn(self, documents: int) -> list[np.ndarray]:
        return self.tokens(harness.thesis_lengths(documents, seed=0, scale=self.longest / LONGEST))

    def tokens(self, lengths: Sequence[int]) -> list[np.ndarray]:
        """Random token ids, none of them special, of documents of these lengths."""
        generator = np.random.default_rng(0)
        return [generator.integers(5, self.config().vocab_size - 5, length) for length in lengths]


def both_sides(model: LongformerModel, longest: int) -> tuple[Student, Student]:
    """Stock and ours with the same weights; stock pads each document to whole windows."""
    stock, ours = (
        Student(one, SimpleNamespace(model_max_length=longest))
        for one in (model, copy.deepcopy(model))
    )
    stock.packed = False
    return stock, ours


def batches_of(
    documents: Sequence[np.ndarray], side: Student, budget: int | None = None
) -> list[PackedBatch]:
    """The documents in batches, longest first; for stock each counts as whole windows, as it is
    padded.
    """
    rows = token_batches([side.padded(len(one)) for one in documents], budget or token_budget(side))
    return [pack([documents[k] for k in some]).to(side.device) for some in rows]


def token_budget(side: Student) -> int:
    """Tokens of one batch that keep the device busy and fit into half of its memory.

    Training longformer-base in fp32 takes about 0.6 MB a token of the student and 1.8 MB of stock.
    """
    if side.device.type == "cpu":
        return 8192
    most, bytes_per_token = (65536, 2**20) if side.packed else (16384, 2**22)
    return max(4096, min(most, free_memory(side.device) // bytes_per_token))


def forward_flops(config: LongformerConfig, lengths: Sequence[int]) -> float:
    """Floating-point operations over documents of `lengths` tokens; a multiply-add counts as two.

    The matrix products of the layers, and the attention over the keys that each token sees; a
    training step takes three times as many: the backward pass computes two products for each one of
    the forward pass.
    """
    D, layers = config.hidden_size, config.num_hidden_layers
    weights, pairs = layers * (4 * D * D + 2 * D * config.intermediate_size), 0
    for length, window in product(lengths, config.attention_window):
        reach = min(window // 2, length - 1)
        pairs += length * (2 * reach + 1) - reach * (
            reach + 1
        )  # tokens (i, j) with |i - j| <= reach
    return (
        2.0 * weights * sum(lengths) + 4.0 * D * pairs
    )  # two products of D per pair: scores, weighted values


def autocast(device: torch.device, precision: str) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def forward(side: Student, batches: Sequence[PackedBatch], precision: str) -> None:
    side.eval()
    with torch.inference_mode(), autocast(side.device, precision):
        for batch in batches:
            side(batch)


def forward_backward(side: Student, batches: Sequence[PackedBatch], precision: str) -> None:
    """Forward pass, then backward pass from the sum of the embeddings' dot products with one fixed
    direction.
    """
    side.train()
    side.zero_grad(set_to_none=True)
    direction = torch.linspace(
        -1, 1, side.dim, device=side.device
    )  # LayerNorm makes a plain sum constant
    for batch in batches:
        with autocast(side.device, precision):
            embeddings = side(batch)
        (embeddings @ direction).sum().backward()


def bench_student(*, device: str | None = None, quick: bool = False) -> Report:
    """Measure the student beside stock Longformer.

    device: cpu or cuda (None: a GPU where there is one), which also decides the size of the model;
    quick: one layer and short documents, to see that all parts run. Raises InputError for a device
    that is not there.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device not in GEOMETRIES or (device == "cuda" and not torch.cuda.is_available()):
        problem = "torch sees no GPU" if device in GEOMETRIES else f"{device} cannot be measured"
        raise InputError(f"device: {problem}; give cpu, or cuda where torch sees a GPU")
    given: dict[str, Any] = {"device": device, "layers": GEOMETRIES[device]["num_hidden_layers"]}
    precisions = ["fp32", "bf16"] if uses_bf16(device) else ["fp32"]
    if device == "cuda":
        given |= {"documents": 128, "growth_tokens": 65536}
    if quick:
        given |= {
            "layers": 1,
            "longest": 512,
            "documents": 4,
            "repeats": 1,
            "long_documents": 2,
            "growth_tokens": 1024,
        }
    workload = Workload(**given)
    torch.manual_seed(0)
    stock, ours = both_sides(
        LongformerModel(workload.config(), add_pooling_layer=False).to(device), workload.longest
    )
    parts: list[Callable[[], list[Row]]] = [
        partial(speed, stock, ours, workload, precisions),
        partial(
            equality,
            stock,
            ours,
            workload.tokens([min(n, workload.longest) for n in EQUAL_LENGTHS]),
        ),
        partial(growth, ours, workload, precisions[-1]),
        partial(embedding, ours, workload, precisions[-1]),
        partial(memory, stock, ours, workload),
    ]
    if device == "cuda":
        parts.append(partial(throughput, ours, workload))
    rows = [row for part in progress(parts, desc="bench", unit="parts") for row in part()]
    return Report("student", "stock", asdict(workload), rows, device)


def speed(
    stock: Student, ours: Student, workload: Workload, precisions: Sequence[str]
) -> list[Row]:
    """Forward, and forward with backward: shares of the measured peak, and tokens a second beside
    stock in fp32.
    """
    device, documents = ours.device, workload.drawn(workload.documents)
    lengths = [len(document) for document in documents]
    batches = {side: batches_of(documents, side) for side in (stock, ours)}
    shares, ratios = [], []
    for what, passes, run in ((FORWARD, 1, forward), (TRAINING, 3, forward_backward)):
        runs: dict[tuple[Student, str], Callable[[], None]] = {}
        for side, precision in [(stock, "fp32"), *((ours, precision) for precision in precisions)]:
            # The shortest batch warms a CPU up; a long one of stock takes half a minute.
            run(side, batches[side] if device.type == "cuda" else batches[side][-1:], precision)
            runs[side, precision] = partial(run, side, batches[side], precision)
        seconds = harness.interleaved(runs, workload.repeats, device)
        for precision in precisions:
            own, peak = seconds[ours, precision], matmul_peak(device.type, DTYPES[precision])
            share = passes * forward_flops(ours.config, lengths) / median(own) / peak
            budget = SHARES[what, precision] if device.type == "cpu" else None
            shares.append(Row(f"{what} {precision}", share, "of the peak", at_least=budget))
            name = f"{what} {precision}, stock in fp32"
            ratios.append(
                harness.ratio_row(name, sum(lengths), "tokens/s", own, seconds[stock, "fp32"])
            )
    for side in (ours, stock):
        side.zero_grad(set_to_none=True)
    return shares + ratios


def equality(stock: Student, ours: Student, documents: Sequence[np.ndarray]) -> list[Row]:
    """Largest differences to stock over the same documents: hidden states, embeddings."""
    (batch,) = batches_of(documents, ours, sum(map(len, documents)))
    with torch.no_grad():
        difference = (ours.hidden(batch) - stock.hidden(batch)).abs().max()
        with autocast(ours.device, "bf16"):
            embeddings = ours(batch)
        distance = 1 - torch.cosine_similarity(embeddings, stock(batch), dim=1).min()
    return [
        Row("hidden states fp32, largest difference", float(difference), "", at_most=HIDDEN),
        Row(
            "embeddings bf16, largest cosine distance to stock fp32",
            float(distance),
            "",
            at_most=COSINE,
        ),
    ]


def growth(ours: Student, workload: Workload, precision: str) -> list[Row]:
    """Time per token of forward and backward, of long documents against short ones, `growth_tokens`
    in all.
    """
    short, long = workload.longest // 16, workload.longest
    runs: dict[int, Callable[[], None]] = {}
    for length in (short, long):
        documents = workload.tokens([length] * (workload.growth_tokens // length))
        runs[length] = partial(forward_backward, ours, batches_of(documents, ours), precision)
        runs[length]()
    seconds = harness.interleaved(runs, workload.repeats, ours.device)
    ours.zero_grad(set_to_none=True)
    name = f"time per token {precision}, {long} tokens a document against {short}"
    return [Row(name, median(seconds[long]) / median(seconds[short]), "×", at_most=LENGTH_RATIO)]


def embedding(ours: Student, workload: Workload, precision: str) -> list[Row]:
    """Embedding long documents in one pass, beside a stock BERT of the same size over chunks,
    without tokenising.
    """
    device = ours.device
    geometry = {
        name: getattr(ours.config, name) for name in (*GEOMETRIES["cpu"], "num_attention_heads")
    }
    config = BertConfig(**geometry, max_position_embeddings=CHUNK)
    bert = BertModel(config, add_pooling_layer=False).eval().to(device)
    longest = workload.longest // CHUNK  # chunks of a document, all of them whole
    lengths = [
        CHUNK * max(1, int(n)) for n in np.linspace(longest // 4, longest, workload.documents)
    ]
    documents = workload.tokens(lengths)
    chunks = torch.from_numpy(np.concatenate(documents)).view(-1, CHUNK)

    def in_chunks() -> None:
        with torch.inference_mode(), autocast(device, precision):
            for batch in chunks.split(token_budget(ours) // CHUNK):
                bert(batch.to(device)).last_hidden_state.mean(1).float().cpu()

    one_pass = partial(embed_chunks, ours, [documents], None, precision == "bf16", int)
    runs: dict[str, Callable[[], object]] = {"ours": lambda: list(one_pass()), "chunks": in_chunks}
    harness.interleaved(runs, 1, device)  # warms both up
    seconds = harness.interleaved(runs, workload.repeats, device)
    name = f"embedding {precision}, {lengths[0]} to {lengths[-1]} tokens, the same encoder over chunks of {CHUNK}"
    return [
        harness.ratio_row(
            name, sum(lengths), "tokens/s", seconds["ours"], seconds["chunks"], at_least=1.0
        )
    ]


def memory(stock: Student, ours: Student, workload: Workload) -> list[Row]:
    """Peak memory of forward and backward in fp32 over documents of the greatest length, in one
    batch.
    """
    documents = workload.tokens([workload.longest] * workload.long_documents)
    peaks = []
    for side in (stock, ours):
        # Libraries allocate memory of their own at first use.
        forward_backward(side, batches_of(workload.tokens([64]), side), "fp32")
        side.zero_grad(set_to_none=True)
        batches = batches_of(documents, side, sum(map(len, documents)))
        peaks.append(
            harness.peak_memory(partial(forward_backward, side, batches, "fp32"), ours.device)
        )
        side.zero_grad(set_to_none=True)
    name = (
        f"peak memory of {TRAINING} fp32, {len(documents)} documents of {workload.longest} tokens"
    )
    return [Row(name, peaks[1], "GiB", peaks[0], at_most=MEMORY_RATIO)]


def throughput(ours: Student, workload: Workload) -> list[Row]:
    """Full training steps in bf16, a batch each: forward, backward, clipping, fused AdamW."""
    batches = batches_of(workload.drawn(4 * workload.documents), ours)
    optimizer = torch.optim.AdamW(ours.parameters(), lr=2e-5, fused=True)

    def step(batch: PackedBatch) -> None:
        forward_backward(ours, [batch], "bf16")
        torch.nn.utils.clip_grad_norm_(ours.parameters(), 1.0)
        optimizer.step()

    for batch in batches:
        step(batch)
    runs = {k: partial(step, batch) for k, batch in enumerate(batches)}
    seconds = sum(times[0] for times in harness.interleaved(runs, 1, ours.device).values())
    ours.zero_grad(set_to_none=True)
    lengths = [size for batch in batches for size in batch.sizes]
    share = (
        3
        * forward_flops(ours.config, lengths)
        / seconds
        / matmul_peak(ours.device.type, torch.bfloat16)
    )
    return [
        Row("training steps bf16", sum(lengths) / seconds, "tokens/s"),
        Row("training steps bf16", share, "of the peak", at_least=GPU_SHARE),
    ]
