"""What a training run says of itself every few updates: losses, speed, and signs of collapse."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F

from docemb_lib.losses import CCA, Objective, ObjectiveOutput, group_sizes
from docemb_lib.training.batches import rounds
from docemb_lib.training.documents import Bank, TrainingDocuments

# ---- what a training run says of itself every few updates


COMPONENTS = 10  # of the canonical correlations that are watched
WINDOW = 10 * COMPONENTS  # documents that they are computed over (the author's: 10 times the components)
STATE = ("sums", "directions", "views")


class Monitor:
    """Sums since the last row, on the device, so that nobody waits for it before a row is due."""

    def __init__(
        self,
        parts: Sequence[str],
        *,
        dim: int,
        device: torch.device,
        processes: int,
        peak: float,
    ) -> None:
        """parts: of the loss, by name; dim: D; peak: floating-point operations that the processes could do in a
        second."""
        self.parts, self.processes, self.peak = tuple(parts), processes, peak
        self.sums = torch.zeros(len(self.parts) + 3, dtype=torch.float64, device=device)  # see `row`
        self.directions = torch.zeros(dim, dtype=torch.float64, device=device)
        self.views: tuple[Tensor, Tensor] | None = None  # of the last documents, (WINDOW or fewer, P) each
        self.start_clock()

    def start_clock(self) -> None:
        """Time counts from here: a row's speed is that of its updates alone."""
        self.started = time.perf_counter()
        self.tokens = self.documents = 0
        self.computed = 0.0

    @torch.no_grad()
    def add(self, output: ObjectiveOutput | None, *, documents: int, tokens: int, flops: float) -> None:
        """documents, tokens: that all processes have seen; output, flops: of this process, None where nothing of it
        counts."""
        self.tokens += tokens
        self.documents += documents
        if output is None:
            return
        self.computed += flops
        B = len(output.embeddings)
        embeddings = output.embeddings.double()
        losses = torch.stack([output.loss, *(output.parts[name] for name in self.parts)]).double()
        self.sums += torch.cat([losses.new_full((1,), B), losses * B, embeddings.norm(dim=1).sum()[None]])
        self.directions = self.directions + F.normalize(embeddings, dim=1).sum(0)
        if output.views is not None:
            both = zip(self.views or output.views, output.views, strict=True)
            z1, z2 = (new if old is new else torch.cat([old, new]) for old, new in both)
            self.views = z1[-WINDOW:].clone(), z2[-WINDOW:].clone()  # not a part of what would stay alive

    def row(self) -> dict[str, float]:
        """Means since the last row, in all processes together; every process has to ask for it. `cca` is that of this
        process' documents."""
        sums, computed = self.sums.clone(), torch.tensor(self.computed, dtype=torch.float64, device=self.sums.device)
        if self.processes > 1:
            for total in (sums, computed, self.directions):
                dist.all_reduce(total)
        documents, *totals = sums.tolist()
        seconds = max(time.perf_counter() - self.started, 1e-9)  # now that the device has done it all
        n = max(documents, 1)
        row = {name: total / n for name, total in zip(("loss", *self.parts, "norm"), totals, strict=True)}
        row["spread"] = spread(self.directions, int(n))
        if self.views is not None:
            row["cca"] = canonical_correlation(*self.views)
        row |= {
            "documents_per_second": self.documents / seconds,
            "tokens_per_second": self.tokens / seconds,
            "share_of_peak": computed.item() / seconds / self.peak,
        }
        self.sums.zero_()
        self.directions.zero_()
        self.start_clock()
        return row

    def save(self, checkpoint: Path, rank: int) -> None:
        torch.save({name: getattr(self, name) for name in STATE}, checkpoint / f"monitor_{rank}.pt")

    def load(self, checkpoint: Path, rank: int) -> None:
        file = checkpoint / f"monitor_{rank}.pt"
        state: dict[str, Any] = torch.load(file, map_location=self.sums.device, weights_only=True)
        for name in STATE:
            setattr(self, name, state[name])


