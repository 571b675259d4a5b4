"""Both sides do the same work on the same documents, each kind of difference shows, and budgets."""

import math
from types import SimpleNamespace
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import LongformerModel

from docemb_lib.bench import student
from docemb_lib.bench.harness import peak_memory
from docemb_lib.bench.student import Workload, bench_student, equality, forward_flops
from docemb_lib.packed import forward
from docemb_lib.student import pack

CPU = torch.device("cpu")
FEW = [1, 5, 40, 12]


def test_the_same_weights_are_equal_and_one_that_differs_shows(sides):
    rows = equality(sides.stock, sides.ours, sides.documents)
    assert [row.verdict for row in rows] == ["ok"] * 2
    assert all(parameter.grad is None for parameter in sides.stock.model.parameters())
    with torch.no_grad():
        sides.ours.model.encoder.layer[0].output.dense.weight[0] += 1
    rows = equality(sides.stock, sides.ours, sides.documents)
    assert [row.verdict for row in rows] == ["below"] * 2
    assert all(row.ours > 1e-3 for row in rows)


def test_a_window_that_differs_shows(sides):
    sides.ours.model.encoder.layer[0].attention.self.one_sided_attn_window_size = 16
    assert equality(sides.stock, sides.ours, sides.documents)[0].verdict == "below"


@pytest.fixture
def speed_rows(sides, monkeypatch):
    """Rows by name, where a run of stock takes 8 seconds and one of ours 1."""
    peaks = {torch.float32: 1e9, torch.bfloat16: 4e9}
    monkeypatch.setattr(student, "matmul_peak", lambda device, dtype: peaks[dtype])
    monkeypatch.setattr(
        student.harness,
        "interleaved",
        lambda runs, _: {name: [8 if name == "stock" else 1] for name in runs},
    )
    monkeypatch.setattr(Workload, "drawn", lambda workload, documents: sides.documents)
    rows = student.speed(sides.stock, sides.ours, sides.workload, ["fp32", "bf16"])
    assert all(parameter.grad is None for parameter in sides.ours.model.parameters())
    return {row.name: row for row in rows}


@pytest.mark.parametrize(
    ("name", "passes", "peak"),
    [
        ("forward fp32", 1, 1e9),
        ("forward bf16", 1, 4e9),
        ("forward + backward fp32", 3, 1e9),
        ("forward + backward bf16", 3, 4e9),
    ],
)
def test_shares_count_three_times_the_arithmetic_for_training(
    sides, speed_rows, name, passes, peak
):
    flops = forward_flops(sides.ours.config, [40, 7, 300, 12, 150])
    assert speed_rows[name].ours == pytest.approx(passes * flops / peak)


def test_rates_are_those_of_all_tokens_and_have_no_budget(speed_rows):
    row = speed_rows["forward bf16, stock in fp32"]
    assert (row.ours, row.ratio, row.budget) == (509, 8, "")
    assert row.peer == pytest.approx(509 / 8)


def test_a_share_of_the_peak_has_a_budget(speed_rows):
    assert speed_rows["forward fp32"].budget == "≥ 0.9"


def test_growth_has_the_same_tokens_in_long_and_short_documents(sides, monkeypatch):
    asked = []

    class Recorded(type(sides.workload)):
        def tokens(self, lengths):
            asked.append(lengths)
            return super().tokens(lengths)

    monkeypatch.setattr(
        student.harness,
        "interleaved",
        lambda runs, _: {length: [float(length)] for length in runs},
    )
    workload = Recorded(layers=1, growth_tokens=512, longest=256)
    (row,) = student.growth(sides.ours, workload, "fp32")
    assert asked == [[16] * 32, [256] * 2]
    assert (row.ours, row.budget, row.verdict) == (16.0, "≤ 1.15", "below")


def test_embedding_takes_the_same_tokens_in_one_pass_and_in_chunks(sides, monkeypatch):
    packed = Mock(wraps=student.embed_chunks)
    monkeypatch.setattr(student, "embed_chunks", packed)
    workload = type(sides.workload)(layers=1, longest=1024, documents=3, repeats=1)
    bert = student.BertModel
    with patch.object(bert, "forward", autospec=True, side_effect=bert.forward) as chunked:
        (row,) = student.embedding(sides.ours, workload, "fp32")
    for call in packed.call_args_list:
        ((documents,),) = call.args[1:2]
        assert [len(document) for document in documents] == [256, 512, 1024]
    assert packed.call_count == 2
    assert sum(call.args[1].numel() for call in chunked.call_args_list) == 2 * 1792
    assert row.name == "embedding fp32, 256 to 1024 tokens, the same encoder over chunks of 256"
    assert row.ratio == pytest.approx(row.ours / row.peer)


