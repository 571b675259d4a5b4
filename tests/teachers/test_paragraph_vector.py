import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gensim.models.doc2vec import Doc2Vec, TaggedDocument

from docemb_lib.errors import InputError
from docemb_lib.teachers import Compound, ParagraphVector, gensim_worker

TRAIN_AND_EMBED = """
import json, sys
from docemb_lib.teachers import ParagraphVector
texts = json.load(open(sys.argv[1]))
print(ParagraphVector(dm=True, vector_size=12, epochs=3).fit(texts).embed(texts[:8], jobs=1).tobytes().hex())
"""
# Inference by gensim alone: the words, cut by hand; the generator set by hand; pieces weighted by their words.
INFER_BY_HAND = """
import hashlib, json, sys
import numpy as np
from gensim.models.doc2vec import Doc2Vec
model = Doc2Vec.load(sys.argv[2])
for text in json.load(open(sys.argv[1])):
    words, total, n = text.lower().split(), 0, 0
    while n < len(words):
        piece = words[n : n + 10000]
        model.random.seed(int(hashlib.sha256(" ".join(piece).encode()).hexdigest()[:8], 16))
        total = total + len(piece) * model.infer_vector(piece).astype(float)
        n += len(piece)
    print(json.dumps((total / n).tolist()))
"""


def run(script: str, *args: Path, hash_seed: str) -> str:
    command = [sys.executable, "-c", script, *map(str, args)]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def train(folder: Path, documents: list[list[str]], **options: object) -> Doc2Vec:
    """Train in this process; the fixed hash seed matters to inference only."""
    (folder / "tokens.txt").write_text("".join(" ".join(words) + "\n" for words in documents))
    defaults = {"dm": True, "vector_size": 8, "min_count": 1, "sample": 0, "epochs": 2, "seed": 0, "workers": 1}
    gensim_worker.train(folder / "tokens.txt", folder, folder / "epochs", defaults | options)
    return Doc2Vec.load(str(folder / "doc2vec.model"))


def test_a_process_with_another_hash_seed_trains_the_same_model_and_embeds_alike(dm, pages, tmp_path):
    (tmp_path / "texts.json").write_text(json.dumps(pages))
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    found = run(TRAIN_AND_EMBED, tmp_path / "texts.json", hash_seed=other)
    assert found.strip() == dm.embed(pages[:8]).tobytes().hex()


def test_order_batch_and_number_of_workers_do_not_matter(dm, pages):
    whole = dm.embed(pages, jobs=2)
    np.testing.assert_array_equal(dm.embed(pages[::-1], jobs=1)[::-1], whole)
    np.testing.assert_array_equal(dm.embed(pages[20:23]), whole[20:23])
    assert len(np.unique(whole, axis=0)) == len(pages)
    assert dm.embed([]).shape == (0, 12)


def test_embeddings_are_gensims_own_with_long_documents_averaged(dm, pages, tmp_path, caplog):
    long = " ".join(pages)
    assert 10_000 < len(long.split()) < 100_000
    (tmp_path / "texts.json").write_text(json.dumps([pages[0], long, pages[5]]))
    dm.save(tmp_path)
    lines = run(INFER_BY_HAND, tmp_path / "texts.json", tmp_path / "doc2vec.model", hash_seed="0").splitlines()
    with caplog.at_level(logging.INFO, logger="docemb_lib.teachers.paragraph_vector"):
        ours = dm.embed([pages[0], long, pages[5]])
    np.testing.assert_allclose(ours, [json.loads(line) for line in lines], rtol=1e-5, atol=1e-7)
    assert "1 of 3 documents averaged" in caplog.text


def test_training_is_gensims_own_where_no_document_is_long(tmp_path, pages):
    documents = [page.split() for page in pages[:20]]
    ours = train(tmp_path, documents, dm=False, dbow_words=1)
    peer = Doc2Vec(
        [TaggedDocument(words, [i]) for i, words in enumerate(documents)],
        dm=0, vector_size=8, min_count=1, sample=0, epochs=2, seed=0, workers=1, dbow_words=1,
    )  # fmt: skip
    assert ours.wv.index_to_key == peer.wv.index_to_key
    np.testing.assert_array_equal(ours.wv.vectors, peer.wv.vectors)
    np.testing.assert_array_equal(ours.syn1neg, peer.syn1neg)


def test_words_past_ten_thousand_are_trained(tmp_path):
    """Two corpora that differ only in the order of the words past 10,000, where gensim alone sees no difference."""
    head, tail = ["a", "b", "c", "d"] * 2500, ["a", "b", "c", "d"] * 50
    tails = [tail, sorted(tail)]
    ours = [train(tmp_path, [head + tail]).syn1neg for tail in tails]
    options = {"vector_size": 8, "min_count": 1, "sample": 0, "epochs": 2, "seed": 0, "workers": 1}
    alone = [Doc2Vec([TaggedDocument(head + tail, [0])], **options).syn1neg for tail in tails]
    assert not np.array_equal(ours[0], ours[1])
    np.testing.assert_array_equal(alone[0], alone[1])


