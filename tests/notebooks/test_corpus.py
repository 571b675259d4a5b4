"""What 01_corpus defines in its cells, beside numpy and numbers counted by hand."""

import html

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

NOTEBOOK = "01_corpus.py"


def test_the_lengths_of_a_split_are_counted_by_hand(defined):
    lengths = [10, 384, 385, 512, 513]
    documents = pd.DataFrame(
        {"n_student_tokens": [2 * n for n in lengths], "n_structural_tokens": lengths}
    )
    assert defined.describe_lengths(documents) == {
        "documents": 5,
        "tokens": 3608,
        "mean": pytest.approx(721.6),
        "std": pytest.approx(2 * np.std(lengths)),
        "over_384": pytest.approx(60),  # 385, 512 and 513
        "over_512": pytest.approx(20),
    }


def test_the_distance_of_two_sets_of_embeddings_is_that_of_scipy_row_by_row(defined):
    X, Y = np.random.default_rng(0).normal(size=(2, 4, 6))
    assert defined.distance(X, Y) == pytest.approx(np.diag(cdist(X, Y, "cosine")).mean())
    assert defined.distance(X, 3 * X) == pytest.approx(0)


def test_what_the_teacher_does_not_read_is_grey_and_no_markup_of_a_page_is_lost(defined):
    defined.shown.__globals__.update(HTML=str, escape=html.escape)
    page = defined.shown("a < b & ", "<i>c</i>")
    read, grey = page.split('<span style="opacity: 0.45">')
    assert "a &lt; b &amp; " in read
    assert grey.startswith("&lt;i&gt;c&lt;/i&gt;</span>")
