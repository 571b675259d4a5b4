"""Training documents and their batches: the order of an update, and the process and forward pass of
each batch.

Token ids lie in a memory-mapped Arrow file. An update is `batch_size * accumulation` documents. It
is cut into rounds: as many whole batches as the processes can hold at a time. Neither their number
nor their memory changes which documents a loss compares, or in which order.
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.utils.data import Sampler

from docemb_lib.base.progress import progress
from docemb_lib.base.tokenizing import batched
from docemb_lib.losses import group_sizes
from docemb_lib.losses.objective import GroupRunner, in_order
from docemb_lib.settings.sections import Training
from docemb_lib.student.embedding import CHUNK
from docemb_lib.student.packing import PackedBatch, pack
from docemb_lib.student.student import Encoded
from docemb_lib.training.distributed import GroupExchange

logger = logging.getLogger(__name__)
SCHEMA = pa.schema([("input_ids", pa.large_list(pa.int32()))])
Tokens = Any  # token ids of documents by row: a `TokenFile`, or a list of lists


def write_tokens(
    path: Path, texts: Iterable[str], encode: Callable[[list[str]], Encoded], *, total: int
) -> None:
    """Tokenise `texts` into an Arrow file; logs how many were cut."""
    truncated = 0
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        for chunk in batched(
            progress(texts, desc="tokenising", total=total, unit="documents"), CHUNK
        ):
            encoded = encode(chunk)
            truncated += encoded.truncated
            writer.write_batch(
                pa.record_batch([pa.array(encoded.sequences, SCHEMA.field(0).type)], schema=SCHEMA)
            )
    if truncated:
        logger.warning(
            "%d of %d documents are longer than the student reads, and are cut", truncated, total
        )


class TokenFile:
    """Token ids by row, int32, from a file of `write_tokens`."""

    def __init__(self, path: Path) -> None:
        self._ids = pa.ipc.open_file(pa.memory_map(str(path))).read_all()[
            "input_ids"
        ]  # memory-mapped: no copy

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, row: int) -> np.ndarray:
        return self._ids[row].values.to_numpy()


class Targets(
    NamedTuple
):  # what `Objective.forward` takes beside the B documents of a pass, under the same names
    teachers: dict[str, Tensor]  # by name: (B, T)
    n_structural_tokens: Tensor  # (B,)


class TrainingDocuments:
    """The first N documents of a corpus split, with the teacher embeddings of the same rows.

    n_structural_tokens: lengths in tokens of the structural teacher; teachers: embeddings by
    teacher, (N', T) with N' >= N, row i is document i; ids: names of documents in errors, None:
    their row."""

    def __init__(
        self,
        tokens: Tokens,
        n_structural_tokens: Sequence[int] | np.ndarray,
        *,
        teachers: Mapping[str, np.ndarray],
        ids: Sequence[str] | None = None,
    ) -> None:
        self.tokens, self.n_structural_tokens = tokens, np.asarray(n_structural_tokens)
        self.ids = [f"row {row}" for row in range(len(tokens))] if ids is None else ids
        self.teachers = dict(teachers)

    def __len__(self) -> int:
        return len(self.tokens)

    def pack(self, batches: Sequence[Sequence[int]]) -> tuple[PackedBatch, Targets]:
        """The documents of several batches end to end, with the targets of each."""
        rows = [row for batch in batches for row in batch]
        teachers = {
            name: torch.from_numpy(np.asarray(X[rows], dtype=np.float32))
            for name, X in self.teachers.items()
        }
        targets = Targets(teachers, torch.from_numpy(self.n_structural_tokens[rows]))
        return pack([self.tokens[row] for row in rows]), targets

    def digest(self) -> str:
        digest = hashlib.sha256(json.dumps(list(self.ids)).encode())
        digest.update(np.asarray(self.n_structural_tokens, dtype=np.int64).tobytes())
        for name, rows in sorted(self.teachers.items()):
            digest.update(name.encode())
            digest.update(np.asarray(rows[: min(8, len(self))], dtype=np.float32).tobytes())
        return digest.hexdigest()


class Updates(Sampler[list[int]]):
    """The rows of each update, in an order that depends on seed and epoch alone; whole batches
    only.

    epoch: returns the current one, called when an iteration begins.
    """

    def __init__(self, documents: int, settings: Training, *, seed: int, epoch: Callable[[], int]):
        self.documents = documents
        self.used = documents // settings.batch_size * settings.batch_size  # documents of an epoch
        self.size = settings.batch_size * settings.accumulation
        self.seed, self.current_epoch, self.epoch = seed, epoch, 0

    def __len__(self) -> int:
        return math.ceil(self.used / self.size)

    def __iter__(self) -> Iterator[list[int]]:
        self.epoch = self.current_epoch()
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.documents)
        for start in range(0, self.used, self.size):
            yield order[start : min(start + self.size, self.used)].tolist()


class MicroBatch(NamedTuple):  # what one process runs of a round, in one packed forward pass
    batch: PackedBatch
    targets: Targets
    rows: list[int]
    # of the update's documents; 0: an uncounted pass, which keeps this rank's graph connected
    share: float
    run_groups: GroupRunner  # see `Objective.forward`
    documents: int  # of all processes in this round
    tokens: int  # likewise


@dataclass(frozen=True)
class Collate:
    """From the rows of an update to this process' micro-batches, one for each round."""

    documents: TrainingDocuments
    batch_size: int
    budget: (
        int  # tokens in one process' forward pass, with padding, exceeded only by a single batch
    )
    padded: Callable[[int], int] = int  # see `Student.padded`; the default is without padding
    rank: int = 0
    processes: int = 1

    def __call__(self, rows: Sequence[int]) -> list[MicroBatch]:
        return list(self.passes(rows))

    def passes(self, rows: Sequence[int]) -> Iterator[MicroBatch]:
        batches = consecutive_batches(rows, self.batch_size)
        lengths = [[len(self.documents.tokens[row]) for row in batch] for batch in batches]
        tokens = [sum(map(self.padded, own)) for own in lengths]
        for plan, owners in rounds(tokens, budget=self.budget, processes=self.processes):
            own = [batches[i] for i, owner in zip(plan, owners, strict=True) if owner == self.rank]
            packed = own or [batches[min(plan, key=lambda i: tokens[i])]]  # the shortest, uncounted
            batch, targets = self.documents.pack(packed)
            run_groups = GroupExchange(owners, self.rank) if self.processes > 1 else in_order
            documents, n_tokens = (
                sum(len(batches[i]) for i in plan),
                sum(sum(lengths[i]) for i in plan),
            )
            share, flat = sum(map(len, own)) / len(rows), [row for batch in packed for row in batch]
            yield MicroBatch(batch, targets, flat, share, run_groups, documents, n_tokens)


def rounds(
    tokens: Sequence[int], *, budget: int, processes: int
) -> Iterator[tuple[range, tuple[int, ...]]]:
    """Cut an update into rounds: the batches of each, in order, and the process of each batch.
    tokens: of each batch.

    A round ends before any process has more than `budget` tokens; a longer batch is alone in its
    process.
    """
    start, owners = 0, deal(tokens[:1], processes)
    for end in range(2, len(tokens) + 1):
        extended = deal(tokens[start:end], processes)
        if np.bincount(extended, tokens[start:end]).max() > max(budget, *tokens[start:end]):
            yield range(start, end - 1), owners
            start, extended = end - 1, deal(tokens[end - 1 : end], processes)
        owners = extended
    yield range(start, len(tokens)), owners


def deal(tokens: Sequence[int], processes: int) -> tuple[int, ...]:
    """The process of each batch: longest batches first, each to the process with the fewest tokens
    so far.
    """
    loads, owners = [0] * processes, [0] * len(tokens)
    for index in sorted(range(len(tokens)), key=lambda index: (-tokens[index], index)):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += tokens[index]
    return tuple(owners)


def consecutive_batches(rows: Sequence[int], batch_size: int) -> list[list[int]]:
    """The rows in batches, in order; a single one left over joins the batch before."""
    ends = np.cumsum(group_sizes(len(rows), batch_size)).tolist()
    return [list(rows[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
