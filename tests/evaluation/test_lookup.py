"""Texts find their rows, whatever their order, and a whole pool is not copied."""

import numpy as np
import pytest

from docemb_lib.errors import InputError
from docemb_lib.evaluation import tasks as lookup
from docemb_lib.evaluation.tasks import rows_by_text, unique

TEXTS = [f"text {n}" for n in range(16)]


def test_each_text_stands_once_where_it_came_first() -> None:
    assert unique(["b", "a", "b"], ["c", "a"]) == ["b", "a", "c"]


def test_rows_are_found_by_text_in_any_order_and_number() -> None:
    embeddings = np.arange(32.0).reshape(16, 2)
    find = rows_by_text("t", embeddings, TEXTS)
    np.testing.assert_array_equal(find(["text 3", "text 0", "text 3"]), [[6, 7], [0, 1], [6, 7]])


def test_all_texts_in_their_order_are_looked_up_without_a_copy() -> None:
    embeddings = np.zeros((16, 2))
    assert np.shares_memory(rows_by_text("t", embeddings, TEXTS)(tuple(TEXTS)), embeddings)
    assert not np.shares_memory(rows_by_text("t", embeddings, TEXTS)(TEXTS[::-1]), embeddings)


@pytest.mark.parametrize("block", [4, 8192])
def test_embeddings_of_a_wrong_shape_or_not_finite_are_refused(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "BLOCK", block)
    with pytest.raises(InputError, match=r"task 't': embeddings of shape \(15, 3\) for 16 texts"):
        rows_by_text("t", np.zeros((15, 3)), TEXTS)
    diverged = np.zeros((16, 3))
    diverged[5:7, 1] = np.nan
    with pytest.raises(InputError, match=r"2 of 16 embeddings are not finite, the first is row 5"):
        rows_by_text("t", diverged, TEXTS)
