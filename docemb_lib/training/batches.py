"""Training documents and their batches: the order of an update, and its forward passes.

Token ids lie in a memory-mapped Arrow file. An update is `batch_size * accumulation` documents. It
is cut into passes. In a pass, each process runs the student once over some of the update's batches;
a pass holds as many consecutive batches as the memory of all processes allows. Neither the number
of processes nor their memory changes which documents a loss compares, or in which order.
"""

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from docemb_lib.losses import NegativePool, group_sizes
from docemb_lib.losses.objective import GroupRunner, in_order
from docemb_lib.packed.packing import PackedBatch, pack
from docemb_lib.settings.sections import Training
from docemb_lib.student.embedding import CHUNK
from docemb_lib.student.student import Encoded
from docemb_lib.training.distributed import GroupExchange

logger = logging.getLogger(__name__)
STRUCTURAL = "structural"  # the teacher that negatives beyond the batch are taken of
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
    # By structural teacher; a teacher without a pool has the other documents of a batch.
    negatives: dict[str, NegativePool] = {}


@dataclass(frozen=True)
class Negatives:
    """Which teacher embeddings are the negatives of an update, besides those of its documents.

    The K rows of an update are a function of the seed and of the update's documents: all processes
    draw the same ones, and so does a resumed run.
    """

    embeddings: np.ndarray  # (M, D), of the training documents, memory-mapped
    rows: np.ndarray  # of the documents that the mask keeps: the others are no negatives
    count: int | None  # K, drawn for each update; None: all rows
    seed: int
    of_training: bool = True  # whether the documents of an update are among these rows

    @cached_property
    def whole(self) -> NegativePool:
        """All rows. A document of an update is taken out of its own negatives by the losses."""
        return NegativePool(self.embeddings, self.rows, has_own=self.of_training)

    def of_update(self, documents: Sequence[int]) -> NegativePool:
        """The negatives of an update of these rows; the K are no documents of the update."""
        if self.count is None:
            return self.whole
        # Draw more rows than needed, then leave out those of the update.
        size = min(self.count + len(documents), len(self.rows))
        generator = np.random.default_rng((self.seed, *documents))
        drawn = self.rows[generator.choice(len(self.rows), size=size, replace=False)]
        if self.of_training:
            drawn = drawn[~np.isin(drawn, documents)]
        rows = np.sort(drawn[: self.count])
        return NegativePool(np.asarray(self.embeddings[rows], dtype=np.float32))


class TrainingDocuments:
    """The first N documents of a corpus split, with the teacher embeddings of the same rows.

    Args:
        tokens: the student's token ids.
        n_structural_tokens: lengths in tokens of the structural teacher, special ones included.
        teachers: embeddings by teacher, (N', T) with N' >= N; row i belongs to document i.
        ids: names of the documents in error messages. None: the number of the row.
        negatives: of the teacher `structural`. None: the other documents of a batch.
    """

    def __init__(
        self,
        tokens: Tokens,
        n_structural_tokens: Sequence[int] | np.ndarray,
        *,
        teachers: Mapping[str, Rows],
        ids: Sequence[str] | None = None,
        negatives: Negatives | None = None,
    ) -> None:
        self.tokens = tokens
        self.n_structural_tokens = np.asarray(n_structural_tokens)
        self.ids = [f"row {row}" for row in range(len(tokens))] if ids is None else ids
        self.teachers = dict(teachers)
        self.negatives = negatives

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
        if self.negatives is not None:
            digest.update(json.dumps([self.negatives.count, self.negatives.seed]).encode())
            digest.update(np.asarray(self.negatives.rows, dtype=np.int64).tobytes())
        return digest.hexdigest()


