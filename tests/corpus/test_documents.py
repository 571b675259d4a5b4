"""Sets and orders on disk agree with Python's own, whatever fits into memory."""

from __future__ import annotations

import errno
import hashlib
import random
from pathlib import Path

import pytest

from docemb_lib.corpus import documents
from docemb_lib.corpus.documents import Key, Ledger, Seen, kth_smallest


def keys(number: int = 200) -> list[Key]:
    """In random order; every third text occurs twice, every fourth document cites another."""
    rng = random.Random(0)
    names = [f"é{n:04}" for n in range(number)]
    rng.shuffle(names)
    links = [[names[0]] if n % 4 == 0 else [] for n in range(number)]
    return [
        Key(name, "ab"[n % 2], bytes([n % (2 * number // 3)]), link)
        for n, (name, link) in enumerate(zip(names, links, strict=True))
    ]


def test_the_first_id_of_every_digest_stays_and_the_order_is_that_of_the_hash_of_seed_and_id(tmp_path: Path) -> None:
    given = keys()
    first: dict[bytes, int] = {}
    for row in sorted(range(len(given)), key=lambda row: given[row].id):
        first.setdefault(given[row].digest, row)
    expected = sorted(first.values(), key=lambda row: hashlib.sha256(f"7:{given[row].id}".encode()).digest())
    with Ledger(tmp_path / "keys.sqlite", seed=7) as ledger:
        ledger.add(iter(given))
        assert (len(ledger), ledger.repeated_id(), ledger.linked()) == (200, None, True)
        assert ledger.drop_copies() == 200 - len(first) > 50
        assert list(ledger.ordered()) == [(row, given[row]) for row in expected]
        assert len(ledger) == len(first)
    assert list(tmp_path.iterdir()) == []


def test_the_first_repeated_id_is_found_and_the_file_of_a_killed_build_replaced(tmp_path: Path) -> None:
    (tmp_path / "keys.sqlite").write_bytes(b"torn")
    with Ledger(tmp_path / "keys.sqlite", seed=0) as ledger:
        assert len(ledger) == 0
        ledger.add(Key(id, "x", id.encode(), ()) for id in ("b", "z", "a", "z", "b"))
        assert ledger.repeated_id() == "b"
        assert not ledger.linked()


def test_a_full_disk_raises_the_error_of_other_files(tmp_path: Path) -> None:
    def fill() -> None:
        with Ledger(tmp_path / "keys.sqlite", seed=0) as ledger:
            ledger.database.execute("PRAGMA max_page_count = 5")
            ledger.add(10 * keys())

    with pytest.raises(OSError, match=r"keys\.sqlite") as caught:
        fill()
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_more_than_the_cache_holds_is_spilled_and_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "CACHE", 32)  # kB
    given = [Key(f"id {n}", "x", n.to_bytes(4, "big"), ()) for n in range(5000)]
    with Ledger(tmp_path / "keys.sqlite", seed=0) as ledger:
        ledger.add(given)
        assert (tmp_path / "keys.sqlite").stat().st_size > 100_000
        assert ledger.drop_copies() == 0
        assert sorted(row for row, _ in ledger.ordered()) == list(range(5000))


def test_a_name_that_was_seen_gives_its_first_place() -> None:
    seen = Seen()
    assert seen.add("a", "file", 3) is None
    assert seen.add("b") is None
    assert seen.add("a", "other", 5) == ("file", 3)
    assert seen.add("a") == ("file", 3)
    assert seen.add("A") is None  # case counts


def test_the_kth_smallest_is_that_of_sorting() -> None:
    values = [random.Random(n).randbytes(8) for n in range(300)]
    for k in (1, 2, 150, 300):
        assert kth_smallest(iter(values), k) == sorted(values)[k - 1]
    assert kth_smallest(values, 301) is None
    assert kth_smallest([], 1) is None
