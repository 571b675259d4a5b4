import pytest

from docemb_lib.errors import InputError
from docemb_lib.student.packing import pack, token_batches


def test_packing_lays_documents_end_to_end():
    batch = pack([[7, 8, 9], [5], [4, 4]])
    assert batch.input_ids.tolist() == [7, 8, 9, 5, 4, 4]
    assert batch.document.tolist() == [0, 0, 0, 1, 2, 2]
    assert batch.lengths.tolist() == list(batch.sizes) == [3, 1, 2]


def test_a_packed_batch_moves_as_a_whole():
    moved = pack([[1, 2]]).to("meta")
    assert {tensor.device.type for tensor in (moved.input_ids, moved.lengths, moved.document)} == {"meta"}
    assert moved.sizes == (2,)


@pytest.mark.parametrize(("sequences", "message"), [([], "no document"), ([[1], []], r"sequences\[1\]")])
def test_nothing_to_pack_is_refused(sequences, message):
    with pytest.raises(InputError, match=message):
        pack(sequences)


@pytest.mark.parametrize(
    ("lengths", "budget", "expected"),
    [
        ([], 10, []),
        ([3, 9, 3, 5], 10, [[1], [3, 0], [2]]),
        ([5, 5, 5, 5], 10, [[0, 1], [2, 3]]),
        ([2, 30, 1], 10, [[1], [0, 2]]),  # longer than the budget: alone
    ],
)
def test_batches_hold_the_longest_documents_first_within_the_budget(lengths, budget, expected):
    assert token_batches(lengths, budget) == expected


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(InputError, match="budget"):
        token_batches([1], 0)
