"""The student against stock `transformers.LongformerModel`.

Both have the same random weights and documents and run in one process. Dropout is 0 on both sides.
On a GPU the student is compiled, as it is in training and for many documents.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from types import SimpleNamespace

import numpy as np
import torch
from torch.nn.utils import clip_grad_norm_
from transformers import BertConfig, BertModel, LongformerConfig, LongformerModel

from docemb_lib.base.errors import InputError
from docemb_lib.base.hardware import free_memory, matmul_peak, uses_bf16
from docemb_lib.base.progress import progress
from docemb_lib.bench import harness
from docemb_lib.bench.harness import LONGEST, Report, Row
from docemb_lib.packed.packing import PackedBatch, pack, token_batches
from docemb_lib.student.embedding import embed_chunks
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
CHUNK = 256  # tokens that a sentence encoder reads
# Tokens of the documents for equality: below half a window, just above one and two halves, several.
EQUAL_LENGTHS = (8, 257, 513, 1000, 2500)


@dataclass(frozen=True)
class Workload:
    """How much is measured. The defaults take three or four minutes on two cores."""

    device: str = "cpu"
    layers: int = 3
    documents: int = 6  # documents of the thesis' lengths
    repeats: int = 3  # repeats of each timing
    longest: int = LONGEST  # tokens; the thesis' lengths are scaled with it
    long_documents: int = 6  # documents of `longest` tokens, for the peak of memory
    growth_tokens: int = 4096  # tokens of all documents of one length together

    def config(self) -> LongformerConfig:
        """The configuration of longformer-base-4096 in another size and without dropout."""
        size = GEOMETRIES[self.device] | {"num_hidden_layers": self.layers}
        return LongformerConfig(
            **size,
            attention_window=[512] * self.layers,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            layer_norm_eps=1e-5,
            max_position_embeddings=LONGEST + 2,
            type_vocab_size=1,
        )

    def drawn(self, documents: int) -> list[np.ndarray]:
        """Documents of the thesis' lengths."""
        return self.tokens(harness.thesis_lengths(documents, seed=0, scale=self.longest / LONGEST))

    def tokens(self, lengths: Sequence[int]) -> list[np.ndarray]:
        """Random token ids, none of them special, of documents of these lengths."""
        generator = np.random.default_rng(0)
        return [generator.integers(5, self.config().vocab_size - 5, length) for length in lengths]


def both_sides(model: LongformerModel, longest: int) -> tuple[Student, Student]:
    """Stock and ours with the same weights; stock pads each document to whole windows."""
    tokenizer = SimpleNamespace(model_max_length=longest)
    stock = Student(model, tokenizer)
    stock.packed = False
    return stock, Student(copy.deepcopy(model), tokenizer)


