"""The objective against loops over documents and groups: weights, masks, groups, and who gets a
gradient.
"""

import copy
from collections.abc import Callable

import pytest
import torch
from conftest import normal
from torch import Tensor, nn

from docemb_lib.losses.contextual import CCA, InfoNCE, PairObjective, Projection, SoftCCA
from docemb_lib.losses.objective import Objective, Teaching, Weighting, group_sizes
from docemb_lib.losses.structural import MSE, Contrastive, Cosine, MaxMargin

W, D, C, P = 3, 8, 5, 6  # widths: words, student (and structural), contextual, projected
LENGTHS = torch.tensor([10, 384, 385, 4000, 500, 20, 384])
WIDTHS = {"near": D, "far": 4, "words": C, "topics": 2}
WEIGHTS = {"near": 1.0, "far": 0.25, "words": 2.0, "topics": 0.5}


def data(B: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    return normal(B, W, seed=seed), normal(B, D, seed=seed + 1), normal(B, C, seed=seed + 2)


def objective(
    structural: Callable | None = Cosine,
    contextual: Callable | None = lambda: SoftCCA(P),
    **options,
):
    """The thesis' two teachers, as far as they are there."""
    torch.manual_seed(0)
    student, teachers = nn.Linear(W, D), []  # the student first: the same one in every objective
    if structural is not None:
        teachers.append(Teaching("structural", "structural", structural()))
    if contextual is not None:
        ends = {
            "student_projection": Projection("9(ReLU)x6", D),
            "teacher_projection": Projection("6", C),
        }
        teachers.append(Teaching("contextual", "contextual", contextual(), **ends))
    return Objective(student, teachers, **options).double()


def part(module: Objective, name: str) -> Teaching:
    return next(teaching for teaching in module.teachings if teaching.name == name)


def call(module: Objective, B: int = 7, seed: int = 0, lengths: Tensor | None = LENGTHS):
    batch, t, c = data(B, seed)
    return module(batch, teachers={"structural": t, "contextual": c}, n_structural_tokens=lengths)


def gradients(module: nn.Module, first: str = "teachings.0.") -> dict[str, Tensor]:
    grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return {name.replace(first, "teachings.0."): grad.clone() for name, grad in grads.items()}


def document_losses(module: Objective, B: int = 7) -> tuple[list[float], list[float]]:
    """S (with its mask) and C, by calling the losses themselves."""
    batch, t, c = data(B)
    y = module.student(batch)
    S = part(module, "structural").loss(y, t, module.weighting.keep(LENGTHS[:B]))
    contextual = copy.deepcopy(part(module, "contextual"))
    return S.tolist(), contextual.loss(*contextual.views(y, c)).tolist()


FORMULAS = {  # what a document adds, written out; k = 1 where it is at most 384 tokens long
    "Listing 4.1": (Weighting(lam=0.2), lambda S, C, k: 0.2 * S + 0.8 * C),
    "drafts": (Weighting(0.2, form="structural"), lambda S, C, k: 0.2 * S + C),
    "drafts, masked": (
        Weighting(0.2, 384, form="structural"),
        lambda S, C, k: 0.2 * S + C if k else C,
    ),
    "Listing 4.1, masked": (Weighting(0.2, 384), lambda S, C, k: 0.2 * S + 0.8 * C if k else C),
    "no weighting": (Weighting(), lambda S, C, k: S + C),
    "no weighting, masked": (Weighting(None, 384), lambda S, C, k: S + C if k else C),
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("structural", [MSE, Cosine, MaxMargin, Contrastive])
def test_every_form_of_weighting_is_its_formula_averaged_over_all_documents(name, structural):
    weighting, formula = FORMULAS[name]
    module = objective(structural, weighting=weighting)
    S, C = document_losses(module)
    expected = [
        formula(s, c, int(n <= 384)) for s, c, n in zip(S, C, LENGTHS.tolist(), strict=True)
    ]
    output = call(module)
    assert output.loss.item() == pytest.approx(sum(expected) / 7, rel=1e-12)
    assert output.parts["structural"].item() == pytest.approx(sum(S) / 7, rel=1e-12)
    assert output.parts["contextual"].item() == pytest.approx(sum(C) / 7, rel=1e-12)


@pytest.mark.parametrize("lam", [None, 0.0, 0.2, 1.0])
def test_a_single_loss_is_its_plain_mean_whatever_lam_says(lam):
    batch, t, c = data(7)
    only_structural = objective(MaxMargin, None, weighting=Weighting(lam, 384))
    output = call(only_structural)
    assert output.views is None
    expected = MaxMargin()(only_structural.student(batch), t, LENGTHS <= 384).mean()
    assert list(output.parts) == ["structural"]
    assert (
        output.loss.item()
        == output.parts["structural"].item()
        == pytest.approx(expected.item(), rel=1e-12)
    )
    only_contextual = objective(None, weighting=Weighting(lam, 384))
    output = call(only_contextual)
    assert list(output.parts) == ["contextual", "l2", "sdl"]
    views = part(only_contextual, "contextual").views(only_contextual.student(batch), c)
    assert output.loss.item() == pytest.approx(SoftCCA(P).double()(*views).mean().item(), rel=1e-12)


@pytest.mark.parametrize(
    ("B", "sizes"), [(4, [4]), (6, [6]), (7, [7]), (12, [6, 6]), (13, [6, 7]), (14, [6, 6, 2])]
)
def test_a_last_lone_document_joins_the_group_before(B, sizes):
    assert group_sizes(B, 6) == sizes


def test_documents_of_groups_of_other_sizes_weigh_the_same():
    module = objective(MaxMargin, group_size=6)
    one_by_one = copy.deepcopy(module)
    one_by_one.group_size = None
    batch, t, c = data(13)
    whole = module(batch, teachers={"structural": t, "contextual": c}).loss.item() * 13
    for rows in (slice(6), slice(6, 13)):
        teachers = {"structural": t[rows], "contextual": c[rows]}
        whole -= one_by_one(batch[rows], teachers=teachers).loss.item() * len(batch[rows])
    assert whole == pytest.approx(0, abs=1e-11)


def test_embeddings_of_the_output_are_the_students_without_gradient():
    output = call(objective())
    assert torch.equal(output.embeddings, objective().student(data(7)[0]).detach())
    assert not output.embeddings.requires_grad
    assert output[0] is output.loss


def test_the_losses_are_in_single_precision_under_autocast():
    module = objective(MaxMargin).float()
    batch, t, c = (x.float() for x in data(7))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = module.student(batch)
        output = module(batch, teachers={"structural": t, "contextual": c})
    assert y.dtype == torch.bfloat16
    expected = MaxMargin()(y.float(), t) + SoftCCA(P)(
        *part(module, "contextual").views(y.float(), c)
    )
    assert output.loss.dtype == output.embeddings.dtype == torch.float32
    assert torch.equal(output.loss, expected.mean())


def test_projections_that_do_not_fit_are_refused(refused):
    ends = {"student_projection": Projection("6", 8), "teacher_projection": Projection("7", 5)}
    refused("words teacher 5 → 7; let", Teaching, "words", "contextual", MSE(), **ends)


def test_objectives_of_different_settings_have_different_representations():
    """Beside the settings that `tests/runs/test_students.py` names."""
    modules = [MaxMargin("mse"), MaxMargin("cosine"), CCA(), CCA(3)]
    modules += [Teaching("a", role, MSE()) for role in ("structural", "contextual")]
    modules += [Teaching("b", "structural", MSE()), Teaching("b", "structural", MSE(), weight=2.0)]
    contrasts = [PairObjective(nn.Linear(W, D), contrast=InfoNCE(tau)) for tau in (0.1, 0.2)]
    assert len({repr(module) for module in modules + contrasts}) == len(modules + contrasts)


def test_missing_lengths_are_named(refused):
    module = objective(MaxMargin, weighting=Weighting(0.5, 384))
    refused("pass n_structural_tokens", call, module, lengths=None)


def four_teachers(**options) -> Objective:
    """Two structural ones, of which one is of another width and compares with other documents, two
    contextual ones.
    """
    torch.manual_seed(0)
    student = nn.Linear(W, D)
    teachers = []
    for name, role, loss, student_spec, teacher_spec in (
        ("words", "contextual", SoftCCA(P), "9(ReLU)x6", "6"),
        ("near", "structural", MSE(), "-", "-"),
        ("topics", "contextual", SoftCCA(2, delta=0.2), "2", "-"),
        ("far", "structural", MaxMargin("cosine", 0.7), "5(ReLU)x4", "4"),
    ):
        f = Projection(student_spec, D)
        g = Projection(teacher_spec, WIDTHS[name])
        teachers.append(
            Teaching(
                name, role, loss, weight=WEIGHTS[name], student_projection=f, teacher_projection=g
            )
        )
    return Objective(student, teachers, **options).double()


def embeddings_of(B: int) -> dict[str, Tensor]:
    return {name: normal(B, width, seed=width) for name, width in WIDTHS.items()}


def slow_loss(
    module: Objective, batch: Tensor, known: dict[str, Tensor], lengths: Tensor
) -> Tensor:
    """The formula, group after group; SoftCCA's statistics advance with the groups."""
    losses = []
    for start in range(0, len(batch), 6):
        g = slice(start, start + 6)
        kept = lengths[g] <= 384
        y = module.student(batch[g])
        by_role = {"structural": torch.zeros(6), "contextual": torch.zeros(6)}
        for teaching in module.teachings:
            z1 = teaching.student_projection(y)
            z2 = teaching.teacher_projection(known[teaching.name][g])
            mask = [kept] if teaching.role == "structural" else []
            weighed = WEIGHTS[teaching.name] * teaching.loss(z1, z2, *mask)
            by_role[teaching.role] = by_role[teaching.role] + weighed
        lam = 0.3 * kept.double()
        losses.append(lam * by_role["structural"] + (1 - lam) * by_role["contextual"])
    return torch.cat(losses).mean()


def test_four_teachers_give_the_loss_gradient_and_statistics_of_the_formula():
    grouped, looped = (four_teachers(weighting=Weighting(0.3, 384), group_size=6) for _ in range(2))
    batch = normal(24, W, seed=1)
    known = embeddings_of(24)
    lengths = LENGTHS.repeat(4)[:24]
    for _ in range(2):
        output = grouped(batch, teachers=known, n_structural_tokens=lengths)
        output.loss.backward()
        expected = slow_loss(looped, batch, known, lengths)
        expected.backward()
        assert output.loss.item() == pytest.approx(expected.item(), rel=1e-12)
    words = ["words", "words.l2", "words.sdl"]
    topics = ["topics", "topics.l2", "topics.sdl"]
    assert list(output.parts) == [*words, "near", *topics, "far"]
    assert output.views[0].shape == (24, P)  # the first contextual teacher's
    torch.testing.assert_close(gradients(grouped), gradients(looped), rtol=1e-10, atol=1e-13)
    assert set(gradients(grouped)) == {name for name, _ in grouped.named_parameters()}
    torch.testing.assert_close(grouped.state_dict(), looped.state_dict(), rtol=1e-12, atol=1e-13)


def test_weights_by_length_fall_linearly_between_the_two_lengths():
    lengths = torch.tensor([1, 384, 1384, 2384, 3384, 4384, 9000])
    falling = torch.tensor([1, 1, 0.75, 0.5, 0.25, 0, 0])
    for lam, factor in ((0.8, 0.8), (None, 1.0)):
        structural, contextual = Weighting(lam, lam_by_length="linear:384:4384").weights(lengths)
        torch.testing.assert_close(structural, factor * falling)
        torch.testing.assert_close(contextual, 1 - factor * falling)
    structural, _ = Weighting(0.8, 2000, "linear:384:4384").weights(lengths)
    torch.testing.assert_close(structural, 0.8 * falling * (lengths <= 2000))
