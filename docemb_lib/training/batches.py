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
from docemb_lib.training.documents import Bank, Targets, TrainingDocuments

STEP, LONGEST = 512, 4096  # tokens: width of a length bucket, and where the last one begins


class Updates(Sampler[list[int]]):
    """The rows of each update, in an order that depends on seed and epoch alone; whole batches only.

    lengths: tokens of each document; epoch: returns the current one, called when an iteration begins.
    """

    def __init__(self, lengths: np.ndarray, settings: Training, *, seed: int, epoch: Callable[[], int]):
        self.lengths = lengths
        self.used = len(lengths) // settings.batch_size * settings.batch_size  # documents of an epoch
        self.size = settings.batch_size * settings.accumulation
        self.order, self.seed, self.current_epoch, self.epoch = settings.order, seed, epoch, 0

    def __len__(self) -> int:
        return math.ceil(self.used / self.size)

    def __iter__(self) -> Iterator[list[int]]:
        self.epoch = self.current_epoch()
        rng = np.random.default_rng((self.seed, self.epoch))
        order = rng.permutation(len(self.lengths))
        if self.order == "length-consistent":
            order = length_consistent(order, self.lengths, size=self.size, rng=rng)
        for start in range(0, self.used, self.size):
            yield order[start : min(start + self.size, self.used)].tolist()


def length_consistent(
    order: np.ndarray, lengths: np.ndarray, *, size: int, rng: np.random.Generator, buffer: int = 1000
) -> np.ndarray:
    """Rows in `order` rearranged so that every `size` of them mirror the lengths of the `buffer` they came from.

    The buffer is split by length into buckets. Each `size` rows take from the buckets in proportion to their fill,
    oldest first; seats that rounding leaves over are drawn at random. The rows are then shuffled among themselves.
    """
    buckets: list[list[int]] = [[] for _ in range(LONGEST // STEP + 1)]
    taken = np.zeros(len(buckets), dtype=int)  # rows at the head of each bucket that have been used
    waiting = iter(order.tolist())
    arranged: list[int] = []
    held = 0
    while len(arranged) < len(order):
        for row in waiting:
            buckets[min(max(int(lengths[row]) - 1, 0), LONGEST) // STEP].append(row)
            held += 1
            if held >= buffer:
                break
        fill = np.array([len(bucket) for bucket in buckets]) - taken
        seats = min(size, held)
        exact = fill * seats / held
        quota = np.floor(exact).astype(int)
        rest = seats - int(quota.sum())
        if rest:
            share = np.where(quota < fill, exact - quota, 0)
            quota[rng.choice(len(quota), size=rest, replace=False, p=share / share.sum())] += 1
        drawn = [row for bucket, i, n in zip(buckets, taken, quota, strict=True) for row in bucket[i : i + n]]
        taken += quota
        held -= seats
        arranged += rng.permutation(drawn).tolist()
    return np.array(arranged)


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
    budget: int  # tokens in one process' forward pass, exceeded only by a single batch
    bank: Bank | None = None  # of negatives
    rank: int = 0
    processes: int = 1

    def __call__(self, rows: Sequence[int]) -> list[MicroBatch]:
        batches = [list(rows[start : start + self.batch_size]) for start in range(0, len(rows), self.batch_size)]
        tokens = [sum(len(self.documents.tokens[row]) for row in batch) for batch in batches]
        micro_batches = []
        for plan, owners in rounds(tokens, budget=self.budget, processes=self.processes):
            own = [batches[i] for i, owner in zip(plan, owners, strict=True) if owner == self.rank]
            packed = own or [batches[min(plan, key=lambda i: tokens[i])]]  # the shortest, uncounted
            batch, targets = self.documents.pack(packed, self.bank)
            run_groups = GroupExchange(owners, self.rank) if self.processes > 1 else in_order
            documents, n_tokens = sum(len(batches[i]) for i in plan), sum(tokens[i] for i in plan)
            share, flat = sum(map(len, own)) / len(rows), [row for batch in packed for row in batch]
            micro_batches.append(MicroBatch(batch, targets, flat, share, run_groups, documents, n_tokens))
        return micro_batches


def rounds(tokens: Sequence[int], *, budget: int, processes: int) -> Iterator[tuple[range, tuple[int, ...]]]:
    """Cut an update into rounds: the batches of each, in order, and the process of each batch. tokens: of each batch.

    A round ends before any process has more than `budget` tokens, or those of a batch that is longer.
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
