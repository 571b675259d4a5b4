"""Pairs of texts, masked tokens, the gradient cache and training on pairs."""

import copy
import itertools
from functools import partial

import numpy as np
import pytest
import torch
from tokenizers import ByteLevelBPETokenizer
from torch.nn import functional as F
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from docemb_lib.base.errors import InputError
from docemb_lib.base.pretrained import resolve
from docemb_lib.losses import InfoNCE
from docemb_lib.losses.contextual import NO_LABEL
from docemb_lib.packed.packing import pack, token_batches
from docemb_lib.training import pairs as module
from docemb_lib.training.batches import Cut
from docemb_lib.training.monitor import validate
from docemb_lib.training.pairs import (
    END,
    PairedDocuments,
    draw_halves,
    encode_sentences,
    sentences_of,
)

MASK, VOCABULARY, N = 4, 1000, 400_000
TEXTS = [
    "It rained. Nobody came! Why?",
    "One sentence",
    "",
    "  \n\n ",
    "مرحبا بالعالم. كيف حالك؟ هذا نص.",
    "Fine 😀. Good 🎉! \u200b. End",
    "A heading\n\nThen text. And more [PAD] [CLS] of it.",
]
DOCUMENTS = [
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


def test_all_ways_to_halve_three_sentences_are_equally_likely_and_no_half_is_empty():
    rng = np.random.default_rng(0)
    three = np.array([draw_halves(3, rng) for _ in range(6000)]) @ [1, 2, 4]
    frequencies = np.bincount(three, minlength=8) / 6000
    np.testing.assert_allclose(frequencies, [0, *[1 / 6] * 6, 0], atol=0.02)
    assert (three.min(), three.max()) == (1, 6)


@pytest.mark.parametrize("text", TEXTS)
def test_sentences_hold_every_token_of_the_text_in_its_order(tokenizer, text):
    (sequence,), _ = encode_sentences(tokenizer, [text])
    expected = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert sequence[sequence != END].tolist() == expected
    sentences = sentences_of(sequence)
    assert [token for sentence in sentences for token in sentence.tolist()] == expected
    assert all(len(sentence) for sentence in sentences)


def test_sentences_are_those_of_the_splitter(tokenizer):
    sequences, _ = encode_sentences(tokenizer, [*TEXTS, "It rains. " * 40])
    assert [len(sentences_of(sequence)) for sequence in sequences] == [3, 1, 0, 0, 3, 4, 3, 40]
    sentences = [tokenizer.decode(sentence) for sentence in sentences_of(sequences[0])]
    assert sentences == ["it rained.", "nobody came!", "why?"]


def test_tokens_are_those_of_the_whole_text_where_they_know_the_space_before_them():
    """A byte-level tokenizer, as RoBERTa's: a sentence alone would begin with another token."""
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(["It rained. Nobody came. It rained."] * 20, vocab_size=300)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer)
    text = "It rained. It rained. Nobody came 😀!"
    (sequence,), _ = encode_sentences(tokenizer, [text])
    first, second, third = sentences_of(sequence)
    assert tokenizer.decode(second) == " It rained."
    assert tokenizer.decode([*first, *third]) == "It rained. Nobody came 😀!"
    assert sequence[sequence != END].tolist() == tokenizer(text)["input_ids"]
    assert tokenizer(" It rained.")["input_ids"] != tokenizer("It rained.")["input_ids"]


mask = partial(module.mask_tokens, mask_id=MASK, vocabulary=VOCABULARY)


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(0).integers(5, VOCABULARY, N)


def test_masking_leaves_the_text_as_it_is_and_depends_on_the_generator_alone(ids):
    before = ids.copy()
    first = mask(ids, np.random.default_rng(1))
    np.testing.assert_array_equal(before, ids)
    np.testing.assert_array_equal(mask(ids, np.random.default_rng(1)), first)


def test_fifteen_tokens_of_a_hundred_are_predicted_and_the_others_stay(ids):
    masked, labels = mask(ids, np.random.default_rng(1))
    predicted = labels != NO_LABEL
    assert predicted.mean() == pytest.approx(0.15, abs=0.003)
    np.testing.assert_array_equal(labels[predicted], ids[predicted])
    np.testing.assert_array_equal(masked[~predicted], ids[~predicted])


