"""Halves of a document: disjoint, in order, covering it, and a function of seed, document and epoch alone."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from docemb_lib.pretrained import resolve
from docemb_lib.training.pairs import END, draw_halves, encode_sentences, generator_of, sentences_of


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(resolve("all-MiniLM-L6-v2"))


@pytest.mark.parametrize("n", [2, 3, 5, 40])
@pytest.mark.parametrize("seed", range(25))
def test_no_half_is_empty(n, seed):
    first = draw_halves(n, np.random.default_rng(seed))
    assert first.shape == (n,)
    assert 0 < first.sum() < n


def test_each_sentence_goes_either_way_by_the_toss_of_a_coin():
    """Of two sentences, (first, second) and (second, first) are left after drawing again; of many, all but two."""
    rng = np.random.default_rng(0)
    two = np.array([draw_halves(2, rng) for _ in range(4000)])
    assert two[:, 0].mean() == pytest.approx(0.5, abs=0.03)
    assert (two[:, 0] != two[:, 1]).all()
    three = np.array([draw_halves(3, rng) for _ in range(6000)]) @ [1, 2, 4]
    np.testing.assert_allclose(np.bincount(three, minlength=8) / 6000, [0, *[1 / 6] * 6, 0], atol=0.02)


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_sentences_have_no_halves(n):
    with pytest.raises(ValueError, match=f"{n} sentences has no halves"):
        draw_halves(n, np.random.default_rng(0))


def test_chance_depends_on_seed_document_and_epoch_and_nothing_else():
    def drawn(document="a", **given):
        return tuple(generator_of(document, **{"seed": 0, "epoch": 0} | given).integers(1000, size=8).tolist())

    assert drawn() == drawn()
    assert len({drawn(), drawn("b"), drawn("😀"), drawn(seed=1), drawn(epoch=1)}) == 5


TEXTS = [
    "It rained. Nobody came! Why?",
    "One sentence",
    "",
    "  \n\n ",
    "مرحبا بالعالم. كيف حالك؟ هذا نص.",
    "Fine 😀. Good 🎉! \u200b. End",
    "A heading\n\nThen text. And more [PAD] [CLS] of it.",
]


@pytest.mark.parametrize("text", TEXTS)
def test_sentences_hold_every_token_of_the_text_in_its_order(tokenizer, text):
    (sequence,), _ = encode_sentences(tokenizer, [text], max_tokens=64)
    expected = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert sequence[sequence != END].tolist() == expected
    sentences = sentences_of(sequence)
    assert [token for sentence in sentences for token in sentence.tolist()] == expected
    assert all(len(sentence) for sentence in sentences)


def test_sentences_are_those_of_the_splitter(tokenizer):
    sequences, truncated = encode_sentences(tokenizer, [*TEXTS, "It rains. " * 40], max_tokens=60)
    assert [len(sentences_of(sequence)) for sequence in sequences] == [3, 1, 0, 0, 3, 4, 3, 40]
    assert [tokenizer.decode(s) for s in sentences_of(sequences[0])] == ["it rained.", "nobody came!", "why?"]
    assert truncated == 1  # 120 tokens, for which two halves have room for 58 each


def test_tokens_are_those_of_the_whole_text_where_they_know_the_space_before_them():
    """A byte-level tokenizer, as RoBERTa's: a sentence alone would begin with another token."""
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(["It rained. Nobody came. It rained."] * 20, vocab_size=300)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer)
    text = "It rained. It rained. Nobody came 😀!"
    (sequence,), _ = encode_sentences(tokenizer, [text], max_tokens=64)
    first, second, third = sentences_of(sequence)
    assert tokenizer.decode(second) == " It rained."
    assert tokenizer.decode([*first, *third]) == "It rained. Nobody came 😀!"
    assert sequence[sequence != END].tolist() == tokenizer(text)["input_ids"]
    assert tokenizer(" It rained.")["input_ids"] != tokenizer("It rained.")["input_ids"]


def test_a_hundred_thousand_sentences(tokenizer):
    (sequence,), truncated = encode_sentences(tokenizer, ["It rains. " * 100_000], max_tokens=512)
    sentences = sentences_of(sequence)
    assert (len(sentences), truncated) == (100_000, 1)
    first = draw_halves(len(sentences), generator_of("long", seed=0, epoch=0))
    assert first.mean() == pytest.approx(0.5, abs=0.01)
