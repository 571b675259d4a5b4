import numpy as np
import pytest

from docemb_lib.errors import InputError
from docemb_lib.student.inference import growing_npy


@pytest.mark.parametrize("sizes", [[], [0], [1], [3, 0, 9], [5000, 5000, 1]])
def test_rows_appended_piece_by_piece_are_one_array(tmp_path, sizes):
    pieces = [np.random.default_rng(size).normal(size=(size, 7)).astype(np.float32) for size in sizes]
    with growing_npy(tmp_path / "deep" / "e.npy", 7) as append:
        for piece in pieces:
            append(piece)
        assert not (tmp_path / "deep" / "e.npy").exists()
    found = np.load(tmp_path / "deep" / "e.npy")
    np.testing.assert_array_equal(found, np.concatenate([np.empty((0, 7), np.float32), *pieces]))
    assert found.dtype == np.float32
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["e.npy"]


def test_rows_of_another_layout_or_dtype_are_converted(tmp_path):
    rows = np.arange(12.0).reshape(3, 4)
    with growing_npy(tmp_path / "e.npy", 3) as append:
        append(rows.T)
    np.testing.assert_array_equal(np.load(tmp_path / "e.npy"), rows.T.astype(np.float32))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_interrupt_leaves_the_earlier_file_and_nothing_else(tmp_path, error):
    np.save(tmp_path / "e.npy", np.ones(2))

    def interrupted():
        with growing_npy(tmp_path / "e.npy", 3) as append:
            append(np.zeros((2, 3)))
            raise error

    with pytest.raises(error):
        interrupted()
    assert [file.name for file in tmp_path.iterdir()] == ["e.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "e.npy"), np.ones(2))


def test_another_ending_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InputError, match=r"e\.bin, give a file that ends in \.npy"), growing_npy(tmp_path / "e.bin", 3):
        pass
    assert list(tmp_path.iterdir()) == []
