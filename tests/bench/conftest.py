"""Both sides of the student's benchmark, so small that a test takes milliseconds."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from transformers import LongformerModel

from docemb_lib.bench import student
from docemb_lib.bench.student import Workload, both_sides


@dataclass(frozen=True)
class SmallWorkload(Workload):
    """A window of 64 instead of 512."""

    def config(self):
        config = super().config()
        config.attention_window = [64] * self.layers
        return config


@pytest.fixture
def tiny(monkeypatch):
    """48 dimensions and 100 words; window and positions as they are."""
    geometry = {
        "num_hidden_layers": 3,
        "hidden_size": 48,
        "intermediate_size": 64,
        "vocab_size": 100,
    }
    monkeypatch.setitem(student.GEOMETRIES, "cpu", geometry)


@pytest.fixture
def sides(tiny):
    """Stock and ours with the same weights, one layer, a window of 64, and documents of mixed
    lengths.
    """
    torch.manual_seed(0)
    workload = SmallWorkload(layers=1)
    model = LongformerModel(workload.config(), add_pooling_layer=False)
    documents = workload.tokens([40, 7, 300, 12, 150])
    stock, ours = both_sides(model, 4096)
    return SimpleNamespace(stock=stock, ours=ours, documents=documents, workload=workload)
