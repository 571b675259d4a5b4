"""A pickle from elsewhere: plain data comes through, and whatever would call or build something is refused."""

from __future__ import annotations

import collections
import decimal
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from docemb_lib.errors import InputError
from docemb_lib.evaluation.benchmarks import read_plain_pickle, read_relevance


def dumped(tmp_path: Path, value: Any, protocol: int = pickle.DEFAULT_PROTOCOL) -> Path:
    file = tmp_path / "gt"
    file.write_bytes(pickle.dumps(value, protocol))
    return file


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_comes_through_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    votes: Any = collections.defaultdict(collections.Counter, {"Merlot": collections.Counter({"Malbec": 2})})
    votes["Cava"] = {"titles": ["Prosecco"], "set": {1}, "frozen": frozenset("a"), "pair": (1.5, None, True)}
    votes["ordered"] = collections.OrderedDict(a=1)
    assert read_plain_pickle(dumped(tmp_path, votes, protocol)) == votes


class Hostile:
    """What unpickling it calls."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_hostile_pickle_is_refused_before_it_does_anything(tmp_path: Path, protocol: int) -> None:
    touched = tmp_path / "touched"
    file = dumped(tmp_path, {"Merlot": [Hostile(open, str(touched), "w")]}, protocol)
    pickle.loads(file.read_bytes())  # it is one: the stock reader runs it
    assert touched.exists()
    touched.unlink()
    with pytest.raises(InputError, match=r"gt: refused.*it asks for \w+\.open\); write the mapping as JSON") as caught:
        read_plain_pickle(file)
    assert not touched.exists()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "value", [Hostile(os.system, "true"), Hostile(eval, "1"), Hostile(getattr, 1, "real"), decimal.Decimal(1), Path("x"), len]
)  # fmt: skip
def test_other_functions_and_classes_are_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(InputError, match="it asks for"):
        read_plain_pickle(dumped(tmp_path, value))


def test_a_pickle_cannot_change_the_classes_that_it_may_use(tmp_path: Path) -> None:
    file = tmp_path / "gt"
    file.write_bytes(b"ccollections\nCounter\n(N(S'most_common'\nI1\ndtb.")  # setattr(Counter, "most_common", 1)
    with pytest.raises(InputError, match="refused"):
        read_plain_pickle(file)
    assert collections.Counter("aab").most_common(1) == [("a", 2)]


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"no pickle at all", pickle.dumps({"a": "b" * 99})[:-30]])
def test_what_is_no_whole_pickle_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "gt").write_bytes(content)
    with pytest.raises(InputError, match=r"gt: refused, is no whole pickle of plain containers"):
        read_plain_pickle(tmp_path / "gt")
    with pytest.raises(InputError, match="cannot be read"):
        read_plain_pickle(tmp_path / "missing")


def test_a_tower_of_tuples_as_a_key_is_refused_where_the_stock_reader_ends_the_process(tmp_path: Path) -> None:
    tower = b"\x80\x02}(" + b")" + b"\x85" * 300_000 + b"K\x01u."  # {((((…),),),): 1}
    (tmp_path / "gt").write_bytes(tower)
    with pytest.raises(InputError, match="it holds more than 10,000 tuples"):
        read_plain_pickle(tmp_path / "gt")


@pytest.mark.parametrize("depth", [2_000, 9_999])
def test_tuples_below_the_limit_do_no_harm_however_they_are_stacked(tmp_path: Path, depth: int) -> None:
    (tmp_path / "gt").write_bytes(b"\x80\x02}(" + b")" + b"\x85" * (depth - 1) + b"K\x01u.")
    assert list(read_plain_pickle(tmp_path / "gt").values()) == [1]
    with pytest.raises(InputError, match="a title is tuple"):
        read_relevance(tmp_path / "gt")
