import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from conftest import write_files
from gensim.models.doc2vec import Doc2Vec, TaggedDocument

from docemb_lib.teachers import Compound, ParagraphVector, paragraph_vector

# Inference by gensim alone, with the very model that was trained: the words, cut by hand; the
# generator set by hand; pieces weighted by their words. Beside it, the inference of the model that
# is read from its files.
INFER_BY_HAND = """
import hashlib, json, sys
from pathlib import Path
from gensim.models.doc2vec import Doc2Vec
from docemb_lib.teachers import ParagraphVector, paragraph_vector
kept, original = [], Doc2Vec.train
Doc2Vec.train = lambda self, **given: (kept.append(self), original(self, **given))
training, texts, kinds = json.load(open(sys.argv[1]))
for name, kind in enumerate(kinds):
    folder = Path(sys.argv[2], str(name))
    teacher = ParagraphVector(vector_size=12, epochs=3, **kind).fit(training, folder)
    model, found = kept[-1], []
    for text in texts:
        words, vectors, n = text.lower().split(), [], 0
        while n < len(words):
            piece = words[n : n + 10000]
            model.random.seed(int(hashlib.sha256(" ".join(piece).encode()).hexdigest()[:8], 16))
            vectors.append((len(piece), model.infer_vector(piece)))
            n += len(piece)
        many = sum(size * vector.astype(float) for size, vector in vectors) / n
        found.append((vectors[0][1] if len(vectors) == 1 else many).tolist())
    model = folder, "", tuple(teacher.gensim_options(2).items())
    print(json.dumps([found, paragraph_vector.infer(model, texts, "lowercase").tolist()]))
"""


def test_neither_order_nor_batch_nor_the_number_of_workers_matters(dm, pages):
    whole = dm.embed(pages[::-1], jobs=1)[::-1]
    np.testing.assert_array_equal(dm.embed(pages[:30]), whole[:30])
    np.testing.assert_array_equal(dm.embed(pages[20:23]), whole[20:23])
    np.testing.assert_array_equal(dm.embed(pages, jobs=2), whole)
    assert (len(np.unique(whole, axis=0)), dm.embed([]).shape) == (len(pages), (0, 12))


def test_embeddings_are_gensims_bit_for_bit_and_those_of_pieces_are_averaged(dm, pages, tmp_path):
    """Also where Python hashes strings in another way, as it does in each process by default."""
    long = " ".join(pages)
    assert 10_000 < len(long.split()) < 100_000
    texts = [pages[0], pages[5], long]
    kinds = [{"dm": True}, *({"dm": False, "dbow_words": on} for on in (True, False))]
    (tmp_path / "texts.json").write_text(json.dumps([pages, texts, kinds]))
    command = [sys.executable, "-c", INFER_BY_HAND, str(tmp_path / "texts.json"), str(tmp_path)]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    lines = subprocess.check_output(command, env=environment, text=True).splitlines()
    for by_hand, ours in [*map(json.loads, lines), (json.loads(lines[0])[0], dm.embed(texts))]:
        np.testing.assert_array_equal(ours[:2], by_hand[:2])
        np.testing.assert_allclose(ours[2], by_hand[2], rtol=1e-5, atol=1e-7)
    assert len(lines) == len({json.dumps(json.loads(line)[0]) for line in lines}) == len(kinds)


def test_a_saved_model_is_the_same_model(dm, pages, tmp_path):
    shutil.copytree(dm._folder, tmp_path, dirs_exist_ok=True)
    loaded = ParagraphVector.load(tmp_path)
    np.testing.assert_array_equal(loaded.embed(pages[:3], jobs=1), dm.embed(pages[:3]))
    assert asdict(loaded) == asdict(dm)
    assert loaded.fingerprint == dm.fingerprint
    assert (loaded.label, loaded.dim) == ("DM;12;lowercase;2", 12)


def test_a_saved_model_has_no_pickles(dm, tmp_path):
    shutil.copytree(dm._folder, tmp_path, dirs_exist_ok=True)
    assert {file.suffix for file in tmp_path.iterdir()} == {".json", ".npy"}
    for file in tmp_path.glob("*.npy"):
        assert isinstance(np.load(file, mmap_mode="r", allow_pickle=False), np.memmap)


def test_a_loaded_model_has_the_settings_of_the_thesis(dm):
    folder = dm._folder
    model = paragraph_vector.load_model(folder, "", tuple(dm.gensim_options(2).items()))
    assert (model.sample, model.window, model.negative, model.hs, model.epochs) == (0, 5, 5, 0, 3)
    assert (model.alpha, model.min_alpha) == (0.025, 0.0001)
    assert (model.wv.expandos["sample_int"] == 2**32 - 1).all()  # kept with probability one


def test_a_text_without_a_known_word_is_the_zero_vector(dm):
    assert not dm.embed(["", " \n", "qwxz qwxy"]).any()
    assert dm.embed(["the qwxz"]).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ParagraphVector(dm=True).embed(["text"]), "not trained"),
        (
            lambda: ParagraphVector.load("absent"),
            "absent: this folder holds no whole Paragraph Vector .*No such file",
        ),
    ],
)
def test_bad_arguments_and_untrained_models_are_refused(call, message, refused):
    refused(message, call)


