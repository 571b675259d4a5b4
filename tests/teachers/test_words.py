from collections import Counter

import pytest
from gensim.models.doc2vec import Doc2Vec

from docemb_lib.teachers import Words, write_words
from docemb_lib.teachers.words import preprocess

LONG = " ".join(f"w{i % 700}" for i in range(25_000))


@pytest.fixture
def corpus(pages) -> list[str]:
    return [pages[0], "", LONG, *pages[1:20], "Trailing\u00a0words\u2028 on\x1cfour lines\n"]


@pytest.mark.parametrize("how", ["none", "lowercase", "stem"])
def test_a_line_is_a_document_and_a_long_one_is_several(corpus, tmp_path, how):
    words = write_words(tmp_path, corpus, how)
    lines = [line.split(" ") for line in words.file.read_text(encoding="utf-8").split("\n")[:-1]]
    expected = [preprocess(text, how) for text in corpus if text]
    assert (lines[0], [len(line) for line in lines[1:4]]) == (expected[0], [10_000, 10_000, 5_000])
    assert [word for line in lines[1:4] for word in line] == expected[1]
    assert lines[4:] == expected[2:]
    assert len(lines[-1]) == 5
    assert words.documents == len(corpus)
    assert words.words == sum(map(len, lines))


@pytest.mark.parametrize("min_count", [1, 2, 5, 30])
def test_the_vocabulary_is_known_before_training(corpus, tmp_path, min_count):
    words = write_words(tmp_path, corpus, "stem")
    counts = Counter(word for text in corpus for word in preprocess(text, "stem"))
    assert words.kept_words(min_count) == sum(count >= min_count for count in counts.values())
    model = Doc2Vec(min_count=min_count, vector_size=2)
    model.build_vocab(corpus_file=str(words.file))
    assert len(model.wv) == words.kept_words(min_count)
    assert model.corpus_total_words == words.words


@pytest.mark.parametrize(("documents", "resolved"), [(100, 2), (310, 3), (500_000, 5000)])
def test_ten_percent_is_one_percent_of_the_documents_and_two_at_least(
    tmp_path, documents, resolved
):
    words = Words(tmp_path, "none", documents, 7, "")
    assert (words.occurrences("10%"), words.occurrences(4)) == (resolved, 4)


def test_the_fingerprint_is_that_of_the_raw_texts(corpus, tmp_path):
    texts = write_words(tmp_path / "stem", corpus, "stem").texts
    assert texts == write_words(tmp_path / "none", corpus, "none").texts
    others = [corpus[::-1], corpus[:-1], [*corpus, ""], ["ab", "c"], ["a", "bc"], ["abc"]]
    prints = {write_words(tmp_path / "other", other, "none").texts for other in others}
    assert len(prints | {texts}) == len(others) + 1


@pytest.mark.parametrize(
    ("texts", "how", "min_count", "message"),
    [
        (["", " \n"], "none", 1, "corpus: the 2 documents hold no word"),
        (
            ["a b", "a"],
            "none",
            9,
            r"none of the 3 words in 2 training documents occurs 9 times, and the most .* 2 times;",
        ),
        (["a"], "lemma", 1, "none, lowercase, stem"),
    ],
)
def test_corpora_that_leave_no_word_are_refused(tmp_path, texts, how, min_count, message, refused):
    refused(message, lambda: write_words(tmp_path, iter(texts), how).kept_words(min_count))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("none", "The Runners, RUNNING ponies Über"),
        ("lowercase", "the runners, running ponies über"),
        # Porter (1980): ponies -> poni; "runners," has a comma
        ("stem", "the runners, run poni über"),
    ],
)
def test_words_are_split_at_white_space_and_keep_their_punctuation(how, words):
    assert preprocess(" The Runners,\tRUNNING\nponies\u00a0Über ", how) == words.split()
    assert preprocess(" \n", how) == []


@pytest.mark.parametrize("how", ["none", "lowercase", "stem"])
def test_chinese_and_japanese_are_cut_into_pairs_of_characters(how):
    pairs = ["図書", "書館", "館と", "linux", "の", "、2", "台", "東"]
    assert preprocess("図書館とlinuxの、2台 東", how) == pairs
