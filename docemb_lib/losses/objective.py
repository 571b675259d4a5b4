"""The training objective: the student, the loss and projections of each teacher, and the weighted
sum of the losses.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from docemb_lib.base.errors import InputError
from docemb_lib.losses.contextual import Projection, full_precision
from docemb_lib.losses.structural import Described
from docemb_lib.settings.projections import check_widths

Role = Literal["structural", "contextual"]
ROLES: tuple[Role, ...] = get_args(Role)
# Applies a contextual loss to the groups of a batch, the two views of each, (b, P). Returns the
# losses, (B,).
GroupRunner = Callable[[nn.Module, list[tuple[Tensor, ...]]], Tensor]


@dataclass(frozen=True)
class Weighting:
    """Weights of the structural loss S and the contextual loss C of each document, and the mask of
    long documents.

    A document adds lam_i * S_i + (1 - lam_i) * C_i (thesis, Listing 4.1), where lam_i = lam *
    keep_i and keep_i = 1 if len_i <= max_structural_len else 0. Without lam, and in the author's
    code at lam 0.5, it is the plain sum keep_i * S_i + C_i. `lam_by_length`, as in
    "linear:384:4096", multiplies lam (1 where lam is None) by a factor that is 1 up to the first
    length and falls linearly to 0 at the second. Lengths are counted in the structural teacher's
    tokens without special tokens. `Parameters` validates the values.
    """

    lam: float | None = None  # weight of the structural loss, in [0, 1]; None: no weighting
    max_structural_len: int | None = (
        None  # tokens; longer documents have no structural loss; None: no mask
    )
    lam_by_length: str | None = None  # "linear:FIRST:LAST" or None

    def keep(self, lengths: Tensor) -> Tensor:
        """The mask: True for documents with a structural loss. lengths: (B,), tokens.

        Returns (B,), bool.
        """
        if self.max_structural_len is None:
            return torch.ones_like(lengths, dtype=torch.bool)
        return lengths <= self.max_structural_len

    def weights(
        self, lengths: Tensor, *, roles: Collection[str] = ROLES, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """Factors of S_i and of C_i, two tensors (B,) of `dtype`. lengths: (B,), tokens.

        roles: of the teachers. Where all have one role, L is the plain mean of its losses; masked
        documents count zero.
        """
        structural = self.keep(lengths).to(dtype)
        ones, zeros = torch.ones_like(structural), torch.zeros_like(structural)
        if len(roles) == 1:
            return (structural, zeros) if "structural" in roles else (zeros, ones)
        if self.lam is None and self.lam_by_length is None:
            return structural, ones
        if self.lam is not None:
            structural = structural * self.lam
        if self.lam_by_length is not None:
            first, last = map(int, self.lam_by_length.split(":")[1:])
            structural = structural * ((last - lengths.to(dtype)) / (last - first)).clamp(0, 1)
        # 1 - lam_i with lam_i after the mask: a masked document has the whole contextual loss.
        return structural, 1 - structural


class Teaching(Described):
    """One teacher of an objective: a loss from embeddings or views, (B, P) both, to (B,).

    Args:
        name: key of the teacher's embeddings and of the teacher's part of the loss.
        role: a `structural` loss is called with the mask and weighted by lam_i; a `contextual` one
            is called without and weighted by 1 - lam_i (see `Weighting`).
        student_projection, teacher_projection: from the embeddings of either to views; None:
            identity.
        weight: of this loss among those of its role; `FurtherTeacher` validates it, the name and
            the role.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        loss: nn.Module,
        *,
        student_projection: nn.Module | None = None,
        teacher_projection: nn.Module | None = None,
        weight: float = 1.0,
    ) -> None:
        super().__init__()
        f, g = student_projection, teacher_projection
        if isinstance(f, Projection) and isinstance(g, Projection):
            check_widths(f.spec, f.in_features, g.spec, g.in_features, teacher=name)
        self.name, self.role, self.weight, self.loss = name, role, float(weight), loss
        self.student_projection, self.teacher_projection = f or nn.Identity(), g or nn.Identity()

    def views(
        self, student: Tensor, teacher: Tensor
    ) -> tuple[Tensor, Tensor]:  # (B, D), (B, T) to (B, P) both
        return self.student_projection(student), self.teacher_projection(teacher)


class ObjectiveOutput(NamedTuple):
    """Result of a forward pass; the loss comes first, where `transformers.Trainer` looks for it in
    a tuple.
    """

    loss: Tensor  # (), to be minimised
    parts: dict[
        str, Tensor
    ]  # by teacher: (), mean loss over all B documents, unweighted; masked documents count zero
    embeddings: Tensor  # (B, D), the student's, without gradient
    views: (
        tuple[Tensor, Tensor] | None
    )  # (B, P) each, without gradient, of the first contextual teacher, if any