def test_a_long_document_is_pieces_under_one_tag(tmp_path):
    words = [f"w{i}" for i in range(25_000)]
    (tmp_path / "tokens.txt").write_text("short one\n" + " ".join(words) + "\n")
    short, *long = gensim_worker.TokenFile(tmp_path / "tokens.txt")
    assert (short.words, short.tags) == (["short", "one"], [0])
    assert [(len(piece.words), piece.tags) for piece in long] == [(10_000, [1]), (10_000, [1]), (5_000, [1])]
    assert [word for piece in long for word in piece.words] == words


def test_long_training_documents_are_counted_and_logged(caplog):
    with caplog.at_level(logging.INFO, logger="docemb_lib.teachers.paragraph_vector"):
        model = ParagraphVector(dm=False, vector_size=4, epochs=1, workers=2).fit(["a b " * 6000, "a b c"] * 2)
    assert (model.fitted.documents, model.fitted.long_documents, model.fitted.vocabulary) == (4, 2, 3)
    assert "2 of 4 documents trained in pieces" in caplog.text


def test_frequent_words_are_never_dropped_and_the_thesis_settings_reach_gensim(dm, tmp_path):
    dm.save(tmp_path)
    model = Doc2Vec.load(str(tmp_path / "doc2vec.model"))
    assert (model.sample, model.window, model.negative, model.hs, model.epochs) == (0, 5, 5, 0, 3)
    assert (model.alpha, model.min_alpha) == (0.025, 0.0001)
    assert (model.wv.expandos["sample_int"] == 2**32 - 1).all()  # kept with probability one


def test_min_count_counts_occurrences_not_documents(tmp_path):
    documents = [["thrice"] * 3, ["each", "x"], ["each", "y"]]
    assert train(tmp_path, documents, min_count=3).wv.index_to_key == ["thrice"]


@pytest.mark.parametrize(("documents", "resolved"), [(100, 2), (310, 3)])
def test_ten_percent_is_one_percent_of_the_training_documents_and_two_at_least(documents, resolved):
    model = ParagraphVector(dm=False, vector_size=2, epochs=1, min_count="10%").fit(["a b"] * documents)
    assert model.fitted.min_count == resolved
    assert model.label == "DBOW;2;lowercase;10%"


def test_a_text_without_known_words_is_the_zero_vector(dm):
    assert not dm.embed(["", " \n", "qwxz qwxy"]).any()
    assert dm.embed(["the qwxz"]).any()


def test_case_matters_only_where_it_is_kept(dm):
    np.testing.assert_array_equal(*dm.embed(["THE ARRAY of Values", "the array of values"]))
    kept = ParagraphVector(dm=True, vector_size=4, epochs=1, preprocess="none").fit(["The array", "the array"] * 2)
    assert kept.fitted.vocabulary == 3


def test_a_saved_model_is_the_same_model(dm, pages, tmp_path):
    dm.save(tmp_path / "model")
    loaded = ParagraphVector.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.embed(pages[:3], jobs=1), dm.embed(pages[:3]))
    assert loaded.parameters == dm.parameters
    assert (loaded.fingerprint, loaded.label, loaded.dim) == (dm.fingerprint, "DM;12;lowercase;2", 12)


def test_a_compound_is_dm_then_dbow_whatever_their_order(dm, pages):
    dbow = ParagraphVector(dm=False, vector_size=5, epochs=1, preprocess="none", min_count=3).fit(pages[:20])
    compound = Compound([dbow, dm])
    embeddings = compound.embed(pages[:4])
    np.testing.assert_array_equal(embeddings[:, :12], dm.embed(pages[:4]))
    np.testing.assert_array_equal(embeddings[:, 12:], dbow.embed(pages[:4]))
    assert compound.dim == 17
    assert compound.label == "DM;12;lowercase;2+DBOW;5;None;3"
    assert compound.fingerprint == Compound([dm, dbow]).fingerprint


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_count": "5%"}, "min_count: got '5%'"),
        ({"min_count": 0}, "min_count: got 0"),
        ({"preprocess": "lemma"}, "preprocess: got 'lemma'"),
        ({"vector_size": 0}, "vector_size: got 0"),
    ],
)
def test_arguments_that_cannot_work_are_refused_at_construction(options, message):
    with pytest.raises(InputError, match=message):
        ParagraphVector(dm=True, **options)


def test_a_corpus_without_documents_or_words_is_refused():
    with pytest.raises(InputError, match="the corpus is empty"):
        ParagraphVector(dm=True).fit([])
    with pytest.raises(InputError, match="none of the 3 words in 2 training documents occurs 9 times"):
        ParagraphVector(dm=True, min_count=9).fit(["a b", "a"])


def test_an_untrained_model_and_a_folder_without_one_are_refused(tmp_path):
    with pytest.raises(InputError, match="not trained"):
        ParagraphVector(dm=True).embed(["text"])
    with pytest.raises(InputError, match="not trained"):
        ParagraphVector(dm=True).save(tmp_path)
    with pytest.raises(InputError, match="no such file"):
        ParagraphVector.load(tmp_path)
    with pytest.raises(InputError, match="two or more"):
        Compound([])
