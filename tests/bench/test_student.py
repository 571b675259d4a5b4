"""Both sides do the same work on the same documents; each kind of difference shows; rows are judged by the budgets."""

import json
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import Mock, patch

import numpy as np
import pytest
import torch
from transformers import LongformerModel

from docemb_lib.bench import student
from docemb_lib.bench.harness import peak_memory
from docemb_lib.bench.student import Workload, batches_of, bench_student, equality, forward_backward
from docemb_lib.errors import InputError
from docemb_lib.student.longformer import forward_flops

CPU = torch.device("cpu")


def alone(sides):
    model = sides.stock.model
    return torch.stack([model(torch.from_numpy(one)[None]).last_hidden_state[0].mean(0) for one in sides.documents])


@pytest.mark.parametrize("side", ["stock", "ours"])
def test_embeddings_are_the_means_of_each_document_alone_in_any_batch(sides, side):
    chosen, expected, lengths = getattr(sides, side), alone(sides).detach(), [len(one) for one in sides.documents]
    for budget in (300, 320, 10_000):
        found = torch.full((5, 48), torch.nan)
        for batch in batches_of(sides.documents, budget, CPU):
            found[[lengths.index(size) for size in batch.sizes]] = chosen(batch).detach()
        torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("side", ["stock", "ours"])
def test_gradients_are_those_of_all_documents_together(sides, side):
    weight = sides.stock.model.encoder.layer[0].output.dense.weight
    (expected,) = torch.autograd.grad((alone(sides) @ student.direction_of(sides.ours)).sum(), weight)
    chosen = getattr(sides, side)
    for _ in range(2):  # the second time nothing is left of the first
        forward_backward(chosen, batches_of(sides.documents, 320, CPU), precision="fp32")
        torch.testing.assert_close(
            chosen.model.encoder.layer[0].output.dense.weight.grad, expected, atol=1e-5, rtol=1e-4
        )


def test_the_same_weights_are_equal_and_one_that_differs_shows(sides):
    rows = equality(sides.stock, sides.ours, sides.documents)
    assert [row.verdict for row in rows] == ["ok"] * 2
    assert all(parameter.grad is None for parameter in sides.stock.model.parameters())
    with torch.no_grad():
        sides.ours.model.encoder.layer[0].output.dense.weight[0] += 1
    rows = equality(sides.stock, sides.ours, sides.documents)
    hidden, cosine = [row.ours for row in rows]
    assert [row.verdict for row in rows] == ["below"] * 2
    assert (hidden > 1e-3, cosine < 0.9999) == (True,) * 2


def test_a_window_that_differs_shows(sides):
    sides.ours.model.encoder.layer[0].attention.self.one_sided_attn_window_size = 16
    rows = equality(sides.stock, sides.ours, sides.documents)
    assert rows[0].verdict == "below"


def test_shares_count_three_times_the_arithmetic_for_training(sides, monkeypatch):
    peaks = {torch.float32: 1e9, torch.bfloat16: 4e9}
    monkeypatch.setattr(student, "matmul_peak", lambda device, dtype: peaks[dtype])
    monkeypatch.setattr(student.harness, "interleaved", lambda runs, *_: {n: [{"stock": 8.0}.get(n[0], 1.0)] for n in runs})  # fmt: skip
    monkeypatch.setattr(Workload, "drawn", lambda workload, documents: sides.documents)
    rows = {row.name: row for row in student.speed(sides.stock, sides.ours, sides.workload, ["fp32", "bf16"])}
    flops = forward_flops(sides.ours.config, [40, 7, 300, 12, 150])
    expected = {("forward", "fp32"): flops / 1e9, ("forward", "bf16"): flops / 4e9}
    expected |= {("forward + backward", precision): 3 * expected["forward", precision] for precision in ("fp32", "bf16")}  # fmt: skip
    assert {name: rows[f"{name[0]} {name[1]}, share of peak"].ours for name in expected} == pytest.approx(expected)
    ratio = rows["forward bf16, stock in fp32"]
    assert (ratio.ours, ratio.peer, ratio.ratio, ratio.budget) == (509, pytest.approx(509 / 8), 8, "")
    assert rows["forward fp32, share of peak"].budget == "≥ 90 %"
    assert all(parameter.grad is None for parameter in sides.ours.model.parameters())


def test_growth_has_the_same_tokens_in_long_and_short_documents(sides, monkeypatch):
    asked = []
    tokens = type(sides.workload).tokens
    monkeypatch.setattr(type(sides.workload), "tokens", lambda self, lengths: asked.append(lengths) or tokens(self, lengths))  # fmt: skip
    monkeypatch.setattr(student.harness, "interleaved", lambda runs, *_: {length: [float(length)] for length in runs})
    (row,) = student.growth(sides.ours, type(sides.workload)(layers=1, growth_tokens=512, longest=256), "fp32")
    assert (asked, row.ours, row.budget, row.verdict) == ([[16] * 32, [256] * 2], 16.0, "≤ 1.15", "below")


def test_embedding_takes_the_same_tokens_in_one_pass_and_in_chunks(sides, monkeypatch):
    monkeypatch.setattr(student, "embed_chunks", packed := Mock(wraps=student.embed_chunks))
    workload = type(sides.workload)(layers=1, longest=600, documents=3, repeats=1)
    bert = student.BertModel
    with patch.object(bert, "forward", autospec=True, side_effect=bert.forward) as chunked:
        (row,) = student.embedding(sides.ours, workload, "fp32")
    lengths = [[len(document) for document in call.args[1][0]] for call in packed.call_args_list]
    assert lengths == [[150, 375, 600]] * 2
    assert sum(call.kwargs["attention_mask"].sum() for call in chunked.call_args_list) == 2 * 1125
    assert row.name == "embedding fp32, the same encoder over chunks of 256"
    assert row.note == "documents of 150 to 600 tokens"
    assert row.ratio == pytest.approx(row.ours / row.peer)


