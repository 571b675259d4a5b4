"""The half of words: two halves whose cosines add, the same in stock sentence-transformers, and
refused with a reason.
"""

import hashlib
import json
import shutil
import unicodedata
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import succeed, write_files
from sentence_transformers import SentenceTransformer
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from docemb_lib.evaluation.retrieval import bm25, tfidf
from docemb_lib.student import Student, words_module
from docemb_lib.student.export import encoder_pooling
from docemb_lib.student.words import balance, fit_words, partially_whitened
from docemb_lib.teachers import LSA
from docemb_lib.teachers.words import words_of

normalize_text = unicodedata.normalize
WORDS = [f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]


def collection(seed: int = 0, documents: int = 40) -> list[str]:
    """Documents of 30 to 90 words, each from a third of the words, so that LSA has something to
    find.
    """
    rng = np.random.default_rng(seed)
    topics = [rng.permutation(WORDS)[:9] for _ in range(4)]
    return [
        " ".join(rng.choice(topics[i % 4], size=rng.integers(30, 90))) for i in range(documents)
    ]


@pytest.fixture(scope="module")
def adapted(make_student):
    student = make_student(windows=[8])
    student.adapt(collection(), dim=6)
    return student


def test_an_embedding_is_both_halves_centred_and_of_unit_length_whose_cosines_add(make_student):
    student = make_student(windows=[8])
    texts = collection()
    X = student.embed(texts, bf16=False).astype(np.float64)
    student.adapt(texts, dim=6, weight=0.3, embed=partial(student.embed, bf16=False))
    found = student.embed(texts[:5], bf16=False)
    assert (student.width, student.dim) == (found.shape[1], X.shape[1]) == (22, 16)
    centred = X - X.mean(axis=0)
    variances, directions = np.linalg.eigh(np.cov(centred.T, bias=True))
    scale = (variances + 0.01 * variances.mean()) ** -0.25
    meaning = normalize(centred @ directions * scale @ directions.T)[:5]
    words = LSA(6).fit(texts).embed(texts)
    words = normalize(words - words.mean(axis=0))[:5]
    np.testing.assert_allclose(
        found @ found.T, 0.7 * meaning @ meaning.T + 0.3 * words @ words.T, atol=1e-4
    )
    np.testing.assert_allclose(found, np.hstack([0.7**0.5 * meaning, 0.3**0.5 * words]), atol=1e-4)


def test_a_folder_says_whether_the_weight_was_given(make_student, tmp_path):
    student = make_student(windows=[8])
    for weight in (None, 0.3):
        student.adapt(collection(), dim=6, weight=weight)
        student.save(tmp_path)
        loaded = Student.load(tmp_path)
        assert loaded.words.weight_given == (weight is not None)
        assert ("chosen by hand." in (tmp_path / "README.md").read_text()) == (weight is not None)


@pytest.mark.parametrize(
    ("shape", "said"),
    [((3, 16), "gives 3 rows for 40 texts"), ((40, 5), "rows have 5 numbers; give 16")],
)
def test_embeddings_of_another_shape_fit_no_student(make_student, shape, said, refused):
    student = make_student(windows=[8])
    X = np.random.default_rng(0).normal(size=shape)
    refused(f"embed: .*{said}", student.adapt, collection(), dim=6, embed=lambda _: X)
    assert student.words is None


def test_the_half_of_words_reads_on_where_the_tokens_end(make_student):
    student = make_student(windows=[8], max_tokens=16)
    texts = collection()
    student.adapt(texts, dim=6)
    first, second = student.embed([f"{texts[0]} {texts[1]}", f"{texts[0]} {texts[2]}"])
    np.testing.assert_allclose(first[:16], second[:16], atol=1e-6)
    assert np.abs(first[16:] - second[16:]).max() > 0.1


def test_the_weight_lets_halves_vary_alike():
    rng = np.random.default_rng(0)
    first, second = (
        normalize(rng.normal(size=(300, D)) + offset) for D, offset in ((5, 0), (50, 1))
    )
    w = balance(torch.tensor(first), torch.tensor(second))
    spreads = [
        share * (X @ X.T)[~np.eye(300, dtype=bool)].std()
        for X, share in ((first, 1 - w), (second, w))
    ]
    assert spreads[0] == pytest.approx(spreads[1])
    same = partially_whitened(torch.tensor(first).float())
    assert balance(same, same) == pytest.approx(0.5)
    assert (balance(same, 0 * same), balance(0 * same, same)) == (
        0,
        1,
    )  # cosines that are all equal have no weight


def test_some_documents_may_give_the_statistics_of_meaning_whatever_the_order_of_a_collection():
    texts = collection()
    rows = np.random.default_rng(0).normal(size=(40, 16)).astype(np.float32)
    of_text = dict(zip(texts, rows, strict=True))

    def embed(sample):
        return np.stack([of_text[text] for text in sample])

    half = fit_words(embed, texts, dim=4, count=4)
    assert half.vocabulary == LSA(4).fit(texts).vocabulary
    drawn = sorted(texts, key=lambda text: hashlib.sha256(text.encode()).hexdigest())[:4]
    np.testing.assert_allclose(half.meaning_mean, embed(drawn).mean(axis=0), atol=1e-6)
    other = fit_words(embed, texts[::-1], dim=4, count=4)
    for name, tensor in half.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], tensor, rtol=0, atol=0)
    np.testing.assert_array_equal(other.vectors, half.vectors)