def test_eighty_of_a_hundred_predicted_tokens_are_masked_and_ten_replaced(ids):
    masked, labels = mask(ids, np.random.default_rng(1))
    read = masked[labels != NO_LABEL]
    true = ids[labels != NO_LABEL]
    assert (read == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert (read == true).mean() == pytest.approx(0.1, abs=0.01)
    replaced = read[(read != MASK) & (read != true)]
    assert len(replaced) / len(read) == pytest.approx(0.1, abs=0.01)
    # Any word may replace a token.
    counts, _ = np.histogram(replaced, bins=10, range=(0, VOCABULARY))
    assert counts.min() > 0.08 * len(replaced)


def make(tokenizer, texts=DOCUMENTS, *, max_tokens=512, pairs="halves", seed=0):
    sequences, _ = encode_sentences(tokenizer, texts)
    ids = [f"document {row}" for row in range(len(texts))]
    return PairedDocuments(
        sequences, ids=ids, tokenizer=tokenizer, max_tokens=max_tokens, pairs=pairs, seed=seed
    )


def pack_pairs(documents, rows, *, epoch=0, budget=10**6):
    return documents.pack(rows, epoch=epoch, budget=budget)


def texts_of(batch, *, masked=False):
    """The token ids of the texts in their order."""
    texts = {}
    for part in batch.parts:
        packed = part.masked if masked else part.texts
        texts |= dict(zip(part.places, packed.input_ids.split(packed.sizes), strict=True))
    return [texts[place].tolist() for place in range(len(texts))]


def test_documents_of_fewer_than_two_sentences_are_left_out_and_counted(tokenizer, caplog):
    documents = make(tokenizer)
    assert documents.rows == LEFT
    assert documents.ids == [f"document {row}" for row in LEFT]
    assert caplog.messages == ["2 of 6 documents have fewer than two sentences, and are left out"]


def test_fewer_than_two_documents_with_two_sentences_are_refused(tokenizer):
    few = "3 of 4 have fewer than two sentences, so fewer than two documents are left"
    with pytest.raises(InputError, match=few):
        make(tokenizer, ["no end at all " * 50, "", "one more", "Two. Sentences."])


@pytest.mark.parametrize(
    ("pairs", "max_tokens", "cut"),
    [("halves", 60, 1), ("halves", 62, 0), ("dropout", 62, 2), ("dropout", 122, 0)],
)
def test_documents_that_lose_tokens_are_counted(tokenizer, caplog, pairs, max_tokens, cut):
    texts = ["It rains. " * 40, "It rains. " * 30, "It rains. " * 2]
    make(tokenizer, texts, pairs=pairs, max_tokens=max_tokens)
    message = f"{cut} of 3 documents are longer than the texts of a pair, and are cut"
    assert caplog.messages == [message] * (cut > 0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("epoch", range(3))
def test_halves_are_disjoint_ordered_and_cover_the_document(tokenizer, seed, epoch):
    """Sentences made distinct, so that each is found again by its tokens."""
    rng = np.random.default_rng(seed)
    words = list("bcdefghijklm")
    texts = [
        " ".join(f"The {word} is here." for word in rng.permutation(words)[: rng.integers(2, 13)])
        for _ in "ab"
    ]
    halves = texts_of(pack_pairs(make(tokenizer, texts, seed=seed), [0, 1], epoch=epoch))
    for text, first, second in zip(texts, halves[:2], halves[2:], strict=True):
        ids = tokenizer(text)["input_ids"][1:-1]
        sentences = in_fives(ids)
        places = []
        for half in (first, second):
            assert (half[0], half[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
            places.append([sentences.index(sentence) for sentence in in_fives(half[1:-1])])
            assert places[-1] == sorted(places[-1]) != []
        assert sorted(places[0] + places[1]) == list(range(len(sentences)))


def in_fives(ids):
    """Every sentence has five tokens."""
    return [ids[start : start + 5] for start in range(0, len(ids), 5)]


@pytest.fixture
def together(tokenizer):
    """The texts of four pairs in one pass: the first texts of all, then the second ones."""
    return texts_of(pack_pairs(make(tokenizer), [0, 1, 2, 3], epoch=1))


def test_a_pair_does_not_depend_on_its_batch(tokenizer):
    documents = make(tokenizer)
    alone = texts_of(pack_pairs(documents, [3, 0], epoch=1), masked=True)
    masked = texts_of(pack_pairs(documents, [0, 1, 2, 3], epoch=1, budget=50), masked=True)
    assert alone == [masked[3], masked[0], masked[7], masked[4]]


@pytest.mark.parametrize(("seed", "epoch"), [(0, 2), (1, 1)])
def test_a_pair_depends_on_seed_and_epoch(tokenizer, together, seed, epoch):
    texts = texts_of(pack_pairs(make(tokenizer, seed=seed), [3], epoch=epoch, budget=50))
    assert texts != [together[3], together[7]]


@pytest.mark.parametrize("budget", [1, 70, 10**6])
def test_parts_hold_every_text_once_within_the_budget(tokenizer, budget):
    batch = pack_pairs(make(tokenizer), [0, 1, 2, 3], budget=budget)
    places = list(itertools.chain(*(part.places for part in batch.parts)))
    assert sorted(places) == list(range(8))
    assert [places[i] for i in batch.order.tolist()] == list(range(8))
    assert all(sum(part.texts.sizes) <= budget or len(part.places) == 1 for part in batch.parts)
    assert (len(batch.parts) == 1) == (budget == 10**6)


@pytest.mark.parametrize("budget", [1, 70, 10**6])
def test_labels_are_those_of_masked_tokens_and_never_of_special_ones(tokenizer, budget):
    batch = pack_pairs(make(tokenizer), [0, 1, 2, 3], budget=budget)
    n_labels = 0
    for part in batch.parts:
        labelled = part.labels != NO_LABEL
        ids = part.texts.input_ids
        n_labels += int(labelled.sum())
        assert part.masked.sizes == part.texts.sizes
        assert torch.equal(part.labels[labelled], ids[labelled])
        assert torch.equal(part.masked.input_ids[~labelled], ids[~labelled])
        special = (ids == tokenizer.cls_token_id) | (ids == tokenizer.sep_token_id)
        assert not (labelled & special).any()
    assert n_labels > 0


def test_pairs_by_dropout_are_the_whole_document_twice_of_the_same_documents(tokenizer):
    documents = make(tokenizer, pairs="dropout")
    assert documents.rows == LEFT
    expected = [tokenizer(DOCUMENTS[row])["input_ids"] for row in LEFT]
    assert texts_of(pack_pairs(documents, [0, 1, 2, 3])) == expected + expected


def test_both_texts_of_a_pair_by_dropout_are_masked_at_other_places(tokenizer):
    batch = pack_pairs(make(tokenizer, pairs="dropout"), [3])
    first, second = texts_of(batch, masked=True)
    assert first != second


def test_texts_are_cut_at_the_limit_between_the_special_tokens(tokenizer):
    ends = (tokenizer.cls_token_id, tokenizer.sep_token_id)
    for text in texts_of(pack_pairs(make(tokenizer, max_tokens=32), [3])):
        assert (len(text), text[0], text[-1]) == (32, *ends)


accumulate = partial(module.accumulate_gradients, backward=torch.Tensor.backward)


@pytest.fixture
def students(distil):
    """Two equal students in training: one learns by parts, one with all activations in memory."""
    return lambda dropout: [distil.make_objective(dropout).student.double().train() for _ in "ab"]


def both_gradients(students, budget):
    """0.7 times the mean loss of eight random texts by parts, and in one graph.

    Returns gradients and losses of both.
    """
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(3, 30, (8,), generator=generator).tolist()
    texts = [torch.randint(2, 200, (size,), generator=generator).tolist() for size in sizes]
    plan = token_batches(sizes, budget)
    parts = [pack([texts[place] for place in places]) for places in plan]

    def losses_of(embeddings):
        return InfoNCE(0.5)(*embeddings.chunk(2))

    torch.manual_seed(11)
    order = torch.tensor([place for places in plan for place in places]).argsort()
    by_parts = accumulate(students[0], parts, order, losses_of, share=0.7)
    later = torch.rand(3)
    torch.manual_seed(11)
    embedded = torch.cat([students[1](part) for part in parts])
    # The second forward pass of each part has drawn no numbers.
    assert torch.equal(later, torch.rand(3))
    embeddings = embedded[order]
    losses = losses_of(embeddings)
    (0.7 * losses.mean()).backward()
    in_one = losses.detach(), embeddings.detach()
    torch.testing.assert_close(by_parts, in_one, rtol=0, atol=1e-10)
    gradients, expected = map(gradients_of, students)
    assert max(gradient.abs().max() for gradient in expected.values()) > 1e-3
    return gradients, expected, len(parts)


def gradients_of(student):
    return {name: p.grad for name, p in student.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("budget", [1, 40, 100, 10**6])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_parts_give_the_gradients_of_one_graph_with_the_same_dropout(
    students, budget, checkpointing, dropout
):
    pair = students(dropout)
    pair[0].checkpointing = checkpointing
    gradients, expected, n_parts = both_gradients(pair, budget)
    assert (n_parts > 1) == (budget < 10**6)
    torch.testing.assert_close(gradients, expected, rtol=0, atol=1e-10)


def test_parts_keep_the_activations_of_one_part_at_a_time(students):
    """The largest number of bytes that are saved for backward passes at once."""
    student, texts = students(0.1)[0], [[5] * 20] * 8
    saved = []

    class Live:
        def __init__(self, tensor):
            self.tensor = tensor
            saved.append(+tensor.nbytes)

        def __del__(self):
            saved.append(-self.tensor.nbytes)

    peaks = []
    for budget in (20, 10**6):
        plan = token_batches([20] * 8, budget)
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(Live, lambda live: live.tensor):
            parts = [pack([texts[i] for i in places]) for places in plan]
            order = torch.arange(8)
            accumulate(student, parts, order, lambda y: InfoNCE(0.5)(*y.chunk(2)), share=1.0)
        peaks.append(np.cumsum(saved).max())
    assert peaks[0] < peaks[1] / 4


@pytest.mark.parametrize("name", ["distil", "on_pairs"])
def test_a_training_computes_in_the_precision_of_its_settings(tmp_path, request, name):
    train = request.getfixturevalue(name).train
    losses = []
    for precision in ("fp32", "bf16"):
        _, history = train(tmp_path / precision, precision=precision, epochs=1, dropout=0.0)
        losses.append(history.train[0]["loss"])
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def losses_by_hand(objective, documents, rows, epoch):
    """Contrast and MLM of a batch in one pass: cosines pair by pair, scores for all tokens."""
    (part,) = pack_pairs(documents, rows, epoch=epoch).parts
    first, second = objective.student(part.texts)[np.argsort(part.places).tolist()].chunk(2)
    similar = torch.stack([F.cosine_similarity(h, second, dim=1) for h in first]) / 0.05
    contrast = (similar.logsumexp(1) - similar.diagonal()).mean()
    head, words = objective.head, objective.student.model.embeddings.word_embeddings.weight
    scores = (
        head.norm(F.gelu(head.dense(objective.student.hidden(part.masked)))) @ words.T + head.bias
    )
    guessed = part.labels != NO_LABEL
    return contrast, -scores.log_softmax(1)[guessed, part.labels[guessed]].mean()


def test_the_trainer_does_what_a_plain_loop_does(tmp_path, on_pairs, plain_loop):
    """The trainer has several passes for each batch, the loop one."""
    trained, history = on_pairs.train(tmp_path, dropout=0.0)
    by_hand = on_pairs.make_objective(dropout=0.0)
    documents = on_pairs.make_documents(50, 1)
    assert len(documents) == 45
    losses = []

    def loss_of(rows, epoch):
        contrast, mlm = losses_by_hand(by_hand, documents, rows, epoch)
        loss = contrast + 0.1 * mlm
        losses.append({"contrast": contrast.item(), "mlm": mlm.item(), "loss": loss.item()})
        return loss

    plain_loop(by_hand, len(documents), on_pairs.SETTINGS, loss_of)
    torch.testing.assert_close(trained.state_dict(), by_hand.state_dict(), rtol=1e-3, atol=2e-5)
    assert len(history.train) == 12
    for name in losses[0]:
        assert history.train[0][name] == pytest.approx(
            (losses[0][name] + losses[1][name]) / 2, rel=1e-5
        )


@pytest.mark.parametrize("budget", [1, 60, 10**6])
def test_validation_means_are_those_of_a_loop_and_leave_the_objective_as_it_was(on_pairs, budget):
    objective = on_pairs.make_objective().train()
    before = copy.deepcopy(objective.state_dict())
    documents = on_pairs.make_documents(10, 2)  # nine: the last one joins the second batch
    means = validate(objective, documents, Cut(4, budget))
    assert objective.training
    objective.eval()
    with torch.no_grad():
        parts = [losses_by_hand(objective, documents, rows, 0) for rows in (range(4), range(4, 9))]
    contrast, mlm = (4 * np.array(parts[0]) + 5 * np.array(parts[1])) / 9
    expected = {"contrast": contrast, "mlm": mlm, "loss": contrast + 0.1 * mlm}
    assert {name: means[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(objective.state_dict(), before, rtol=0, atol=0)


def test_pairs_by_dropout_of_a_student_without_dropout_are_refused(tmp_path, on_pairs, refused):
    problem = "dropout makes no pairs of a student without dropout"
    refused(problem, on_pairs.train, tmp_path, dropout=0.0, pairs="dropout")
    assert not list(tmp_path.iterdir())


def test_several_processes_are_refused(tmp_path, on_pairs, monkeypatch, refused):
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused("SimDE trains in one process", on_pairs.train, tmp_path)
    assert not list(tmp_path.iterdir())
