"""Geometries so small that a test takes milliseconds, and memory whose size is known."""

from __future__ import annotations

import copy
import mmap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace

import pytest
import torch
from transformers import LongformerModel

from docemb_lib.bench import workload
from docemb_lib.bench.sides import Ours, Stock
from docemb_lib.bench.workload import random_documents


@pytest.fixture
def tiny(monkeypatch):
    """Both sizes with 48 dimensions and 100 words; the window and the positions as they are."""
    for size, layers in (("small", 3), ("base", 12)):
        geometry = {"num_hidden_layers": layers, "hidden_size": 48, "intermediate_size": 64, "vocab_size": 100}
        monkeypatch.setitem(workload.GEOMETRIES, size, geometry)


@pytest.fixture
def sides(tiny):
    """Stock and ours with the same weights, one layer, a window of 64, and documents of mixed lengths."""
    torch.manual_seed(0)
    config = workload.longformer_config("small", 1)
    config.attention_window = [64]
    model = LongformerModel(config, add_pooling_layer=False)
    documents = random_documents([40, 7, 300, 12, 150], 100, seed=0)
    return SimpleNamespace(stock=Stock(model), ours=Ours(copy.deepcopy(model), 4096), documents=documents)


@pytest.fixture
def fresh_memory() -> Callable[[int], AbstractContextManager[None]]:
    """Holds so many bytes in pages of its own: an allocator may hand out ones that the process had already."""

    @contextmanager
    def hold(size: int) -> Iterator[None]:
        with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
            pages[:: mmap.PAGESIZE] = b"x" * len(range(0, size, mmap.PAGESIZE))
            yield

    return hold
