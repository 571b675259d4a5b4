"""The validation loss of an objective by part, shared among the processes of a run."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional as F

from docemb_lib.losses import Objective, group_sizes
from docemb_lib.training.batches import rounds
from docemb_lib.training.documents import Bank, TrainingDocuments
from docemb_lib.training.monitor import spread


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
