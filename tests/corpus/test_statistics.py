import statistics

import numpy as np
import pytest
from datasets import Dataset, DatasetDict

from docemb_lib.corpus.build import corpus_statistics

LENGTHS = [10, 256, 257, 600, 5000]


@pytest.fixture
def frame():
    table = Dataset.from_dict({"n_student_tokens": LENGTHS, "n_structural_tokens": [2 * n for n in LENGTHS]})
    corpus = DatasetDict(train=table, validation=table.select([]))
    return corpus_statistics(corpus, limit=512, student_limit=600).set_index("split")


def test_the_statistics_are_those_of_the_lengths(frame):
    row = frame.loc["train"]
    assert (row.documents, row.tokens) == (5, 6123)
    assert row["mean"] == pytest.approx(statistics.mean(LENGTHS))
    assert row["std"] == pytest.approx(statistics.pstdev(LENGTHS))
    assert row["median"] == 257


def test_a_document_as_long_as_the_limit_is_not_beyond_it(frame):
    assert frame.loc["train", "beyond_limit"] == pytest.approx(60)  # 514, 1200 and 10,000 of 512
    assert frame.loc["train", "beyond_student"] == pytest.approx(20)


def test_shares_beyond_the_limits_of_the_thesis_are_of_structural_tokens(frame):
    assert frame.loc["train", "over_384"] == pytest.approx(80)  # 512, 514, 1200 and 10,000
    assert frame.loc["train", "over_512"] == pytest.approx(60)


def test_an_empty_split_has_no_mean(frame):
    row = frame.loc["validation"]
    assert (row.documents, row.tokens) == (0, 0)
    assert np.isnan(row["mean"])
