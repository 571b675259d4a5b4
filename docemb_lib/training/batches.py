"""Training documents and their batches: the order of an update, and its forward passes.

Token ids lie in a memory-mapped Arrow file. An update is `batch_size * accumulation` documents of
each process. It is cut into passes: the student runs once over as many consecutive batches as the
memory allows. The memory changes neither which documents a loss compares, nor in which order.
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.utils.data import Sampler

from docemb_lib.base.progress import progress
from docemb_lib.base.tokenizing import batched
from docemb_lib.losses import group_sizes
from docemb_lib.packed.packing import PackedBatch, pack
from docemb_lib.settings.sections import Training
from docemb_lib.student.embedding import CHUNK
from docemb_lib.student.student import Encoded

logger = logging.getLogger(__name__)
TOKEN_IDS = pa.large_list(pa.int32())
SCHEMA = pa.schema([("input_ids", TOKEN_IDS)])


class Tokens(Protocol):
    """Token ids of documents by row: a `TokenFile`, or a list of lists."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> Sequence[int] | np.ndarray: ...


def write_tokens(
    path: Path, texts: Iterable[str], encode: Callable[[list[str]], Encoded], *, total: int
) -> None:
    """Tokenise `texts` into an Arrow file, and log how many of them were cut."""
    truncated = 0
    bar = progress(texts, desc="tokenising", total=total, unit="documents")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for chunk in batched(bar, CHUNK):
            encoded = encode(chunk)
            truncated += encoded.truncated
            column = pa.array(encoded.sequences, TOKEN_IDS)
            writer.write_batch(pa.record_batch([column], schema=SCHEMA))
    if truncated:
        message = "%d of %d documents are longer than the student reads, and are cut"
        logger.warning(message, truncated, total)


class Rows(Protocol):
    """Embeddings by row: an array, or `Standardised`."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, rows: Any, /) -> np.ndarray: ...


class TokenFile:
    """Token ids by row, int32, from a file of `write_tokens`."""

    def __init__(self, path: Path) -> None:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()  # mapped, without a copy
        self._ids = table["input_ids"]

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, row: int, /) -> np.ndarray:
        return self._ids[row].values.to_numpy()


class Targets(NamedTuple):
    """The arguments of `Objective.forward`, by name, that accompany the B documents of a pass."""

    teachers: dict[str, Tensor]  # embeddings by the name of the teacher: (B, T)
    n_structural_tokens: Tensor  # (B,)


class TrainingDocuments:
    """The first N documents of a corpus split, with the teacher embeddings of the same rows.

    Args:
        tokens: the student's token ids.
        n_structural_tokens: lengths in tokens of the structural teacher, special ones included.
        teachers: embeddings by teacher, (N', T) with N' >= N; row i belongs to document i.
        ids: names of the documents in error messages. None: the number of the row.
    """

    def __init__(
        self,
        tokens: Tokens,
        n_structural_tokens: Sequence[int] | np.ndarray,
        *,
        teachers: Mapping[str, Rows],
        ids: Sequence[str] | None = None,
    ) -> None:
        self.tokens = tokens
        self.n_structural_tokens = np.asarray(n_structural_tokens)
        self.ids = [f"row {row}" for row in range(len(tokens))] if ids is None else ids
        self.teachers = dict(teachers)

    def __len__(self) -> int:
        return len(self.tokens)

    def pack(self, batches: Sequence[Sequence[int]]) -> tuple[PackedBatch, Targets]:
        """The documents of several batches end to end, with the targets of each."""
        rows = list(chain.from_iterable(batches))
        teachers = {
            name: torch.from_numpy(np.asarray(embeddings[rows], dtype=np.float32))
            for name, embeddings in self.teachers.items()
        }
        targets = Targets(teachers, torch.from_numpy(self.n_structural_tokens[rows]))
        return pack([self.tokens[row] for row in rows]), targets

    def digest(self) -> str:
        """SHA-256 of the ids, the lengths and the first eight embeddings of each teacher."""
        digest = hashlib.sha256(json.dumps(list(self.ids)).encode())
        digest.update(np.asarray(self.n_structural_tokens, dtype=np.int64).tobytes())
        for name, embeddings in sorted(self.teachers.items()):
            digest.update(name.encode())
            first = embeddings[: min(8, len(self))]
            digest.update(np.asarray(first, dtype=np.float32).tobytes())
        return digest.hexdigest()


class Updates(Sampler[list[int]]):
    """The rows of each update, whole batches only, in an order of seed and epoch alone.

    Each of W processes has every W-th batch of the order, and all have as many.

    Args:
        epoch: returns the current epoch; it is called when an iteration begins.
        process: the number of this process, from 0, of so many `processes`.
    """

    def __init__(
        self,
        documents: int,
        settings: Training,
        *,
        seed: int,
        epoch: Callable[[], int],
        process: int = 0,
        processes: int = 1,
    ) -> None:
        self.documents = documents
        self.batches = documents // (settings.batch_size * processes)  # of each process
        self.batch_size = settings.batch_size
        self.accumulation = settings.accumulation
        self.seed = seed
        self.current_epoch = epoch
        self.epoch = 0
        self.process = process
        self.processes = processes

    def __len__(self) -> int:
        return math.ceil(self.batches / self.accumulation)

    def __iter__(self) -> Iterator[list[int]]:
        self.epoch = self.current_epoch()
        generator = np.random.default_rng((self.seed, self.epoch))
        shape = (self.batches, self.processes, self.batch_size)
        order = generator.permutation(self.documents)[: math.prod(shape)]
        batches = order.reshape(shape)[:, self.process]
        for start in range(0, len(batches), self.accumulation):
            yield batches[start : start + self.accumulation].ravel().tolist()


class MicroBatch(NamedTuple):
    """A pass of an update."""

    batch: PackedBatch
    targets: Targets
    rows: list[int]  # the rows of the packed documents
    share: float  # of the update's documents


@dataclass(frozen=True)
class Collate:
    """From the rows of an update to its micro-batches, one for each pass."""

    documents: TrainingDocuments
    batch_size: int
    budget: int  # tokens of a pass, with padding; a single batch may exceed it
    padded: Callable[[int], int] = int  # see `Student.padded`; the default is without padding

    def __call__(self, rows: Sequence[int]) -> list[MicroBatch]:
        return list(self.passes(rows))

    def passes(self, rows: Sequence[int]) -> Iterator[MicroBatch]:
        """The micro-batches one after the other, each packed when it is asked for."""
        batches = consecutive_batches(rows, self.batch_size)
        tokens = [sum(map(self._padded_length, batch)) for batch in batches]
        start = 0
        for end in range(1, len(batches) + 1):
            if end == len(batches) or sum(tokens[start : end + 1]) > self.budget:
                batch, targets = self.documents.pack(batches[start:end])
                of_pass = list(chain.from_iterable(batches[start:end]))
                yield MicroBatch(batch, targets, of_pass, share=len(of_pass) / len(rows))
                start = end

    def _padded_length(self, row: int) -> int:
        return self.padded(len(self.documents.tokens[row]))


def consecutive_batches(rows: Sequence[int], batch_size: int) -> list[list[int]]:
    """The rows in batches, in order; a single row left over joins the batch before."""
    remaining = iter(rows)
    return [list(islice(remaining, size)) for size in group_sizes(len(rows), batch_size)]
