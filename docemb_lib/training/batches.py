"""Training batches: which documents make an update, in which order, and which process runs them in which pass.

An update is `batch_size * accumulation` documents whoever computes it. It is cut into rounds: as many whole batches as
the processes can hold at a time, dealt out by tokens so that they finish together. Neither the number of processes nor
their memory changes which documents a loss compares, or the order in which statistics see them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Sampler

from docemb_lib.losses import Peers
from docemb_lib.student.packing import PackedBatch
from docemb_lib.training.documents import Bank, Known, TrainingDocuments


class Updates(Sampler[list[int]]):
    """The rows of each update, in an order that depends on seed and epoch alone, so a resumed run continues it.

    Whole batches only: documents that do not fill one are left out of the epoch. The last update may hold fewer.
    """

    def __init__(self, lengths: np.ndarray, *, batch_size: int, accumulation: int, order: str, seed: int):
        """lengths: tokens of each document."""
        self.lengths = lengths
        self.whole = len(lengths) // batch_size * batch_size  # documents of an epoch
        self.size = batch_size * accumulation
        self.order, self.seed, self.epoch = order, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return math.ceil(self.whole / self.size)

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng((self.seed, self.epoch))
        order = rng.permutation(len(self.lengths))
        if self.order == "length-consistent":
            order = length_consistent(order, self.lengths, size=self.size, rng=rng)
        for start in range(0, self.whole, self.size):
            yield order[start : min(start + self.size, self.whole)].tolist()


def length_consistent(
    order: np.ndarray,
    lengths: np.ndarray,
    *,
    size: int,
    rng: np.random.Generator,
    buffer: int = 1000,
    step: int = 512,
    longest: int = 4096,
) -> np.ndarray:
    """Rows in `order` rearranged so that every `size` of them mirror the lengths of the `buffer` they came from.

    lengths: tokens of each row. The buffer is kept full and split by length into buckets of `step` tokens, the last
    one open above `longest`. Each `size` rows take from the buckets in proportion to their fill, oldest first, the
    seats that proportions leave over drawn by lot; among themselves they are shuffled. (Spec of the author's sampler.)
    """
    buckets: list[list[int]] = [[] for _ in range(longest // step + 1)]
    taken = np.zeros(len(buckets), dtype=int)  # rows at the head of a bucket that are gone
    waiting = iter(order.tolist())
    arranged: list[int] = []
    held = 0
    while len(arranged) < len(order):
        for row in waiting:
            buckets[min(max(int(lengths[row]) - 1, 0), longest) // step].append(row)
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
        drawn = []
        for bucket, first, count in zip(buckets, taken, quota, strict=True):
            drawn += bucket[first : first + count]
        taken += quota
        held -= seats
        arranged += rng.permutation(drawn).tolist()
    return np.array(arranged)


class Micro(NamedTuple):
    """One process' part of a round: what one packed forward pass holds, and what it counts for."""

    batch: PackedBatch
    known: Known
    rows: list[int]
    share: float  # of the update's documents; 0: nobody's documents, run for the gradients' sake alone
    peers: Peers | None
    documents: int  # of all processes in this round
    tokens: int

    def to(self, device: torch.device) -> Micro:
        return self._replace(batch=self.batch.to(device), known=self.known.to(device))


class Collate:
    """The rows of an update as this process' parts of its rounds, in order."""

    def __init__(
        self,
        documents: TrainingDocuments,
        *,
        batch_size: int,
        budget: int,
        bank: Bank | None = None,
        rank: int = 0,
        processes: int = 1,
    ) -> None:
        """budget: tokens in one process' forward pass, if batches allow it; bank: of negatives, if there are any."""
        self.documents, self.batch_size, self.budget, self.bank = documents, batch_size, budget, bank
        self.rank, self.processes = rank, processes

    def __call__(self, rows: Sequence[int]) -> list[Micro]:
        batches = [list(rows[start : start + self.batch_size]) for start in range(0, len(rows), self.batch_size)]
        tokens = [sum(len(self.documents.tokens[row]) for row in batch) for batch in batches]
        return [
            self._micro([batches[i] for i in plan], [tokens[i] for i in plan], owners, of=len(rows))
            for plan, owners in rounds(tokens, budget=self.budget, processes=self.processes)
        ]

    def _micro(self, batches: list[list[int]], tokens: list[int], owners: tuple[int, ...], *, of: int) -> Micro:
        own = [batch for batch, owner in zip(batches, owners, strict=True) if owner == self.rank]
        shown = own or [batches[int(np.argmin(tokens))]]
        batch, known = self.documents.pack(shown, self.bank)
        return Micro(
            batch,
            known,
            [row for batch in shown for row in batch],
            share=sum(map(len, own)) / of,
            peers=Peers(owners, self.rank) if self.processes > 1 else None,
            documents=sum(map(len, batches)),
            tokens=sum(tokens),
        )


def rounds(tokens: Sequence[int], *, budget: int, processes: int) -> Iterator[tuple[range, tuple[int, ...]]]:
    """Cut an update into rounds: which batches, in their order, and the process of each. tokens: of each batch.

    A round is as long as no process has more than `budget` tokens. A batch beyond that is run all the same, and then
    it is the measure: otherwise the other processes would stand by.
    """
    start, owners = 0, deal(tokens[:1], processes)
    for end in range(2, len(tokens) + 1):
        tried = deal(tokens[start:end], processes)
        if max(_loads(tokens[start:end], tried, processes)) > max(budget, *tokens[start:end]):
            yield range(start, end - 1), owners
            start, tried = end - 1, deal(tokens[end - 1 : end], processes)
        owners = tried
    yield range(start, len(tokens)), owners


def deal(tokens: Sequence[int], processes: int) -> tuple[int, ...]:
    """Who gets which batch: the longest first, each to the process that has the fewest tokens so far."""
    loads, owners = [0] * processes, [0] * len(tokens)
    for index in sorted(range(len(tokens)), key=lambda index: (-tokens[index], index)):
        owners[index] = loads.index(min(loads))
        loads[owners[index]] += tokens[index]
    return tuple(owners)


def _loads(tokens: Sequence[int], owners: Sequence[int], processes: int) -> list[int]:
    loads = [0] * processes
    for count, owner in zip(tokens, owners, strict=True):
        loads[owner] += count
    return loads
