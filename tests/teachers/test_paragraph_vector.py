import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gensim.models.doc2vec import Doc2Vec

from docemb_lib.errors import InputError
from docemb_lib.teachers import ParagraphVector, paragraph_vector, write_words
from docemb_lib.teachers.worker_pool import WorkerPool

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


def test_a_process_with_another_hash_seed_trains_the_same_model_and_embeds_alike(dm, pages, tmp_path):
    (tmp_path / "texts.json").write_text(json.dumps(pages))
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    found = run(TRAIN_AND_EMBED, tmp_path / "texts.json", hash_seed=other)
    assert found.strip() == dm.embed(pages[:8]).tobytes().hex()


def test_order_batch_and_number_of_workers_do_not_matter(dm, pages):
    whole = dm.embed(pages, jobs=2)
    np.testing.assert_array_equal(dm.embed(pages[::-1], jobs=1)[::-1], whole)
    np.testing.assert_array_equal(dm.embed(pages[:30], jobs=3), whole[:30])
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


def test_long_training_documents_are_counted_and_logged(caplog):
    with caplog.at_level(logging.INFO, logger="docemb_lib.teachers"):
        model = ParagraphVector(dm=False, vector_size=4, epochs=1, workers=2).fit(["a b " * 6000, "a b c"] * 2)
    assert (model.fitted.documents, model.fitted.long_documents, model.fitted.vocabulary) == (4, 2, 3)
    assert "2 of 4 documents of more than 10,000 words are cut into pieces" in caplog.text
    assert re.search(r"DBOW;4;lowercase;2: training takes about [\d.]+ MiB of memory \(words ", caplog.text)


def test_words_written_once_serve_several_models(pages, tmp_path):
    words = write_words(tmp_path / "words", pages[:20], "none")
    dm, dbow = (ParagraphVector(dm=dm, vector_size=4, epochs=1, preprocess="none") for dm in (True, False))
    for model in (dm, dbow):
        model.fit_words(words, tmp_path / model.label)
        alone = ParagraphVector(**model.parameters).fit(pages[:20])
        assert (alone.fingerprint, alone.fitted) == (model.fingerprint, model.fitted)
        assert ParagraphVector.load(tmp_path / model.label).fitted == model.fitted
    assert dm.fitted.texts == dbow.fitted.texts == words.texts
    with pytest.raises(InputError, match=r"DM;4;lowercase;2: the words in .* are of preprocess 'none'"):
        ParagraphVector(dm=True, vector_size=4).fit_words(words, tmp_path / "other")


def test_a_trained_folder_is_not_trained_again_but_for_another_model(pages, tmp_path, monkeypatch):
    words = write_words(tmp_path / "words", pages[:20], "none")
    options = {"dm": False, "vector_size": 4, "epochs": 1, "preprocess": "none"}
    first = ParagraphVector(**options).fit_words(words, tmp_path / "model")
    other = ParagraphVector(**options, seed=1).fit_words(words, tmp_path / "model")
    assert other.fingerprint != first.fingerprint

    def killed(*_, **__):
        assert not (tmp_path / "model" / "paragraph_vector.json").exists()  # it would not fit what comes now
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WorkerPool, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            ParagraphVector(**options, seed=2).fit_words(words, tmp_path / "model")
    ParagraphVector(**options, seed=1).fit_words(words, tmp_path / "model")
    monkeypatch.setattr(ParagraphVector, "_train", lambda *_: pytest.fail("trained again"))
    assert ParagraphVector(**options, seed=1).fit_words(words, tmp_path / "model").fingerprint == other.fingerprint


def test_what_does_not_fit_into_memory_is_refused_before_training(pages, tmp_path, monkeypatch):
    words = write_words(tmp_path / "words", pages, "lowercase")
    asked = []
    monkeypatch.setattr(paragraph_vector, "free_memory", lambda device: (asked.append(device), 2**20)[1])
    message = r"DM;300;lowercase;2: training takes about [\d.]+ MiB .*, 1\.0 MiB are free; use a larger min_count"
    with pytest.raises(InputError, match=message):
        ParagraphVector(dm=True, vector_size=300).fit_words(words, tmp_path / "model")
    assert asked == ["cpu"]
    assert not (tmp_path / "model").exists()


def test_frequent_words_are_never_dropped_and_the_thesis_settings_reach_gensim(dm, tmp_path):
    dm.save(tmp_path)
    model = Doc2Vec.load(str(tmp_path / "doc2vec.model"))
    assert (model.sample, model.window, model.negative, model.hs, model.epochs) == (0, 5, 5, 0, 3)
    assert (model.alpha, model.min_alpha) == (0.025, 0.0001)
    assert (model.wv.expandos["sample_int"] == 2**32 - 1).all()  # kept with probability one


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
    with pytest.raises(InputError, match="corpus: 0 documents without any word"):
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
