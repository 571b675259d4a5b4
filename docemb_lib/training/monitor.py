"""Monitoring of a training: means of losses, speed, signs of collapse, and the validation loss of an objective."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from docemb_lib.losses import CCA, Objective, ObjectiveOutput
from docemb_lib.training.batches import consecutive_batches, rounds
from docemb_lib.training.distributed import all_reduced
from docemb_lib.training.documents import Bank, TrainingDocuments

COMPONENTS = 10  # canonical correlations in `cca`
WINDOW = 10 * COMPONENTS  # documents that they are computed over (as the author: 10 times the components)


class Means:
    """Means over documents of named losses and of the norm of embeddings, and their spread; summed on the device."""

    def __init__(self, names: Sequence[str], *, dim: int, device: torch.device) -> None:
        self.names = (*names, "norm")
        self.sums = torch.zeros(1 + len(self.names), dtype=torch.float64, device=device)  # documents, then by name
        self.directions = torch.zeros(dim, dtype=torch.float64, device=device)  # sum of the embeddings' unit vectors

    @torch.no_grad()
    def add(self, losses: Sequence[Tensor], embeddings: Tensor) -> None:
        """losses: mean of each over B documents, in the order of the names; embeddings: (B, D)."""
        B, embeddings = len(embeddings), embeddings.double()
        means = torch.stack(list(losses)).double()
        self.sums += torch.cat([means.new_full((1,), B), means * B, embeddings.norm(dim=1).sum()[None]])
        self.directions += F.normalize(embeddings, dim=1).sum(0)

    def values(self) -> dict[str, float]:
        """Means over the documents of all processes, by name, and `spread`; every process must call."""
        n, *totals = all_reduced(self.sums.clone()).tolist()
        means = {name: total / max(n, 1) for name, total in zip(self.names, totals, strict=True)}
        return {**means, "spread": spread(all_reduced(self.directions.clone()), int(n))}


class Monitor:
    """The rows of a training's history: means and speed since the row before."""

    def __init__(self, parts: Sequence[str], *, dim: int, device: torch.device, peak: float) -> None:
        """parts: names of the parts of the loss; dim: D; peak: FLOP/s of which all processes together are capable."""
        self.means = Means(["loss", *parts], dim=dim, device=device)
        self.views: tuple[Tensor, Tensor] | None = None  # of the last documents, (WINDOW or fewer, P) each
        self.peak = peak
        self.start_clock()

    def start_clock(self) -> None:
        self.started, self.tokens, self.documents, self.computed = time.perf_counter(), 0, 0, 0.0

    def add(self, output: ObjectiveOutput | None, *, documents: int, tokens: int, flops: float) -> None:
        """documents, tokens: of all processes; output, flops: of this process, None if its pass is uncounted."""
        self.tokens += tokens
        self.documents += documents
        if output is None:
            return
        self.computed += flops
        self.means.add([output.loss, *(output.parts[name] for name in self.means.names[1:-1])], output.embeddings)
        if output.views is not None:
            both = zip(self.views or output.views, output.views, strict=True)
            z1, z2 = (new if old is new else torch.cat([old, new]) for old, new in both)
            self.views = z1[-WINDOW:].clone(), z2[-WINDOW:].clone()  # a slice would keep the whole tensor alive

    def row(self) -> dict[str, float]:
        """The next row; every process must call. `cca` is that of this process' documents."""
        row = self.means.values()  # waits for the device
        seconds = max(time.perf_counter() - self.started, 1e-9)
        if self.views is not None:
            row["cca"] = canonical_correlation(*self.views)
        computed = all_reduced(self.means.sums.new_tensor(self.computed)).item()
        row |= {"documents_per_second": self.documents / seconds, "tokens_per_second": self.tokens / seconds}
        row["share_of_peak"] = computed / seconds / self.peak
        self.means.sums.zero_()
        self.means.directions.zero_()
        self.start_clock()
        return row

    def save(self, checkpoint: Path, rank: int) -> None:
        state = {"sums": self.means.sums, "directions": self.means.directions, "views": self.views}
        torch.save(state, checkpoint / f"monitor_{rank}.pt")

    def load(self, checkpoint: Path, rank: int) -> None:
        file, device = checkpoint / f"monitor_{rank}.pt", self.means.sums.device
        state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
        self.means.sums, self.means.directions, self.views = state["sums"], state["directions"], state["views"]


def spread(directions: Tensor, n: int) -> float:
    """Mean cosine distance between two of n embeddings; directions: the sum of their unit vectors, (D,)."""
    # Its square holds the cosine of every pair twice, and n ones.
    return 1 - (directions.square().sum().item() - n) / (n * (n - 1)) if n > 1 else 0.0


def canonical_correlation(student: Tensor, teacher: Tensor, *, components: int = COMPONENTS) -> float:
    """Mean of the largest canonical correlations of two views, (N, P) and (N, Q), over their principal components."""
    # With more than N / 2 components, any two views of N documents correlate perfectly.
    k = min(components, len(student) // 2, student.shape[1], teacher.shape[1])
    if len(student) < 4:
        return float("nan")
    leading = []
    for view in (student.double(), teacher.double()):
        U, s, _ = torch.linalg.svd(view - view.mean(dim=0), full_matrices=False)
        kept = s[:k] > 1e-9 * s[0].clamp(min=1e-30)
        leading.append(U[:, :k] * kept * (len(view) - 1) ** 0.5)  # of variance 1: scale makes no difference to CCA
    return -CCA(ridge=0.0)(*leading)[0].item() / k


@torch.no_grad()
def validate(
    objective: Objective, documents: TrainingDocuments, *, batch_size: int, bank: Bank | None = None,
    dtype: torch.dtype | None = None, budget: int = 8192, rank: int = 0, processes: int = 1,
) -> dict[str, float]:  # fmt: skip
    """Mean loss over `documents`, the part of each teacher by name, `norm` and `spread`.

    `norm` and `spread` are signs of collapse: the mean length of the student's embeddings, and the mean cosine distance
    between two. batch_size: documents whose losses are computed together; a single one left over joins the batch
    before. bank: of negatives; dtype: of autocast, None without; budget: tokens in a pass.
    """
    device = next(objective.parameters()).device
    was_training = objective.training
    objective.eval()
    batches = [list(rows) for rows in consecutive_batches(len(documents), batch_size)]
    tokens = [sum(len(documents.tokens[row]) for row in batch) for batch in batches]
    means = Means(["loss", *objective.parts], dim=objective.student.dim, device=device)
    for plan, owners in rounds(tokens, budget=budget, processes=processes):
        own = [batches[i] for i, owner in zip(plan, owners, strict=True) if owner == rank]
        # Batches of the full size are the objective's groups in one pass; the last one may differ and runs alone.
        full = [batch for batch in own if len(batch) == batch_size]
        for packed in ([full] if full else []) + [[batch] for batch in own if len(batch) != batch_size]:
            batch, targets = documents.pack(packed, bank)
            with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                output = objective(batch.to(device), **targets.to(device)._asdict())
            means.add([output.loss, *output.parts.values()], output.embeddings)
    objective.train(was_training)
    return means.values()
