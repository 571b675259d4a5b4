"""The Arrow file of token ids: what was written comes back, row by row, with how many documents were cut."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from docemb_lib.errors import InputError
from docemb_lib.student.inference import CHUNK
from docemb_lib.training.documents import TokenFile, write_tokens


def encode(texts):
    ids = [[ord(letter) for letter in text[:5]] for text in texts]
    return SimpleNamespace(sequences=ids, truncated=sum(len(text) > 5 for text in texts))


def test_rows_come_back_as_they_were_tokenised(tmp_path, caplog):
    rng = np.random.default_rng(0)
    texts = ["x" + "abcdefgh"[: rng.integers(0, 8)] for _ in range(2 * CHUNK + 7)]
    write_tokens(tmp_path / "tokens.arrow", iter(texts), encode, total=len(texts), max_tokens=5)
    with caplog.at_level(logging.WARNING):
        tokens = TokenFile(tmp_path / "tokens.arrow")
    assert len(tokens) == len(texts)
    for row in (0, 1, CHUNK - 1, CHUNK, 2 * CHUNK, len(texts) - 1):
        assert tokens[row].tolist() == encode([texts[row]]).sequences[0]
    assert tokens.truncated == encode(texts).truncated > 0
    assert f"{tokens.truncated} of {len(texts)} documents cut at 5 tokens" in caplog.text
    with pytest.raises(IndexError):
        tokens[len(texts)]


def test_a_torn_file_is_refused(tmp_path):
    path = tmp_path / "tokens.arrow"
    write_tokens(path, ["abc"] * 10, encode, total=10, max_tokens=5)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="not a whole file of tokens"):
        TokenFile(path)
