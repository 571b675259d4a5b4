"""Monitoring of a training: mean losses, speed, signs of collapse, and the validation loss."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.linalg import solve_triangular
from torch.nn import functional as F

from docemb_lib.losses import Objective, ObjectiveOutput, PairObjective
from docemb_lib.training.batches import Cut, Documents

STATE = "monitor.pt"  # in a checkpoint
COMPONENTS = 10  # `cca` is the mean of so many canonical correlations
RIDGE = 0.01  # regularises `cca`; a share of the mean variance of a view's features
FEWEST = 20  # documents that `cca` needs
# Documents for each feature of a view. A wider view is reduced to its first principal components,
# one for each PER_COMPONENT documents.
PER_FEATURE = 2
PER_COMPONENT = 4
# A student has collapsed where its spread is below this share of the spread before training.
COLLAPSED = 1 / 20


class Means:
    """Means over documents of a loss, its parts and the norm of embeddings, and their spread.

    The sums stay on the device. `parts` are the names of the loss' parts; `dim` is D.
    """

    def __init__(self, parts: Sequence[str], *, dim: int, device: torch.device) -> None:
        self.parts = parts
        self.names = ("loss", *parts, "norm")
        # The number of documents, then a sum for each name.
        self.sums = torch.zeros(1 + len(self.names), dtype=torch.float64, device=device)
        # The sum of the embeddings' unit vectors.
        self.directions = torch.zeros(dim, dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, output: ObjectiveOutput) -> None:
        """Add B documents."""
        embeddings = output.embeddings.double()  # (B, D)
        B = len(embeddings)
        losses = [output.loss, *(output.parts[name] for name in self.parts)]
        means = torch.stack(losses).double()
        norms = embeddings.norm(dim=1).sum()
        self.sums += torch.cat([means.new_full((1,), B), means * B, norms[None]])
        self.directions += F.normalize(embeddings, dim=1).sum(0)

    def values(self) -> dict[str, float]:
        """Means over the documents, by name, and `spread`.

        `spread` is the mean cosine distance between two embeddings.
        """
        n, *totals = self.sums.tolist()
        means = {name: total / max(n, 1) for name, total in zip(self.names, totals, strict=True)}
        # |sum of unit vectors|^2 holds the cosine of each pair twice, and n ones.
        square = self.directions.square().sum().item()
        spread = 1 - (square - n) / (n * (n - 1)) if n > 1 else 0.0
        return {**means, "spread": spread}


class Monitor:
    """The rows of a training's history: means, see `Means`, and speed since the row before."""

    def __init__(self, parts: Sequence[str], *, dim: int, device: torch.device) -> None:
        self.means = Means(parts, dim=dim, device=device)
        self.start_clock()

    def start_clock(self) -> None:
        self.started = time.perf_counter()
        self.documents = 0
        self.tokens = 0

    def add(self, output: ObjectiveOutput, *, tokens: int) -> None:
        """Add what was computed from so many tokens."""
        self.tokens += tokens
        self.documents += len(output.embeddings)
        self.means.add(output)

    def row(self) -> dict[str, float]:
        """The next row."""
        row = self.means.values()  # waits for the device
        seconds = max(time.perf_counter() - self.started, 1e-9)
        row["documents_per_second"] = self.documents / seconds
        row["tokens_per_second"] = self.tokens / seconds
        self.means.sums.zero_()
        self.means.directions.zero_()
        self.start_clock()
        return row

    def save(self, checkpoint: Path) -> None:
        state = {"sums": self.means.sums, "directions": self.means.directions}
        torch.save(state, checkpoint / STATE)

    def load(self, checkpoint: Path) -> None:
        device = self.means.sums.device
        state = torch.load(checkpoint / STATE, map_location=device, weights_only=True)
        self.means.sums = state["sums"]
        self.means.directions = state["directions"]


def has_collapsed(spread: float, before: float) -> bool:
    """Whether a student gives all documents nearly the same embedding.

    spread: the mean cosine distance of two documents (see `Means`); before: that of the student
    before training.
    """
    return spread < COLLAPSED * before


def canonical_correlation(
    student: Tensor, teacher: Tensor, *, components: int = COMPONENTS, ridge: float = RIDGE
) -> float:
    """Mean correlation of the first `components` pairs of canonical variates of two views.

    The views are (N, P) and (N, Q). Regularised CCA (Vinod, 1976): `ridge` times the mean variance
    of a view's features is added to the variance of each, so directions of hardly any variance
    count as uncorrelated.

    The variates are fitted on every other document and correlated on the rest, then the other way
    round, and the mean is taken: on the documents that they are fitted on, even independent views
    correlate by nearly 1 if there are few documents for each feature. A view of more than N / 2
    features is first mapped to its N / 4 first principal components, which are fitted on the same
    half as the variates. The result is NaN for a view that is constant or not finite.
    """
    views = (student.double(), teacher.double())
    if not all(X.isfinite().all() for X in views):
        return float("nan")
    # Fitted on the even documents, then on the odd ones.
    halves = [_held_out_correlation(views, start, components, ridge) for start in (0, 1)]
    return sum(halves) / 2


