"""The validation loss of an objective by part, shared among the processes of a run."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch.nn import functional as F

from docemb_lib.losses import Objective
from docemb_lib.training.batches import TrainingDocuments, rounds
from docemb_lib.training.monitor import spread

PARTS = ("loss", "structural", "contextual")


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
    """Mean loss over `documents` by part, and two signs of collapse.

    `norm`: mean length of the student's embeddings; `spread`: mean cosine distance between two of them, 0 when all
    documents have become one point. Losses are those of batches in the documents' order; a document that is left over
    joins the batch before, since losses need two. dtype: of autocast, None without; budget: tokens in a pass.
    """
    device = next(objective.parameters()).device
    was_training = objective.training
    objective.eval()
    starts = list(range(0, len(documents), batch_size))
    if len(starts) > 1 and len(documents) - starts[-1] < batch_size:
        starts.pop()
    batches = [list(range(a, b)) for a, b in zip(starts, [*starts[1:], len(documents)], strict=True)]
    tokens = [sum(len(documents.tokens[row]) for row in batch) for batch in batches]
    sums = torch.zeros(len(PARTS) + 1, dtype=torch.float64, device=device)  # the last: of lengths of embeddings
    directions = torch.zeros(cast(Any, objective.student).dim, dtype=torch.float64, device=device)
    for plan, owners in rounds(tokens, budget=budget, processes=processes):
        # Whole batches make the groups of the objective, but for the last one, which may be longer: on its own.
        own = [batches[i] for i, owner in zip(plan, owners, strict=True) if owner == rank]
        alike = [row for batch in own if len(batch) == batch_size for row in batch]
        for rows in (alike, *(batch for batch in own if len(batch) != batch_size)):
            if not rows:
                continue
            batch, known = documents.pack(rows)
            known = {name: tensor.to(device) for name, tensor in known.items()}
            with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                output = objective(batch.to(device), **known)
            means = [getattr(output, part) for part in PARTS]
            embeddings = output.embeddings.double()
            values = [torch.zeros((), device=device) if mean is None else mean * len(rows) for mean in means]
            sums += torch.stack([*(value.double() for value in values), embeddings.norm(dim=1).sum()])
            directions = directions + F.normalize(embeddings, dim=1).sum(0)
    objective.train(was_training)
    if processes > 1:
        dist.all_reduce(sums)
        dist.all_reduce(directions)
    n = len(documents)
    *parts, norm = (sums / n).tolist()
    return {**dict(zip(PARTS, parts, strict=True)), "norm": norm, "spread": spread(directions, n)}