def test_a_saved_student_is_the_same_here_and_in_stock_sentence_transformers(
    make_student, tmp_path
):
    student = make_student(windows=[8], max_tokens=40)
    texts = collection()
    student.adapt(texts, dim=6)
    student.save(tmp_path)
    queries = [*collection(1)[:6], "", "unknown"]
    ours = student.embed(queries, bf16=False)
    np.testing.assert_array_equal(Student.load(tmp_path).embed(queries, bf16=False), ours)
    stock = SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(stock.encode(queries, batch_size=3), ours, atol=1e-5)
    half = SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True).bfloat16()
    np.testing.assert_allclose(half.encode(queries, batch_size=3), ours, atol=0.05)
    stock.save(str(tmp_path / "again"))
    np.testing.assert_array_equal(Student.load(tmp_path / "again").embed(queries, bf16=False), ours)
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        SentenceTransformer(str(tmp_path), device="cpu")
    card = (tmp_path / "README.md").read_text()
    assert 'SentenceTransformer("this/folder", trust_remote_code=True).encode' in card
    assert "a half of words of 6 dimensions" in card


def test_saving_to_a_folder_changes_no_student_that_was_loaded_from_it(
    make_student, adapted, tmp_path
):
    other = make_student(windows=[8], seed=1)
    texts = collection(1)
    other.adapt(texts, dim=6)
    adapted.save(tmp_path)
    first, second = (
        Student.load(tmp_path),
        Student.load(tmp_path),
    )  # which map its files into memory
    expected = adapted.embed(texts, bf16=False)
    first.save(tmp_path)
    np.testing.assert_array_equal(first.embed(texts, bf16=False), expected)
    other.save(tmp_path)
    np.testing.assert_array_equal(second.embed(texts, bf16=False), expected)
    assert not list(tmp_path.rglob(".model*"))


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (collection(), {"dim": 64}, "LSA;64: 40 documents are too few; use more documents, or"),
        (["one"] * 9, {"dim": 4}, "only 1 words, .* occur in 2 documents"),
        (collection(), {"dim": 0}, "dim: got 0; give a whole number from 1 to"),
        (collection(), {"dim": 10**30}, "dim: got 1000.*; give a whole number from 1 to"),
        (collection(), {"dim": 4, "weight": 1.5}, "weight: got 1.5; give a number from 0 to 1"),
        ([], {"dim": 4}, "0 documents are too few"),
        (["the same six words in all"] * 20, {"dim": 4}, "all 20 documents have the same words"),
    ],
)
def test_collections_that_cannot_be_fitted_are_refused_and_change_no_student(
    make_student, texts, options, message, refused, monkeypatch
):
    student = make_student(windows=[8])
    student.adapt(collection(), dim=6)
    before = student.embed(collection()[:2])
    with monkeypatch.context() as patched:
        patched.setattr(Student, "embed", print)  # refused before any document is embedded
        refused(message, partial(student.adapt, texts, **options))
    np.testing.assert_array_equal(student.embed(collection()[:2]), before)


def test_the_number_of_threads_changes_no_fitted_number(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 8)) @ rng.standard_normal((8, 384))
    threads = torch.get_num_threads()
    written = []
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        with threadpool_limits(number):
            half = fit_words(lambda _: X, collection(), dim=6)
        half.save(str(tmp_path))
        written.append((tmp_path / "model.safetensors").read_bytes())
    torch.set_num_threads(threads)
    assert len({*written}) == 1


@pytest.mark.parametrize("start", range(0, 0x110000, 0x11000))
def test_the_code_of_a_folder_cuts_words_as_the_library_does(start):
    codes = (chr(code) for code in range(start, start + 0x11000) if not 0xD800 <= code < 0xE000)
    text = "".join(f"a{character}b{character}{character} " for character in codes)
    cut = words_module.WORD.findall(words_module.spaced(text).casefold())
    assert cut == words_of(text)


SCRIPTS = "हिन्दी किताब में | বাংলা ভাষা | தமிழ் மொழி"  # Hindi, Bengali, Tamil


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_marks_belong_to_their_letters(form):
    words = [word for word in SCRIPTS.split() if word != "|"]
    text = normalize_text(form, " ".join(words))
    assert words_of(text) == [normalize_text("NFC", word) for word in words]


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("co\u00adoperate zu\u2060sammen \ufeffword", "cooperate zusammen word"),
        ("ﬁnance oﬃce ｔｏｋｙｏ Straße", "finance office tokyo strasse"),
        ("كِتَابٌ الكـــتاب می\u200cروم", "كتاب الكتاب میروم"),
        ("שָׁלוֹם", "שלום"),
        ("กา\u200bมา", "กา มา"),  # the space of no width ends a word
    ],
)
def test_a_word_is_the_same_in_other_code_points(written, plain, adapted):
    assert words_of(written) == words_of(plain)
    counts = adapted.words.frequencies([f"{text} worda wordb" for text in (written, plain)])
    np.testing.assert_array_equal(*counts.toarray())


