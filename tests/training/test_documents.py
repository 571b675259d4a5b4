"""Token files, and documents with their targets."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from docemb_lib.student.packing import CHUNK
from docemb_lib.training import TrainingDocuments
from docemb_lib.training.documents import TokenFile, write_tokens


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
    assert targets.n_structural_tokens.tolist() == [2, 1]
