"""Batches: rows of one document stay together, nothing is padded, the order depends on seed and epoch alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from docemb_lib.training.batches import Shuffled, TrainingDocuments, collate


def documents(**teachers):
    return TrainingDocuments([[5, 6, 7], [8], [9, 10]], [1, 300, 2], **teachers)


def test_a_batch_is_the_documents_end_to_end_with_their_teachers_rows():
    structural = np.arange(6, dtype="float32").reshape(3, 2)
    contextual = -np.arange(9, dtype="float32").reshape(3, 3)
    rows = documents(structural=structural, contextual=contextual)
    batch = collate([rows[2], rows[0]])
    assert batch["input_ids"].tolist() == [9, 10, 5, 6, 7]
    assert batch["position_ids"].tolist() == [0, 1, 0, 1, 2]
    assert batch["document"].tolist() == [0, 0, 1, 1, 1]
    assert batch["lengths"].tolist() == [2, 3]
    assert batch["structural"].tolist() == structural[[2, 0]].tolist()
    assert batch["contextual"].tolist() == contextual[[2, 0]].tolist()
    assert batch["n_structural_tokens"].tolist() == [2, 1]


def test_a_teacher_that_is_not_there_is_not_in_the_batch():
    rows = documents(structural=np.zeros((3, 2), dtype="float32"))
    assert "contextual" not in collate([rows[0], rows[1]])


def test_embeddings_of_fewer_documents_are_refused():
    with pytest.raises(ValueError, match="structural embeddings hold 2 rows for 3 documents"):
        documents(structural=np.zeros((2, 4), dtype="float32"))


def test_the_order_is_a_permutation_that_depends_on_seed_and_epoch():
    def order(seed, epoch):
        sampler = Shuffled(50, seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert sorted(order(0, 0)) == list(range(50))
    assert order(0, 0) == order(0, 0)
    assert len({tuple(order(seed, epoch)) for seed in range(2) for epoch in range(2)}) == 4


def test_the_order_ignores_the_global_generator():
    torch.manual_seed(0)
    first = list(Shuffled(20, 1))
    torch.manual_seed(1)
    assert list(Shuffled(20, 1)) == first