def batches_of(
    documents: Sequence[np.ndarray], side: Student, budget: int | None = None
) -> list[PackedBatch]:
    """The documents in batches of `budget` tokens, longest first; stock's include the padding."""
    lengths = [side.padded(len(document)) for document in documents]
    batches = []
    for rows in token_batches(lengths, budget or token_budget(side)):
        batches.append(pack([documents[row] for row in rows]).to(side.device))
    return batches


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

    They are the matrix products of the layers, and the attention over the keys that each token
    sees. torch's FlopCounterMode would count whole blocks of the attention, hidden keys included,
    and nothing of flash attention. A training step takes three times as many: the backward pass
    computes two products for each one of the forward pass.
    """
    D = config.hidden_size
    weights = config.num_hidden_layers * (4 * D * D + 2 * D * config.intermediate_size)
    flops = 2.0 * weights * sum(lengths)
    for window in config.attention_window:
        for length in lengths:
            reach = min(window // 2, length - 1)
            pairs = length * (2 * reach + 1) - reach * (reach + 1)  # (i, j) with |i - j| <= reach
            flops += 4.0 * D * pairs  # two products of D per pair: scores, weighted values
    return flops


def autocast(device: torch.device, precision: str) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def forward(side: Student, batches: Sequence[PackedBatch], precision: str) -> None:
    side.eval()
    with torch.inference_mode(), autocast(side.device, precision):
        for batch in batches:
            side(batch)


def forward_backward(side: Student, batches: Sequence[PackedBatch], precision: str) -> None:
    """A forward pass, then a backward pass that leaves gradients.

    The loss is the sum of the embeddings' dot products with one fixed direction, because LayerNorm
    makes a plain sum constant.
    """
    side.train()
    side.zero_grad()
    direction = torch.linspace(-1, 1, side.dim, device=side.device)
    for batch in batches:
        with autocast(side.device, precision):
            embeddings = side(batch)
        (embeddings @ direction).sum().backward()


def workload_for(device: str, *, quick: bool) -> Workload:
    """What is measured on a device; `quick` takes one layer and short documents."""
    layers = GEOMETRIES[device]["num_hidden_layers"]
    workload = Workload(device, layers)
    if device == "cuda":
        workload = replace(workload, documents=128, growth_tokens=65536)
    if quick:
        workload = Workload(device, 1, 4, 1, longest=512, long_documents=2, growth_tokens=1024)
    return workload


def bench_student(*, device: str | None = None, quick: bool = False) -> Report:
    """Measure the student and stock Longformer.

    `device` is cpu or cuda (None: a GPU where there is one), and decides the size of the model,
    too. `quick` only sees that all parts run. Raises InputError for a device that is not there.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device not in GEOMETRIES or (device == "cuda" and not torch.cuda.is_available()):
        problem = "torch sees no GPU" if device in GEOMETRIES else f"{device} cannot be measured"
        raise InputError(f"device: {problem}; give cpu, or cuda where torch sees a GPU")
    workload = workload_for(device, quick=quick)
    precisions = ["fp32", "bf16"] if uses_bf16(device) else ["fp32"]
    torch.manual_seed(0)
    model = LongformerModel(workload.config(), add_pooling_layer=False).to(device)
    stock, ours = both_sides(model, workload.longest)
    if device == "cuda":
        ours.compile_if_possible(lambda: forward(ours, batches_of(workload.drawn(4), ours), "bf16"))
    mixed = workload.tokens([min(length, workload.longest) for length in EQUAL_LENGTHS])
    parts: list[Callable[[], list[Row]]] = [
        partial(speed, stock, ours, workload, precisions),
        partial(equality, stock, ours, mixed),
        partial(growth, ours, workload, precisions[-1]),
        partial(embedding, ours, workload, precisions[-1]),
        partial(memory, stock, ours, workload),
    ]
    if device == "cuda":
        parts.append(partial(throughput, ours, workload))
    rows = []
    for part in progress(parts, desc="bench", unit="parts"):
        rows += part()
    return Report("student", "stock", asdict(workload), rows, device)


def speed(
    stock: Student, ours: Student, workload: Workload, precisions: Sequence[str]
) -> list[Row]:
    """Forward, and forward with backward: shares of the measured peak, and tokens a second.

    Stock runs in fp32.
    """
    documents = workload.drawn(workload.documents)
    lengths = [len(document) for document in documents]
    flops = forward_flops(ours.config, lengths)
    on_gpu = {"forward bf16": 0.50}
    shares = []
    ratios = []
    for what, passes, run, budgets in (
        # The budgets are shares of the peak of a CPU.
        ("forward", 1, forward, {"fp32": 0.90, "bf16": 0.70}),
        ("forward + backward", 3, forward_backward, {"fp32": 0.80, "bf16": 0.70}),
    ):
        runs: dict[str, Callable[[], None]] = {}
        sides = [
            ("stock", stock, "fp32"),
            *((precision, ours, precision) for precision in precisions),
        ]
        for name, side, precision in sides:
            batches = batches_of(documents, side)
            # The shortest batch warms a CPU up; a long one of stock takes half a minute.
            run(side, batches if workload.device == "cuda" else batches[-1:], precision)
            runs[name] = partial(run, side, batches, precision)
        seconds = harness.interleaved(runs, workload.repeats)
        for precision in precisions:
            name = f"{what} {precision}"
            peak = matmul_peak(workload.device, DTYPES[precision])
            share = passes * flops / median(seconds[precision]) / peak
            at_least = (
                budgets[precision] if workload.device == "cpu" else on_gpu.get(name, -math.inf)
            )
            shares.append(Row(name, share, "of the peak", at_least=at_least))
            rate = partial(harness.ratio_row, f"{name}, stock in fp32", sum(lengths), "tokens/s")
            ratios.append(rate(seconds[precision], seconds["stock"]))
    stock.zero_grad()
    ours.zero_grad()
    return shares + ratios


def equality(stock: Student, ours: Student, documents: Sequence[np.ndarray]) -> list[Row]:
    """Largest differences to stock over the same documents: hidden states, embeddings."""
    (batch,) = batches_of(documents, ours, sum(map(len, documents)))
    with torch.no_grad():
        difference = (ours.hidden(batch) - stock.hidden(batch)).abs().max()
        with autocast(ours.device, "bf16"):
            embeddings = ours(batch)
        distance = 1 - torch.cosine_similarity(embeddings, stock(batch), dim=1).min()
    name = "embeddings bf16, largest cosine distance to stock fp32"
    return [
        Row("hidden states fp32, largest difference", float(difference), "", at_most=1e-5),
        Row(name, float(distance), "", at_most=1e-4),
    ]


