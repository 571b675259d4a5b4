"""Parts on disk: whole or not at all, measured in several threads, in the order in which documents came."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from docemb_lib.corpus import Document, parts
from docemb_lib.corpus.parts import open_parts, part_files, read_keys, write_parts


def documents(number: int) -> list[Document]:
    return [Document(f"{n}", f"word {n} " * (n % 7 + 1), "s", (f"{n - 1}",) if n % 2 else ()) for n in range(number)]


def words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SIZE", 20)
    monkeypatch.setattr(parts, "BATCH", 6)


@pytest.mark.parametrize("number", [0, 1, 19, 20, 21, 40, 57])
def test_parts_have_the_documents_in_order_whichever_batch_is_ready_first(tmp_path: Path, number: int) -> None:
    def slow_at_first(texts: list[str]) -> list[int]:
        if texts != [""] and texts[0].startswith("word 0 "):
            time.sleep(0.05)
        return words(texts)

    write_parts(tmp_path, iter(documents(number)), {"n": slow_at_first}, copy_words=None)
    assert len(part_files(tmp_path)) == -(-number // 20)
    if number:
        rows = open_parts(tmp_path).to_list()
        assert [row["id"] for row in rows] == [document.id for document in documents(number)]
        assert (
            [row["n"] for row in rows] == [row["n_words"] for row in rows] == [2 * (n % 7 + 1) for n in range(number)]
        )
        assert [(key.id, key.see_also) for key in read_keys(tmp_path)] == [
            (d.id, d.see_also) for d in documents(number)
        ]


def test_several_batches_are_measured_at_once_and_only_a_few_are_read_ahead(tmp_path: Path) -> None:
    together = threading.Barrier(3, timeout=20)  # broken, and the test fails, unless three threads meet
    read: list[int] = []
    measured: list[str] = []
    ahead: list[int] = []

    def reading() -> Iterator[Document]:
        for n, document in enumerate(documents(120)):
            read.append(n)
            ahead.append(len(read) - len(measured))
            yield document

    def counting(texts: list[str]) -> list[int]:
        if texts != [""] and len(measured) < 3:
            together.wait()
        measured.extend(texts)
        return words(texts)

    write_parts(tmp_path, reading(), {"n": counting}, copy_words=None)
    assert max(ahead) <= 6 * (parts.THREADS + 2)


def test_a_counter_that_fails_ends_the_build_and_leaves_whole_parts_only(tmp_path: Path) -> None:
    def failing(texts: list[str]) -> list[int]:
        if any(text.startswith("word 47 ") for text in texts):
            raise ValueError("cannot count")
        return words(texts)

    with pytest.raises(ValueError, match="cannot count"):
        write_parts(tmp_path, iter(documents(57)), {"n": failing}, copy_words=None)
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["00000.arrow", "00001.arrow"]


def test_a_full_disk_leaves_whole_parts_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = pa.OSFile

    def full(path: str, mode: str) -> pa.OSFile:
        if not path.endswith("00001.arrow.partial"):
            return opened(path, mode)
        Path(path).touch()
        return opened("/dev/full", mode)  # the kernel says: no space left on device

    monkeypatch.setattr(pa, "OSFile", full)
    with pytest.raises(OSError, match="No space left") as caught:
        write_parts(tmp_path, iter(documents(57)), {"n": words}, copy_words=None)
    assert caught.value.errno == errno.ENOSPC
    assert [file.name for file in tmp_path.iterdir()] == ["00000.arrow"]
