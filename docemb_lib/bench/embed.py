"""Embedding long documents on a CPU: the student beside what one would take instead.

That is the same sentence encoder, MiniLM, over chunks as long as it reads, in torch, ONNX Runtime
and OpenVINO. All run in one process on the same documents, in turns; tokenising does not count. The
collection is the longest pages of the installed documentation, of which some list others.
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.utils import logging as hf_logging

from docemb_lib.base.hardware import uses_bf16
from docemb_lib.base.pretrained import resolve
from docemb_lib.base.progress import progress
from docemb_lib.bench.harness import Report, Row, interleaved, ratio_row
from docemb_lib.corpus.installed_docs import PACKAGES, installed_docs
from docemb_lib.evaluation.catalogue import embedded_task
from docemb_lib.student.embedding import Tokens, embed_chunks
from docemb_lib.student.student import Student

MODEL = "all-MiniLM-L6-v2"
CHUNK = 256  # tokens that MiniLM reads, the two special ones included
BATCH = 16  # chunks of a forward pass
WINDOW = 256  # of the student, both directions together: a token sees as many as in a chunk
PAGE_WORDS = (1000, 100_000)  # fewest and most words of a page
FP32 = "MiniLM over chunks, torch fp32"
NEEDS = {"ONNX Runtime": ("onnxruntime", "onnx"), "OpenVINO": ("openvino", "onnx")}

Forward = Callable[[np.ndarray, np.ndarray], np.ndarray]  # ids and mask (B, t) to means (B, D)
Embed = Callable[[Tokens], np.ndarray]  # token ids of N documents to (N, D)


@dataclass(frozen=True)
class EmbedRow(Row):
    """Tokens a second, beside those of MiniLM in torch and float32, and what they are worth."""

    documents_per_second: float = float("nan")
    cosine: float = float("nan")  # the mean to the same model in float32
    map: float = float("nan")  # of the collection


class MeanOfStates(nn.Module):
    """The mean of an encoder's last hidden states over the tokens of each chunk, for an export."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """ids, mask: (B, t), 1 = token. Returns (B, D)."""
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state  # (B, t, D)
        weights = mask[:, :, None].to(hidden.dtype)
        return ((hidden * weights).sum(1) / weights.sum(1)).float()


def bench_embed(*, quick: bool = False) -> Report:
    """Measure the student and MiniLM over chunks in each library that is installed.

    Takes ten minutes on two cores. `quick` takes a few short pages, to see that all parts run.
    """
    packages = ("seaborn",) if quick else PACKAGES
    pages = installed_docs(packages, words=(100, 1000) if quick else PAGE_WORDS)
    rows = [page._asdict() | {"split": "test"} for page in pages]
    task = embedded_task(
        rows,
        "see-also-retrieval",
        seed=0,
        limit=8 if quick else 100,
        partitions={"test": ["test"]},
    )
    student = Student.from_encoder(MODEL, attention_window=WINDOW)
    tokens = student.tokenize(task.texts("test")).sequences
    # The longest documents are timed; all of them give the score and the cosines.
    timed = sorted(tokens, key=len)[-(2 if quick else 8) :]
    repeats = 1 if quick else 3

    with TemporaryDirectory(prefix="docemb-") as folder:
        systems, missing = chunked_systems(Path(folder))
        for precision in ("fp32", "bf16") if uses_bf16() else ("fp32",):
            systems[f"student {precision}"] = partial(embed_by_student, student, precision)
        embeddings = {}
        for name in progress(systems, desc="bench", unit="models"):
            embeddings[name] = systems[name](tokens)
        seconds = interleaved(
            {name: partial(embed, timed) for name, embed in systems.items()}, repeats
        )

    n_tokens = sum(map(len, timed))
    measured: list[Row] = []
    for name in systems:
        plain = "student fp32" if name.startswith("student") else FP32
        speed = ratio_row(name, n_tokens, "tokens/s", seconds[name], seconds[FP32])
        measured.append(
            EmbedRow(
                **vars(speed),
                documents_per_second=len(timed) / median(seconds[name]),
                cosine=mean_cosine(embeddings[name], embeddings[plain]),
                map=task.score(embeddings[name]).mean,
            )
        )
    measured += [Row(f"{name} is not installed", float("nan"), "") for name in missing]
    measured.append(against_the_best(seconds, n_tokens))
    settings = {
        "model": MODEL,
        "chunk": CHUNK,
        "batch": BATCH,
        "window": WINDOW,
        "documents": len(tokens),
        "timed_documents": len(timed),
        "timed_tokens": n_tokens,
        "repeats": repeats,
    }
    columns = ("documents_per_second", "cosine", "map")
    return Report("embed", "torch fp32", settings, measured, columns=columns)


def against_the_best(seconds: Mapping[str, Sequence[float]], n_tokens: int) -> Row:
    """The faster student against the fastest of the others; the rows show their cosines."""
    ours = [name for name in seconds if name.startswith("student")]
    others = [name for name in seconds if name not in ours]
    student = min(ours, key=lambda name: median(seconds[name]))
    best = min(others, key=lambda name: median(seconds[name]))
    name = f"{student} against {best}"
    return ratio_row(name, n_tokens, "tokens/s", seconds[student], seconds[best], at_least=0.9)


def mean_cosine(X: np.ndarray, Y: np.ndarray) -> float:
    """The mean of the cosines of the rows of X and Y, (N, D) each."""
    return float(torch.cosine_similarity(torch.from_numpy(X), torch.from_numpy(Y)).mean())