class Updates(Sampler[list[int]]):
    """The rows of each update, whole batches only, in an order of seed and epoch alone.

    `epoch` returns the current epoch; it is called when an iteration begins.
    """

    def __init__(self, documents: int, settings: Training, *, seed: int, epoch: Callable[[], int]):
        self.documents = documents
        self.used = documents // settings.batch_size * settings.batch_size  # documents of an epoch
        self.size = settings.batch_size * settings.accumulation
        self.seed = seed
        self.current_epoch = epoch
        self.epoch = 0

    def __len__(self) -> int:
        return math.ceil(self.used / self.size)

    def __iter__(self) -> Iterator[list[int]]:
        self.epoch = self.current_epoch()
        generator = np.random.default_rng((self.seed, self.epoch))
        order = generator.permutation(self.documents)[: self.used]
        for start in range(0, self.used, self.size):
            yield order[start : start + self.size].tolist()


class MicroBatch(NamedTuple):
    """The part of one process in a pass of an update."""

    batch: PackedBatch
    targets: Targets
    rows: list[int]  # the rows of the packed documents
    # The share of the update's documents. It is 0 for a filler: a process that has no batch in this
    # pass repeats a batch of another process, because DDP requires a gradient of every process.
    share: float
    run_groups: GroupRunner  # see `Objective.forward`


@dataclass(frozen=True)
class Collate:
    """From the rows of an update to the micro-batches of this process, one for each pass."""

    documents: TrainingDocuments
    batch_size: int
    budget: int  # tokens of one process in a pass, with padding; a single batch may exceed it
    padded: Callable[[int], int] = int  # see `Student.padded`; the default is without padding
    rank: int = 0
    processes: int = 1

    def __call__(self, rows: Sequence[int]) -> list[MicroBatch]:
        return list(self.passes(rows))

    def passes(self, rows: Sequence[int]) -> Iterator[MicroBatch]:
        """The micro-batches one after the other, each packed when it is asked for."""
        batches = consecutive_batches(rows, self.batch_size)
        negatives = self.documents.negatives
        pools = {} if negatives is None else {STRUCTURAL: negatives.of_update(rows)}
        tokens = [sum(map(self._padded_length, batch)) for batch in batches]
        for numbers, owners in plan_passes(tokens, budget=self.budget, processes=self.processes):
            planned = zip(numbers, owners, strict=True)
            assigned = [batches[number] for number, owner in planned if owner == self.rank]
            shortest = min(numbers, key=tokens.__getitem__)
            packed = assigned or [batches[shortest]]  # a filler
            batch, targets = self.documents.pack(packed)
            yield MicroBatch(
                batch,
                targets._replace(negatives=pools),
                rows=list(chain.from_iterable(packed)),
                share=sum(map(len, assigned)) / len(rows),
                run_groups=GroupExchange(owners, self.rank) if self.processes > 1 else in_order,
            )

    def _padded_length(self, row: int) -> int:
        return self.padded(len(self.documents.tokens[row]))


def plan_passes(
    tokens: Sequence[int], *, budget: int, processes: int
) -> Iterator[tuple[range, tuple[int, ...]]]:
    """Cut an update into passes: the numbers of the batches of each, and the process of each batch.

    A pass holds consecutive batches. It ends before any process has more than `budget` tokens; a
    longer batch is alone in its process. `tokens` are the lengths of the update's batches.
    """
    start = 0
    owners = assign(tokens[:1], processes)
    for end in range(2, len(tokens) + 1):
        extended = assign(tokens[start:end], processes)
        fullest = np.bincount(extended, tokens[start:end]).max()
        if fullest > max(budget, *tokens[start:end]):
            yield range(start, end - 1), owners
            start = end - 1
            extended = assign(tokens[start:end], processes)
        owners = extended
    yield range(start, len(tokens)), owners


def assign(tokens: Sequence[int], processes: int) -> tuple[int, ...]:
    """The process of each batch, chosen by the numbers of tokens of the batches.

    The longest batch comes first; each goes to the process that has the fewest tokens so far.
    """
    loads = [0] * processes
    owners = [0] * len(tokens)
    for index in sorted(range(len(tokens)), key=lambda index: (-tokens[index], index)):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += tokens[index]
    return tuple(owners)


def consecutive_batches(rows: Sequence[int], batch_size: int) -> list[list[int]]:
    """The rows in batches, in order; a single row left over joins the batch before."""
    remaining = iter(rows)
    return [list(islice(remaining, size)) for size in group_sizes(len(rows), batch_size)]