def spread(directions: Tensor, n: int) -> float:
    """Mean cosine distance between two of n embeddings, 0 when all are one point, from the sum of their unit vectors,
    (D,): the squared sum holds every pair's cosine twice, and n ones."""
    return 1 - (directions.square().sum().item() - n) / (n * (n - 1)) if n > 1 else 0.0


def canonical_correlation(student: Tensor, teacher: Tensor, *, components: int = COMPONENTS) -> float:
    """Mean of the largest canonical correlations of two views, (N, P) and (N, Q), over their principal components.

    As many components are kept of each view as correlations are asked for, at most N / 2: with more, any two views
    of N documents correlate perfectly. NaN below 4 documents.
    """
    k = min(components, len(student) // 2, student.shape[1], teacher.shape[1])
    if len(student) < 4:
        return float("nan")
    leading = [_principal(view.double(), k) for view in (student, teacher)]
    return -CCA(ridge=0.0)(*leading)[0].item() / k


def _principal(view: Tensor, k: int) -> Tensor:
    """The k leading principal components of (N, P), each scaled to variance 1 (CCA does not see scale)."""
    U, s, _ = torch.linalg.svd(view - view.mean(dim=0), full_matrices=False)
    kept = s[:k] > 1e-9 * s[0].clamp(min=1e-30)
    return U[:, :k] * kept * (len(view) - 1) ** 0.5


# ---- the validation loss of an objective


@torch.no_grad()
def validate(
    objective: Objective,
    documents: TrainingDocuments,
    *,
    batch_size: int,
    bank: Bank | None = None,
    dtype: torch.dtype | None = None,
    budget: int = 8192,
    rank: int = 0,
    processes: int = 1,
) -> dict[str, float]:
    """Mean loss over `documents`, that of each teacher by its name, and two signs of collapse.

    `norm`: mean length of the student's embeddings; `spread`: mean cosine distance between two of them, 0 when all
    documents have become one point. Losses are those of batches in the documents' order; a document that is left over
    joins the batch before, since losses need two. bank: of training documents, for an objective with negatives; dtype:
    of autocast, None without; budget: tokens in a pass.
    """
    device = next(objective.parameters()).device
    was_training = objective.training
    objective.eval()
    names = ("loss", *(teaching.name for teaching in objective.teachings))
    ends = np.cumsum(group_sizes(len(documents), batch_size)).tolist()
    batches = [list(range(a, b)) for a, b in zip([0, *ends], ends, strict=False)]
    tokens = [sum(len(documents.tokens[row]) for row in batch) for batch in batches]
    sums = torch.zeros(len(names) + 1, dtype=torch.float64, device=device)  # the last: of lengths of embeddings
    directions = torch.zeros(cast(Any, objective.student).dim, dtype=torch.float64, device=device)
    for plan, owners in rounds(tokens, budget=budget, processes=processes):
        # Whole batches make the groups of the objective, but for the last one, which is on its own.
        own = [batches[i] for i, owner in zip(plan, owners, strict=True) if owner == rank]
        alike = [batch for batch in own if len(batch) == batch_size]
        for together in (alike, *([batch] for batch in own if len(batch) != batch_size)):
            if not together:
                continue
            batch, known = documents.pack(together, bank)
            with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                output = objective(batch.to(device), **known.to(device)._asdict())
            embeddings = output.embeddings.double()
            means = torch.stack([output.loss, *output.parts.values()]).double()
            sums += torch.cat([means * len(embeddings), embeddings.norm(dim=1).sum()[None]])
            directions = directions + F.normalize(embeddings, dim=1).sum(0)
    objective.train(was_training)
    if processes > 1:
        dist.all_reduce(sums)
        dist.all_reduce(directions)
    n = len(documents)
    *means_of_all, norm = (sums / n).tolist()
    return {**dict(zip(names, means_of_all, strict=True)), "norm": norm, "spread": spread(directions, n)}
