"""Pairs of texts, masked tokens, the gradient cache and training on pairs, each against a loop or
one pass.
"""

import copy
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
from docemb_lib.losses.pairs import NO_LABEL
from docemb_lib.student.packing import pack, token_batches
from docemb_lib.training import pairs as module
from docemb_lib.training.pairs import (
    END,
    PairedDocuments,
    draw_halves,
    encode_sentences,
    generator_of,
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


def test_each_sentence_goes_either_way_by_a_coin_of_seed_document_and_epoch():
    """Of two sentences, (first, second) and (second, first) are left after drawing again; of many,
    all but two.
    """
    rng = np.random.default_rng(0)
    two = np.array([draw_halves(2, rng) for _ in range(4000)])
    assert two[:, 0].mean() == pytest.approx(0.5, abs=0.03)
    assert (two[:, 0] != two[:, 1]).all()
    three = np.array([draw_halves(3, rng) for _ in range(6000)]) @ [1, 2, 4]
    np.testing.assert_allclose(
        np.bincount(three, minlength=8) / 6000, [0, *[1 / 6] * 6, 0], atol=0.02
    )
    assert (three.min(), three.max()) == (1, 6)  # no half is ever empty

    def drawn(document="a", **given):
        return tuple(
            generator_of(document, **{"seed": 0, "epoch": 0} | given)
            .integers(1000, size=8)
            .tolist()
        )

    assert (drawn(), len({drawn(), drawn("b"), drawn("😀"), drawn(seed=1), drawn(epoch=1)})) == (
        drawn(),
        5,
    )


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
    assert [tokenizer.decode(s) for s in sentences_of(sequences[0])] == [
        "it rained.",
        "nobody came!",
        "why?",
    ]
    (sequence,), _ = encode_sentences(tokenizer, ["It rains here. " * 100_000])
    sentences = sentences_of(sequence)
    assert len(sentences) == 100_000
    assert draw_halves(
        len(sentences), generator_of("long", seed=0, epoch=0)
    ).mean() == pytest.approx(0.5, abs=0.01)


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


def test_fifteen_of_a_hundred_are_guessed_of_which_eighty_are_masked_and_ten_replaced():
    ids = np.random.default_rng(0).integers(5, VOCABULARY, N)
    mask = partial(module.mask_tokens, mask_id=MASK, vocabulary=VOCABULARY)
    masked, labels = mask(before := ids.copy(), np.random.default_rng(1))
    np.testing.assert_array_equal(before, ids)  # the text stays as it is
    np.testing.assert_array_equal(
        mask(ids, np.random.default_rng(1)), (masked, labels)
    )  # chance is the caller's
    assert (mask(ids, np.random.default_rng(4))[1] != labels).any()
    assert np.size(mask(ids[:0], np.random.default_rng(0))) == 0
    guessed = labels != NO_LABEL
    assert guessed.mean() == pytest.approx(0.15, abs=0.003)
    np.testing.assert_array_equal(labels[guessed], ids[guessed])
    np.testing.assert_array_equal(masked[~guessed], ids[~guessed])
    shown, true = masked[guessed], ids[guessed]
    assert (shown == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert (shown == true).mean() == pytest.approx(0.1, abs=0.01)
    replaced = shown[(shown != MASK) & (shown != true)]
    assert len(replaced) / len(shown) == pytest.approx(0.1, abs=0.01)
    assert np.histogram(replaced, bins=10, range=(0, VOCABULARY))[0].min() > 0.08 * len(
        replaced
    )  # any word


def make(tokenizer, texts=DOCUMENTS, *, max_tokens=512, pairs="halves", seed=0):
    sequences, _ = encode_sentences(tokenizer, texts)
    ids = [f"document {row}" for row in range(len(texts))]
    return PairedDocuments(
        sequences, ids=ids, tokenizer=tokenizer, max_tokens=max_tokens, pairs=pairs, seed=seed
    )


def texts_of(batch, *, masked=False):
    """The token ids of the texts in their order."""
    texts = {}
    for part in batch.parts:
        packed = part.masked if masked else part.texts
        texts |= dict(zip(part.places, packed.input_ids.split(packed.sizes), strict=True))
    return [texts[place].tolist() for place in range(len(texts))]


def test_documents_of_fewer_than_two_sentences_are_left_out_and_counted(tokenizer, caplog):
    documents = make(tokenizer)
    assert (documents.rows.tolist(), documents.ids) == (LEFT, [f"document {row}" for row in LEFT])
    assert documents.n_sentences.tolist() == [5, 1, 2, 0, 4, 60]
    assert caplog.messages == ["2 of 6 documents have fewer than two sentences, and are left out"]
    with pytest.raises(
        InputError,
        match="3 of 4 have fewer than two sentences, so fewer than two documents are left",
    ):
        make(tokenizer, ["no end at all " * 50, "", "one more", "Two. Sentences."])


@pytest.mark.parametrize(
    ("pairs", "max_tokens", "cut"),
    [("halves", 60, 1), ("halves", 62, 0), ("dropout", 62, 2), ("dropout", 122, 0)],
)
def test_documents_that_lose_tokens_are_counted(tokenizer, caplog, pairs, max_tokens, cut):
    make(
        tokenizer,
        ["It rains. " * 40, "It rains. " * 30, "It rains. " * 2],
        pairs=pairs,
        max_tokens=max_tokens,
    )
    assert caplog.messages == [
        f"{cut} of 3 documents are longer than the texts of a pair, and are cut"
    ] * (cut > 0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("epoch", range(3))
def test_halves_are_disjoint_ordered_and_cover_the_document(tokenizer, seed, epoch):
    """Sentences made distinct, so that each is found again by its tokens."""
    rng = np.random.default_rng(seed)
    words = [
        "cat",
        "dog",
        "tree",
        "road",
        "rain",
        "house",
        "sea",
        "hill",
        "star",
        "bird",
        "fish",
        "door",
    ]
    texts = [
        " ".join(f"The {word} is here." for word in rng.permutation(words)[: rng.integers(2, 13)])
        for _ in "ab"
    ]
    halves = texts_of(make(tokenizer, texts, seed=seed).pack([0, 1], epoch=epoch, budget=10**6))
    for text, first, second in zip(texts, halves[:2], halves[2:], strict=True):
        ids = tokenizer(text)["input_ids"][1:-1]
        sentences = [
            ids[i : i + 5] for i in range(0, len(ids), 5)
        ]  # every sentence has five tokens
        places = []
        for half in (first, second):
            assert (half[0], half[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
            places.append([sentences.index(half[i : i + 5]) for i in range(1, len(half) - 1, 5)])
            assert places[-1] == sorted(places[-1]) != []
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
    assert texts_of(make(tokenizer, seed=1).pack([3], epoch=1, budget=50)) != [
        together[3],
        together[7],
    ]


@pytest.mark.parametrize("budget", [1, 70, 10**6])
def test_parts_hold_every_text_once_within_the_budget_and_the_labels_are_of_hidden_tokens(
    tokenizer, budget
):
    batch = make(tokenizer).pack([0, 1, 2, 3], epoch=0, budget=budget)
    assert sorted(place for part in batch.parts for place in part.places) == list(range(8))
    assert all(sum(part.texts.sizes) <= budget or len(part.places) == 1 for part in batch.parts)
    assert (len(batch.parts) == 1) == (budget == 10**6)
    n_labels = 0
    for part in batch.parts:
        guessed, ids = part.labels != NO_LABEL, part.texts.input_ids
        n_labels += int(guessed.sum())
        assert part.masked.sizes == part.texts.sizes
        assert torch.equal(part.labels[guessed], ids[guessed])
        assert torch.equal(part.masked.input_ids[~guessed], ids[~guessed])
        assert not (
            guessed & ((ids == tokenizer.cls_token_id) | (ids == tokenizer.sep_token_id))
        ).any()
    assert batch.n_labels == n_labels > 0
    placed = [place for part in batch.parts for place in part.places]
    assert [placed[i] for i in batch.order.tolist()] == list(range(8))


def test_pairs_by_dropout_are_the_whole_document_twice_of_the_same_documents(tokenizer):
    documents = make(tokenizer, pairs="dropout")
    assert documents.rows.tolist() == LEFT
    expected = [tokenizer(DOCUMENTS[row])["input_ids"] for row in LEFT]
    assert texts_of(documents.pack([0, 1, 2, 3], epoch=0, budget=10**6)) == expected + expected
    masked = texts_of(documents.pack([3], epoch=0, budget=10**6), masked=True)
    assert masked[0] != masked[1]  # hidden at other places
    for text in texts_of(
        make(tokenizer, max_tokens=32).pack([3], epoch=0, budget=10**6)
    ):  # cut at the limit
        assert (len(text), text[0], text[-1]) == (
            32,
            tokenizer.cls_token_id,
            tokenizer.sep_token_id,
        )


@pytest.fixture
def students(distil):
    """Two equal students in training: one learns by parts, one with all activations in memory."""
    return lambda dropout, dtype=torch.float64: [
        distil.make_objective(dropout).student.to(dtype).train() for _ in "ab"
    ]


def both_gradients(students, budget, embed=lambda student, part: student(part)):
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
    own = partial(embed, students[0])
    found = module.accumulate_gradients(
        own, parts, order, losses_of, share=0.7, backward=torch.Tensor.backward
    )
    later = torch.rand(3)
    torch.manual_seed(11)
    embedded = torch.cat([embed(students[1], part) for part in parts])
    assert torch.equal(
        later, torch.rand(3)
    )  # the second forward pass of each part drew no numbers of its own
    placed = [place for places in plan for place in places]
    embeddings = torch.stack([embedded[placed.index(place)] for place in range(8)])
    losses = losses_of(embeddings)
    (0.7 * losses.mean()).backward()
    torch.testing.assert_close(found, (losses.detach(), embeddings.detach()), rtol=0, atol=1e-10)
    gradients = [
        {name: p.grad for name, p in s.named_parameters() if p.grad is not None} for s in students
    ]
    assert max(gradient.abs().max() for gradient in gradients[1].values()) > 1e-3
    return *gradients, len(parts)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("budget", [1, 40, 100, 10**6])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_parts_give_the_gradients_of_one_graph_with_the_same_dropout(
    students, budget, checkpointing, dropout
):
    pair = students(dropout)
    pair[0].checkpointing = checkpointing
    found, expected, n_parts = both_gradients(pair, budget)
    assert (n_parts > 1) == (budget < 10**6)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


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
            module.accumulate_gradients(
                student,
                parts,
                order,
                lambda y: InfoNCE(0.5)(*y.chunk(2)),
                share=1.0,
                backward=torch.Tensor.backward,
            )
        peaks.append(np.cumsum(saved).max())
    assert peaks[0] < peaks[1] / 4


def test_half_precision_gives_the_gradients_of_half_precision(students):
    def embed(student, part):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return student(part)

    found, expected, _ = both_gradients(students(0.0, torch.float32), 40, embed)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= 0.05 * gradient.norm() + 1e-6, name


def losses_by_hand(objective, documents, rows, epoch):
    """Contrast and MLM of a batch in one pass: cosines pair by pair, scores for all tokens."""
    (part,) = documents.pack(rows, epoch=epoch, budget=10**6).parts
    first, second = objective.student(part.texts)[np.argsort(part.places).tolist()].chunk(2)
    similar = torch.stack([F.cosine_similarity(h, second, dim=1) for h in first]) / 0.05
    contrast = (similar.logsumexp(1) - similar.diagonal()).mean()
    head, words = objective.head, objective.student.model.embeddings.word_embeddings.weight
    scores = (
        head.norm(F.gelu(head.dense(objective.student.hidden(part.masked)))) @ words.T + head.bias
    )
    guessed = part.labels != NO_LABEL
    return contrast, -scores.log_softmax(1)[guessed, part.labels[guessed]].mean()


@pytest.mark.parametrize("taught", [False, True])
@pytest.mark.parametrize("pairs", ["halves", "dropout"])
def test_the_trainer_does_what_a_plain_loop_does(
    tmp_path, on_pairs, plain_loop, taught, pairs, monkeypatch
):
    """The trainer has several passes for each batch, the loop one."""
    monkeypatch.setattr("docemb_lib.training.pairs.has_dropout", lambda student: True)
    trained, history = on_pairs.train(tmp_path, dropout=0.0, taught=taught, pairs=pairs)
    by_hand = on_pairs.make_objective(dropout=0.0, taught=taught)
    documents, teachers = on_pairs.make_documents(50, 1, pairs=pairs)
    assert len(documents) == 45
    losses = []

    def loss_of(rows, epoch):
        contrast, mlm = losses_by_hand(by_hand, documents, rows, epoch)
        loss = contrast + 0.1 * mlm
        if taught:
            batch, targets = teachers.pack([documents.rows[rows].tolist()])
            loss = by_hand.distillation(batch, **targets._asdict()).loss + 0.5 * loss
        losses.append({"contrast": contrast.item(), "mlm": mlm.item(), "loss": loss.item()})
        return loss

    plain_loop(by_hand, len(documents), on_pairs.SETTINGS, loss_of)
    torch.testing.assert_close(trained.state_dict(), by_hand.state_dict(), rtol=1e-3, atol=2e-5)
    assert len(history.train) == 12
    for name in losses[0]:
        assert history.train[0][name] == pytest.approx(
            (losses[0][name] + losses[1][name]) / 2, rel=1e-5
        )
    assert ("structural" in history.train[0]) == taught


@pytest.mark.parametrize("budget", [1, 60, 10**6])
def test_validation_means_are_those_of_a_loop_and_leave_the_objective_as_it_was(on_pairs, budget):
    objective = on_pairs.make_objective().train()
    before = copy.deepcopy(objective.state_dict())
    documents, _ = on_pairs.make_documents(10, 2)  # nine: the last one joins the second batch
    means = module.validate_pairs(objective, documents, batch_size=4, dtype=None, budget=budget)
    assert objective.training
    objective.eval()
    with torch.no_grad():
        parts = [losses_by_hand(objective, documents, rows, 0) for rows in (range(4), range(4, 9))]
        batch = documents.pack(range(9), epoch=0, budget=10**6)
        y = objective.student(batch.parts[0].texts)[batch.order][:9].double()
    contrast, mlm = (4 * np.array(parts[0]) + 5 * np.array(parts[1])) / 9
    expected = {"contrast": contrast, "mlm": mlm, "loss": contrast + 0.1 * mlm}
    assert {name: means[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert means["norm"] == pytest.approx(y.norm(dim=1).mean().item(), rel=1e-6)
    distances = [
        1 - F.cosine_similarity(y[i], y[j], dim=0).item()
        for i in range(9)
        for j in range(9)
        if i != j
    ]
    assert means["spread"] == pytest.approx(np.mean(distances), abs=1e-6)
    torch.testing.assert_close(objective.state_dict(), before, rtol=0, atol=0)


def test_a_student_learns_to_find_the_other_half(tmp_path, on_pairs):
    _, history = on_pairs.train(
        tmp_path, dropout=0.0, epochs=15, learning_rate=3e-3, mlm=False, batch_tokens=10**6
    )
    assert history.train[-1]["contrast"] < history.train[0]["contrast"] / 2
    steps = [row["step"] for row in history.validation]
    assert (steps[0], steps[-1], len(steps)) == (0, 15 * 6, 3)


def test_what_cannot_be_trained_on_is_refused_before_anything_starts_and_a_student_held_once(
    tmp_path, on_pairs, monkeypatch, refused
):
    refused(
        "dropout makes no pairs of a student without dropout",
        on_pairs.train,
        tmp_path,
        dropout=0.0,
        pairs="dropout",
    )
    refused("documents: 3 training documents do not fill one batch", on_pairs.train, tmp_path, n=3)
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused("SimDE trains in one process", on_pairs.train, tmp_path)
    assert not list(tmp_path.iterdir())
    objective = on_pairs.make_objective(taught=True)
    assert objective.student is objective.distillation.student
    assert not [name for name in objective.state_dict() if name.startswith("own_student")]
