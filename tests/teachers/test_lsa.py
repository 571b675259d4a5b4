import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from docemb_lib.errors import InputError
from docemb_lib.teachers import LSA


def test_it_is_scikit_learns_pipeline(pages):
    pipeline = make_pipeline(TfidfVectorizer(min_df=2), TruncatedSVD(10, random_state=0)).fit(pages[:60])
    ours = LSA(10).fit(pages[:60]).embed(pages)
    np.testing.assert_allclose(ours, pipeline.transform(pages), atol=1e-4)
    assert ours.dtype == np.float32


def test_a_saved_model_is_the_same_model(pages, tmp_path):
    model = LSA(10, min_documents=3, seed=4).fit(pages)
    model.save(tmp_path)
    loaded = LSA.load(tmp_path)
    np.testing.assert_array_equal(loaded.embed(pages), model.embed(pages))
    assert (loaded.fingerprint, loaded.label, loaded.min_documents) == (model.fingerprint, "LSA;10", 3)
    assert LSA(10).fit(pages[:40]).fingerprint != model.fingerprint
    np.testing.assert_allclose(model.embed(pages[3:4])[0], model.embed(pages)[3], atol=1e-6)  # of its own text alone
    assert not model.embed(["", "qwxz"]).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LSA(10).fit(["one two", "two three", "three one"]), "got 3 documents"),
        (lambda: LSA(4).fit(["one two three"] * 9), "only 3 words"),
        (lambda: LSA(2).fit(["one", "two", "three"]), "no word occurs in 2 documents"),
        (lambda: LSA(0), "dim: got 0"),
        (lambda: LSA().embed(["text"]), "not trained"),
        (lambda: LSA().save("."), "not trained"),
        (lambda: LSA.load("absent"), "no such file"),
    ],
)
def test_small_corpora_and_untrained_models_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
