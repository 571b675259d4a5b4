"""Documents with their targets, the order of updates, and the passes of an update."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from docemb_lib.settings.sections import Training
from docemb_lib.student.embedding import CHUNK
from docemb_lib.training.batches import (
    Collate,
    Negatives,
    TokenFile,
    TrainingDocuments,
    Updates,
    assign,
    plan_passes,
    write_tokens,
)


def encode(texts):
    ids = [[ord(letter) for letter in text[:5]] for text in texts]
    return SimpleNamespace(sequences=ids, truncated=sum(len(text) > 5 for text in texts))


def test_rows_come_back_as_they_were_tokenised(tmp_path, caplog):
    rng = np.random.default_rng(0)
    texts = ["x" + "abcdefgh"[: rng.integers(0, 8)] for _ in range(2 * CHUNK + 7)]
    write_tokens(tmp_path / "tokens.arrow", iter(texts), encode, total=len(texts))
    tokens = TokenFile(tmp_path / "tokens.arrow")
    assert len(tokens) == len(texts)
    for row in (0, 1, CHUNK - 1, CHUNK, 2 * CHUNK, len(texts) - 1):
        assert tokens[row].tolist() == encode([texts[row]]).sequences[0]
    assert (
        f"{encode(texts).truncated} of {len(texts)} documents are longer than the student reads"
        in caplog.text
    )
    with pytest.raises(IndexError):
        tokens[len(texts)]


def three(**options):
    return TrainingDocuments([[5, 6, 7], [8], [9, 10]], [1, 300, 2], **options)


def test_a_pass_is_the_documents_end_to_end_with_their_teachers_rows():
    teachers = {
        "sbert": np.arange(6, dtype="float32").reshape(3, 2),
        "pv": -np.arange(9.0).reshape(3, 3),
    }
    batch, targets = three(teachers=teachers).pack([[2], [0]])
    assert (batch.input_ids.tolist(), batch.sizes) == ([9, 10, 5, 6, 7], (2, 3))
    torch.testing.assert_close(
        targets.teachers,
        {n: torch.tensor(rows[[2, 0]], dtype=torch.float32) for n, rows in teachers.items()},
    )
    assert targets.n_structural_tokens.tolist() == [2, 1]


def updates(n=50, *, seed=0, epoch=0, accumulation=2):
    settings = Training(batch_size=4, accumulation=accumulation)
    sampler = Updates(n, settings, seed=seed, epoch=lambda: epoch)
    assert len(sampler) == len(list(sampler))
    return list(sampler)


@pytest.mark.parametrize(
    ("n", "accumulation", "sizes"), [(50, 2, [8] * 6), (47, 3, [12, 12, 12, 8])]
)
def test_updates_go_through_all_whole_batches_once(n, accumulation, sizes):
    rows = updates(n, accumulation=accumulation)
    assert [len(update) for update in rows] == sizes
    assert len(set(itertools.chain(*rows))) == sum(sizes)


def test_the_order_of_updates_does_not_depend_on_other_generators():
    rows = updates()
    torch.manual_seed(0)
    assert rows == updates()


def test_the_order_of_updates_depends_on_seed_and_epoch():
    orders = {str(updates(seed=seed, epoch=epoch)) for seed in range(2) for epoch in range(2)}
    assert len(orders) == 4


@pytest.mark.parametrize(
    ("n", "accumulation", "updates_of_the_thesis"),
    [(15_000, 1, 2500), (1_000_000, 10, 16_667)],  # the last one is for the batches left over
)
def test_the_thesis_has_as_many_updates(n, accumulation, updates_of_the_thesis):
    settings = Training(accumulation=accumulation)
    assert len(Updates(n, settings, seed=0, epoch=int)) == updates_of_the_thesis


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("budget", [1, 50, 120, 10_000])
def test_passes_hold_consecutive_batches_within_the_budget(processes, budget):
    tokens = np.random.default_rng(budget + processes).integers(1, 60, 23).tolist()
    planned = list(plan_passes(tokens, budget=budget, processes=processes))
    assert list(itertools.chain(*(batches for batches, _ in planned))) == list(range(23))
    for batches, owners in planned:
        sizes = [tokens[i] for i in batches]
        assert np.bincount(owners, sizes).max() <= max(budget, *sizes)


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("budget", [1, 50, 120, 10_000])
def test_no_batch_more_would_have_fitted_into_a_pass(processes, budget):
    tokens = np.random.default_rng(budget + processes).integers(1, 60, 23).tolist()
    for batches, _ in list(plan_passes(tokens, budget=budget, processes=processes))[:-1]:
        longer = [tokens[i] for i in (*batches, batches[-1] + 1)]
        fullest = np.bincount(assign(longer, processes), longer).max()
        assert max(longer) > budget or fullest > budget


def test_as_many_passes_as_a_batch_for_each_process_needs():
    planned = plan_passes([20_000] * 8, budget=16_384, processes=4)
    assert [owners for _, owners in planned] == [(0, 1, 2, 3)] * 2


@pytest.mark.parametrize(
    ("tokens", "processes", "owners"),
    [
        ([10, 9, 2, 8], 2, (0, 1, 0, 1)),  # 12 and 17 tokens: the longest first
        ([5], 3, (0,)),
    ],
)
def test_each_batch_goes_to_the_process_with_the_fewest_tokens(tokens, processes, owners):
    assert assign(tokens, processes) == owners


def test_a_process_without_a_batch_repeats_one_with_a_share_of_zero():
    documents = TrainingDocuments([[1] * n for n in (9, 8, 7, 2, 6, 6)], [1] * 6, teachers={})
    parts = [
        Collate(documents, batch_size=2, budget=20, rank=rank, processes=2)(range(6))
        for rank in range(2)
    ]
    rows = [[micro.rows for micro in part] for part in parts]
    assert rows == [[[0, 1], [4, 5]], [[2, 3], [4, 5]]]
    shares = [[micro.share for micro in part] for part in parts]
    assert shares == [[1 / 3, 1 / 3], [1 / 3, 0.0]]
    assert [micro.run_groups.owners for micro in parts[1]] == [(0, 1), (0,)]


@pytest.fixture
def pooled():
    """The negatives of 40 documents of which every third is masked."""

    def make(count, *, of_training=True, seed=1):
        embeddings = np.arange(80, dtype="float32").reshape(40, 2)
        kept = np.array([row for row in range(40) if row % 3])
        return Negatives(embeddings, kept, count, seed, of_training)

    return make


def rows_of(pool):
    """The documents in a pool, whose embeddings name them."""
    return [int(row[0]) // 2 for block in pool.blocks() for row in block]


def test_random_negatives_are_kept_documents_outside_the_update(pooled):
    update = [1, 2, 4, 6, 30]
    drawn = [rows_of(pooled(8, seed=seed).of_update(update)) for seed in range(40)]
    assert all(len(rows) == len({*rows}) == 8 for rows in drawn)
    assert {row for rows in drawn for row in rows} == {
        row for row in range(40) if row % 3 and row not in update
    }


def test_random_negatives_depend_on_seed_and_update_alone(pooled):
    def draw(seed, update):
        return rows_of(pooled(8, seed=seed).of_update(update))

    assert draw(1, [1, 2]) == draw(1, [1, 2])
    assert draw(1, [1, 2]) != draw(2, [1, 2])
    assert draw(1, [1, 2]) != draw(1, [1, 4])


def test_more_negatives_than_there_are_documents_are_all_others(pooled):
    assert rows_of(pooled(99).of_update([1, 3])) == [
        row for row in range(40) if row % 3 and row != 1
    ]
    assert rows_of(pooled(99, of_training=False).of_update([1, 3])) == [
        row for row in range(40) if row % 3
    ]


def test_all_negatives_are_one_pool_of_which_the_losses_take_out_the_own(pooled):
    negatives = pooled(None)
    pool = negatives.of_update([1, 2])
    assert pool is negatives.of_update([4])
    assert (rows_of(pool), pool.has_own) == ([row for row in range(40) if row % 3], True)
    assert not pooled(None, of_training=False).of_update([1]).has_own


@pytest.mark.parametrize("processes", [1, 2])
def test_all_passes_and_processes_of_an_update_have_the_same_negatives(distil, pooled, processes):
    documents = distil.make_documents(40, 1)
    documents.negatives = pooled(8)
    drawn = []
    for rank in range(processes):
        collate = Collate(documents, 4, 1, rank=rank, processes=processes)
        drawn += [rows_of(micro.targets.negatives["structural"]) for micro in collate(range(12))]
    assert len(drawn) >= 3
    assert all(rows == drawn[0] for rows in drawn)
