import threading

import numpy as np
import pytest
import torch

from docemb_lib.packed.packing import pack, token_batches
from docemb_lib.student import embedding
from docemb_lib.student.embedding import embed_chunks


def test_packing_lays_documents_end_to_end(refused):
    batch = pack([[7, 8, 9], [5], [4, 4]])
    assert (batch.input_ids.tolist(), batch.document.tolist()) == (
        [7, 8, 9, 5, 4, 4],
        [0, 0, 0, 1, 2, 2],
    )
    assert batch.lengths.tolist() == list(batch.sizes) == [3, 1, 2]
    for sequences in ([], [[1], []]):
        refused("one document or more, each of one token or more", pack, sequences)


def test_batches_hold_the_longest_documents_first_within_the_budget():
    assert (token_batches([], 10), token_batches([3, 9, 3, 5], 10)) == ([], [[1], [3, 0], [2]])
    assert token_batches([5, 5, 5, 5], 10) == [[0, 1], [2, 3]]
    assert token_batches([2, 30, 1], 10) == [[1], [0, 2]]  # longer than the budget: alone
    assert token_batches([3, 9, 4, 4, 20], 12, padded=True) == [[4], [1], [2, 3, 0]]


def test_passes_hold_the_budget_with_padding(make_student, monkeypatch):
    monkeypatch.setattr(embedding, "CPU_BATCH_TOKENS", 64)
    reported = []
    for pooling in ("mean", "cls"):  # packed; padded to whole windows
        student = make_student(windows=[16], pooling=pooling)
        next(
            embed_chunks(
                student, [[[101, 102]] * 12], devices=None, bf16=False, report=reported.append
            )
        )
    assert reported == [12, 4, 4, 4]


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr("docemb_lib.student.student.CHUNK", 4)
    monkeypatch.setattr(embedding, "CHUNK", 4)


@pytest.fixture
def documents():
    """Texts of different lengths, some of them empty."""
    return [" ".join(["words", "of", "many", "lengths"] * (7 * index % 23)) for index in range(32)]


def test_chunks_are_read_one_ahead(make_student, small_chunks):
    student = make_student(windows=[8])
    taken = []

    def tokenised():
        for chunk in range(10):
            taken.append(chunk)
            yield [[101, 2000 + chunk, 102]] * 4

    found = []
    for rows in embed_chunks(student, tokenised(), devices=None, bf16=False, report=lambda n: None):
        found.append(rows)
        assert len(taken) <= len(found) + 1
    assert [rows.shape for rows in found] == [(4, 16)] * 10


@pytest.mark.parametrize("kind", ["mean", "cls", "modernbert"])
def test_a_generator_becomes_a_file_whose_rows_depend_on_no_others(
    make_kind, documents, small_chunks, tmp_path, kind
):
    student = make_kind(kind)
    file = tmp_path / "deep" / "e.npy"
    expected = np.concatenate([student.embed([text], bf16=False) for text in documents])
    seen = []
    result = student.embed(
        (seen.append(file.exists()) or text for text in documents), out=file, bf16=False
    )
    assert seen == [False] * 32  # the file appears when it is complete
    assert isinstance(result, np.memmap)
    assert not result.flags.writeable
    np.testing.assert_allclose(result, expected, atol=1e-5)
    np.testing.assert_array_equal(result, student.embed(documents, bf16=False))
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["e.npy"]


def test_no_documents_have_no_rows_and_truncation_counts_over_all_chunks(
    make_student, tmp_path, small_chunks, caplog
):
    student = make_student(windows=[8])
    for texts in ([], iter([])):
        assert student.embed(texts).shape == (0, 16)
        assert student.embed(texts, out=tmp_path / "none.npy", devices=["cpu", "cpu"]).shape == (
            0,
            16,
        )
        assert np.load(tmp_path / "none.npy").dtype == np.float32
    student = make_student(windows=[8], max_tokens=12)
    student.embed(["word", "word " * 30] * 5)
    assert [record.getMessage() for record in caplog.records] == [
        "5 of 10 documents are cut at 12 tokens"
    ]
    caplog.clear()
    student.embed(["word", "ก ข ค ง", "word"])
    assert "of the tokens are unknown to this encoder" in caplog.text


def test_two_devices_share_the_work(make_student, documents, small_chunks, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "CPU_BATCH_TOKENS", 64)
    student = make_student(windows=[8])
    calls = []
    hook = student.register_forward_pre_hook(lambda module, arguments: calls.append(1))
    expected = student.embed(documents, bf16=False)
    hook.remove()
    assert len(calls) % 2 == 0  # else the last batch would wait at the barrier for ever
    meeting = threading.Barrier(2)  # each batch waits for a second one in another thread
    seen = set()

    def meet(module, arguments):
        seen.add((id(module), threading.get_ident()))
        meeting.wait(timeout=60)

    hook = student.register_forward_pre_hook(meet)
    found = student.embed(documents, bf16=False, devices=["cpu", "cpu"], out=tmp_path / "e.npy")
    hook.remove()
    np.testing.assert_allclose(found, expected, atol=1e-6)  # each thread may have fewer cores
    assert len({module for module, _ in seen}) == len({thread for _, thread in seen}) == 2


@pytest.mark.parametrize("devices", [None, ["cpu", "cpu"]])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_leaves_the_earlier_file_and_nothing_else(
    make_student, documents, small_chunks, tmp_path, devices, error
):
    student = make_student(windows=[8]).train()
    passes = []

    def fail(module, arguments):
        passes.append(1)
        if len(passes) == 5 and error is RuntimeError:
            raise error

    def texts():
        yield from documents
        raise error

    earlier = b"\x93NUMPY earlier"
    (tmp_path / "e.npy").write_bytes(earlier)
    before = threading.active_count()
    hook = student.register_forward_pre_hook(fail)
    with pytest.raises(error):
        student.embed(texts(), out=tmp_path / "e.npy", devices=devices)
    hook.remove()
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"e.npy": earlier}
    assert threading.active_count() == before
    assert student.training


@pytest.fixture
def two_cores():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_cores", "small_chunks")
def test_each_core_takes_batches_of_its_own(make_student, documents, monkeypatch):
    monkeypatch.setattr(embedding, "CPU_BATCH_TOKENS", 1)  # a document
    student = make_student(windows=[8])
    expected = np.concatenate([student.embed([text], bf16=False) for text in documents])
    meeting = threading.Barrier(2)  # each batch waits for one in another thread
    threads = set()

    def meet(module, arguments):
        threads.add((threading.get_ident(), torch.get_num_threads()))
        meeting.wait(timeout=60)

    student.register_forward_pre_hook(meet)
    np.testing.assert_allclose(student.embed(documents, bf16=False), expected, atol=1e-6)
    assert [cores for _, cores in threads] == [1, 1]
    assert torch.get_num_threads() == 2
