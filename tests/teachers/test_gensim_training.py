import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from gensim.models.doc2vec import Doc2Vec, TaggedDocument

from docemb_lib.errors import InputError
from docemb_lib.teachers import ParagraphVector, write_words
from docemb_lib.teachers import gensim_models as gensim_training
from docemb_lib.teachers.gensim_models import epochs_done

OPTIONS = {"dm": True, "vector_size": 8, "min_count": 1, "sample": 0, "epochs": 4, "seed": 0, "workers": 1}
KINDS = [{"dm": True}, {"dm": False, "dbow_words": 0}, {"dm": False, "dbow_words": 1}]
BUILD = """
import sys
from docemb_lib.teachers import ParagraphVector, Words
model = ParagraphVector(dm=sys.argv[3] == "DM", vector_size=12, epochs=40, dbow_words=False)
model.fit_words(Words.open(sys.argv[1]), sys.argv[2])
"""


def train(folder: Path, documents: list[list[str]], key: str = "key", **options: object) -> Doc2Vec:
    """In this process; the fixed hash seed matters to inference only."""
    folder.mkdir(exist_ok=True)
    file = folder / "words.txt"
    file.write_text("".join(" ".join(words) + "\n" for words in documents))
    gensim_training.train(file, folder, key, OPTIONS | options)
    return Doc2Vec.load(str(folder / "doc2vec.model"))


def in_one_call(documents: list[list[str]], **options: object) -> Doc2Vec:
    tagged = [TaggedDocument(words, [i]) for i, words in enumerate(documents)]
    return Doc2Vec(tagged, **(OPTIONS | options))


@pytest.fixture
def documents(pages) -> list[list[str]]:
    return [page.lower().split() for page in pages[:30]]


@pytest.mark.parametrize("options", KINDS)
def test_training_is_gensims_own_in_one_call(tmp_path, documents, options):
    """The rates of single epochs are rounded otherwise. Any other schedule is far off."""
    ours = train(tmp_path, documents, **options)
    # gensim's reader of files is ours for DBOW; for DM it would not shrink the windows, and that is tested below.
    file = {} if options["dm"] else {"corpus_file": str(tmp_path / "words.txt")}
    peer = Doc2Vec(**file, **(OPTIONS | options)) if file else in_one_call(documents, **options)
    assert ours.wv.index_to_key == peer.wv.index_to_key
    np.testing.assert_allclose(ours.wv.vectors, peer.wv.vectors, atol=1e-3)
    np.testing.assert_allclose(ours.syn1neg, peer.syn1neg, atol=1e-3)
    assert (ours.alpha, ours.min_alpha, ours.epochs) == (peer.alpha, peer.min_alpha, peer.epochs) == (0.025, 0.0001, 4)

    other = in_one_call(documents, **options, alpha=0.02)
    assert np.abs(ours.syn1neg - other.syn1neg).max() > 0.03


def test_windows_of_dm_shrink_at_random_which_gensims_reader_of_files_leaves_out(tmp_path, documents):
    ours = train(tmp_path, documents).syn1neg
    assert np.abs(ours - in_one_call(documents, shrink_windows=False).syn1neg).max() > 0.03


def test_several_threads_share_the_learning_rates_line(tmp_path, documents, monkeypatch):
    """Reading a file, gensim's threads compare the documents of their own with the number of all."""
    asked = []
    original = Doc2Vec.train
    monkeypatch.setattr(Doc2Vec, "train", lambda self, **given: (asked.append(given), original(self, **given)))
    train(tmp_path / "dbow", documents, dm=False, dbow_words=0, workers=4)
    train(tmp_path / "dm", documents, dm=True, workers=4)
    assert [given["total_examples"] for given in asked] == 4 * [8] + 4 * [30]
    np.testing.assert_allclose([given["start_alpha"] for given in asked[:4]], [0.025, 0.018775, 0.01255, 0.006325])
    np.testing.assert_allclose([given["end_alpha"] for given in asked[:4]], [0.018775, 0.01255, 0.006325, 0.0001])


