"""Token files, documents with their targets, and the bank of negatives, whose draws depend on the batch alone."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from docemb_lib.losses import Contrastive, Cosine, MaxMargin, Objective, Teaching, Weighting
from docemb_lib.student.packing import CHUNK
from docemb_lib.training import TrainingDocuments
from docemb_lib.training.documents import Bank, TokenFile, check_negatives, write_tokens

N, LONGEST = 60, 100


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
    assert f"{encode(texts).truncated} of {len(texts)} documents are longer than the student reads" in caplog.text
    with pytest.raises(IndexError):
        tokens[len(texts)]


def three(**options):
    return TrainingDocuments([[5, 6, 7], [8], [9, 10]], [1, 300, 2], **options)


def test_a_pass_is_the_documents_end_to_end_with_their_teachers_rows():
    teachers = {"sbert": np.arange(6, dtype="float32").reshape(3, 2), "pv": -np.arange(9.0).reshape(3, 3)}
    batch, targets = three(teachers=teachers).pack([[2], [0]])
    assert (batch.input_ids.tolist(), batch.sizes) == ([9, 10, 5, 6, 7], (2, 3))
    torch.testing.assert_close(targets.teachers, {n: torch.tensor(rows[[2, 0]], dtype=torch.float32) for n, rows in teachers.items()})  # fmt: skip
    assert (targets.n_structural_tokens.tolist(), targets.negatives) == ([2, 1], {})


@pytest.fixture
def documents(tmp_path):
    """60 documents whose embeddings are their row number, on disk as a run has them; every third is long."""
    store = np.lib.format.open_memmap(tmp_path / "rows.npy", mode="w+", dtype="float32", shape=(N, 3))
    store[:] = np.arange(N)[:, None]
    store.flush()
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    lengths = [LONGEST + 1 if row % 3 == 0 else LONGEST for row in range(N)]
    names = ("main", "further", "plain")
    return TrainingDocuments([[1] * (1 + row % 7) for row in range(N)], lengths, teachers=dict.fromkeys(names, rows))


def make_bank(documents, *, size=8, seed=3, batch_size=4, masked=True):
    losses = {"main": MaxMargin(), "further": Contrastive(), "plain": Cosine()}
    teachers = [Teaching(name, "structural", loss) for name, loss in losses.items()]
    weighting = Weighting(max_structural_len=LONGEST if masked else None)
    objective = Objective(nn.Linear(3, 3), teachers, weighting=weighting, negatives=size)
    return Bank(documents, objective, batch_size=batch_size, seed=seed)


def drawn(bank, batches, of):
    """The rows of each batch's draw, which the embeddings show."""
    found = bank.draw(batches, of=of)
    assert set(found) == {"main", "further"}  # a cosine compares with nobody else
    assert torch.equal(found["main"], found["further"])  # the same documents, in each teacher's embeddings
    assert found["main"].shape == (len(batches), bank.size, 3)
    return found["main"][:, :, 0].int().tolist()


def test_negatives_are_different_documents_that_the_mask_keeps_and_none_of_the_batch(documents):
    for masked in (True, False):
        bank = make_bank(documents, masked=masked)
        seen = set()
        for start in range(0, N, 4):
            batch = list(range(start, start + 4))
            (rows,) = drawn(bank, [batch], documents)
            assert len(set(rows)) == 8
            assert not set(rows) & set(batch)
            seen |= set(rows)
        assert seen <= {row for row in range(N) if row % 3 or not masked}
        assert len(seen) > 0.8 * len(bank.rows)


def test_every_other_document_is_as_likely_and_no_more_than_there_are_can_be_drawn(documents, refused):
    bank, counts = make_bank(documents, masked=False), np.zeros(N)
    batches = list(itertools.permutations(range(7), 4))  # 840 of the first seven documents
    for rows in drawn(bank, batches, documents):
        counts[rows] += 1
    assert counts[7:] == pytest.approx(840 * 8 / 56, rel=0.35)  # mean 120, deviation 10
    assert counts[:7].sum() == pytest.approx(840 * 8 * 3 / 56, rel=0.2)  # three of the seven are others
    (rows,) = drawn(make_bank(documents, size=36), [[1, 2, 4, 5]], documents)  # 40 are kept
    assert rows == [row for row in range(N) if row % 3 and row not in {1, 2, 4, 5}]
    refused("negatives: 37 asked for, but beside a batch of 4 only 36 of 40 training", make_bank, documents, size=37)
    refused("only 0 of 3", check_negatives, 1, kept=3, batch_size=4)


def test_a_draw_depends_on_the_seed_and_the_batch_of_whichever_documents(documents):
    batches = [[1, 2, 3, 4], [1, 2, 3, 5], [4, 3, 2, 1]]
    first = drawn(make_bank(documents), batches, documents)
    assert len({tuple(rows) for rows in first}) == 3
    later = make_bank(documents)
    drawn(later, [[9, 8, 7, 6]], documents)  # what came before does not count
    assert [drawn(later, [batch], documents)[0] for batch in batches] == first
    assert drawn(make_bank(documents, seed=4), batches, documents) != first
    bank = make_bank(documents, size=36)
    validation = TrainingDocuments([[1]] * 4, [1] * 4, teachers=documents.teachers)
    (rows,) = drawn(bank, [[1, 2, 4, 5]], validation)
    assert len(set(rows)) == 36
    assert {1, 2, 4, 5} & set(rows)  # other documents than those, though of the same rows
    assert drawn(bank, [[1, 2, 4, 5]], validation) == [rows]
