"""Training documents and their batches: the order of an update, and its forward passes.

Token ids lie in a memory-mapped Arrow file. An update is `batch_size * accumulation` documents of
each process. It is cut into passes: the student runs once over as many consecutive batches as the
memory allows. The memory changes neither which documents a loss compares, nor in which order.
`TrainingDocuments` and `PairedDocuments` make the passes, and a pass accumulates its gradients.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch.utils.data import Sampler

from docemb_lib.base.progress import progress
from docemb_lib.base.tokenizing import batched
from docemb_lib.losses import ObjectiveOutput, group_sizes
from docemb_lib.packed.packing import PackedBatch, pack
from docemb_lib.settings.sections import Training
from docemb_lib.student.embedding import CHUNK
from docemb_lib.student.student import Encoded

logger = logging.getLogger(__name__)
TOKEN_IDS = pa.large_list(pa.int32())
SCHEMA = pa.schema([("input_ids", TOKEN_IDS)])
Autocast = Callable[[], AbstractContextManager[object]]
Backward = Callable[[Tensor], object]


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


class TokenFile:
    """Token ids by row, int32, from a file of `write_tokens`."""

    def __init__(self, path: Path) -> None:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()  # mapped, without a copy
        self._ids = table["input_ids"]

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, row: int, /) -> np.ndarray:
        return self._ids[row].values.to_numpy()


Tokens = TokenFile | Sequence[Sequence[int] | np.ndarray]  # ids of documents by row


class Targets(NamedTuple):
    """The arguments of `Objective.forward`, by name, that accompany the B documents of a pass."""

    teachers: dict[str, Tensor]  # embeddings by the name of the teacher: (B, T)
    n_structural_tokens: Tensor  # (B,)


class Cut(NamedTuple):
    """How an update is cut into passes."""

    batch_size: int
    budget: int  # tokens of a pass, with padding; a single batch may exceed it
    padded: Callable[[int], int] = int  # see `Student.padded`; the default is without padding


class MicroBatch(NamedTuple):
    """A pass of an update over the documents of an `Objective`."""

    batch: PackedBatch
    targets: Targets
    rows: list[int]  # the rows of the packed documents
    share: float  # of the update's documents

    @property
    def tokens(self) -> int:
        return sum(self.batch.sizes)

    def learn(
        self, model: nn.Module, device: torch.device, autocast: Autocast, backward: Backward
    ) -> ObjectiveOutput:
        # The copies to a GPU come from pinned memory, so they overlap with its work.
        batch, targets, *_ = send_to_device(self, device, non_blocking=True)
        with autocast():
            output: ObjectiveOutput = model(batch, **targets._asdict())
        backward(output.loss * self.share)
        return output


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
        teachers: Mapping[str, np.ndarray],
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

    def passes(self, rows: Sequence[int], cut: Cut, epoch: int = 0) -> Iterator[MicroBatch]:
        batches = consecutive_batches(rows, cut.batch_size)
        tokens = [sum(cut.padded(len(self.tokens[row])) for row in batch) for batch in batches]
        start = 0
        for end in range(1, len(batches) + 1):
            if end == len(batches) or sum(tokens[start : end + 1]) > cut.budget:
                batch, targets = self.pack(batches[start:end])
                of_pass = list(chain.from_iterable(batches[start:end]))
                yield MicroBatch(batch, targets, of_pass, share=len(of_pass) / len(rows))
                start = end

    def identity(self) -> list[object]:
        """Return the ids, the lengths and the first eight embeddings of each teacher."""
        first = {name: rows[: min(8, len(self))].tolist() for name, rows in self.teachers.items()}
        return [list(self.ids), self.n_structural_tokens.tolist(), first]


@dataclass(eq=False)
class Updates(Sampler[list[int]]):
    """The rows of each update, whole batches only, in an order of seed and epoch alone.

    Each of W processes has every W-th batch of the order, and all have as many.
    """

    documents: int
    settings: Training
    _: KW_ONLY
    seed: int
    epoch: Callable[[], int]  # returns the current epoch; called when an iteration begins
    process: int = 0  # the number of this process, from 0
    processes: int = 1
    drawn: int = 0  # the epoch of the current iteration

    @property
    def batches(self) -> int:
        """The number of batches of each process."""
        return self.documents // (self.settings.batch_size * self.processes)

    def __len__(self) -> int:
        return math.ceil(self.batches / self.settings.accumulation)

    def __iter__(self) -> Iterator[list[int]]:
        self.drawn = self.epoch()
        generator = np.random.default_rng((self.seed, self.drawn))
        shape = (self.batches, self.processes, self.settings.batch_size)
        order = generator.permutation(self.documents)[: math.prod(shape)]
        batches = order.reshape(shape)[:, self.process]
        step = self.settings.accumulation
        for start in range(0, len(batches), step):
            yield batches[start : start + step].ravel().tolist()


def consecutive_batches(rows: Sequence[int], batch_size: int) -> list[list[int]]:
    """The rows in batches, in order; a single row left over joins the batch before."""
    remaining = iter(rows)
    return [list(islice(remaining, size)) for size in group_sizes(len(rows), batch_size)]