def test_words_past_ten_thousand_are_trained(tmp_path):
    """Two corpora that differ only in the order of the words past 10,000, where gensim alone sees no difference."""
    head, tail = ["a", "b", "c", "d"] * 2500, ["a", "b", "c", "d"] * 50
    texts = [" ".join(head + tail), " ".join(head + sorted(tail))]
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder, text in zip(folders, texts, strict=True):
        words = write_words(folder, [text], "none")
        gensim_training.train(words.file, folder, "key", OPTIONS)
    ours = [Doc2Vec.load(str(folder / "doc2vec.model")).syn1neg for folder in folders]
    alone = [in_one_call([text.split()]).syn1neg for text in texts]
    assert not np.array_equal(ours[0], ours[1])
    np.testing.assert_array_equal(alone[0], alone[1])


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("after", [1, 3])
def test_an_interrupted_training_goes_on_where_it_was_and_ends_in_the_same_bits(
    tmp_path, documents, monkeypatch, options, after
):
    unbroken = train(tmp_path / "unbroken", documents, **options)
    epochs = []
    original = Doc2Vec.train

    def counted(self, **given):
        if len(epochs) == after:
            raise KeyboardInterrupt
        epochs.append(given["start_alpha"])
        original(self, **given)

    monkeypatch.setattr(Doc2Vec, "train", counted)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "broken", documents, **options)
    assert epochs_done(tmp_path / "broken", "key") == after
    monkeypatch.setattr(Doc2Vec, "train", lambda self, **given: (epochs.append(None), original(self, **given)))
    resumed = train(tmp_path / "broken", documents, **options)
    assert len(epochs) == 4
    for name in ("wv.vectors", "syn1neg", "cum_table"):
        whole, part = unbroken, resumed
        for attribute in name.split("."):
            whole, part = getattr(whole, attribute), getattr(part, attribute)
        np.testing.assert_array_equal(part, whole)


def test_one_state_is_kept_and_that_of_another_training_is_not_gone_on_from(tmp_path, documents):
    train(tmp_path, documents, key="first", epochs=2)
    (tmp_path / ".state-first-3.999").mkdir()  # half written by a killed process
    assert [path.name for path in tmp_path.glob("state-*")] == ["state-first-2"]
    other = train(tmp_path, documents, key="second", seed=5)
    assert [path.name for path in tmp_path.glob("*state-*")] == ["state-second-4"]
    np.testing.assert_array_equal(other.syn1neg, train(tmp_path / "alone", documents, seed=5).syn1neg)


def test_training_in_a_process_of_ones_own_outlives_its_parent(tmp_path, documents, monkeypatch):
    parents = iter(range(1000))
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("the calling process was ended"))
    assert len(train(tmp_path, documents).wv)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["DM", "DBOW"])
def test_a_process_killed_between_epochs_loses_one_epoch_and_nothing_else(pages, tmp_path, kind):
    words = write_words(tmp_path / "words", pages, "lowercase")
    command = [sys.executable, "-c", BUILD, str(words.folder), str(tmp_path / "model"), kind]
    process = subprocess.Popen(command)
    while not list((tmp_path / "model").glob("state-*-[2-9]")):
        assert process.poll() is None
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=5)
    assert not alive
    assert not (tmp_path / "model" / "paragraph_vector.json").exists()
    (state,) = (tmp_path / "model").glob("state-*")
    assert 2 <= int(state.name.rpartition("-")[2]) < 40

    model = ParagraphVector(dm=kind == "DM", vector_size=12, epochs=40, dbow_words=False)
    resumed = model.fit_words(words, tmp_path / "model").fingerprint
    assert resumed == model.fit_words(words, tmp_path / "unbroken").fingerprint
    assert not list((tmp_path / "model").glob("*state*"))


def test_a_cap_that_leaves_no_word_is_refused(tmp_path):
    words = [[f"w{i}"] for i in range(400)] + [["often"]] * 3
    with pytest.raises(InputError, match="max_vocab_size: 20 leaves no word that occurs 50 times"):
        train(tmp_path, words, max_vocab_size=20, min_count=50)
    assert os.listdir(tmp_path) == ["words.txt"]


def test_a_cap_is_gensims_own(tmp_path, documents):
    ours = train(tmp_path, documents, max_vocab_size=100, min_count=2)
    assert ours.wv.index_to_key == in_one_call(documents, max_vocab_size=100, min_count=2).wv.index_to_key
    assert len(ours.wv) < len(train(tmp_path / "all", documents, min_count=2).wv)


def test_large_arrays_are_files_of_their_own_and_small_ones_are_not(tmp_path, documents):
    words = [[f"w{i}" for i in range(3000)]]
    train(tmp_path / "large", words, vector_size=100, epochs=1)  # 300,000 numbers
    train(tmp_path / "small", words, vector_size=50, epochs=1)
    files = {path.name for path in (tmp_path / "large").iterdir() if path.is_file()}
    assert files == {"words.txt", "doc2vec.model", "doc2vec.model.wv.vectors.npy", "doc2vec.model.syn1neg.npy"}
    shared = Doc2Vec.load(str(tmp_path / "large" / "doc2vec.model"), mmap="r")
    assert isinstance(shared.wv.vectors, np.memmap)
    assert isinstance(shared.syn1neg, np.memmap)
    assert not list((tmp_path / "small").glob("*.npy"))
