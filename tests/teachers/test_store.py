import zlib

import numpy as np
import pytest

from docemb_lib.teachers import open_embeddings, write_embeddings

TEXTS = [f"document {i}" for i in range(23)]


class Checksums:
    """A teacher of two dimensions that an interrupt can end before its n-th call."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.seen = []

    def __call__(self, texts):
        if len(self.seen) == self.fails_at:
            raise KeyboardInterrupt
        self.seen.append(len(texts))
        return np.array(
            [[zlib.crc32(text.encode()), len(text)] for text in texts], dtype=np.float32
        )


def test_row_i_is_the_embedding_of_text_i(tmp_path):
    teacher = Checksums()
    write_embeddings(tmp_path, TEXTS, teacher, 2, block=5)
    stored = open_embeddings(tmp_path)
    np.testing.assert_array_equal(
        stored, [[np.float32(zlib.crc32(t.encode())), len(t)] for t in TEXTS]
    )
    assert teacher.seen == [5, 5, 5, 5, 3]
    assert (isinstance(stored, np.memmap), stored.flags.writeable) == (True, False)


@pytest.mark.parametrize("fails_at", [0, 1, 4])
def test_an_interrupted_run_continues_and_ends_with_the_same_bytes(tmp_path, fails_at):
    write_embeddings(tmp_path / "unbroken", TEXTS, Checksums(), 2, block=5)
    killed = Checksums(fails_at)
    second = Checksums()
    with pytest.raises(KeyboardInterrupt):
        write_embeddings(tmp_path / "broken", TEXTS, killed, 2, block=5)
    write_embeddings(tmp_path / "broken", TEXTS, second, 2, block=5)
    assert killed.seen + second.seen == [5, 5, 5, 5, 3]
    for file in (tmp_path / "unbroken").iterdir():
        assert (tmp_path / "broken" / file.name).read_bytes() == file.read_bytes()
    assert len(list((tmp_path / "broken").iterdir())) == 2


def test_broken_progress_of_an_unfinished_store_is_named(tmp_path, refused):
    with pytest.raises(KeyboardInterrupt):
        write_embeddings(tmp_path / "cut", TEXTS, Checksums(2), 2, block=5)
    marker = tmp_path / "cut" / "rows_done.json"
    marker.write_text(marker.read_text()[:9])
    mend = f"remove {tmp_path / 'cut'} and give the same command again"
    message = f"rows_done.json: the file is not valid JSON .*; {mend}"
    refused(message, write_embeddings, tmp_path / "cut", TEXTS, Checksums(), 2)


def test_finished_embeddings_are_not_written_again(tmp_path):
    write_embeddings(tmp_path, TEXTS, Checksums(), 2)
    write_embeddings(tmp_path, TEXTS, Checksums(fails_at=0), 2)


def test_embeddings_of_another_width_or_not_finite_are_refused(tmp_path):
    with pytest.raises(ValueError, match="could not broadcast"):
        write_embeddings(tmp_path / "wide", TEXTS, Checksums(), 3)
    with pytest.raises(ValueError, match="not finite"):
        write_embeddings(tmp_path / "nan", TEXTS, lambda texts: np.full((len(texts), 2), np.nan), 2)
