"""Documents with their targets, the order of updates, and the passes of an update."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from docemb_lib.settings.sections import Training
from docemb_lib.student.embedding import CHUNK
from docemb_lib.training.batches import (
    Cut,
    TokenFile,
    TrainingDocuments,
    Updates,
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


def test_the_order_of_updates_depends_on_seed_and_epoch():
    orders = [str(updates(seed=seed, epoch=epoch)) for seed in range(2) for epoch in range(2)]
    assert len(set(orders)) == 4
    assert orders[0] == str(updates())


@pytest.mark.parametrize(
    ("n", "accumulation", "updates_of_the_thesis"),
    [(15_000, 1, 2500), (1_000_000, 10, 16_667)],  # the last one is for the batches left over
)
def test_the_thesis_has_as_many_updates(n, accumulation, updates_of_the_thesis):
    settings = Training(accumulation=accumulation)
    assert len(Updates(n, settings, seed=0, epoch=int)) == updates_of_the_thesis


@pytest.mark.parametrize(("n", "of_each"), [(50, 6), (47, 5)])
def test_processes_have_batches_of_their_own_and_as_many(n, of_each):
    settings = Training(batch_size=4, accumulation=4)
    alone = list(itertools.chain(*updates(n)))
    for process in (0, 1):
        sampler = Updates(n, settings, seed=0, epoch=int, process=process, processes=2)
        rows = list(sampler)
        assert (len(sampler), [len(update) for update in rows]) == (2, [16, 4 * of_each - 16])
        batches = [alone[start : start + 4] for start in range(4 * process, 8 * of_each, 8)]
        assert list(itertools.chain(*rows)) == list(itertools.chain(*batches))


@pytest.mark.parametrize("budget", [1, 50, 120, 10_000])
def test_passes_hold_as_many_consecutive_batches_as_the_budget_allows(budget):
    lengths = np.random.default_rng(budget).integers(1, 30, 46).tolist()
    documents = TrainingDocuments([[1] * n for n in lengths], lengths, teachers={})
    passes = list(documents.passes(range(46), Cut(2, budget)))
    assert list(itertools.chain(*(micro.rows for micro in passes))) == list(range(46))
    assert sum(micro.share for micro in passes) == pytest.approx(1)
    for micro in passes:
        assert sum(micro.batch.sizes) <= budget or len(micro.rows) == 2
        assert micro.share == len(micro.rows) / 46
    for micro, following in itertools.pairwise(passes):
        assert sum(micro.batch.sizes) + sum(following.batch.sizes[:2]) > budget
