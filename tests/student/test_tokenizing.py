"""Long texts are counted and cut without being tokenised whole, and the result is the same."""

from functools import partial
from time import process_time

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from docemb_lib.base import tokenizing
from docemb_lib.base.pretrained import resolve
from docemb_lib.corpus.build import _measured, digest
from docemb_lib.corpus.document import Document
from docemb_lib.student import Student, count_tokens

HARD = (
    "Don't  stop —\n\n\tthe end.Next (one) two3 x_y  …\u00a0non 中文字 中文 naïve "
    "e\u0301te\u0301 ΟΔΥΣΣΕΥΣ it's   \n"
    " 1,000 _a_ __init__(self):\n        return -1\n\n\n"
    + "a" * 90
    + " "
    + "b" * 300
    + " of of of  of the The "
)


def trained(kind: str) -> Tokenizer:
    """A byte-level BPE as of RoBERTa and ModernBERT, or a Unigram with a Metaspace as of XLM-R, on
    `HARD`.
    """
    bpe = kind == "byte-level"
    tokenizer = Tokenizer(models.BPE() if bpe else models.Unigram())
    tokenizer.pre_tokenizer = (
        pre_tokenizers.ByteLevel(add_prefix_space=False) if bpe else pre_tokenizers.Metaspace()
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.normalizer = (
        None if bpe else normalizers.Sequence([normalizers.NFKC(), normalizers.Replace("\n", " ")])
    )
    special = {"special_tokens": ["<unk>"]} | ({} if bpe else {"unk_token": "<unk>"})
    trainer = (trainers.BpeTrainer if bpe else trainers.UnigramTrainer)(
        vocab_size=300, show_progress=False, **special
    )
    tokenizer.train_from_iterator([HARD] * 5, trainer)
    return tokenizer


@pytest.fixture(params=["wordpiece", "byte-level", "metaspace"])
def tokenizer(request) -> Tokenizer:
    if request.param != "wordpiece":
        return trained(request.param)
    tokenizer = Tokenizer.from_file(f"{resolve('all-MiniLM-L6-v2')}/tokenizer.json")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def test_tokens_of_pieces_are_those_of_the_whole(tokenizer, monkeypatch):
    rng = np.random.default_rng(0)
    texts = [
        "",
        " ",
        HARD,
        HARD * 9,
        "".join(rng.permutation(HARD.split(" ")).tolist()),
        "  " + " ".join(rng.permutation(HARD.split(" ")).tolist()) * 3,
    ]
    whole = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    for size in (400, 900, 2**16):
        monkeypatch.setattr(tokenizing, "PIECE", size)
        assert ["".join(tokenizing.pieces(text, size)) for text in texts] == texts
        assert tokenizing.count_tokens(tokenizer, texts) == list(map(len, whole))
    for most in (1, 3, 12):
        cut = tokenizing.heads(tokenizer, texts, most)
        assert len(cut[3]) < len(texts[3])
        assert [tokenizer.encode(one, add_special_tokens=False).ids[:most] for one in cut] == [
            i[:most] for i in whole
        ]


def test_a_document_of_megabytes_is_read(make_student, minilm):
    rng = np.random.default_rng(0)
    words = np.array([f"{'etaoinshrdlu'[rank % 12]}{rank}" for rank in range(5000)])
    text = " ".join(words[np.minimum(rng.zipf(1.3, 1_500_000), 5000) - 1].tolist())
    student: Student = make_student(windows=[32])
    counter = partial(count_tokens, minilm)
    counter([""])  # loads the tokenizer
    start = process_time()
    row = _measured([Document("a", text, "b")], {"n": counter, "m": counter}, None).to_pylist()[0]
    encoded = student.tokenize([text, text[:8000]])
    seconds = process_time() - start
    assert (row["n_words"], row["n"]) == (1_500_000, row["m"])
    assert encoded == ([student.tokenize([text[:8000]]).sequences[0]] * 2, 2)
    assert seconds < 60  # hours where the time grows with the square


@pytest.mark.parametrize("blank", ["  ", "\r\n"])
def test_copies_but_for_white_space_have_one_digest_and_as_many_words_and_tokens(minilm, blank):
    words = [f"word{n % 900}" for n in range(40_000)]
    text = " ".join(words)
    copy = blank.join(words)
    assert digest(copy, None) == digest(text, None)
    rows = _measured([Document("a", text, ""), Document("b", copy, "")], {}, None).to_pylist()
    assert [row["n_words"] for row in rows] == [40_000, 40_000]
    assert len({*count_tokens(minilm, [text, copy])}) == 1
