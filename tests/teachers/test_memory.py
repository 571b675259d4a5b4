import numpy as np
import pytest
from gensim.models.doc2vec import Doc2Vec

from docemb_lib.errors import InputError
from docemb_lib.teachers import write_words
from docemb_lib.teachers.gensim_models import check_memory, training_memory, warn_of_shared_rows


@pytest.mark.parametrize(("dm", "vector_size"), [(True, 24), (False, 7)])
def test_the_arrays_of_a_trained_model_are_as_large_as_predicted(pages, tmp_path, dm, vector_size):
    words = write_words(tmp_path, pages, "lowercase")
    needed = training_memory(
        vocabulary=words.vocabulary(2), types=words.types, lines=words.lines, vector_size=vector_size
    )
    model = Doc2Vec(corpus_file=str(words.file), dm=dm, vector_size=vector_size, min_count=2, epochs=1)
    of_words = [model.wv.vectors, model.syn1neg, model.cum_table, *model.wv.expandos.values()]
    assert needed.words == pytest.approx(sum(array.nbytes for array in of_words), rel=0.01)
    assert needed.documents == model.dv.vectors.nbytes
    assert needed.arrays == needed.words + needed.documents
    assert needed.total > needed.arrays


def test_counting_and_training_do_not_add_up():
    """Many rare words: the dictionary of all is the peak. Wide vectors: the arrays are."""
    rare = training_memory(vocabulary=10, types=1_000_000, lines=10, vector_size=10)
    wide = training_memory(vocabulary=1000, types=1000, lines=10, vector_size=10_000)
    assert rare.total == rare.names + rare.counting
    assert wide.total == wide.names + wide.arrays


def test_what_does_not_fit_is_refused_with_its_parts():
    needed = training_memory(vocabulary=3_000_000, types=9_000_000, lines=500_000, vector_size=1024)
    check_memory(needed, needed.total, "DM")
    message = r"^DM;1024: training takes about 25\.\d\d GiB of memory \(words 22.93 GiB, documents 1.91 GiB, .* 8.00 GiB are free"
    with pytest.raises(InputError, match=message):
        check_memory(needed, 8 * 2**30, "DM;1024")


def test_rows_that_gensim_mixes_up_are_told(caplog):
    """It computes row * width in 32 bits without a sign, so in C as NumPy does here."""
    most = 2**32 // 1024
    with np.errstate(over="ignore"):
        assert np.uint32(most) * np.uint32(1024) == 0  # the first row over again
        assert np.uint32(most - 1) * np.uint32(1024) == (most - 1) * 1024
    warn_of_shared_rows(vocabulary=most, lines=most, vector_size=1024, label="DM;1024")
    assert not caplog.messages
    warn_of_shared_rows(vocabulary=most + 1, lines=8_300_000, vector_size=1024, label="DM;1024")
    words, documents = caplog.messages
    assert words.startswith("DM;1024: gensim tells 4,194,304 vectors of 1024 numbers apart, so of the 4,194,305 words")
    assert "8,300,000 documents" in documents
    assert "fewer documents" in documents
