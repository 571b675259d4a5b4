"""The validation loss of learning from pairs, by part."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from docemb_lib.losses import PairObjective, group_sizes
from docemb_lib.training.monitor import spread
from docemb_lib.training.pairs import PairedDocuments


@torch.no_grad()
def validate_pairs(
    objective: PairObjective, documents: PairedDocuments, *, batch_size: int, dtype: torch.dtype | None, budget: int
) -> dict[str, float]:
    """Means over `documents`: loss, `contrast`, `mlm`, and of the pairs' first texts, norm and spread (see `validate`).

    The pairs are those of epoch 0, so that the loss stays one function of the student. Batches are in the documents'
    order; a document that is left over joins the batch before. The loss is that of the pairs, without weight. dtype: of
    autocast, None without; budget: tokens in a pass.
    """
    device = next(objective.parameters()).device
    was_training = objective.training
    objective.eval()
    names = ["contrast", *(["mlm"] if objective.mlm_weight else [])]
    sums = torch.zeros(len(names) + 1, dtype=torch.float64, device=device)  # the last: of lengths of embeddings
    directions = torch.zeros(objective.student.dim, dtype=torch.float64, device=device)
    ends = np.cumsum(group_sizes(len(documents), batch_size)).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        batch = documents.pack(range(start, end), epoch=0, budget=budget)
        embedded = []
        guessed = torch.zeros((), device=device)
        for part in (part.to(device) for part in batch.parts):
            with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                embedded.append(objective.embed(part.texts))
                if objective.mlm_weight:
                    guessed = guessed + objective.masked_loss(part.masked, part.labels) / max(batch.n_labels, 1)
        embeddings = torch.cat(embedded)[batch.order.to(device)]
        n = end - start
        means = [objective.contrast_losses(embeddings).mean(), *([guessed] if objective.mlm_weight else [])]
        first = embeddings[:n].double()
        sums += torch.stack([*(mean.double() * n for mean in means), first.norm(dim=1).sum()])
        directions = directions + F.normalize(first, dim=1).sum(0)
    objective.train(was_training)
    n = len(documents)
    *means_of_all, norm = (sums / n).tolist()
    found = dict(zip(names, means_of_all, strict=True))
    loss = found["contrast"] + objective.mlm_weight * found.get("mlm", 0.0)
    return {"loss": loss, **found, "norm": norm, "spread": spread(directions, n)}
