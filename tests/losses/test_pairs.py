"""InfoNCE against a plain loop, and the head of masked-language modelling against those of transformers."""

import math

import pytest
import torch
import transformers

from docemb_lib.losses import InfoNCE, MaskedLanguageHead
from docemb_lib.losses.pairs import NO_LABEL

SIZES = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
LONG = {"attention_window": [8], "max_position_embeddings": 40}


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(x * x for x in b))


def by_hand(first, second, temperature):
    losses = []
    for i, h in enumerate(first):
        similar = [math.exp(cosine(h, other) / temperature) for other in second]
        losses.append(-math.log(similar[i] / (similar[i] + sum(similar[:i]) + sum(similar[i + 1 :]))))
    return losses


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
@pytest.mark.parametrize("symmetric", [False, True])
def test_it_is_the_papers_formula(dtype, temperature, symmetric):
    generator = torch.Generator().manual_seed(1)
    first, second = torch.randn(2, 5, 3, dtype=dtype, generator=generator)
    expected = by_hand(first.tolist(), second.tolist(), temperature)
    if symmetric:
        back = by_hand(second.tolist(), first.tolist(), temperature)
        expected = [(a + b) / 2 for a, b in zip(expected, back, strict=True)]
    found = InfoNCE(temperature, symmetric=symmetric)(first, second)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype))


def test_the_gradient_is_that_of_finite_differences_and_a_perfect_match_costs_nothing():
    first, second = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True).unbind()
    assert torch.autograd.gradcheck(InfoNCE(0.5, symmetric=True), (first, second))
    alike = torch.ones(8, 3)
    torch.testing.assert_close(InfoNCE()(alike, alike), torch.full((8,), math.log(8)))
    apart = torch.eye(8)
    torch.testing.assert_close(InfoNCE()(apart, 3 * apart), torch.full((8,), 7 * math.exp(-20)), atol=1e-6, rtol=0)


def test_texts_that_are_no_pairs_are_refused(refused):
    for sizes, message in (((1, 1), "one pair has no negatives"), ((3, 2), "must hold pairs")):
        refused(message, InfoNCE(), *(torch.ones(size, 2) for size in sizes))


@pytest.mark.parametrize(("kind", "more"), [("Bert", {}), ("Roberta", {}), ("Longformer", LONG)])
def test_it_scores_words_and_adds_losses_as_transformers_does(kind, more):
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES, **more)
    model = getattr(transformers, f"{kind}ForMaskedLM")(config).eval()
    reference = model.cls.predictions if hasattr(model, "cls") else model.lm_head
    transform = getattr(reference, "transform", reference)
    norm = getattr(transform, "LayerNorm", None) or transform.layer_norm
    with torch.no_grad():
        norm.weight.uniform_()
        reference.bias.uniform_()
    head = MaskedLanguageHead(8, 50, norm_eps=config.layer_norm_eps)
    head.dense, head.norm, head.bias = transform.dense, norm, reference.bias
    ids = torch.randint(3, 50, (1, 12))
    labels = torch.where(torch.rand(1, 12) < 0.4, ids, NO_LABEL)
    expected = model(input_ids=ids, labels=labels)
    hidden = model.base_model(ids).last_hidden_state[0]
    words = model.get_input_embeddings().weight
    torch.testing.assert_close(head(hidden, words), expected.logits[0])
    guessed = (labels != NO_LABEL).sum()
    torch.testing.assert_close(head.loss(hidden, labels[0], words) / guessed, expected.loss)


def test_without_a_hidden_token_the_loss_is_zero_and_the_words_are_not_stored_twice():
    head = MaskedLanguageHead(8, 50)
    loss = head.loss(torch.randn(6, 8), torch.full((6,), NO_LABEL), torch.randn(50, 8))
    loss.backward()
    assert (loss.item(), head.dense.weight.grad.abs().sum()) == (0, 0)
    assert {name: list(tensor.shape) for name, tensor in MaskedLanguageHead(8, 50).state_dict().items()} == {
        "bias": [50], "dense.weight": [8, 8], "dense.bias": [8], "norm.weight": [8], "norm.bias": [8],
    }  # fmt: skip
