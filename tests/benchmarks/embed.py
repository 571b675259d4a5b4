"""Embedding long documents on a CPU: a student beside its own encoder over chunks.

    python tests/benchmarks/embed.py [--documents N] [--repeats N] [--json]

The encoder is MiniLM, over chunks as long as it reads, in torch as sentence-transformers runs it,
in ONNX Runtime and in OpenVINO, as far as they are installed (`pip install onnx onnxruntime
openvino`). All take turns in one process on the longest pages of the installed documentation;
tokenising does not count. Seconds are medians; a cosine is the mean to the same model in fp32.
`--documents 2 --repeats 1` shows that all parts run.
"""

import sys
import warnings
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from student import medians, options, show  # the script beside this one
from torch import Tensor, nn
from torch.ao.quantization import per_channel_dynamic_qconfig, quantize_dynamic
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel

from docemb_lib.base.hardware import uses_bf16
from docemb_lib.base.pretrained import resolve
from docemb_lib.corpus.installed_docs import PACKAGES, installed_docs
from docemb_lib.student import Student
from docemb_lib.student.embedding import Tokens, embed_chunks

MODEL = "all-MiniLM-L6-v2"
WIDTH = 384  # D
CHUNK = 256  # tokens that MiniLM reads, the two special ones included
BATCH = 16  # chunks of a forward pass
WINDOW = 256  # of the student: a token sees as many others as in a chunk

Forward = Callable[[np.ndarray, np.ndarray], np.ndarray]  # ids and mask (B, t) to means (B, D)


class MeanOfStates(nn.Module):
    """The mean of an encoder's last states over the tokens of each chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.model = AutoModel.from_pretrained(resolve(MODEL), add_pooling_layer=False)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Average the states of chunks. ids, mask: (B, t), 1 = token. Returns (B, D)."""
        states = self.model(input_ids=ids, attention_mask=mask).last_hidden_state  # (B, t, D)
        weights = mask[:, :, None].to(states.dtype)
        return ((states * weights).sum(1) / weights.sum(1)).float()


def embed_over_chunks(forward: Forward, documents: Tokens) -> np.ndarray:
    """Average the embeddings of each document's chunks, with their tokens as weights, (N, D)."""
    chunks = []
    owners = []
    for row, ids in enumerate(documents):
        inner = ids[1:-1]
        for start in range(0, len(inner), CHUNK - 2):
            chunks.append(torch.tensor([ids[0], *inner[start : start + CHUNK - 2], ids[-1]]))
            owners.append(row)
    of_chunk = np.array(owners)
    sizes = np.array([len(chunk) for chunk in chunks])
    totals = np.zeros((len(documents), WIDTH))
    longest_first = np.argsort(-sizes)
    for first in range(0, len(chunks), BATCH):
        rows = longest_first[first : first + BATCH]
        ids = pad_sequence([chunks[row] for row in rows], batch_first=True).numpy()
        means = forward(ids, (ids > 0).astype(np.int64))
        np.add.at(totals, of_chunk[rows], sizes[rows, None] * means)
    return (totals / np.bincount(owners, weights=sizes)[:, None]).astype(np.float32)


def embed_by_student(student: Student, bf16: bool, documents: Tokens) -> np.ndarray:
    """Embed tokenised documents as `Student.embed` does, (N, D)."""
    return np.concatenate(list(embed_chunks(student, [documents], None, bf16, int)))


def in_torch(encoder: nn.Module, bf16: bool, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Compute a `Forward` in torch."""
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        return encoder(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()


def peers(folder: Path) -> dict[str, Forward]:
    """Give the encoder in each library and precision at hand. folder: for the exported model."""
    encoder = MeanOfStates().eval()
    quantised = quantize_dynamic(encoder, {nn.Linear: per_channel_dynamic_qconfig})
    forwards = {
        "torch fp32": partial(in_torch, encoder, False),
        "torch int8": partial(in_torch, quantised, False),
    }
    if uses_bf16():
        forwards["torch bf16"] = partial(in_torch, encoder, True)
    if find_spec("onnx") is None:
        return forwards
    file = folder / "model.onnx"
    ids = torch.ones(2, 8, dtype=torch.int64)
    sizes = {0: "chunks", 1: "tokens"}
    torch.onnx.export(
        encoder,
        (ids, ids),
        file,
        input_names=["ids", "mask"],
        dynamic_axes={"ids": sizes, "mask": sizes},
        dynamo=False,
    )
    if find_spec("onnxruntime") is not None:
        forwards |= in_onnx_runtime(file)
    if find_spec("openvino") is not None:
        forwards |= in_openvino(file)
    return forwards


def in_onnx_runtime(file: Path) -> dict[str, Forward]:
    """Give ONNX Runtime in fp32, and in int8: weights per channel, activations per tensor."""
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


def in_openvino(file: Path) -> dict[str, Forward]:
    """Give OpenVINO in fp32, and in bf16 on processors that have it."""
    # OpenVINO reports its use to its maker when it is imported, unless this package is missing.
    sys.modules.setdefault("openvino_telemetry", None)
    from openvino import Core

    def forward_of(precision: str) -> Forward:
        threads = torch.get_num_threads()
        hints = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
        model = Core().compile_model(file, "CPU", hints)
        return lambda ids, mask: model([ids, mask])[0]

    precisions = {"fp32": "f32", "bf16": "bf16"} if uses_bf16() else {"fp32": "f32"}
    return {f"OpenVINO {name}": forward_of(hint) for name, hint in precisions.items()}


def main() -> None:
    given = options(__doc__, documents=8).parse_args()
    warnings.simplefilter("ignore")  # of torch on quantising and tracing; the cosines check both
    student = Student.from_encoder(MODEL, attention_window=WINDOW)
    texts = [page.text for page in installed_docs(PACKAGES, words=(1000, 100_000))]
    longest = sorted(texts, key=len)[-given.documents :]
    documents = student.tokenize(longest).sequences
    n_tokens = sum(map(len, documents))
    systems = {"student fp32": partial(embed_by_student, student, False)}
    if uses_bf16():
        systems["student bf16"] = partial(embed_by_student, student, True)
    with TemporaryDirectory() as folder:
        for name, forward in peers(Path(folder)).items():
            systems[name] = partial(embed_over_chunks, forward)
        embeddings = {name: torch.from_numpy(embed(documents)) for name, embed in systems.items()}
        runs = {name: partial(embed, documents) for name, embed in systems.items()}
        seconds = medians(runs, given.repeats)
    best = min(value for name, value in seconds.items() if not name.startswith("student"))
    rows = []
    for name, X in embeddings.items():
        plain = embeddings["student fp32" if name.startswith("student") else "torch fp32"]
        rows.append(
            {
                "model": name,
                "tokens_per_second": n_tokens / seconds[name],
                "times_best_peer": best / seconds[name],
                "cosine": float(torch.cosine_similarity(X, plain).mean()),
            }
        )
    show(rows, given, given.json)


if __name__ == "__main__":
    main()