def growth(ours: Student, workload: Workload, precision: str) -> list[Row]:
    """Time per token of forward and backward, of long documents against short ones.

    Both have `growth_tokens` tokens in all.
    """
    short = workload.longest // 16
    long = workload.longest
    runs: dict[int, Callable[[], None]] = {}
    for length in (short, long):
        documents = workload.tokens([length] * (workload.growth_tokens // length))
        runs[length] = partial(forward_backward, ours, batches_of(documents, ours), precision)
        runs[length]()
    seconds = harness.interleaved(runs, workload.repeats)
    ours.zero_grad()
    name = f"time per token {precision}, {long} tokens a document against {short}"
    return [Row(name, median(seconds[long]) / median(seconds[short]), "×", at_most=1.15)]


def embedding(ours: Student, workload: Workload, precision: str) -> list[Row]:
    """Embedding long documents in one pass, and by a stock BERT of the same size over chunks.

    Neither includes tokenising.
    """
    device = ours.device
    names = (*GEOMETRIES["cpu"], "num_attention_heads")
    size = {name: getattr(ours.config, name) for name in names}
    config = BertConfig(**size, max_position_embeddings=CHUNK)
    bert = BertModel(config, add_pooling_layer=False).eval().to(device)
    longest = workload.longest // CHUNK  # chunks of a document, all of them whole
    n_chunks = np.linspace(longest // 4, longest, workload.documents).astype(int).clip(1)
    lengths = (CHUNK * n_chunks).tolist()
    documents = workload.tokens(lengths)
    chunks = torch.from_numpy(np.concatenate(documents)).view(-1, CHUNK)

    def in_chunks() -> None:
        with torch.inference_mode(), autocast(device, precision):
            for batch in chunks.split(token_budget(ours) // CHUNK):
                bert(batch.to(device)).last_hidden_state.mean(1).float().cpu()

    def in_one_pass() -> None:
        list(embed_chunks(ours, [documents], None, precision == "bf16", int))

    runs: dict[str, Callable[[], None]] = {"ours": in_one_pass, "chunks": in_chunks}
    harness.interleaved(runs, 1)  # warms both up
    seconds = harness.interleaved(runs, workload.repeats)
    name = (
        f"embedding {precision}, {lengths[0]} to {lengths[-1]} tokens, "
        f"the same encoder over chunks of {CHUNK}"
    )
    rate = partial(harness.ratio_row, name, sum(lengths), "tokens/s", at_least=1.0)
    return [rate(seconds["ours"], seconds["chunks"])]


def memory(stock: Student, ours: Student, workload: Workload) -> list[Row]:
    """Peak memory of forward and backward in fp32, of one batch of the longest documents."""
    documents = workload.tokens([workload.longest] * workload.long_documents)
    sizes = f"{len(documents)} documents of {workload.longest} tokens"
    peaks = []
    for side in (stock, ours):
        # Libraries allocate memory of their own at first use.
        forward_backward(side, batches_of(workload.tokens([64]), side), "fp32")
        side.zero_grad()
        batches = batches_of(documents, side, sum(map(len, documents)))
        run = partial(forward_backward, side, batches, "fp32")
        peaks.append(harness.peak_memory(run, ours.device))
        side.zero_grad()
    name = f"peak memory of forward + backward fp32, {sizes}"
    return [Row(name, peaks[1], "GiB", peaks[0], at_most=0.25)]


def throughput(ours: Student, workload: Workload) -> list[Row]:
    """Full training steps in bf16, a batch each: forward, backward, clipping, fused AdamW."""
    batches = batches_of(workload.drawn(4 * workload.documents), ours)
    optimizer = torch.optim.AdamW(ours.parameters(), lr=2e-5, fused=True)

    def train() -> None:
        for batch in batches:
            forward_backward(ours, [batch], "bf16")
            clip_grad_norm_(ours.parameters(), 1.0)
            optimizer.step()

    train()  # warms up
    (seconds,) = harness.interleaved({"train": train}, 1)["train"]
    ours.zero_grad()
    lengths = [size for batch in batches for size in batch.sizes]
    flops = 3 * forward_flops(ours.config, lengths)
    share = flops / seconds / matmul_peak(ours.device.type, torch.bfloat16)
    return [
        Row("training steps bf16", sum(lengths) / seconds, "tokens/s"),
        Row("training steps bf16", share, "of the peak", at_least=0.45),
    ]