@pytest.mark.skipif(peak_memory(lambda: None, CPU) is None, reason="this system does not report a process' peak")
def test_memory_is_that_of_both_sides(sides):
    (row,) = student.memory(sides.stock, sides.ours, Workload(longest=1024, memory_documents=4))
    assert 0 < row.ours < row.peer / 2
    assert row.note == "4 documents of 1024 tokens"


@pytest.mark.parametrize(("outcome", "said"), [([None, None], "this system does not report the peak of a process"),
    (torch.OutOfMemoryError, "1 documents of 64 tokens do not fit into the GPU's memory")], ids=["unknown", "full"])  # fmt: skip
def test_memory_that_is_not_to_be_had_gives_a_row_without_a_number(sides, monkeypatch, outcome, said):
    monkeypatch.setattr(student.harness, "peak_memory", Mock(side_effect=outcome))
    (row,) = student.memory(sides.stock, sides.ours, Workload(longest=64, memory_documents=1))
    assert (row.ours, row.note) == (None, said)


def test_full_training_follows_the_gradient_and_counts_minutes_by_its_speed(sides, monkeypatch):
    monkeypatch.setattr(student, "matmul_peak", lambda device, dtype: 1e12)
    monkeypatch.setattr(student, "token_budget", lambda side: 1000)
    workload = type(sides.workload)(layers=1, longest=512, training_steps=3)
    before = [parameter.detach().clone() for parameter in sides.ours.model.parameters() if parameter.requires_grad]
    speed, share, minutes = student.throughput(sides.ours, workload)
    after = [parameter for parameter in sides.ours.model.parameters() if parameter.requires_grad]
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert all(parameter.grad is None for parameter in after)
    tokens = 1e6 * np.mean(student.harness.thesis_lengths(3000, seed=5))
    assert minutes.ours == pytest.approx(tokens / speed.ours / 60, rel=0.01)
    arithmetic = 3 * 2 * (4 * 48 * 48 + 2 * 48 * 64)  # one layer's products a token; attention comes on top
    assert share.ours > arithmetic * speed.ours / 1e12
    assert (share.budget, minutes.budget) == ("≥ 40 %", "≤ 45")


@pytest.mark.parametrize(("free", "ours", "stock"), [(139, 65536, 16384), (24, 24576, 6144), (2, 4096, 4096)])
def test_batches_on_a_gpu_fit_its_memory(monkeypatch, free, ours, stock):
    monkeypatch.setattr(student, "free_memory", lambda device: free * 2**30)
    sides = [SimpleNamespace(device=torch.device("cuda"), packed=packed) for packed in (True, False)]
    assert [student.token_budget(side) for side in sides] == [ours, stock]


def test_base_is_longformer_base():
    with torch.device("meta"):
        model = LongformerModel(Workload(size="base", layers=12).config(), add_pooling_layer=False)
    published, pooler = 148_659_456, 768 * 769
    assert sum(parameter.numel() for parameter in model.parameters()) == published - pooler


def test_documents_hold_no_special_token(tiny):
    assert set(np.concatenate(Workload().tokens([500, 3]))) == set(range(5, 95))


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"^device: got cuda, but torch sees no GPU here; give cpu$"):
        bench_student(device="cuda")


BARE = """
import importlib.abc, importlib.util, sys

ABSENT = {absent}


class Refusal(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)


found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name.split(".")[0] in ABSENT else found(name, package)
sys.meta_path.insert(0, Refusal())
import docemb_lib.losses
from docemb_lib.cli import commands as cli
from docemb_lib.bench import student

student.GEOMETRIES["small"].update(hidden_size=48, intermediate_size=64, vocab_size=100)
student.fast_bf16 = lambda device: False
student.matmul_peak = lambda device, dtype: 1e12
# As a function, because Typer imports pydantic itself to read options.
cli.bench("student", device="cpu", quick=True, as_json=True)
"""


@pytest.mark.slow
def test_the_whole_benchmark_runs_with_torch_transformers_and_pandas_alone_and_names_how_it_was_measured():
    # transformers imports sklearn where it is, and that needs joblib.
    absent = {
        "pydantic", "datasets", "gensim", "seaborn", "nltk", "pyarrow", "papermill", "nbclient", "jupytext",
        "ipywidgets", "joblib", "sklearn", "dask"}  # fmt: skip
    code = BARE.format(absent=absent)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    notes = [note.partition(":")[0] for note in report["notes"]]
    assert notes == ["dropout is 0 on both sides", "bf16 is not timed", "quick"]
    assert (report["settings"]["documents"], report["settings"]["layers"]) == (4, 1)
    verdicts = {row["name"]: row["verdict"] for row in report["results"]}
    assert verdicts["hidden states fp32, largest difference"] == "ok"
    starts = {name.partition(",")[0] for name in verdicts}
    assert starts >= {"forward fp32", "time per token fp32", "peak memory of forward + backward"}
    assert all(row["ours"] > 0 for row in report["results"] if row["unit"] == "tokens/s")