def test_a_compound_is_dm_then_dbow_in_any_order_of_its_members(dm, pages):
    dbow = ParagraphVector(dm=False, vector_size=5, epochs=1, preprocess="none", min_count=3).fit(
        pages
    )
    compound = Compound([dbow, dm])
    embeddings = compound.embed(pages[:4])
    np.testing.assert_array_equal(embeddings[:, :12], dm.embed(pages[:4]))
    np.testing.assert_array_equal(embeddings[:, 12:], dbow.embed(pages[:4]))
    assert (compound.dim, compound.label) == (17, "DM;12;lowercase;2+DBOW;5;None;3")
    assert compound.fingerprint == Compound([dm, dbow]).fingerprint


OPTIONS = {
    "dm": True,
    "vector_size": 8,
    "min_count": 1,
    "sample": 0,
    "epochs": 4,
    "seed": 0,
    "workers": 1,
}
KINDS = [{"dm": True}, {"dm": False, "dbow_words": 0}, {"dm": False, "dbow_words": 1}]


def train(folder: Path, documents: list[list[str]], key: str = "key", **options: object) -> Doc2Vec:
    write_files(folder, {"words.txt": "".join(" ".join(words) + "\n" for words in documents)})
    paragraph_vector.train(folder / "words.txt", folder, key, OPTIONS | options)
    return paragraph_vector.load_model(folder, key, tuple((OPTIONS | options).items()))


def in_one_call(documents: list[list[str]], **options: object) -> Doc2Vec:
    return Doc2Vec(
        [TaggedDocument(words, [i]) for i, words in enumerate(documents)], **(OPTIONS | options)
    )


@pytest.fixture
def documents(pages) -> list[list[str]]:
    return [page.lower().split() for page in pages[:30]]


@pytest.mark.parametrize("options", KINDS)
def test_training_is_gensims_own_in_one_call(tmp_path, documents, options):
    """Up to the rounding of the rates of single epochs; another schedule differs far more."""
    ours = train(tmp_path, documents, **options)
    of_file = {"corpus_file": str(tmp_path / "words.txt"), **OPTIONS, **options}
    peer = in_one_call(documents, **options) if options["dm"] else Doc2Vec(**of_file)
    assert ours.wv.index_to_key == peer.wv.index_to_key
    np.testing.assert_allclose(ours.wv.vectors, peer.wv.vectors, atol=1e-3)
    np.testing.assert_allclose(ours.syn1neg, peer.syn1neg, atol=1e-3)
    for model in (ours, peer):
        assert (model.alpha, model.min_alpha, model.epochs) == (0.025, 0.0001, 4)
    # The windows of DM shrink at random, which gensim's reader of files leaves out.
    for change in ({"alpha": 0.02}, {"shrink_windows": False})[: 1 + options["dm"]]:
        other = in_one_call(documents, **options, **change)
        assert np.abs(ours.syn1neg - other.syn1neg).max() > 0.03


def test_several_threads_share_one_schedule_of_learning_rates(tmp_path, documents, monkeypatch):
    """A thread of gensim that reads a file compares `total_examples` with its own documents."""
    asked = []
    original = Doc2Vec.train
    monkeypatch.setattr(
        Doc2Vec, "train", lambda self, **given: (asked.append(given), original(self, **given))
    )
    train(tmp_path / "dbow", documents, dm=False, dbow_words=0, workers=4)
    train(tmp_path / "dm", documents, dm=True, workers=4)
    assert [given["total_examples"] for given in asked] == 4 * [8] + 4 * [30]
    np.testing.assert_allclose(
        [given["start_alpha"] for given in asked[:4]], [0.025, 0.018775, 0.01255, 0.006325]
    )
    np.testing.assert_allclose(
        [given["end_alpha"] for given in asked[:4]], [0.018775, 0.01255, 0.006325, 0.0001]
    )


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("after", [1, 3])
def test_an_interrupted_training_goes_on_and_ends_in_the_same_bits(
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
    assert [state.name for state in (tmp_path / "broken").glob("state-*")] == [f"state-key-{after}"]
    monkeypatch.setattr(
        Doc2Vec, "train", lambda self, **given: (epochs.append(None), original(self, **given))
    )
    resumed = train(tmp_path / "broken", documents, **options)
    assert len(epochs) == 4
    np.testing.assert_array_equal(resumed.wv.vectors, unbroken.wv.vectors)
    np.testing.assert_array_equal(resumed.syn1neg, unbroken.syn1neg)
    np.testing.assert_array_equal(resumed.cum_table, unbroken.cum_table)


def test_one_state_is_kept_and_that_of_another_training_is_not_continued(tmp_path, documents):
    train(tmp_path, documents, key="first", epochs=2)
    (tmp_path / ".state-first-3.999").mkdir()  # half written by a killed process
    assert [path.name for path in tmp_path.glob("state-*")] == ["state-first-2"]
    other = train(tmp_path, documents, key="second", seed=5)
    assert [path.name for path in tmp_path.glob("*state-*")] == ["state-second-4"]
    np.testing.assert_array_equal(
        other.syn1neg, train(tmp_path / "alone", documents, seed=5).syn1neg
    )


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("vectors.npy", np.zeros((3, 12), "f4")),
        ("noise.npy", np.zeros(4, "i8")),
        ("counts.npy", np.array([os.getcwd], dtype=object)),
        ("vocabulary.json", b"{"),
        ("weights.npy", None),
    ],
)
def test_a_broken_model_is_named_before_gensim_reads_beyond_its_arrays(
    dm, tmp_path, refused, file, content
):
    shutil.copytree(dm._folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / file).unlink()
    if isinstance(content, bytes):
        (tmp_path / file).write_bytes(content)
    elif content is not None:
        np.save(tmp_path / file, content)
    refused(
        f"{tmp_path}: this folder holds no whole Paragraph Vector .*; remove it and train again",
        ParagraphVector.load,
        tmp_path,
    )
