"""The objective against loops over documents and groups: weights, masks, groups, and who gets a gradient."""

import copy
import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from docemb_lib.errors import InputError
from docemb_lib.losses import (
    CCA,
    MSE,
    Contrastive,
    Cosine,
    MaxMargin,
    Objective,
    Projection,
    SoftCCA,
    Weighting,
)

W, D, C, P = 3, 8, 5, 6  # widths: words, student (and structural), contextual, projected
LENGTHS = torch.tensor([10, 384, 385, 4000, 500, 20, 384])


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def data(B: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    return normal(B, W, seed=seed), normal(B, D, seed=seed + 1), normal(B, C, seed=seed + 2)


def objective(structural: Callable | None = Cosine, contextual: Callable | None = lambda: SoftCCA(P), **options):
    torch.manual_seed(0)
    student, projections = nn.Linear(W, D), {}  # the student first: the same one in every objective
    if contextual is not None:
        projections = {"student_projection": Projection("9(ReLU)x6", D), "contextual_projection": Projection("6", C)}
    return Objective(
        student,
        structural=structural and structural(),
        contextual=contextual and contextual(),
        **projections,
        **options,
    ).double()


def call(module: Objective, B: int = 7, seed: int = 0, lengths: Tensor | None = LENGTHS):
    batch, t, c = data(B, seed)
    return module(batch, structural=t, contextual=c, n_structural_tokens=lengths)


def gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def document_losses(module: Objective, B: int = 7) -> tuple[list[float], list[float]]:
    """S (with its mask) and C, by calling the losses themselves."""
    batch, t, c = data(B)
    y = module.student(batch)
    keep = module.weighting.keep(LENGTHS[:B])
    S = module.structural_loss(y, t, keep)
    C = copy.deepcopy(module.contextual_loss)(module.student_projection(y), module.contextual_projection(c))
    return S.tolist(), C.tolist()


FORMULAS = {  # what a document adds, written out; k = 1 where it is at most 384 tokens long
    "Listing 4.1": (Weighting(lam=0.2), lambda S, C, k: 0.2 * S + 0.8 * C),
    "Listing 4.1, masked": (Weighting(0.2, 384), lambda S, C, k: 0.2 * S + 0.8 * C if k else C),
    "Listing 4.1 at a half, masked": (Weighting(0.5, 384), lambda S, C, k: 0.5 * S + 0.5 * C if k else C),
    "no weighting": (Weighting(), lambda S, C, k: S + C),
    "no weighting, masked": (Weighting(None, 384), lambda S, C, k: S + C if k else C),
    "author's code at a half": (Weighting(0.5, form="half_means_sum"), lambda S, C, k: S + C),
    "author's code at a half, masked": (Weighting(0.5, 384, form="half_means_sum"), lambda S, C, k: k * S + C),
    "author's code elsewhere": (
        Weighting(0.8, 384, form="half_means_sum"),
        lambda S, C, k: 0.8 * k * S + (1 - 0.8 * k) * C,
    ),
    "drafts": (Weighting(0.3, form="contextual_full"), lambda S, C, k: 0.3 * S + C),
    "drafts, masked": (Weighting(0.3, 384, form="contextual_full"), lambda S, C, k: 0.3 * k * S + C),
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("structural", [MSE, Cosine, MaxMargin, Contrastive])
def test_every_form_of_weighting_is_its_formula_averaged_over_all_documents(name, structural):
    weighting, formula = FORMULAS[name]
    module = objective(structural, weighting=weighting)
    S, C = document_losses(module)
    expected = [formula(s, c, int(n <= 384)) for s, c, n in zip(S, C, LENGTHS.tolist(), strict=True)]
    output = call(module)
    assert output.loss.item() == pytest.approx(sum(expected) / 7, rel=1e-12)
    assert output.structural.item() == pytest.approx(sum(S) / 7, rel=1e-12)
    assert output.contextual.item() == pytest.approx(sum(C) / 7, rel=1e-12)


def test_weights_by_length_fall_linearly_between_the_two_lengths():
    lengths = torch.tensor([1, 384, 1384, 2384, 3384, 4384, 9000])
    falling = torch.tensor([1, 1, 0.75, 0.5, 0.25, 0, 0])
    for lam, factor in ((0.8, 0.8), (None, 1.0)):
        structural, contextual = Weighting(lam, lam_by_length="linear:384:4384").weights(lengths)
        torch.testing.assert_close(structural, factor * falling)
        torch.testing.assert_close(contextual, 1 - factor * falling)
    structural, contextual = Weighting(0.8, 2000, "linear:384:4384", form="contextual_full").weights(lengths)
    torch.testing.assert_close(structural, 0.8 * falling * (lengths <= 2000))
    assert contextual.tolist() == [1] * 7


def test_lam_of_a_half_without_a_mask_is_half_of_no_weighting():
    half, plain = objective(weighting=Weighting(0.5)), objective(weighting=Weighting())
    assert 2 * call(half).loss.item() == pytest.approx(call(plain).loss.item(), rel=1e-12)


@pytest.mark.parametrize("structural", [MSE, Cosine, MaxMargin, Contrastive])
def test_with_all_documents_masked_the_loss_is_the_mean_contextual_loss(structural):
    module, alone = objective(structural, weighting=Weighting(0.8, 5)), objective(None)
    output, expected = call(module), call(alone)
    output.loss.backward()
    expected.loss.backward()
    assert output.structural.item() == 0
    assert output.loss.item() == pytest.approx(expected.loss.item(), rel=1e-12)
    torch.testing.assert_close(gradients(module), gradients(alone))


def test_at_lam_one_the_contextual_side_gets_no_gradient_and_at_zero_the_structural_one_gives_none():
    one, alone = objective(weighting=Weighting(1.0)), objective(contextual=None)
    zero, contextual = objective(weighting=Weighting(0.0)), objective(None)
    for module in (one, alone, zero, contextual):
        call(module).loss.backward()
    assert all(g.abs().max() == 0 for name, g in gradients(one).items() if "projection" in name)
    torch.testing.assert_close(one.student.weight.grad, alone.student.weight.grad)
    torch.testing.assert_close(gradients(zero), gradients(contextual))
    assert alone.student.weight.grad.abs().max() > 0


@pytest.mark.parametrize("lam", [None, 0.0, 0.2, 1.0])
def test_a_single_loss_is_its_plain_mean_whatever_lam_says(lam):
    batch, t, c = data(7)
    only_structural = objective(MaxMargin, None, weighting=Weighting(lam, 384))
    output = call(only_structural)
    assert output.contextual is None
    expected = MaxMargin()(only_structural.student(batch), t, LENGTHS <= 384).mean()
    assert output.loss.item() == output.structural.item() == pytest.approx(expected.item(), rel=1e-12)

    only_contextual = objective(None, weighting=Weighting(lam, 384))
    output = only_contextual(batch, contextual=c)  # lengths belong to the structural loss: not asked for
    assert output.structural is None
    views = only_contextual.student_projection(only_contextual.student(batch)), only_contextual.contextual_projection(c)
    assert output.loss.item() == pytest.approx(SoftCCA(P).double()(*views).mean().item(), rel=1e-12)


@pytest.mark.parametrize("contextual", [lambda: SoftCCA(P), MSE, CCA])
@pytest.mark.parametrize("structural", [Cosine, MaxMargin, Contrastive])
@pytest.mark.parametrize("weighting", [Weighting(), Weighting(0.3, 384)], ids=repr)
def test_groups_give_the_loss_gradient_and_statistics_of_a_loop_with_accumulation(structural, contextual, weighting):
    grouped = objective(structural, contextual, weighting=weighting, group_size=6)
    looped = objective(structural, contextual, weighting=weighting)
    (batch, t, c), lengths = data(24), LENGTHS.repeat(4)[:24]
    for _ in range(2):
        whole = grouped(batch, structural=t, contextual=c, n_structural_tokens=lengths)
        whole.loss.backward()
        total = 0.0
        for i in range(0, 24, 6):
            g = slice(i, i + 6)
            part = looped(batch[g], structural=t[g], contextual=c[g], n_structural_tokens=lengths[g]).loss / 4
            part.backward()
            total += part.item()
        assert whole.loss.item() == pytest.approx(total, rel=1e-12)
    torch.testing.assert_close(gradients(grouped), gradients(looped), rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(grouped.state_dict(), looped.state_dict(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("B", "sizes"), [(4, [4]), (6, [6]), (7, [7]), (12, [6, 6]), (13, [6, 7]), (14, [6, 6, 2])])
def test_a_last_lone_document_joins_the_group_before_it_and_every_document_weighs_the_same(B, sizes):
    module = objective(MaxMargin, group_size=6)
    one_by_one = copy.deepcopy(module)
    one_by_one.group_size = None
    batch, t, c = data(B)
    parts = [
        one_by_one(x, structural=y, contextual=z).loss.item() * len(x)
        for x, y, z in zip(batch.split(sizes), t.split(sizes), c.split(sizes), strict=True)
    ]
    assert module(batch, structural=t, contextual=c).loss.item() == pytest.approx(sum(parts) / B, rel=1e-12)


def test_gradients_of_the_whole_agree_with_finite_differences():
    # One group: what a later group's statistics remember of an earlier one is a constant to the gradient.
    module = objective(MaxMargin, weighting=Weighting(0.4, 384))
    batch, t, c = data(7)

    def loss(weight: Tensor) -> Tensor:
        fresh = copy.deepcopy(module)  # the same statistics for every evaluation
        arguments = {"structural": t, "contextual": c, "n_structural_tokens": LENGTHS}
        return torch.func.functional_call(fresh, {"student.weight": weight}, batch, arguments).loss

    assert torch.autograd.gradcheck(loss, module.student.weight.detach().clone().requires_grad_())


def test_without_projections_both_views_are_compared_as_they_are():
    batch, t, _ = data(7)
    module = Objective(nn.Linear(W, D), contextual=MSE()).double()
    torch.testing.assert_close(module(batch, contextual=t).loss, (module.student(batch) - t).square().mean())


def test_embeddings_are_the_students_without_gradient():
    module = objective()
    output = call(module)
    assert torch.equal(output.embeddings, module.student(data(7)[0]).detach())
    assert not output.embeddings.requires_grad
    assert output[0] is output.loss


def test_all_that_follows_the_student_is_in_single_precision_under_autocast():
    module = objective(MaxMargin).float()
    batch, t, c = (x.float() for x in data(7))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module.student(batch)
        output = module(batch, structural=t, contextual=c)
    assert y.dtype == torch.bfloat16
    views = module.student_projection(y.float()), module.contextual_projection(c)
    expected = MaxMargin()(y.float(), t) + SoftCCA(P)(*views)
    assert output.loss.dtype == output.embeddings.dtype == torch.float32
    assert torch.equal(output.loss, expected.mean())


def test_a_checkpoint_of_the_objective_resumes_exactly():
    def step(module: Objective, optimiser: torch.optim.Optimizer, seed: int) -> float:
        loss = call(module, seed=seed).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()

    unbroken = objective(weighting=Weighting(0.5, 384), group_size=3)
    optimiser = torch.optim.AdamW(unbroken.parameters(), lr=1e-2)
    for seed in range(3):
        step(unbroken, optimiser, seed)
    saved = copy.deepcopy((unbroken.state_dict(), optimiser.state_dict()))
    expected = [step(unbroken, optimiser, seed) for seed in range(3, 6)]

    resumed = objective(weighting=Weighting(0.5, 384), group_size=3)
    optimiser = torch.optim.AdamW(resumed.parameters(), lr=1e-2)
    resumed.load_state_dict(saved[0])
    optimiser.load_state_dict(saved[1])
    assert [step(resumed, optimiser, seed) for seed in range(3, 6)] == expected


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"lam": 1.2}, r"lam must lie in \[0, 1\] or be None, got 1.2"),
        ({"lam": float("nan")}, "got nan"),
        ({"lam": "null"}, "lam .* got the string 'null': write None"),
        ({"lam": True}, "lam .* got True"),
        ({"max_structural_len": "None"}, "max_structural_len .* got the string 'None': write None"),
        ({"max_structural_len": 0}, "max_structural_len must be 1 token or more, or None, got 0"),
        ({"lam_by_length": "null"}, "lam_by_length .* write None"),
        ({"lam_by_length": "linear:4096:384"}, "FIRST < LAST .* got 'linear:4096:384'"),
        ({"lam_by_length": "cosine:1:2"}, "as in linear:384:4096"),
        ({"lam_by_length": 384}, "as in linear:384:4096, got 384"),
        ({"form": "half"}, "form must be one of weighted, half_means_sum, contextual_full"),
        ({"lam": 0.5, "form": "half_means_sum", "lam_by_length": "linear:1:2"}, "set lam_by_length to None"),
    ],
)
def test_a_weighting_without_meaning_is_refused_with_the_mend(wrong, said):
    with pytest.raises(InputError, match=said):
        Weighting(**wrong)


