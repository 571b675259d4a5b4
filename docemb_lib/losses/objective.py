"""What a student learns from one teacher: a loss between their embeddings, and the projections that they pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from docemb_lib.errors import InputError
from docemb_lib.losses.contextual import SoftCCA, full_precision
from docemb_lib.losses.projection import Projection, check_widths
from docemb_lib.losses.structural import CONTRASTING
from docemb_lib.losses.weighting import PLAIN_SUM, Weighting

# ---- what a student learns from one teacher


Role = Literal["structural", "contextual"]


class Teaching(nn.Module):
    """One teacher of an objective.

    name: what its embeddings, and its part of the loss, are called.
    role: a `structural` loss is called with the mask, and weighed by lam_i; a `contextual` one is called without, and
        weighed by 1 - lam_i (see `Weighting`).
    loss: from embeddings or views, (B, P) both, to (B,); see `structural` and `contextual`.
    student_projection, teacher_projection: from the student's and the teacher's embeddings to views; None: identity.
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
        if isinstance(student_projection, Projection) and isinstance(teacher_projection, Projection):
            ours, theirs = student_projection, teacher_projection
            width = check_widths(ours.spec, ours.in_features, theirs.spec, theirs.in_features, teacher=name)
            if isinstance(loss, SoftCCA) and loss.dim != width:
                raise InputError(
                    f"teacher {name}: both projections end in {width}, but SoftCCA was made for {loss.dim}"
                )
        self.name, self.role, self.weight = name, role, float(weight)
        self.loss = loss
        self.student_projection = student_projection or nn.Identity()
        self.teacher_projection = teacher_projection or nn.Identity()

    @property
    def takes_negatives(self) -> bool:
        """Whether the loss compares with other documents, and so with those of a bank."""
        return self.role == "structural" and isinstance(self.loss, CONTRASTING)

    @property
    def keeps_statistics(self) -> bool:
        """Whether the loss remembers earlier batches, as SoftCCA does."""
        return any(True for _ in self.loss.buffers())

    def views(self, student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
        """student: (B, D), teacher: (B, T), embeddings. Returns what the loss compares, (B, P) both."""
        return self.student_projection(student), self.teacher_projection(teacher)

    def extra_repr(self) -> str:
        return f"{self.name!r}, {self.role!r}, weight={self.weight}"


# ---- the training objective


class ObjectiveOutput(NamedTuple):
    """What one forward gives; the loss comes first, where a trainer looks for it in a tuple."""

    loss: Tensor  # (), to be minimised
    parts: dict[
        str, Tensor
    ]  # by teacher: (), its mean loss over all B documents, unweighted, masked ones counting zero
    embeddings: Tensor  # (B, D), the student's, without gradient
    views: tuple[Tensor, Tensor] | None  # (B, P) each, of the first contextual teacher, without gradient; None: no such


class Peers(NamedTuple):
    """Which process holds each group of documents, where several processes share an update.

    A process that holds no group still takes part, with documents whose loss is not counted.
    """

    owners: tuple[int, ...]  # the rank that holds each group, in the groups' order; a rank has its own in that order
    rank: int  # this process


class Objective(nn.Module):
    """A student and all that is trained or counted beside it, so that a checkpoint of this module is complete.

    L = 1/B * sum_i ( v_i * sum_s w_s S_s,i + u_i * sum_c w_c C_c,i )

    over the structural teachers s and the contextual ones c, with their weights w and the weights v_i and u_i that
    `weighting` gives to document i: lam_i and 1 - lam_i in the thesis, which has one teacher of each role. Where all
    teachers have one role, L is the plain mean of their weighted sum; the mask holds all the same.
    S_s = loss_s(f_s(y), g_s(t_s), keep) and C_c = loss_c(f_c(y), g_c(t_c)), for the student's embeddings y, the
    teachers' t, and the projections f and g.

    With `group_size` the losses see the batch in groups of that many documents, in order, as if each were a batch of
    its own: negatives, covariances and running statistics are those of small batches while the student runs once.
    A last group of one document joins the one before it. Each document weighs the same, so equal groups give the
    loss and the gradient of a loop over them with accumulation.

    With `negatives`, structural losses that compare with other documents compare each group with so many more.

    With several processes (`peers`) the groups keep their order, whoever holds them: negatives come from a document's
    own group, and the running statistics advance over all groups, in order, in every process, from the projected views
    that the processes send each other. So weighted means of the processes' gradients are the gradient of one process.

    Whatever the student computes in, all that follows it is in float32 or better, outside autocast.
    """

    teachings: Sequence[Teaching]  # a ModuleList

    def __init__(
        self,
        student: nn.Module,
        teachers: Sequence[Teaching],
        *,
        weighting: Weighting = PLAIN_SUM,
        group_size: int | None = None,
        negatives: int = 0,
    ) -> None:
        super().__init__()
        names = [teaching.name for teaching in teachers]
        if not names:
            raise InputError("structural_loss and contextual_teacher are both None: there is nothing to train for")
        if len(set(names)) < len(names):
            raise InputError(f"teachers need different names, got {', '.join(names)}")
        if group_size is not None and group_size < 2:
            raise InputError(f"group_size must be 2 documents or more, or None for the whole batch, got {group_size}")
        if negatives < 0:
            raise InputError(f"negatives must be a number of documents from 0 upwards, got {negatives}")
        if negatives and not any(teaching.takes_negatives for teaching in teachers):
            raise InputError(f"negatives: no loss compares with others, so none takes {negatives} more; set it to 0")
        for teaching in teachers:
            _check_student(student, teaching)
        self.student = student
        self.teachings = cast(Sequence[Teaching], nn.ModuleList(teachers))
        self.weighting = weighting
        self.group_size = group_size
        self.negatives = negatives

    def forward(
        self,
        batch: Any,
        *,
        teachers: Mapping[str, Tensor],
        n_structural_tokens: Tensor | None = None,
        negatives: Mapping[str, Tensor] | None = None,
        peers: Peers | None = None,
    ) -> ObjectiveOutput:
        """batch: whatever the student takes, B documents of it; teachers: their embeddings by name, (B, T) each;
        n_structural_tokens: (B,), asked for where the weighting depends on lengths; negatives: embeddings of
        `self.negatives` other documents for each of the G groups, (G, K, T), by teachers that `takes_negatives`;
        peers: None for one process, else `group_size` must be set and B a multiple of it. With peers, call it in all
        processes, in training only.

        Raises InputError for embeddings or lengths that are missing or do not fit.
        """
        embeddings = self.student(batch)  # (B, D)
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = full_precision(embeddings)
            lengths = self._lengths(n_structural_tokens, embeddings)
            losses: dict[str, list[Tensor]] = {"structural": [], "contextual": []}  # (B,) each
            parts, shown = {}, None
            for teaching in self.teachings:
                views = teaching.views(embeddings, _teacher_embeddings(teaching.name, teachers, embeddings))
                if teaching.role == "structural":
                    each = self._structural_losses(teaching, views, lengths, negatives)
                else:
                    each = self._contextual_losses(teaching, views, peers)
                    shown = shown or (views[0].detach(), views[1].detach())
                losses[teaching.role].append(teaching.weight * each)
                parts[teaching.name] = each.detach().mean()
            total = self._weighed(losses["structural"], losses["contextual"], lengths)
        return ObjectiveOutput(total.mean(), parts, embeddings.detach(), shown)

    def _weighed(self, structural: list[Tensor], contextual: list[Tensor], lengths: Tensor) -> Tensor:
        """(B,), from the losses of each teacher, (B,)."""
        if not structural or not contextual:
            return torch.stack(structural + contextual).sum(dim=0)
        S, C = torch.stack(structural).sum(dim=0), torch.stack(contextual).sum(dim=0)
        structural_weight, contextual_weight = self.weighting.weights(lengths, dtype=S.dtype)
        return structural_weight * S + contextual_weight * C

    def _structural_losses(
        self,
        teaching: Teaching,
        views: tuple[Tensor, Tensor],
        lengths: Tensor,
        negatives: Mapping[str, Tensor] | None,
    ) -> Tensor:
        """S, (B,), group by group."""
        sizes = group_sizes(len(lengths), self.group_size)
        groups = zip(*(whole.split(sizes) for whole in (*views, self.weighting.keep(lengths))), strict=True)
        if not self.negatives or not teaching.takes_negatives:
            return torch.cat([teaching.loss(*group) for group in groups])
        bank = _bank(teaching.name, negatives, groups=len(sizes), size=self.negatives).to(views[0])
        further = teaching.teacher_projection(bank)  # (G, K, P)
        return torch.cat([teaching.loss(*group, more) for group, more in zip(groups, further, strict=True)])

    def _contextual_losses(self, teaching: Teaching, views: tuple[Tensor, Tensor], peers: Peers | None) -> Tensor:
        """C, (B,), group by group and in order: in training each group advances the running statistics."""
        sizes = group_sizes(len(views[0]), self.group_size)
        own = list(zip(views[0].split(sizes), views[1].split(sizes), strict=True))
        if peers is None or not teaching.keeps_statistics:  # without statistics, groups do not meet
            return torch.cat([teaching.loss(*group) for group in own])
        mine, losses = iter(own), []
        for owner, others in zip(peers.owners, _everyones(own, peers), strict=True):
            if owner == peers.rank:
                losses.append(teaching.loss(*next(mine)))
            else:
                teaching.loss(*others)
        idle = [(z1 + z2).mean(dim=1) for z1, z2 in mine]  # nobody's group: for the gradients' sake alone
        return torch.cat(losses + idle)

    def _lengths(self, n_structural_tokens: Tensor | None, embeddings: Tensor) -> Tensor:
        if n_structural_tokens is None:
            structural = any(teaching.role == "structural" for teaching in self.teachings)
            if self.weighting.needs_lengths and structural:
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
    """The numbers of documents of the groups of a batch of `n`, in order; they add up to `n`."""
    if group_size is None or n <= group_size:
        return [n]
    full, rest = divmod(n, group_size)
    sizes = [group_size] * full
    if rest == 1:  # a lone document has no negatives and no covariance
        sizes[-1] += 1
    elif rest:
        sizes.append(rest)
    return sizes


def _everyones(own: list[tuple[Tensor, Tensor]], peers: Peers) -> list[tuple[Tensor, Tensor]]:
    """The views of all groups, in order, without gradients. own: this process' groups, (G, P) twice each."""
    n_processes = dist.get_world_size()
    most = max(peers.owners.count(rank) for rank in range(n_processes))
    views = torch.stack([torch.stack(group) for group in own]).detach()  # (n, 2, G, P)
    sent = views.new_zeros(most, *views.shape[1:])
    if peers.rank in peers.owners:
        sent[: len(views)] = views
    received = [torch.empty_like(sent) for _ in range(n_processes)]
    dist.all_gather(received, sent)
    queues = [iter(groups) for groups in received]
    return [cast(tuple[Tensor, Tensor], tuple(next(queues[owner]))) for owner in peers.owners]


def _teacher_embeddings(name: str, given: Mapping[str, Tensor], embeddings: Tensor) -> Tensor:
    if name not in given:
        raise InputError(
            f"teachers: the {name} loss compares with the {name} teacher's embeddings, (B, width): pass them"
        )
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


def _check_student(student: nn.Module, teaching: Teaching) -> None:
    """That the projection begins where the student ends, if both say."""
    width, projection = getattr(student, "dim", None), teaching.student_projection
    if isinstance(width, int) and isinstance(projection, Projection) and projection.in_features != width:
        raise InputError(
            f"teacher {teaching.name}: student_projection {projection.spec!r} was made for embeddings of width "
            f"{projection.in_features}, the student's are {width} wide"
        )
