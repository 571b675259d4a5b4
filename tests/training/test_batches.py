"""Batches: orders of seed and epoch alone; neither memory nor processes change which documents a loss compares."""

import itertools

import numpy as np
import pytest
import torch

from docemb_lib.settings import Training
from docemb_lib.training.batches import Collate, Updates, deal, length_consistent, rounds
from docemb_lib.training.documents import TrainingDocuments


def updates(n=50, *, order="shuffled", seed=0, epoch=0, accumulation=2):
    lengths = np.random.default_rng(9).integers(1, 5000, n)
    settings = Training(batch_size=4, accumulation=accumulation, order=order)
    sampler = Updates(lengths, settings, seed=seed, epoch=lambda: epoch)
    assert len(sampler) == len(list(sampler))
    return list(sampler)


@pytest.mark.parametrize("order", ["shuffled", "length-consistent"])
def test_updates_go_through_all_whole_batches_once_in_an_order_of_seed_and_epoch(order):
    rows = updates(order=order)
    assert [len(update) for update in rows] == [8] * 6
    assert len(set(itertools.chain(*rows))) == 48
    assert [len(update) for update in updates(47, order=order, accumulation=3)] == [12, 12, 12, 8]
    torch.manual_seed(0)
    assert rows == updates(order=order)
    for n, accumulation, of_the_thesis in ((15_000, 1, 2500), (1_000_000, 10, 16_667)):  # one for the batches left over
        assert len(Updates(np.ones(n), Training(accumulation=accumulation), seed=0, epoch=int)) == of_the_thesis
    variants = {str(updates(order=order, seed=seed, epoch=epoch)) for seed in range(2) for epoch in range(2)}
    assert len(variants) == 4


def test_length_consistent_updates_mirror_the_buffer_and_documents_wait_in_line():
    """Three lengths, 60%, 30% and 10% of the documents: every 20 rows hold 12, 6 and 2, give or take a lot's seat."""
    rng = np.random.default_rng(0)
    lengths = rng.permutation(np.repeat([100, 1500, 9000], [600, 300, 100]))
    order = rng.permutation(1000)
    arranged = length_consistent(order, lengths, size=20, rng=rng, buffer=1000)
    assert sorted(arranged) == list(range(1000))
    counts, shuffled = (np.stack([(lengths[rows].reshape(-1, 20) == n).sum(1) for n in (100, 1500, 9000)], 1) for rows in (arranged, order))  # fmt: skip
    assert np.abs(counts - [12, 6, 2]).max() <= 1
    assert np.abs(shuffled - [12, 6, 2]).max() > 2  # which a plain shuffle does not do
    lengths = np.tile([100, 600], 200)
    arranged = length_consistent(np.arange(400), lengths, size=20, rng=np.random.default_rng(0), buffer=60)
    update_of = np.argsort(arranged) // 20
    for length in (100, 600):
        waiting = update_of[lengths == length]  # in the order in which they came
        assert (np.diff(waiting) >= 0).all()
    assert set(arranged[:20]) <= set(range(60))  # nothing comes from beyond the buffer


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("budget", [1, 50, 120, 10_000])
def test_rounds_hold_consecutive_batches_within_the_budget(processes, budget):
    tokens = np.random.default_rng(budget + processes).integers(1, 60, 23).tolist()
    planned = list(rounds(tokens, budget=budget, processes=processes))
    assert list(itertools.chain(*(plan for plan, _ in planned))) == list(range(23))
    for number, (plan, owners) in enumerate(planned):
        assert np.bincount(owners, [tokens[i] for i in plan]).max() <= max(budget, *(tokens[i] for i in plan))
        if number + 1 < len(planned):  # no batch more would have fitted
            longer = [tokens[i] for i in (*plan, plan[-1] + 1)]
            assert max(longer) > budget or np.bincount(deal(longer, processes), longer).max() > budget


def test_batches_are_dealt_by_tokens_and_a_process_without_one_runs_one_that_does_not_count():
    assert [owners for _, owners in rounds([20_000] * 8, budget=16_384, processes=4)] == [(0, 1, 2, 3)] * 2
    assert deal([10, 9, 2, 8], 2) == (0, 1, 0, 1)  # 12 and 17 tokens: the longest first, to the process that has least
    assert deal([5], 3) == (0,)
    rows = TrainingDocuments([[1] * n for n in (9, 8, 7, 2, 6, 6)], [1] * 6, teachers={})
    parts = [Collate(rows, batch_size=2, budget=20, rank=rank, processes=2)(range(6)) for rank in range(2)]
    assert [[micro.rows for micro in part] for part in parts] == [[[0, 1], [4, 5]], [[2, 3], [4, 5]]]
    assert [[micro.share for micro in part] for part in parts] == [[1 / 3, 1 / 3], [1 / 3, 0.0]]
    assert [micro.run_groups.owners for micro in parts[1]] == [(0, 1), (0,)]
    assert [(micro.documents, micro.tokens) for micro in parts[0]] == [(4, 26), (2, 12)]
