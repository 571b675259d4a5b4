"""Monitoring of a training: means of losses, speed, signs of collapse, and the validation loss of
an objective.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import send_to_device
from torch import Tensor
from torch.nn import functional as F

from docemb_lib.losses import Objective, ObjectiveOutput
from docemb_lib.training.batches import Collate, TrainingDocuments
from docemb_lib.training.distributed import all_reduced

COMPONENTS = 10  # canonical correlations in `cca`
RIDGE = 0.01  # of `cca`, a share of the mean variance of a view's features
FEWEST, EACH = (
    20,
    2,
)  # documents that `cca` needs: at least so many, and so many for each feature of a view


class Means:
    """Means over documents of named losses and of the norm of embeddings, and their spread; summed
    on the device.
    """

    def __init__(self, names: Sequence[str], *, dim: int, device: torch.device) -> None:
        self.names = (*names, "norm")
        self.sums = torch.zeros(
            1 + len(self.names), dtype=torch.float64, device=device
        )  # documents, then by name
        self.directions = torch.zeros(
            dim, dtype=torch.float64, device=device
        )  # sum of the embeddings' unit vectors

    @torch.no_grad()
    def add(self, losses: Sequence[Tensor], embeddings: Tensor) -> None:
        """losses: mean of each over B documents, in the order of the names; embeddings: (B, D)."""
        B, embeddings = len(embeddings), embeddings.double()
        means = torch.stack(list(losses)).double()
        self.sums += torch.cat(
            [means.new_full((1,), B), means * B, embeddings.norm(dim=1).sum()[None]]
        )
        self.directions += F.normalize(embeddings, dim=1).sum(0)

    def values(self) -> dict[str, float]:
        """Means over the documents of all processes, by name, and `spread`, the mean cosine
        distance between two embeddings; every process must call."""
        n, *totals = all_reduced(self.sums.clone()).tolist()
        means = {name: total / max(n, 1) for name, total in zip(self.names, totals, strict=True)}
        square = (
            all_reduced(self.directions.clone()).square().sum().item()
        )  # cosines of all pairs twice, and n ones
        return {**means, "spread": 1 - (square - n) / (n * (n - 1)) if n > 1 else 0.0}


class Monitor:
    """The rows of a training's history: means and speed since the row before. parts: of the loss;
    dim: D.
    """

    def __init__(self, parts: Sequence[str], *, dim: int, device: torch.device) -> None:
        self.means = Means(["loss", *parts], dim=dim, device=device)
        self.start_clock()

    def start_clock(self) -> None:
        self.started, self.tokens, self.documents = time.perf_counter(), 0, 0

    def add(self, output: ObjectiveOutput | None, *, documents: int, tokens: int) -> None:
        """documents, tokens: of all processes; output: of this process, None if its pass is
        uncounted.
        """
        self.tokens += tokens
        self.documents += documents
        if output is not None:
            losses = [output.loss, *(output.parts[name] for name in self.means.names[1:-1])]
            self.means.add(losses, output.embeddings)

    def row(self) -> dict[str, float]:
        """The next row; every process must call."""
        row = self.means.values()  # waits for the device
        seconds = max(time.perf_counter() - self.started, 1e-9)
        row |= {
            "documents_per_second": self.documents / seconds,
            "tokens_per_second": self.tokens / seconds,
        }
        self.means.sums.zero_()
        self.means.directions.zero_()
        self.start_clock()
        return row

    def save(self, checkpoint: Path, rank: int) -> None:
        torch.save(
            {"sums": self.means.sums, "directions": self.means.directions},
            checkpoint / f"monitor_{rank}.pt",
        )

    def load(self, checkpoint: Path, rank: int) -> None:
        file, device = checkpoint / f"monitor_{rank}.pt", self.means.sums.device
        state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
        self.means.sums, self.means.directions = state["sums"], state["directions"]


def documents_for_correlation(width: int) -> int:
    """The fewest documents on which `cca` of views of this width is measured."""
    return max(FEWEST, EACH * width)


def canonical_correlation(
    student: Tensor, teacher: Tensor, *, components: int = COMPONENTS, ridge: float = RIDGE
) -> float:
    """Mean correlation of the first `components` pairs of canonical variates of two views, (N, P)
    and (N, Q).

    Regularised CCA (Vinod, 1976): `ridge` times the mean variance of a view's features is added to
    the variance of each, so directions of hardly any variance count as uncorrelated. The variates
    are fitted on every other document and correlated on the rest, then the other way round, and the
    mean is taken: on the documents that they are fitted on, even independent views correlate by
    nearly 1 if there are few documents for each feature. NaN for a view that is constant or not
    finite.
    """
    views = student.double(), teacher.double()
    found = [
        _correlation(*views, fitted=half, components=components, ridge=ridge) for half in (0, 1)
    ]
    return sum(found) / len(found)


def _correlation(X1: Tensor, X2: Tensor, *, fitted: int, components: int, ridge: float) -> float:
    S11, S12, S22 = _covariances(X1[fitted::2], X2[fitted::2])
    roots, ridges = [], []
    for S in (S11, S22):
        if not (variance := S.diagonal().mean()) > 0 or variance.isinf():
            return float("nan")
        ridges.append(ridge * torch.eye(len(S), dtype=S.dtype, device=S.device) * variance)
        roots.append(torch.linalg.cholesky(S + ridges[-1]))  # S + R = L L^T
    # A = L1^{-1} S12 L2^{-T}; its singular vectors are the directions p and q, in coordinates in
    # which S + R is I.
    A = torch.linalg.solve_triangular(roots[0], S12, upper=False)
    left, _, right = torch.linalg.svd(
        torch.linalg.solve_triangular(roots[1], A.T, upper=False).T, full_matrices=False
    )
    sides = zip(roots, (left[:, :components], right.T[:, :components]), strict=True)
    p, q = (torch.linalg.solve_triangular(L.T, vectors, upper=True) for L, vectors in sides)
    S11, S12, S22 = _covariances(X1[1 - fitted :: 2], X2[1 - fitted :: 2])
    variances = (p * ((S11 + ridges[0]) @ p)).sum(dim=0) * (q * ((S22 + ridges[1]) @ q)).sum(dim=0)
    return ((p * (S12 @ q)).sum(dim=0) / variances.sqrt()).mean().item()


def _covariances(X1: Tensor, X2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    X1, X2 = X1 - X1.mean(dim=0), X2 - X2.mean(dim=0)
    n = len(X1) - 1
    return X1.T @ X1 / n, X1.T @ X2 / n, X2.T @ X2 / n


@torch.no_grad()
def validate(
    objective: Objective,
    documents: TrainingDocuments,
    *,
    batch_size: int,
    dtype: torch.dtype | None = None,
    budget: int = 8192,
    rank: int = 0,
    processes: int = 1,
) -> dict[str, float]:
    """Mean loss over `documents`, the part of each teacher by name, `norm`, `spread` and, of enough
    documents, `cca`.

    `norm` and `spread` are signs of collapse: the mean length of the student's embeddings, and the
    mean cosine distance between two. `cca` is the canonical correlation of the first contextual
    teacher's views, over all documents; fewer than `documents_for_correlation` have none.
    batch_size: documents whose losses are computed together; a single one left over joins the batch
    before. dtype: of autocast, None without; budget: tokens in a pass, with padding.
    """
    device = next(objective.parameters()).device
    was_training = objective.training
    objective.eval()
    means = Means(["loss", *objective.parts], dim=objective.student.dim, device=device)
    views: list[Tensor] = []  # (N, P) each, rows of other processes are zero
    collate = Collate(documents, batch_size, budget, objective.student.padded, rank, processes)
    for micro in collate.passes(range(len(documents))):
        if not micro.share:  # an uncounted pass
            continue
        # The batches of a pass are the objective's groups; only the last of all, which ends a pass,
        # has another size.
        targets = send_to_device(micro.targets, device, non_blocking=True)
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            output = objective(micro.batch.to(device), **targets._asdict())
        means.add([output.loss, *output.parts.values()], output.embeddings)
        if output.views is not None:
            views = views or [
                view.new_zeros(len(documents), view.shape[1]) for view in output.views
            ]
            for whole, view in zip(views, output.views, strict=True):
                whole[micro.rows] = view
    objective.train(was_training)
    found = means.values()
    seen = torch.tensor([view.shape[1] for view in views] or [0, 0], device=device)
    widths = all_reduced(seen, dist.ReduceOp.MAX).tolist()  # a process may have had no document
    if max(widths) and len(documents) >= documents_for_correlation(max(widths)):
        views = views or [
            means.sums.new_zeros(len(documents), width, dtype=torch.float32) for width in widths
        ]
        found["cca"] = canonical_correlation(*map(all_reduced, views))
    return found
