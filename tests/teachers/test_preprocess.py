import pytest

from docemb_lib.errors import InputError
from docemb_lib.teachers.words import preprocess


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("none", ["The", "Runners,", "RUNNING", "ponies", "Über"]),
        ("lowercase", ["the", "runners,", "running", "ponies", "über"]),
        (
            "stem",
            ["the", "runners,", "run", "poni", "über"],
        ),  # Porter (1980): ponies -> poni; "runners," keeps its comma
    ],
)
def test_words_are_split_at_white_space_and_keep_their_punctuation(how, words):
    assert preprocess(" The Runners,\tRUNNING\nponies\u00a0Über ", how) == words


def test_an_empty_text_has_no_words():
    assert preprocess(" \n", "stem") == []


def test_an_unknown_way_is_refused_with_the_known_ones():
    with pytest.raises(InputError, match="none, lowercase, stem"):
        preprocess("text", "lemma")
