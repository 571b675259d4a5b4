"""Gradients part by part are those of the whole batch at once."""

from __future__ import annotations

import pytest
import torch

from docemb_lib.losses import InfoNCE
from docemb_lib.student.packing import pack, token_batches
from docemb_lib.training.simde import Dice, compare_parts

pytestmark = pytest.mark.usefixtures("one_thread")


def texts(n=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(3, 30, (n,), generator=generator).tolist()
    return [torch.randint(2, 200, (size,), generator=generator).tolist() for size in sizes]


def losses_of(embeddings):
    return InfoNCE(0.5)(*embeddings.chunk(2))


def student_of(distil, *, dropout, dtype=torch.float64):
    return distil.make_objective(dropout).student.to(dtype).train()


def gradients(student):
    return {name: p.grad.clone() for name, p in student.named_parameters() if p.grad is not None}


def by_parts(student, documents, budget, *, share=0.7, embed=None):
    plan = token_batches([len(ids) for ids in documents], budget)
    parts = [pack([documents[place] for place in places]) for places in plan]
    torch.manual_seed(11)
    compared = compare_parts(
        embed or student, parts, plan, losses_of, share=share, backward=lambda loss: loss.backward()
    )
    return compared, parts, plan


def with_all_graphs(student, parts, plan, *, share=0.7, embed=None):
    """The same parts, all of their activations in memory."""
    torch.manual_seed(11)
    embedded = torch.cat([(embed or student)(part) for part in parts])
    order = [place for places in plan for place in places]
    embeddings = torch.stack([embedded[order.index(place)] for place in range(len(order))])
    losses = losses_of(embeddings)
    (share * losses.mean()).backward()
    return losses, embeddings


def assert_close(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("budget", [1, 40, 100])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_parts_give_the_gradients_of_one_pass(distil, budget, checkpointing):
    student, whole = student_of(distil, dropout=0.0), student_of(distil, dropout=0.0)
    student.checkpointing = checkpointing
    compared, parts, _ = by_parts(student, texts(), budget)
    assert len(parts) > 1
    losses = losses_of(whole(pack(texts())))
    (0.7 * losses.mean()).backward()
    torch.testing.assert_close(compared.losses, losses.detach(), rtol=0, atol=1e-10)
    torch.testing.assert_close(compared.embeddings, whole(pack(texts())).detach(), rtol=0, atol=1e-10)
    assert max(gradient.abs().max() for gradient in gradients(whole).values()) > 1e-3
    assert_close(gradients(student), gradients(whole), 1e-10)


@pytest.mark.parametrize("budget", [1, 40, 10**6])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_dropout_falls_twice_alike_and_what_is_drawn_later_is_not_drawn_before(distil, budget, checkpointing):
    student, whole = student_of(distil, dropout=0.3), student_of(distil, dropout=0.3)
    student.checkpointing = checkpointing
    compared, parts, plan = by_parts(student, texts(), budget)
    later = torch.rand(3)
    losses, _ = with_all_graphs(whole, parts, plan)
    torch.testing.assert_close(compared.losses, losses.detach(), rtol=0, atol=1e-10)
    assert_close(gradients(student), gradients(whole), 1e-10)
    assert torch.equal(later, torch.rand(3))


def test_half_precision_gives_the_gradients_of_half_precision(distil):
    student, whole = (student_of(distil, dropout=0.0, dtype=torch.float32) for _ in range(2))

    def embed_by(model):
        def embed(part):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return model(part)

        return embed

    _, parts, plan = by_parts(student, texts(), 40, embed=embed_by(student))
    with_all_graphs(whole, parts, plan, embed=embed_by(whole))
    found, expected = gradients(student), gradients(whole)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= 0.05 * gradient.norm() + 1e-6, name


def test_dice_fall_again_and_leave_the_generator_as_it_was():
    torch.manual_seed(0)
    dice = Dice(torch.device("cpu"))
    first = torch.rand(4)
    with dice.again():
        assert torch.equal(torch.rand(4), first)
    after = torch.rand(4)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(8), torch.cat([first, after]))
