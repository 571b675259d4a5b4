"""Pairs of texts: what of a document they hold, and which documents give some."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from transformers import AutoTokenizer

from docemb_lib.errors import InputError
from docemb_lib.losses.pairs import NO_LABEL
from docemb_lib.pretrained import resolve
from docemb_lib.training.pairs import PairedDocuments, encode_sentences

TEXTS = [
    "It rained. Nobody came! Why not? The road was closed. A tree had fallen.",
    "one sentence alone",
    "Cats sleep. Dogs bark.",
    "",
    "مرحبا بالعالم. كيف حالك؟ 😀. And so on.",
    "It rains here. " * 60,
]
LEFT = [0, 2, 4, 5]


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(resolve("all-MiniLM-L6-v2"))


def make(tokenizer, texts=TEXTS, *, max_tokens=512, pairs="halves", seed=0):
    sequences, _ = encode_sentences(tokenizer, texts, max_tokens=max_tokens)
    ids = [f"document {row}" for row in range(len(texts))]
    return PairedDocuments(sequences, ids=ids, tokenizer=tokenizer, max_tokens=max_tokens, pairs=pairs, seed=seed)


def texts_of(batch, *, masked=False):
    """The token ids of the texts in their order."""
    texts = {}
    for part in batch.parts:
        packed = part.masked if masked else part.texts
        texts |= dict(zip(part.places, packed.input_ids.split(packed.sizes), strict=True))
    return [texts[place].tolist() for place in range(len(texts))]


def test_documents_of_fewer_than_two_sentences_are_left_out_and_counted(tokenizer, caplog):
    with caplog.at_level(logging.WARNING):
        documents = make(tokenizer)
    assert documents.rows.tolist() == LEFT
    assert documents.ids == [f"document {row}" for row in LEFT]
    assert documents.n_sentences.tolist() == [5, 1, 2, 0, 4, 60]
    assert documents.skipped == 2
    assert caplog.messages == ["2 of 6 documents left out: of fewer than two sentences"]


def test_documents_without_sentences_are_refused(tokenizer):
    with pytest.raises(InputError, match="3 of 4 have fewer than two sentences, so there are not two to learn from"):
        make(tokenizer, ["no end at all " * 50, "", "one more", "Two. Sentences."])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("epoch", range(3))
def test_halves_are_disjoint_ordered_and_cover_the_document(tokenizer, seed, epoch):
    """Sentences made distinct, so that each is found again by its tokens."""
    rng = np.random.default_rng(seed)
    words = ["cat", "dog", "tree", "road", "rain", "house", "sea", "hill", "star", "bird", "fish", "door"]
    texts = [" ".join(f"The {word} is here." for word in rng.permutation(words)[: rng.integers(2, 13)]) for _ in "ab"]
    documents = make(tokenizer, texts, seed=seed)
    halves = texts_of(documents.pack([0, 1], epoch=epoch, budget=10**6))
    for text, first, second in zip(texts, halves[:2], halves[2:], strict=True):
        sentences = [tokenizer(sentence.strip())["input_ids"][1:-1] for sentence in text.replace(".", ".|").split("|")]
        sentences = [tuple(sentence) for sentence in sentences if sentence]
        found = []
        for half in (first, second):
            assert (half[0], half[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
            inner = half[1:-1]
            found.append([tuple(inner[i : i + 5]) for i in range(0, len(inner), 5)])  # every sentence has five tokens
        places = [[sentences.index(sentence) for sentence in half] for half in found]
        assert places[0] == sorted(places[0])
        assert places[1] == sorted(places[1])
        assert all(places)
        assert sorted(places[0] + places[1]) == list(range(len(sentences)))


def test_a_pair_depends_on_seed_epoch_and_document_not_on_its_batch_or_the_budget(tokenizer):
    documents = make(tokenizer)
    together = texts_of(documents.pack([0, 1, 2, 3], epoch=1, budget=10**6))
    for budget in (1, 50):
        assert texts_of(documents.pack([0, 1, 2, 3], epoch=1, budget=budget)) == together
    alone = texts_of(documents.pack([3, 0], epoch=1, budget=10**6), masked=True)
    masked = texts_of(documents.pack([0, 1, 2, 3], epoch=1, budget=50), masked=True)
    assert alone == [masked[3], masked[0], masked[7], masked[4]]
    assert texts_of(documents.pack([3], epoch=2, budget=50)) != [together[3], together[7]]
    assert texts_of(make(tokenizer, seed=1).pack([3], epoch=1, budget=50)) != [together[3], together[7]]


@pytest.mark.parametrize("budget", [1, 70, 10**6])
def test_parts_hold_every_text_once_within_the_budget_and_the_labels_are_of_hidden_tokens(tokenizer, budget):
    batch = make(tokenizer).pack([0, 1, 2, 3], epoch=0, budget=budget)
    assert sorted(place for part in batch.parts for place in part.places) == list(range(8))
    assert all(sum(part.texts.sizes) <= budget or len(part.places) == 1 for part in batch.parts)
    assert (len(batch.parts) == 1) == (budget == 10**6)
    n_labels = 0
    for part in batch.parts:
        guessed = part.labels != NO_LABEL
        n_labels += int(guessed.sum())
        assert part.masked.sizes == part.texts.sizes
        assert (part.labels[guessed] == part.texts.input_ids[guessed]).all()
        assert (part.masked.input_ids[~guessed] == part.texts.input_ids[~guessed]).all()
        special = (part.texts.input_ids == tokenizer.cls_token_id) | (part.texts.input_ids == tokenizer.sep_token_id)
        assert not (guessed & special).any()
    assert batch.n_labels == n_labels > 0
    order = batch.order.tolist()
    placed = [place for part in batch.parts for place in part.places]
    assert [placed[i] for i in order] == list(range(8))


def test_a_long_half_is_cut_at_the_students_limit(tokenizer):
    batch = make(tokenizer, max_tokens=32).pack([3], epoch=0, budget=10**6)
    for text in texts_of(batch):
        assert len(text) == 32
        assert (text[0], text[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)


def test_pairs_by_dropout_are_the_whole_document_twice_of_the_same_documents(tokenizer):
    documents = make(tokenizer, pairs="dropout")
    assert documents.rows.tolist() == LEFT
    texts = texts_of(documents.pack([0, 1, 2, 3], epoch=0, budget=10**6))
    expected = [tokenizer(TEXTS[row])["input_ids"] for row in LEFT]
    assert texts == expected + expected
    masked = texts_of(documents.pack([3], epoch=0, budget=10**6), masked=True)
    assert masked[0] != masked[1]  # hidden at other places


def test_a_tokenizer_without_a_mask_is_refused(tokenizer):
    other = AutoTokenizer.from_pretrained(resolve("all-MiniLM-L6-v2"))
    other.mask_token = None
    with pytest.raises(InputError, match="no mask token"):
        make(other)
