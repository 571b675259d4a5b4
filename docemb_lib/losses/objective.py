"""The training objective: a student, each teacher's loss and projections, and their weighted sum.

B: documents of a batch; b: documents of a group of the batch; D: width of the student's embedding;
T: width of a teacher's embedding; P: width of a projected view.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from docemb_lib.base.errors import InputError
from docemb_lib.losses.contextual import Projection, full_precision
from docemb_lib.losses.structural import Described, Loss
from docemb_lib.settings.projections import check_widths

Role = Literal["structural", "contextual"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Weighting:
    """Weights of the two losses of each document, and the mask of long documents.

    A document adds lam_i * S_i + (1 - lam_i) * C_i (thesis, Listing 4.1), for its structural loss S
    and its contextual loss C, where lam_i = lam * keep_i and keep_i = 1 if len_i <=
    max_structural_len else 0. Without lam, and in the author's code at lam 0.5, it is the plain sum
    keep_i * S_i + C_i. `lam_by_length`, as in "linear:384:4096", multiplies lam (1 where lam is
    None) by a factor that is 1 up to the first length and falls linearly to 0 at the second. In the
    form `structural`, that of earlier drafts of the thesis, a document adds lam_i * S_i + C_i.
    Lengths are counted in the structural teacher's tokens, special tokens included, as the
    teacher's own limit is. `Parameters` validates the values.
    """

    lam: float | None = None  # weight of the structural loss, in [0, 1]; None: no weighting
    # Longer documents, in tokens, have no structural loss; None: all have one.
    max_structural_len: int | None = None
    lam_by_length: str | None = None  # "linear:FIRST:LAST" or None
    form: Literal["complement", "structural"] = "complement"

    def keep(self, lengths: Tensor) -> Tensor:
        """Return the mask, (B,) bool: True for documents with a structural loss.

        lengths: (B,), tokens.
        """
        if self.max_structural_len is None:
            return torch.ones_like(lengths, dtype=torch.bool)
        return lengths <= self.max_structural_len

    def weights(
        self, lengths: Tensor, *, roles: Collection[str] = ROLES, dtype: torch.dtype = torch.float32
    ) -> tuple[Tensor, Tensor]:
        """Return the factors of S_i and of C_i, two tensors (B,) of `dtype`.

        lengths: (B,), tokens; roles: of the teachers. Where all have one role, L is the plain mean
        of its losses; masked documents count zero.
        """
        structural = self.keep(lengths).to(dtype)  # keep_i
        ones = torch.ones_like(structural)
        zeros = torch.zeros_like(structural)
        if len(roles) == 1:
            return (structural, zeros) if "structural" in roles else (zeros, ones)
        if self.lam is None and self.lam_by_length is None:
            return structural, ones
        if self.lam is not None:
            structural = structural * self.lam
        if self.lam_by_length is not None:
            first, last = map(int, self.lam_by_length.split(":")[1:])
            # 1 at the first length, 0 at the last
            falling = (last - lengths.to(dtype)) / (last - first)
            structural = structural * falling.clamp(0, 1)
        if self.form == "structural":
            return structural, ones
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
        weight: of this loss among those of its role.
    """

    def __init__(
        self,
        name: str,
        role: Role,
        loss: Loss,
        *,
        student_projection: nn.Module | None = None,
        teacher_projection: nn.Module | None = None,
        weight: float = 1.0,
    ) -> None:
        super().__init__()
        f = student_projection
        g = teacher_projection
        if isinstance(f, Projection) and isinstance(g, Projection):
            check_widths(f.spec, f.in_features, g.spec, g.in_features, teacher=name)
        self.name = name
        self.role = role
        self.weight = float(weight)
        self.loss = loss
        self.student_projection = f or nn.Identity()
        self.teacher_projection = g or nn.Identity()

    def views(self, student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
        """Project the embeddings of student and teacher, (B, D) and (B, T), to (B, P) both."""
        return self.student_projection(student), self.teacher_projection(teacher)


class ObjectiveOutput(NamedTuple):
    """Result of a forward pass, with the loss first, where `transformers.Trainer` looks for it."""

    loss: Tensor  # (), to be minimised
    # By teacher: (), the mean loss over all B documents, unweighted; masked documents count zero.
    # Then what a loss is made of, as `l2` and `sdl` of SoftCCA; those of a further teacher begin
    # with the teacher's name: `topics.l2`.
    parts: dict[str, Tensor]
    embeddings: Tensor  # (B, D), the student's, without gradient
    # f(y) and g(c), (B, P) both, and c, (B, T), of the first contextual teacher, without gradient;
    # None: there is none.
    views: tuple[Tensor, Tensor, Tensor] | None


class Objective(Described):
    """A student with all that is trained with it, so that a checkpoint of this module is complete.

    ::

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

    student: Any  # a `Student`, or another module with what the caller needs of one
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
        self.student = student
        self.teachings = cast(Sequence[Teaching], nn.ModuleList(teachers))
        self.weighting = weighting or Weighting()
        self.group_size = group_size

    def forward(
        self,
        batch: object,
        *,
        teachers: Mapping[str, Tensor],
        n_structural_tokens: Tensor | None = None,
    ) -> ObjectiveOutput:
        """Compute the loss of a batch.

        batch: B documents as the student takes them; teachers: embeddings by teacher, (B, T) each;
        n_structural_tokens: lengths, (B,), needed where the weighting depends on them.
        """
        # The student runs once on the whole batch; only the losses see groups.
        embeddings = self.student(batch)  # y, (B, D)
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = full_precision(embeddings)
            lengths = self._lengths(n_structural_tokens, embeddings)  # (B,)
            sizes = group_sizes(len(embeddings), self.group_size)
            keep = self.weighting.keep(lengths).split(sizes)  # the mask, (b,) for each group

            by_role: dict[str, Tensor] = {}  # the sum of w_s S_s or of w_c C_c, (B,)
            parts: dict[str, Tensor] = {}
            contextual_views = None
            for teaching in self.teachings:
                # f(y) and g(t), (B, P) both, before they are cut into groups.
                target = teachers[teaching.name].to(embeddings)  # t or c, (B, T)
                views = teaching.views(embeddings, target)
                arguments: list[Sequence[Tensor]] = [view.split(sizes) for view in views]
                if teaching.role == "structural":
                    arguments.append(keep)
                elif contextual_views is None:
                    contextual_views = (views[0].detach(), views[1].detach(), target)
                groups = zip(*arguments, strict=True)  # (b, P), (b, P) and maybe (b,) each
                # The order counts: in training each group advances the running statistics of a
                # loss.
                losses, parts_of_loss = _joined([teaching.loss.with_parts(*of) for of in groups])
                weighted = teaching.weight * losses
                by_role[teaching.role] = by_role.get(teaching.role, 0) + weighted
                # What is reported has neither w nor v and u: it is the plain mean loss.
                parts[teaching.name] = losses.detach().mean()
                start = "" if teaching.name == teaching.role else f"{teaching.name}."
                for name, values in parts_of_loss.items():
                    parts[start + name] = values.detach().mean()

            # After the sums over the teachers of a role come v_i and u_i, then the sum of both.
            dtype = weighted.dtype
            factors = self.weighting.weights(lengths, roles=by_role, dtype=dtype)
            total = torch.zeros_like(weighted)  # (B,)
            for role, factor in zip(ROLES, factors, strict=True):
                if role in by_role:
                    total = total + factor * by_role[role]
        return ObjectiveOutput(total.mean(), parts, embeddings.detach(), contextual_views)

    def _lengths(self, given: Tensor | None, embeddings: Tensor) -> Tensor:
        """Return the lengths of the documents, or zeros where nothing depends on them, (B,).

        Raises InputError where the weighting depends on lengths that are not given.
        """
        if given is not None:
            return given.to(embeddings.device)
        if self.weighting.max_structural_len or self.weighting.lam_by_length:
            problem = "max_structural_len and lam_by_length depend on the lengths of documents"
            raise InputError(f"{problem}, which are not given: pass n_structural_tokens")
        return embeddings.new_zeros(len(embeddings))


def _joined(groups: Sequence[tuple[Tensor, dict[str, Tensor]]]) -> tuple[Tensor, dict[str, Tensor]]:
    """Join the losses of groups, and their parts, to those of a batch, (B,) each."""
    losses, parts = zip(*groups, strict=True)
    joined = {name: torch.cat([of_group[name] for of_group in parts]) for name in parts[0]}
    return torch.cat(losses), joined


def group_sizes(n: int, group_size: int | None) -> list[int]:
    """Return the numbers of documents of the groups of a batch of `n`, in order."""
    if group_size is None or n <= group_size:
        return [n]
    # Full groups come first: 13 documents in groups of 6 are 6 and 7, and 14 are 6, 6 and 2.
    full, rest = divmod(n, group_size)
    sizes = [group_size] * full
    if rest == 1:  # a lone document has no negatives and no covariance
        sizes[-1] += 1
    elif rest:
        sizes.append(rest)
    return sizes