@pytest.mark.skipif(
    math.isnan(peak_memory(lambda: None, CPU)), reason="needs Linux with glibc, to read the peak"
)
def test_memory_is_that_of_both_sides(sides):
    (row,) = student.memory(sides.stock, sides.ours, Workload(longest=1024, long_documents=4))
    assert 0 < row.ours < row.peer / 2
    assert row.name.endswith("4 documents of 1024 tokens")


def trained(side):
    return [parameter for parameter in side.model.parameters() if parameter.requires_grad]


@pytest.fixture
def small_throughput(sides, monkeypatch):
    monkeypatch.setattr(student, "matmul_peak", lambda device, dtype: 1e12)
    monkeypatch.setattr(student, "token_budget", lambda side: 1000)
    workload = type(sides.workload)(layers=1, longest=512, documents=3)
    return lambda: student.throughput(sides.ours, workload)


def test_full_training_follows_the_gradient_and_leaves_none(sides, small_throughput):
    before = [parameter.detach().clone() for parameter in trained(sides.ours)]
    small_throughput()
    after = trained(sides.ours)
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(parameter.grad is None for parameter in after)


def test_full_training_counts_all_of_the_arithmetic(small_throughput):
    speed, share = small_throughput()
    # One layer's products a token, three times; attention comes on top.
    arithmetic = 3 * 2 * (4 * 48 * 48 + 2 * 48 * 64)
    assert share.ours > arithmetic * speed.ours / 1e12
    assert share.budget == "≥ 0.45"


@pytest.mark.parametrize(
    ("free", "ours", "stock"), [(139, 65536, 16384), (24, 24576, 6144), (2, 4096, 4096)]
)
def test_batches_on_a_gpu_fit_its_memory(monkeypatch, free, ours, stock):
    monkeypatch.setattr(student, "free_memory", lambda device: free * 2**30)
    sides = [
        SimpleNamespace(device=torch.device("cuda"), packed=packed) for packed in (True, False)
    ]
    assert [student.token_budget(side) for side in sides] == [ours, stock]


def test_base_is_longformer_base():
    with torch.device("meta"):
        model = LongformerModel(
            Workload(device="cuda", layers=12).config(), add_pooling_layer=False
        )
    published, pooler = 148_659_456, 768 * 769
    assert sum(parameter.numel() for parameter in model.parameters()) == published - pooler


def test_documents_hold_no_special_token(tiny):
    assert set(np.concatenate(Workload().tokens([500, 3]))) == set(range(5, 95))


def test_a_gpu_that_is_not_there_is_refused(monkeypatch, refused):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(
        "^device: torch sees no GPU; give cpu, or cuda where torch sees a GPU$",
        bench_student,
        device="cuda",
    )


def test_operations_of_layers_are_those_that_torch_counts(sides, monkeypatch):
    # The counter knows nothing of oneDNN.
    monkeypatch.setattr(forward, "fits_onednn", lambda dtype: False)
    batch = pack([list(range(5, 5 + length)) for length in FEW])
    with FlopCounterMode(display=False) as counter:
        sides.ours(batch)
    config = sides.ours.config
    config.attention_window = []  # the layers without attention
    counts = {str(name): n for name, n in counter.get_flop_counts()["Global"].items()}
    assert forward_flops(config, FEW) == counts["aten.addmm"]


@pytest.mark.parametrize("window", [1, 2, 4, 5, 39, 40, 100])
def test_operations_of_attention_are_those_of_the_keys_in_the_window(sides, window):
    config = sides.ours.config
    config.attention_window = []
    layers = forward_flops(config, FEW)
    config.attention_window = [2 * window]
    pairs = sum(
        abs(i - j) <= window for length in FEW for i in range(length) for j in range(length)
    )
    assert forward_flops(config, FEW) == layers + 2 * 2 * 48 * pairs


@pytest.mark.slow
def test_the_whole_benchmark_runs(tiny, monkeypatch):
    monkeypatch.setattr(student, "uses_bf16", lambda device: False)
    monkeypatch.setattr(student, "matmul_peak", lambda device, dtype: 1e12)
    rows = {row.name.partition(",")[0]: row for row in bench_student(device="cpu", quick=True).rows}
    assert rows["hidden states fp32"].verdict == "ok"
    assert {*rows} >= {
        "forward fp32",
        "time per token fp32",
        "peak memory of forward + backward fp32",
    }
    assert all(row.ours > 0 for row in rows.values() if row.unit == "tokens/s")
