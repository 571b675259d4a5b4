"""The training objective: the student, the loss and projections of each teacher, and the weighted sum of the losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from docemb_lib.errors import InputError
from docemb_lib.losses.contextual import full_precision
from docemb_lib.losses.projection import Projection, check_widths
from docemb_lib.losses.weighting import Weighting

Role = Literal["structural", "contextual"]
# Applies a contextual loss to the groups of a batch, the two views of each, (b, P). Returns the losses, (B,).
GroupRunner = Callable[[nn.Module, list[tuple[Tensor, ...]]], Tensor]


class Teaching(nn.Module):
    """One teacher of an objective.

    name: key of the teacher's embeddings and of the teacher's part of the loss.
    role: a `structural` loss is called with the mask and weighted by lam_i; a `contextual` one is called without and
        weighted by 1 - lam_i (see `Weighting`).
    loss: from embeddings or views, (B, P) both, to (B,).
    student_projection, teacher_projection: from the embeddings of either to views; None: identity.
    weight: of this loss among those of its role.
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
        if role not in get_args(Role):
            raise InputError(f"teacher {name}: role must be one of {', '.join(get_args(Role))}, got {role!r}")
        if not 0 < weight < float("inf"):
            raise InputError(f"teacher {name}: weight must be a number above 0, got {weight}")
        f, g = student_projection, teacher_projection
        if isinstance(f, Projection) and isinstance(g, Projection):
            check_widths(f.spec, f.in_features, g.spec, g.in_features, teacher=name)
        self.name, self.role, self.weight = name, role, float(weight)
        self.loss = loss
        self.student_projection = student_projection or nn.Identity()
        self.teacher_projection = teacher_projection or nn.Identity()

    @property
    def takes_negatives(self) -> bool:
        """Whether the loss compares with other documents, and so with those of a bank."""
        return self.role == "structural" and getattr(self.loss, "takes_negatives", False)

    def views(self, student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
        """student: (B, D), teacher: (B, T), embeddings. Returns the arguments of the loss, (B, P) both."""
        return self.student_projection(student), self.teacher_projection(teacher)

    def extra_repr(self) -> str:
        return f"{self.name!r}, {self.role!r}, weight={self.weight}"


class ObjectiveOutput(NamedTuple):
    """Result of a forward pass; the loss comes first, where `transformers.Trainer` looks for it in a tuple."""

    loss: Tensor  # (), to be minimised
    parts: dict[str, Tensor]  # by teacher: (), mean loss over all B documents, unweighted; masked documents count zero
    embeddings: Tensor  # (B, D), the student's, without gradient
    views: tuple[Tensor, Tensor] | None  # (B, P) each, without gradient, of the first contextual teacher, if any


def in_order(loss: nn.Module, groups: Sequence[tuple[Tensor, ...]]) -> Tensor:
    """The losses of all groups, (B,): group after group, because each advances the running statistics in training."""
    return torch.cat([loss(*group) for group in groups])


class Objective(nn.Module):
    """A student with all that is trained or accumulated beside it, so that a checkpoint of this module is complete.

    L = 1/B * sum_i ( v_i * sum_s w_s S_s,i + u_i * sum_c w_c C_c,i )

    over the structural teachers s and the contextual ones c, with the teachers' weights w and the weights v_i and u_i
    that `weighting` gives to document i: lam_i and 1 - lam_i in the thesis, which has one teacher of each role. Where
    all teachers have one role, L is the plain mean of their weighted sum, with the mask but without v and u.
    S_s = loss_s(f_s(y), g_s(t_s), keep) and C_c = loss_c(f_c(y), g_c(t_c)), for the student's embeddings y, the
    teachers' t, and the projections f and g.

    With `group_size` the losses see the batch in groups of that many documents, in order, as if each were a batch of
    its own: negatives, covariances and running statistics are those of small batches while the student runs once.
    A last group of one document joins the group before. Each document weighs the same, so equal groups give the
    loss and the gradient of a loop over the groups with accumulation.

    With `negatives`, losses that compare with other documents compare each group with that many more. The student may
    run under autocast; the losses are computed in float32 or better. `weighting=None` is the plain sum of both roles.
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
        negatives: int = 0,
    ) -> None:
        super().__init__()
        names = [teaching.name for teaching in teachers]
        if len(set(names)) < len(names) or not names:
            raise InputError(f"teachers: one or more with different names, got {', '.join(names) or 'none'}")
        self.student = student
        self.teachings = cast(Sequence[Teaching], nn.ModuleList(teachers))
        self.weighting = weighting or Weighting()
        self.group_size = group_size
        self.negatives = negatives

    @property
    def parts(self) -> list[str]:
        """The names of the parts of the loss."""
        return [teaching.name for teaching in self.teachings]

    def forward(
        self,
        batch: Any,
        *,
        teachers: Mapping[str, Tensor],
        n_structural_tokens: Tensor | None = None,
        negatives: Mapping[str, Tensor] | None = None,
        run_groups: GroupRunner = in_order,
    ) -> ObjectiveOutput:
        """The loss of a batch. Raises InputError for embeddings or lengths that are missing or do not fit.

        batch: B documents as the student takes them; teachers: embeddings by teacher, (B, T) each; n_structural_tokens:
        lengths, (B,), needed where the weighting depends on them; negatives: by teacher that `takes_negatives`,
        embeddings of K documents for each of G groups, (G, K, T); run_groups: applies each contextual loss to the
        groups, for a trainer whose batch is part of a larger one.
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
                views = teaching.views(embeddings, _teacher_embeddings(teaching.name, teachers, embeddings))
                arguments: list[Sequence[Tensor]] = [view.split(sizes) for view in views]  # of the loss, by group
                if teaching.role == "structural":
                    arguments.append(keep)
                    if self.negatives and teaching.takes_negatives:
                        bank = _bank(teaching.name, negatives, groups=len(sizes), size=self.negatives)
                        arguments.append(teaching.teacher_projection(bank.to(embeddings)).unbind())  # (K, P) each
                    each = in_order(teaching.loss, list(zip(*arguments, strict=True)))
                else:
                    each = run_groups(teaching.loss, list(zip(*arguments, strict=True)))
                    contextual_views = contextual_views or (views[0].detach(), views[1].detach())
                losses.setdefault(teaching.role, []).append(teaching.weight * each)
                parts[teaching.name] = each.detach().mean()
            summed = {role: torch.stack(own).sum(dim=0) for role, own in losses.items()}
            if len(summed) == 2:
                v, u = self.weighting.weights(lengths, dtype=summed["structural"].dtype)
                total = v * summed["structural"] + u * summed["contextual"]
            else:
                (total,) = summed.values()
        return ObjectiveOutput(total.mean(), parts, embeddings.detach(), contextual_views)

    def _lengths(self, n_structural_tokens: Tensor | None, embeddings: Tensor) -> Tensor:
        if n_structural_tokens is None:
            if self.weighting.needs_lengths and any(teaching.role == "structural" for teaching in self.teachings):
                raise InputError(
                    "max_structural_len and lam_by_length weigh documents by their length: "
                    "pass n_structural_tokens, or set both to None"
                )
            return torch.zeros(len(embeddings), device=embeddings.device)
        if n_structural_tokens.shape != embeddings.shape[:1]:
            raise InputError(
                f"n_structural_tokens must hold one length per document: "
                f"expected {len(embeddings)}, got {tuple(n_structural_tokens.shape)}"
            )
        return n_structural_tokens.to(embeddings.device)

    def extra_repr(self) -> str:
        return f"{self.weighting}, group_size={self.group_size}, negatives={self.negatives}"


def group_sizes(n: int, group_size: int | None) -> list[int]:
    """Numbers of documents of the groups of a batch of `n`, in order; their sum is `n`."""
    if group_size is None or n <= group_size:
        return [n]
    full, rest = divmod(n, group_size)
    sizes = [group_size] * full
    if rest == 1:  # a lone document has no negatives and no covariance
        sizes[-1] += 1
    elif rest:
        sizes.append(rest)
    return sizes


def _teacher_embeddings(name: str, given: Mapping[str, Tensor], embeddings: Tensor) -> Tensor:
    if name not in given:
        raise InputError(f"teachers: the {name} loss compares with the {name} teacher's embeddings: pass them, (B, T)")
    if len(given[name]) != len(embeddings):
        raise InputError(f"{name} holds {len(given[name])} embeddings for a batch of {len(embeddings)} documents")
    return given[name].to(embeddings)


def _bank(name: str, given: Mapping[str, Tensor] | None, *, groups: int, size: int) -> Tensor:
    bank = (given or {}).get(name)
    if bank is None or bank.ndim != 3 or bank.shape[:2] != (groups, size):
        raise InputError(
            f"negatives: the {name} loss compares each group with {size} more documents: pass their embeddings as "
            f"({groups}, {size}, width), got {None if bank is None else tuple(bank.shape)}"
        )
    return bank
