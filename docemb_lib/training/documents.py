"""Training documents: token ids in a memory-mapped Arrow file, and teacher embeddings by row."""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from docemb_lib.progress import progress
from docemb_lib.student.packing import CHUNK, PackedBatch, pack
from docemb_lib.student.student import Encoded
from docemb_lib.tokenizing import batched

logger = logging.getLogger(__name__)
SCHEMA = pa.schema([("input_ids", pa.large_list(pa.int32()))])
Tokens = Any  # token ids of documents by row: a `TokenFile`, or a list of lists


def write_tokens(path: Path, texts: Iterable[str], encode: Callable[[list[str]], Encoded], *, total: int) -> None:
    """Tokenise `texts` into an Arrow file; logs how many were cut."""
    truncated = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for chunk in batched(progress(texts, desc="tokenising", total=total, unit="documents"), CHUNK):
            encoded = encode(chunk)
            truncated += encoded.truncated
            writer.write_batch(pa.record_batch([pa.array(encoded.sequences, SCHEMA.field(0).type)], schema=SCHEMA))
    if truncated:
        logger.warning("%d of %d documents are longer than the student reads, and are cut", truncated, total)


class TokenFile:
    """Token ids by row, int32, from a file of `write_tokens`."""

    def __init__(self, path: Path) -> None:
        self._ids = pa.ipc.open_file(pa.memory_map(str(path))).read_all()["input_ids"]  # memory-mapped: no copy

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, row: int) -> np.ndarray:
        return self._ids[row].values.to_numpy()


class Targets(NamedTuple):  # what `Objective.forward` takes beside the B documents of a pass, under the same names
    teachers: dict[str, Tensor]  # by name: (B, T)
    n_structural_tokens: Tensor  # (B,)


class TrainingDocuments:
    """The first N documents of a corpus split, with the teacher embeddings of the same rows.

    n_structural_tokens: lengths in tokens of the structural teacher; teachers: embeddings by teacher, (N', T) with
    N' >= N, row i is document i; ids: names of documents in errors, None: their row."""

    def __init__(
        self, tokens: Tokens, n_structural_tokens: Sequence[int] | np.ndarray, *,
        teachers: Mapping[str, np.ndarray], ids: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        self.tokens, self.n_structural_tokens = tokens, np.asarray(n_structural_tokens)
        self.ids = [f"row {row}" for row in range(len(tokens))] if ids is None else ids
        self.teachers = dict(teachers)

    def __len__(self) -> int:
        return len(self.tokens)

    def pack(self, batches: Sequence[Sequence[int]]) -> tuple[PackedBatch, Targets]:
        """The documents of several batches end to end, with the targets of each."""
        rows = [row for batch in batches for row in batch]
        teachers = {name: torch.from_numpy(np.asarray(X[rows], dtype=np.float32)) for name, X in self.teachers.items()}
        targets = Targets(teachers, torch.from_numpy(self.n_structural_tokens[rows]))
        return pack([self.tokens[row] for row in rows]), targets

    def digest(self) -> str:
        digest = hashlib.sha256(json.dumps(list(self.ids)).encode())
        digest.update(np.asarray(self.n_structural_tokens, dtype=np.int64).tobytes())
        for name, rows in sorted(self.teachers.items()):
            digest.update(name.encode())
            digest.update(np.asarray(rows[: min(8, len(self))], dtype=np.float32).tobytes())
        return digest.hexdigest()