def embed_by_student(student: Student, precision: str, documents: Tokens) -> np.ndarray:
    """Embed tokenised documents as `Student.embed` does, (N, D)."""
    return np.concatenate(list(embed_chunks(student, [documents], None, precision == "bf16", int)))


def embed_over_chunks(forward: Forward, documents: Tokens) -> np.ndarray:
    """Average the embeddings of each document's chunks, with their tokens as weights: (N, D).

    documents: token ids with a special one at both ends, which each chunk has, too; none is empty.
    """
    chunks = []
    owners = []
    for row, ids in enumerate(documents):
        inner = ids[1:-1]
        for start in range(0, len(inner), CHUNK - 2):
            chunks.append([ids[0], *inner[start : start + CHUNK - 2], ids[-1]])
            owners.append(row)
    sizes = np.array([len(chunk) for chunk in chunks])
    longest_first = np.argsort(-sizes, kind="stable")
    totals: dict[int, np.ndarray] = {}  # of each document
    for first in range(0, len(chunks), BATCH):
        rows = longest_first[first : first + BATCH]
        padded = np.zeros((len(rows), sizes[rows[0]]), dtype=np.int64)
        for line, row in zip(padded, rows, strict=True):
            line[: sizes[row]] = chunks[row]
        mask = (np.arange(padded.shape[1]) < sizes[rows, None]).astype(np.int64)
        for row, mean in zip(rows, forward(padded, mask), strict=True):
            totals[owners[row]] = totals.get(owners[row], 0) + sizes[row] * mean
    weights = np.bincount(owners, weights=sizes)
    sums = np.stack([totals[row] for row in range(len(documents))])
    return (sums / weights[:, None]).astype(np.float32)


def chunked_systems(folder: Path) -> tuple[dict[str, Embed], list[str]]:
    """MiniLM over chunks in each library at hand, and the names of libraries that are missing.

    folder: for the exported model.
    """
    hf_logging.disable_progress_bar()
    hf_logging.set_verbosity_error()  # MiniLM has weights that the mean does not need
    model = AutoModel.from_pretrained(resolve(MODEL), add_pooling_layer=False)
    encoder = MeanOfStates(model).eval()  # as a whole: exporting sets the mode of its parts anew
    forwards: dict[str, Forward] = {
        "torch fp32": partial(torch_forward, encoder, False),
        "torch bf16": partial(torch_forward, encoder, True),
        "torch int8": partial(torch_forward, int8(encoder), False),
    }
    missing = []
    for library, packages in NEEDS.items():
        absent = [package for package in packages if find_spec(package) is None]
        if absent:
            missing.append(f"{library} ({', '.join(absent)})")
            continue
        file = export(encoder, folder)
        forwards |= onnx_runtime(file) if library == "ONNX Runtime" else openvino(file)
    systems: dict[str, Embed] = {}
    for name, forward in forwards.items():
        systems[f"MiniLM over chunks, {name}"] = partial(embed_over_chunks, forward)
    return systems, missing


def torch_forward(encoder: nn.Module, bf16: bool, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A `Forward` of torch, by `scaled_dot_product_attention`."""
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        means: Tensor = encoder(torch.from_numpy(ids), torch.from_numpy(mask))
    return means.numpy()


def int8(encoder: nn.Module) -> nn.Module:
    """Linear layers in integers: weights per channel, activations as they come."""
    from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic

    with warnings.catch_warnings(action="ignore"):  # torch is about to move this elsewhere
        return quantize_dynamic(encoder, {nn.Linear: per_channel_dynamic_qconfig})


def export(encoder: nn.Module, folder: Path) -> Path:
    """Write the encoder as ONNX, of any number and length of chunks."""
    file = folder / "model.onnx"
    ids = torch.ones(2, 8, dtype=torch.int64)
    sizes = {0: "chunks", 1: "tokens"}
    with warnings.catch_warnings(action="ignore"):  # on tracing, which the cosines check
        torch.onnx.export(
            encoder,
            (ids, ids),
            file,
            input_names=["ids", "mask"],
            dynamic_axes={"ids": sizes, "mask": sizes},
            dynamo=False,
        )
    return file


def onnx_runtime(file: Path) -> dict[str, Forward]:
    """ONNX Runtime in float32, and in integers: weights per channel, activations per tensor."""
    import onnxruntime
    from onnxruntime.quantization import quantize_dynamic

    quantised = file.with_name("int8.onnx")
    quantize_dynamic(file, quantised, per_channel=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()

    def forward_of(file: Path) -> Forward:
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        return lambda ids, mask: session.run(None, {"ids": ids, "mask": mask})[0]

    return {"ONNX Runtime fp32": forward_of(file), "ONNX Runtime int8": forward_of(quantised)}


def openvino(file: Path) -> dict[str, Forward]:
    """OpenVINO in float32, and in bfloat16 on processors that have it."""
    # OpenVINO reports its use to its maker when it is imported, unless this package is missing.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    from openvino import Core

    def forward_of(precision: str) -> Forward:
        options: dict[str, str | int] = {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        }
        model = Core().compile_model(file, "CPU", options)
        return lambda ids, mask: model([ids, mask])[0]

    precisions = {"f32": "fp32", "bf16": "bf16"} if uses_bf16() else {"f32": "fp32"}
    return {f"OpenVINO {name}": forward_of(hint) for hint, name in precisions.items()}
