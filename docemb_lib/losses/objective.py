"""The training objective: both losses, which documents they see, and how they are weighed (thesis, Listing 4.1)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn

from docemb_lib.errors import InputError
from docemb_lib.losses.contextual import full_precision
from docemb_lib.losses.projection import Projection, check_widths

Form = Literal["weighted", "half_means_sum", "contextual_full"]


@dataclass(frozen=True)
class Weighting:
    """How much the structural loss S and the contextual loss C of each document count.

    keep_i = 1 if len_i <= max_structural_len else 0, lam_i = lam * keep_i, and by `form`

    - `weighted`, the thesis' Listing 4.1:                           lam_i * S_i + (1 - lam_i) * C_i
    - `half_means_sum`, the author's code: the same, but at lam 0.5  keep_i * S_i + C_i
    - `contextual_full`, earlier drafts:                             lam_i * S_i + C_i

    Without lam it is the plain sum keep_i * S_i + C_i. `lam_by_length="linear:384:4096"` multiplies lam (1 where lam
    is None) by a factor that is 1 up to the first length and falls linearly to 0 at the second. Lengths are counted
    in the structural teacher's tokens without special tokens.
    """

    lam: float | None = None  # weight of the structural loss, in [0, 1]; None: no weighting
    max_structural_len: int | None = None  # longer documents give no structural loss; None: all do
    lam_by_length: str | None = None  # "linear:FIRST:LAST" or None
    form: Form = "weighted"

    def __post_init__(self) -> None:
        lam, longest = self.lam, self.max_structural_len
        if lam is not None and not (_is_number(lam) and 0 <= lam <= 1):
            raise InputError(f"lam must lie in [0, 1] or be None, got {_shown(lam)}")
        if longest is not None and not (_is_number(longest) and longest >= 1):
            raise InputError(f"max_structural_len must be 1 token or more, or None, got {_shown(longest)}")
        if self.form not in get_args(Form):
            raise InputError(f"form must be one of {', '.join(get_args(Form))}, got {_shown(self.form)}")
        if self.lam_by_length is not None:
            _length_span(self.lam_by_length)
            if self.form == "half_means_sum":
                raise InputError("form half_means_sum drops the weights at lam 0.5: set lam_by_length to None with it")

    @property
    def needs_lengths(self) -> bool:
        return self.max_structural_len is not None or self.lam_by_length is not None

    def keep(self, lengths: Tensor) -> Tensor:
        """Which documents have a structural loss. lengths: (B,), tokens. Returns (B,), bool."""
        if self.max_structural_len is None:
            return torch.ones_like(lengths, dtype=torch.bool)
        return lengths <= self.max_structural_len

    def weights(self, lengths: Tensor, *, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """What S_i and C_i are multiplied by. lengths: (B,), tokens. Returns two tensors (B,) of `dtype`."""
        structural = self.keep(lengths).to(dtype)
        unweighted = self.lam is None or (self.form == "half_means_sum" and self.lam == 0.5)
        if unweighted and self.lam_by_length is None:
            return structural, torch.ones_like(structural)
        if self.lam is not None:
            structural = structural * self.lam
        if self.lam_by_length is not None:
            first, last = _length_span(self.lam_by_length)
            structural = structural * ((last - lengths.to(dtype)) / (last - first)).clamp(0, 1)
        contextual = torch.ones_like(structural) if self.form == "contextual_full" else 1 - structural
        return structural, contextual


class ObjectiveOutput(NamedTuple):
    """What one forward gives; the loss comes first, where a trainer looks for it in a tuple."""

    loss: Tensor  # (), to be minimised
    structural: Tensor | None  # (), mean S over all B documents, masked ones counting zero; None: no such loss
    contextual: Tensor | None  # (), mean C; None: no such loss
    embeddings: Tensor  # (B, D), the student's, without gradient
    views: tuple[Tensor, Tensor] | None  # (B, P) each, the projected student and contextual teacher, without gradient


class Peers(NamedTuple):
    """Which process holds each group of documents, where several processes share an update.

    A process that holds no group still takes part, with documents whose loss is not counted.
    """

    owners: tuple[int, ...]  # the rank that holds each group, in the groups' order; a rank has its own in that order
    rank: int  # this process


class Objective(nn.Module):
    """A student and all that is trained or counted beside it, so that a checkpoint of this module is complete.

    L = 1/B * sum_i ( w_i * S_i + v_i * C_i ) with the weights of `weighting`; with one of the losses alone, L is its
    plain mean. S = structural(y, t, keep), C = contextual(f_S(y), f_C(c)), for the student's embeddings y, the
    teachers' t and c, and the projections f (None: identity).

    With `group_size` the losses see the batch in groups of that many documents, in order, as if each were a batch of
    its own: negatives, covariances and running statistics are those of small batches while the student runs once.
    A last group of one document joins the one before it. Each document weighs the same, so equal groups give the
    loss and the gradient of a loop over them with accumulation.

    With several processes (`peers`) the groups keep their order, whoever holds them: negatives come from a document's
    own group, and the running statistics advance over all groups, in order, in every process, from the projected views
    that the processes send each other. So weighted means of the processes' gradients are the gradient of one process.

    Whatever the student computes in, all that follows it is in float32 or better, outside autocast.
    """

    def __init__(
        self,
        student: nn.Module,
        *,
        structural: nn.Module | None = None,
        contextual: nn.Module | None = None,
        student_projection: nn.Module | None = None,
        contextual_projection: nn.Module | None = None,
        weighting: Weighting = Weighting(),
        group_size: int | None = None,
    ) -> None:
        super().__init__()
        if structural is None and contextual is None:
            raise InputError("structural_loss and contextual_teacher are both None: there is nothing to train for")
        if contextual is None and (student_projection is not None or contextual_projection is not None):
            raise InputError("projections belong to the contextual loss: without one, pass None for both")
        if isinstance(student_projection, Projection) and isinstance(contextual_projection, Projection):
            f_S, f_C = student_projection, contextual_projection
            check_widths(f_S.spec, f_S.in_features, f_C.spec, f_C.in_features)
        if group_size is not None and group_size < 2:
            raise InputError(f"group_size must be 2 documents or more, or None for the whole batch, got {group_size}")
        self.student = student
        self.structural_loss = structural
        self.contextual_loss = contextual
        self.student_projection = student_projection or nn.Identity()
        self.contextual_projection = contextual_projection or nn.Identity()
        self.weighting = weighting
        self.group_size = group_size

    def forward(
        self,
        batch: Any,
        *,
        structural: Tensor | None = None,
        contextual: Tensor | None = None,
        n_structural_tokens: Tensor | None = None,
        peers: Peers | None = None,
    ) -> ObjectiveOutput:
        """batch: whatever the student takes, B documents of it; structural: (B, S); contextual: (B, C);
        n_structural_tokens: (B,), asked for where the weighting depends on lengths; peers: None for one process, else
        `group_size` must be set and B a multiple of it. With peers, call it in all processes, in training only.

        Raises InputError for a teacher's embeddings or lengths that are missing or do not fit.
        """
        embeddings = self.student(batch)  # (B, D)
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = full_precision(embeddings)
            lengths = self._lengths(n_structural_tokens, embeddings)
            S = self._structural_losses(embeddings, structural, lengths)
            views = self._views(embeddings, contextual)
            C = None if views is None else self._contextual_losses(views, peers)
            if S is not None and C is not None:
                structural_weight, contextual_weight = self.weighting.weights(lengths, dtype=S.dtype)
                losses = structural_weight * S + contextual_weight * C
            else:
                losses = torch.cat([alone for alone in (S, C) if alone is not None])
        return ObjectiveOutput(
            loss=losses.mean(),
            structural=None if S is None else S.detach().mean(),
            contextual=None if C is None else C.detach().mean(),
            embeddings=embeddings.detach(),
            views=None if views is None else (views[0].detach(), views[1].detach()),
        )

    def _structural_losses(self, embeddings: Tensor, teacher: Tensor | None, lengths: Tensor) -> Tensor | None:
        """S, (B,), group by group."""
        if self.structural_loss is None:
            return None
        sizes = _group_sizes(len(embeddings), self.group_size)
        t = _teacher_embeddings("structural", teacher, embeddings)
        groups = zip(embeddings.split(sizes), t.split(sizes), self.weighting.keep(lengths).split(sizes), strict=True)
        return torch.cat([self.structural_loss(*group) for group in groups])

    def _views(self, embeddings: Tensor, teacher: Tensor | None) -> tuple[Tensor, Tensor] | None:
        """The projections of the student's embeddings and of the contextual teacher's, (B, P) each."""
        if self.contextual_loss is None:
            return None
        t = _teacher_embeddings("contextual", teacher, embeddings)
        return self.student_projection(embeddings), self.contextual_projection(t)

    def _contextual_losses(self, views: tuple[Tensor, Tensor], peers: Peers | None) -> Tensor:
        """C, (B,), group by group and in order: in training each group advances the running statistics."""
        sizes = _group_sizes(len(views[0]), self.group_size)
        own = list(zip(views[0].split(sizes), views[1].split(sizes), strict=True))
        loss = cast(nn.Module, self.contextual_loss)
        if peers is None or not any(True for _ in loss.buffers()):  # without statistics, groups do not meet
            return torch.cat([loss(*group) for group in own])
        mine, losses = iter(own), []
        for owner, others in zip(peers.owners, _everyones(own, peers), strict=True):
            if owner == peers.rank:
                losses.append(loss(*next(mine)))
            else:
                loss(*others)
        idle = [(z1 + z2).mean(dim=1) for z1, z2 in mine]  # nobody's group: for the gradients' sake alone
        return torch.cat(losses + idle)

    def _lengths(self, n_structural_tokens: Tensor | None, embeddings: Tensor) -> Tensor:
        if n_structural_tokens is None:
            if self.weighting.needs_lengths and self.structural_loss is not None:
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


def _teacher_embeddings(name: str, given: Tensor | None, embeddings: Tensor) -> Tensor:
    if given is None:
        raise InputError(f"the {name} loss compares with the {name} teacher's embeddings: pass {name}=(B, width)")
    if len(given) != len(embeddings):
        raise InputError(f"{name} holds {len(given)} embeddings for a batch of {len(embeddings)} documents")
    return given.to(embeddings)


def _group_sizes(n: int, group_size: int | None) -> list[int]:
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


def _length_span(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"linear:([0-9]+):([0-9]+)", text) if isinstance(text, str) else None
    if match is None or int(match[1]) >= int(match[2]):
        raise InputError(
            "lam_by_length must be None or linear:FIRST:LAST with FIRST < LAST in tokens, "
            f"as in linear:384:4096, got {_shown(text)}"
        )
    return int(match[1]), int(match[2])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """`value` as an error shows it; YAML's spellings of nothing are a frequent slip where parameters are strings."""
    if isinstance(value, str) and value.strip().lower() in {"null", "none", "~", ""}:
        return f"the string {value!r}: write None"
    return repr(value)