def _reduced(fitted: Tensor, rest: Tensor, documents: int) -> tuple[Tensor, Tensor]:
    """Both halves of a view on the first principal components of `fitted`, if it is too wide."""
    if fitted.shape[1] <= documents // PER_FEATURE:
        return fitted, rest
    _, _, Vh = torch.linalg.svd(fitted - fitted.mean(dim=0), full_matrices=False)
    V = Vh[: documents // PER_COMPONENT].T  # (P, K)
    return fitted @ V, rest @ V


def _held_out_correlation(
    views: Sequence[Tensor], start: int, components: int, ridge: float
) -> float:
    """Return the mean correlation on one half of the documents along directions of the other.

    start: the first of the documents on which the directions are fitted, 0 or 1.
    """
    fitted = []  # of each view, in coordinates in which S + R is the identity
    rest = []  # the held-out half, in the same coordinates
    bases = []  # L and the ridge r of each view: S + R = S + r I = L L^T
    for X in views:
        half, other = _reduced(X[start::2], X[1 - start :: 2], len(X))
        half = half - half.mean(dim=0)
        other = other - other.mean(dim=0)
        S = half.T @ half / (len(half) - 1)
        variance = S.diagonal().mean()
        if not 0 < variance < torch.inf:
            return float("nan")
        r = ridge * variance
        L = torch.linalg.cholesky(S + r * torch.eye(len(S)).to(S))
        bases.append((L, r))
        fitted.append(solve_triangular(L, half.T, upper=False))  # (P, n)
        rest.append(solve_triangular(L, other.T, upper=False))
    # The singular vectors of L1^{-1} S12 L2^{-T} are the directions in these coordinates.
    left, _, right = torch.linalg.svd(fitted[0] @ fitted[1].T, full_matrices=False)
    variates = []
    for (L, r), Z, u in zip(bases, rest, (left, right.T), strict=True):
        u = u[:, :components]  # (P, k)
        p = solve_triangular(L.T, u, upper=True)  # the directions of features
        a = Z.T @ u / (Z.shape[1] - 1) ** 0.5  # (n, k)
        variates.append(a / (a.square().sum(dim=0) + r * p.square().sum(dim=0)).sqrt())
    return (variates[0] * variates[1]).sum(dim=0).mean().item()


@torch.no_grad()
def validate(
    objective: Objective | PairObjective,
    documents: Documents,
    *,
    batch_size: int,
    dtype: torch.dtype | None = None,
    budget: int = 8192,
) -> dict[str, float]:
    """Return the mean loss over `documents`, its parts, `norm`, `spread` and perhaps `cca`.

    `norm` and `spread` are signs of collapse: the mean length of the student's embeddings, and the
    mean cosine distance between two. `cca` is the canonical correlation of the first contextual
    teacher's views, over all documents, and `cca_embeddings` that of the student's and that
    teacher's embeddings before their projections; both are left out where there are fewer than
    `FEWEST` documents. Pairs are those of epoch 0, which keeps the loss one function of the
    student.

    Args:
        batch_size: documents whose losses are computed together; a single one left over joins the
            batch before.
        dtype: the dtype of autocast. None: no autocast.
        budget: the tokens of a pass, with padding.
    """
    device = next(objective.parameters()).device
    was_training = objective.training
    objective.eval()
    means = Means(objective.parts, dim=objective.student.dim, device=device)
    # f(y), g(c), y and c of each pass: (B, P), (B, P), (B, D) and (B, T)
    compared: list[list[Tensor]] = []
    autocast = partial(torch.autocast, device.type, dtype=dtype, enabled=dtype is not None)
    cut = Cut(batch_size, budget, objective.student.padded)
    # The batches of a pass are the objective's groups. Only the last batch of all, which ends a
    # pass, has another size.
    for part in documents.passes(range(len(documents)), cut):
        output = part.learn(objective, device, autocast, _without_gradients)
        means.add(output)
        if output.views is not None:
            f, g, c = output.views
            compared.append([f, g, output.embeddings, c])
    objective.train(was_training)
    values = means.values()
    if not compared or len(documents) < FEWEST:
        return values
    f, g, y, c = map(torch.cat, zip(*compared, strict=True))
    values["cca"] = canonical_correlation(f, g)
    values["cca_embeddings"] = canonical_correlation(y, c)
    return values


def _without_gradients(loss: Tensor) -> None:
    """Stand for the backward pass, which a validation has not."""