def in_order(loss: nn.Module, groups: Sequence[tuple[Tensor, ...]]) -> Tensor:
    """The losses of all groups, (B,): group after group, because each advances the running
    statistics in training.
    """
    return torch.cat([loss(*group) for group in groups])


class Objective(Described):
    """A student with all that is trained or accumulated beside it, so that a checkpoint of this
    module is complete::

        L = 1/B * sum_i ( v_i * sum_s w_s S_s,i + u_i * sum_c w_c C_c,i )

    over the structural teachers s and the contextual ones c, with the teachers' weights w and the
    weights v_i and u_i that `weighting` gives to document i: lam_i and 1 - lam_i in the thesis,
    which has one teacher of each role. Where all teachers have one role, L is the plain mean of
    their weighted sum, with the mask but without v and u. S_s = loss_s(f_s(y), g_s(t_s), keep) and
    C_c = loss_c(f_c(y), g_c(t_c)), for the student's embeddings y, the teachers' t, and the
    projections f and g.

    With `group_size` the losses see the batch in groups of that many documents, in order, as if
    each were a batch of its own, while the student runs once; a last group of one document joins
    the group before. The losses are computed in float32 or better, also under autocast.
    `weighting=None` is the plain sum of both roles.
    """

    student: Any
    teachings: Sequence[Teaching]  # a ModuleList

    def __init__(
        self,
        student: nn.Module,
        teachers: Sequence[Teaching],
        *,
        weighting: Weighting | None = None,
        group_size: int | None = None,
    ) -> None:
        super().__init__()
        self.student, self.teachings = student, cast(Sequence[Teaching], nn.ModuleList(teachers))
        self.weighting, self.group_size = weighting or Weighting(), group_size

    @property
    def parts(self) -> list[str]:
        return [teaching.name for teaching in self.teachings]

    def forward(
        self,
        batch: Any,
        *,
        teachers: Mapping[str, Tensor],
        n_structural_tokens: Tensor | None = None,
        run_groups: GroupRunner = in_order,
    ) -> ObjectiveOutput:
        """The loss of a batch.

        batch: B documents as the student takes them; teachers: embeddings by teacher, (B, T) each;
        n_structural_tokens: lengths, (B,), needed where the weighting depends on them; run_groups:
        applies each contextual loss to the groups, for a trainer whose batch is part of a larger
        one.
        """
        embeddings = self.student(batch)  # y, (B, D)
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = full_precision(embeddings)
            lengths = self._lengths(n_structural_tokens, embeddings)
            sizes = group_sizes(len(embeddings), self.group_size)
            keep = self.weighting.keep(lengths).split(sizes)  # the mask, (b,) each
            losses: dict[str, list[Tensor]] = {}  # w_s S_s and w_c C_c by role, (B,) each
            parts, contextual_views = {}, None
            for teaching in self.teachings:
                views = teaching.views(embeddings, teachers[teaching.name].to(embeddings))
                arguments: list[Sequence[Tensor]] = [
                    view.split(sizes) for view in views
                ]  # of the loss, by group
                run = in_order if teaching.role == "structural" else run_groups
                if teaching.role == "structural":
                    arguments.append(keep)
                else:
                    contextual_views = contextual_views or (views[0].detach(), views[1].detach())
                each = run(teaching.loss, list(zip(*arguments, strict=True)))
                losses.setdefault(teaching.role, []).append(teaching.weight * each)
                parts[teaching.name] = each.detach().mean()
            summed = {role: torch.stack(own).sum(dim=0) for role, own in losses.items()}
            factors = self.weighting.weights(
                lengths, roles=summed, dtype=next(iter(summed.values())).dtype
            )
            weighted = [
                v * summed[role] for role, v in zip(ROLES, factors, strict=True) if role in summed
            ]
            total = torch.stack(weighted).sum(dim=0)
        return ObjectiveOutput(total.mean(), parts, embeddings.detach(), contextual_views)

    def _lengths(self, given: Tensor | None, embeddings: Tensor) -> Tensor:
        w, structural = (
            self.weighting,
            any(teaching.role == "structural" for teaching in self.teachings),
        )
        if (
            given is None
            and structural
            and (w.max_structural_len is not None or w.lam_by_length is not None)
        ):
            problem = "max_structural_len and lam_by_length depend on the lengths of documents"
            raise InputError(f"{problem}, which are not given: pass n_structural_tokens")
        return (
            torch.zeros(len(embeddings)).to(embeddings)
            if given is None
            else given.to(embeddings.device)
        )


def group_sizes(n: int, group_size: int | None) -> list[int]:
    """Numbers of documents of the groups of a batch of `n`, in order; their sum is `n`."""
    if group_size is None or n <= group_size:
        return [n]
    full, rest = divmod(n, group_size)
    if rest == 1:  # a lone document has no negatives and no covariance
        return [group_size] * (full - 1) + [group_size + 1]
    return [group_size] * full + [rest] * (rest > 0)
