"""Documents are as long as the thesis', models as large as they are called, and wrong sizes are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import LongformerModel

from docemb_lib.bench.workload import LONGEST, SHORTEST, Workload, longformer_config, random_documents, thesis_lengths
from docemb_lib.errors import InputError


def test_lengths_follow_the_log_normal_of_the_thesis_cut_at_4096():
    sigma = math.sqrt(math.log(1 + (1723 / 1371) ** 2))
    thesis = stats.lognorm(sigma, scale=1371 / math.exp(sigma**2 / 2))
    assert (thesis.mean(), thesis.std()) == (pytest.approx(1371), pytest.approx(1723))
    expected = np.clip(thesis.ppf((np.arange(50_000) + 0.5) / 50_000), SHORTEST, LONGEST)
    lengths = np.array(thesis_lengths(5000, seed=3))
    np.testing.assert_allclose(np.quantile(lengths, [0.1, 0.5, 0.9]), np.quantile(expected, [0.1, 0.5, 0.9]), rtol=0.01)
    assert lengths.mean() == pytest.approx(expected.mean(), rel=0.005)
    assert lengths.max() == LONGEST
    assert (lengths == LONGEST).mean() == pytest.approx(thesis.sf(LONGEST), abs=0.001)


def test_few_documents_have_about_the_mean_of_many():
    many = np.mean(thesis_lengths(5000, seed=0))
    assert all(0.8 < np.mean(thesis_lengths(8, seed=seed)) / many < 1.25 for seed in range(30))


def test_lengths_are_those_of_their_seed_in_random_order():
    assert thesis_lengths(20, seed=1) == thesis_lengths(20, seed=1)
    assert thesis_lengths(20, seed=1) != thesis_lengths(20, seed=2)
    assert thesis_lengths(20, seed=1) != sorted(thesis_lengths(20, seed=1))
    assert max(thesis_lengths(20, seed=1, scale=1 / 8)) == 512


def test_documents_hold_no_special_token():
    ids = np.concatenate(random_documents([500, 3], 20, seed=0))
    assert set(ids) == set(range(5, 15))


def test_base_is_longformer_base():
    with torch.device("meta"):
        model = LongformerModel(longformer_config("base", 12))
    assert sum(parameter.numel() for parameter in model.parameters()) == 148_659_456  # as published


def test_the_workload_suits_the_device_and_what_is_asked_for():
    cpu, gpu = (Workload.choose(None, device, documents=None, repeats=None) for device in ("cpu", "cuda"))
    assert (cpu.size, cpu.layers, gpu.size, gpu.layers) == ("small", 3, "base", 12)
    assert Workload.choose("base", "cpu", documents=7, repeats=5) == Workload(
        size="base", layers=12, documents=7, repeats=5
    )
    quick = Workload.choose(None, "cuda", quick=True, documents=None, repeats=None)
    assert (quick.layers, max(quick.lengths()) <= 512, quick.size) == (1, True, "base")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"size": "huge"}, "size: got 'huge', give small or base"),
        ({"documents": 0}, "documents: got 0, give at least 1"),
        ({"repeats": -1}, "repeats: got -1, give at least 1"),
    ],
)
def test_a_wrong_workload_is_refused(wrong, said):
    with pytest.raises(InputError, match=f"^{said}$"):
        Workload.choose(device="cpu", **{"size": None, "documents": None, "repeats": None, **wrong})