def test_words_of_chinese_and_japanese_are_pairs_of_characters_everywhere():
    rng = np.random.default_rng(0)
    characters = np.array(list("图书馆公园散步東京タワーの々"))
    texts = ["".join(rng.choice(characters, size=20)) + "word的lexicon" for _ in range(30)]
    pairs = [" ".join([*(text[i : i + 2] for i in range(19)), "word 的 lexicon"]) for text in texts]
    assert list(map(words_of, texts)) == list(map(words_of, pairs))
    np.testing.assert_array_equal(tfidf(texts).toarray(), tfidf(pairs).toarray())
    np.testing.assert_array_equal(bm25(texts)([3]), bm25(pairs)([3]))


@pytest.mark.parametrize("text", ["ภาษาไทยน้ำ", "မြန်မာစာ", "ភាសាខ្មែរ", "ພາສາລາວ"])
def test_characters_of_scripts_without_spaces_are_paired_with_their_marks(text):
    pairs = words_of(text)
    assert len(pairs) > 2
    assert all(first[-1] in second for first, second in pairwise(pairs))
    assert not any(unicodedata.combining(pair[0]) for pair in pairs)


def test_docemb_adapt_fits_a_student_on_a_folder_of_texts(adapted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    adapted.save("student")
    write_files(Path("texts"), {f"{number}.txt": text for number, text in enumerate(collection(2))})
    Path("student/README.md").write_text(
        "# Mine\n\nSentenceTransformer.\n\n## Scores\n\nof another\n"
    )
    done = succeed("adapt", "student", "texts", "-o", "refit", "--dim", 5)
    assert "refit: fitted on 40 documents, 21 dimensions" in done.stdout
    card = Path("refit/README.md").read_text()
    assert ("# Mine" in card, "## Scores" in card, card.count("## Words")) == (
        True,
        False,
        1,
    )
    assert "a half of words of 5 dimensions" in card
    assert "fitted on 40 documents of texts" in card
    succeed("adapt", "refit", "texts", "-o", "again")
    assert Student.load("again").width == 21  # as wide as it was
    assert Path("again/README.md").read_text() == card


def test_docemb_adapt_makes_a_student_of_a_short_encoder_without_training(
    tmp_path, monkeypatch, bert_folder
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(bert_folder, "encoder")
    write_files(Path("texts"), {f"{number}.txt": text for number, text in enumerate(collection())})
    succeed("adapt", "encoder", "texts", "-o", "made", "--weight", 0.25)
    made = Student.load("made")
    start = Student.from_encoder("encoder", pooling="lead", attention_window=256)
    assert (made.max_tokens, made.pooling) == (4096, "lead")
    assert made.words is not None
    assert made.width == start.dim + 16  # 40 documents fill 13 directions
    X = torch.tensor(start.embed(collection(), bf16=False))
    half = fit_words(lambda _: X, collection(), dim=16, weight=0.25)
    expected = half.join(X, half.words(collection())).numpy()
    # Vectors are saved in half precision, and the command may fit mean and map in bf16.
    cosines = (made.embed(collection(), bf16=False) * expected).sum(axis=1)
    assert cosines.min() > 0.9999
    card = Path("made/README.md").read_text()
    assert "| `max_tokens` | 4096 |" in card
    assert "fitted on 40 documents of texts" in card


@pytest.mark.parametrize(
    ("modules", "mode", "pooling"),
    [
        (["Transformer", "Pooling", "Normalize"], "mean", "mean"),
        (["Transformer", "Pooling"], "cls", "first"),
        ([], "mean", "mean"),
        (["Transformer", "Pooling"], "max", "pools by max"),
        (
            ["Transformer", "Pooling", "Dense"],
            "mean",
            "the modules Transformer Pooling Dense, and a short encoder has",
        ),
    ],
)
def test_the_pooling_of_an_encoder_is_kept_or_refused(tmp_path, refused, modules, mode, pooling):
    assert encoder_pooling("all-MiniLM-L6-v2") == "mean"
    listed = [
        {"idx": n, "path": f"{n}_{kind}", "type": f"a.{kind}"} for n, kind in enumerate(modules)
    ]
    files = {
        "modules.json": json.dumps(listed),
        "1_Pooling/config.json": json.dumps({"pooling_mode": mode}),
    }
    write_files(tmp_path, files if listed else {})
    if pooling in ("mean", "first"):
        assert encoder_pooling(str(tmp_path)) == pooling
    else:
        refused(pooling, encoder_pooling, str(tmp_path))
        config = json.dumps({"model_type": "bert", "pad_token_id": 0})
        write_files(tmp_path, {f"0_{modules[0]}/config.json": config})
        refused(pooling, Student.from_encoder, tmp_path)