def test_a_weighting_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Weighting().lam = 0.5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"structural": None, "contextual": None}, "nothing to train for"),
        ({"group_size": 1}, "group_size must be 2 documents or more"),
    ],
)
def test_an_objective_that_cannot_train_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        objective(**options)


def test_projections_that_lead_nowhere_are_refused_at_construction():
    with pytest.raises(InputError, match="student 8 → 6; contextual 5 → 7"):
        Objective(
            nn.Linear(W, D),
            contextual=MSE(),
            student_projection=Projection("6", 8),
            contextual_projection=Projection("7", 5),
        )
    with pytest.raises(InputError, match="projections belong to the contextual loss"):
        Objective(nn.Linear(W, D), structural=MSE(), student_projection=Projection("6", 8))


def test_missing_or_misfitting_tensors_are_named():
    module = objective(weighting=Weighting(0.5, 384))
    batch, t, c = data(7)
    with pytest.raises(InputError, match="pass n_structural_tokens"):
        module(batch, structural=t, contextual=c)
    with pytest.raises(InputError, match="pass structural="):
        module(batch, contextual=c, n_structural_tokens=LENGTHS)
    with pytest.raises(InputError, match="pass contextual="):
        module(batch, structural=t, n_structural_tokens=LENGTHS)
    with pytest.raises(InputError, match="contextual holds 6 embeddings for a batch of 7"):
        module(batch, structural=t, contextual=c[:6], n_structural_tokens=LENGTHS)
    with pytest.raises(InputError, match=r"expected 7, got \(6,\)"):
        module(batch, structural=t, contextual=c, n_structural_tokens=LENGTHS[:6])
    with pytest.raises(InputError, match="8 wide and teacher embeddings 4"):
        module(batch, structural=t[:, :4], contextual=c, n_structural_tokens=LENGTHS)
