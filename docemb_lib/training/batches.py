"""Training batches: the documents of an update, their order, and the process and forward pass of each.

An update is `batch_size * accumulation` documents. It is cut into rounds: as many whole batches as the processes can
hold at a time. Neither their number nor their memory changes which documents a loss compares, or in which order.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch.utils.data import Sampler

from docemb_lib.losses import group_sizes
from docemb_lib.losses.objective import GroupRunner, in_order
from docemb_lib.settings import Training
from docemb_lib.student.packing import PackedBatch
from docemb_lib.training.distributed import GroupExchange
from docemb_lib.training.documents import Targets, TrainingDocuments


class Updates(Sampler[list[int]]):
    """The rows of each update, in an order that depends on seed and epoch alone; whole batches only.

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
    share: float  # of the update's documents; 0: an uncounted pass, which keeps this rank's graph connected
    run_groups: GroupRunner  # see `Objective.forward`
    documents: int  # of all processes in this round
    tokens: int  # likewise


@dataclass(frozen=True)
class Collate:
    """From the rows of an update to this process' micro-batches, one for each round."""

    documents: TrainingDocuments
    batch_size: int
    budget: int  # tokens in one process' forward pass, with padding, exceeded only by a single batch
    padded: Callable[[int], int] = int  # see `Student.padded`; the default is without padding
    rank: int = 0
    processes: int = 1

    def __call__(self, rows: Sequence[int]) -> list[MicroBatch]:
        batches = [list(rows[start : start + self.batch_size]) for start in range(0, len(rows), self.batch_size)]
        lengths = [[len(self.documents.tokens[row]) for row in batch] for batch in batches]
        tokens = [sum(map(self.padded, own)) for own in lengths]
        micro_batches = []
        for plan, owners in rounds(tokens, budget=self.budget, processes=self.processes):
            own = [batches[i] for i, owner in zip(plan, owners, strict=True) if owner == self.rank]
            packed = own or [batches[min(plan, key=lambda i: tokens[i])]]  # the shortest, uncounted
            batch, targets = self.documents.pack(packed)
            run_groups = GroupExchange(owners, self.rank) if self.processes > 1 else in_order
            documents, n_tokens = sum(len(batches[i]) for i in plan), sum(sum(lengths[i]) for i in plan)
            share, flat = sum(map(len, own)) / len(rows), [row for batch in packed for row in batch]
            micro_batches.append(MicroBatch(batch, targets, flat, share, run_groups, documents, n_tokens))
        return micro_batches


def rounds(tokens: Sequence[int], *, budget: int, processes: int) -> Iterator[tuple[range, tuple[int, ...]]]:
    """Cut an update into rounds: the batches of each, in order, and the process of each batch. tokens: of each batch.

    A round ends before any process has more than `budget` tokens; a longer batch is alone in its process.
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
    """The process of each batch: longest batches first, each to the process with the fewest tokens so far."""
    loads, owners = [0] * processes, [0] * len(tokens)
    for index in sorted(range(len(tokens)), key=lambda index: (-tokens[index], index)):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += tokens[index]
    return tuple(owners)


def consecutive_batches(n: int, batch_size: int) -> list[range]:
    """Batches of n documents in order, for validation; a single document left over joins the batch before."""
    ends = np.cumsum(group_sizes(n, batch_size)).tolist()
    return [range(start, end) for start, end in zip([0, *ends], ends, strict=False)]
