"""The losses of a run: the weights of its documents, and three documents in its objective."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from docemb_lib.runs.run import Run
from docemb_lib.settings.labels import structural_label

if TYPE_CHECKING:
    from torch import Tensor

    from docemb_lib.losses import SDL, Objective

COMPARED = ("cosine", "max-margin")  # structural losses beside that of a run


def weights_by_length(run: Run) -> pd.DataFrame:
    """The weights of both losses for each training document, the shortest document first.

    Columns: length (structural tokens, special ones included), structural, contextual.
    """
    import torch

    from docemb_lib.runs.students import weighting_of

    parameters = run.profile.parameters
    lengths = np.sort(run.teachers.structural_lengths("train", parameters.documents))
    structural, contextual = weighting_of(parameters).weights(
        torch.from_numpy(lengths), roles=run.roles
    )
    return pd.DataFrame(
        {"length": lengths, "structural": structural.numpy(), "contextual": contextual.numpy()}
    )


def objectives_of(run: Run) -> dict[str, Objective]:
    """Objectives by structural loss: as training begins, and that of the run as training left it.

    The first ones have the structural loss of the run and those of `COMPARED`, unless the run has
    no structural teacher.
    """
    losses = [run.profile.parameters.structural_loss]
    if losses[0] is not None:
        losses += [loss for loss in COMPARED if loss not in losses]
    objectives = {}
    for loss in losses:
        parameters = {**run.parameters, "structural_loss": loss}
        other = Run.of(run.notebook, run.profile, **parameters)
        name = structural_label(other.profile.parameters)
        objectives[f"{name}, untrained"] = other.students.objective(trained=False)
    name = structural_label(run.profile.parameters)
    objectives[f"{name}, trained"] = run.students.objective()
    return objectives


class ThreeDocuments(NamedTuple):
    """Three documents in the objective of a run.

    The student's embeddings stand for those of a teacher that the run lacks.
    """

    lengths: Tensor  # (3,), tokens of the structural teacher, special ones included
    y: Tensor  # (3, D), embeddings by the student
    t: Tensor  # (3, D), by the structural teacher
    f: Tensor  # (3, P), projections of y
    c: Tensor  # (3, P), projections of the embeddings by the contextual teacher
    decorrelations: list[SDL]  # those of f and of c with their running statistics, if SoftCCA
    weights: tuple[Tensor, Tensor]  # of the structural and of the contextual loss, (3,)
    structural: Tensor  # (3,), structural losses
    contextual: Tensor  # (3,), contextual losses
    delta: float  # of SoftCCA with the mean over cells, a balanced one included; 0 without SoftCCA
    loss: float


def three_documents(run: Run) -> ThreeDocuments:
    """The shortest, the median and the longest validation document."""
    import torch

    from docemb_lib.losses import SDL

    stage = run.students
    objective = stage.objective()
    objective.group_size = None  # the three are one batch

    validation = len(run.corpus.split("validation"))
    documents = stage.training_documents(objective.student, "validation", validation)
    by_length = np.argsort(documents.n_structural_tokens, kind="stable")
    batch, targets = documents.pack([by_length[[0, len(documents) // 2, -1]].tolist()])

    with torch.no_grad():
        output = objective(batch, **targets._asdict())
        y = output.embeddings
        lengths = targets.n_structural_tokens
        by_role = {teaching.role: teaching for teaching in objective.teachings}
        losses = {role: teaching.loss for role, teaching in by_role.items()}
        t = targets.teachers.get("structural", y).to(y)
        f, c, _ = output.views or (y, y, y)
        structural = contextual = 0 * lengths
        if "structural" in losses:
            structural = losses["structural"](y, t, objective.weighting.keep(lengths))
        if "contextual" in losses:
            contextual = losses["contextual"](f, c)

    decorrelations = [module for module in objective.modules() if isinstance(module, SDL)]
    given = getattr(losses.get("contextual"), "delta", 0.0)
    delta = float(output.parts.get("delta", given))
    if decorrelations and decorrelations[0].reduction == "sum":  # delta of so many cells
        covariance = decorrelations[0].covariance
        delta *= max(covariance.numel() - len(covariance), 1)

    return ThreeDocuments(
        lengths=lengths,
        y=y,
        t=t,
        f=f,
        c=c,
        decorrelations=decorrelations,
        weights=objective.weighting.weights(lengths, roles=losses),
        structural=structural,
        contextual=contextual,
        delta=delta,
        loss=output.loss.item(),
    )
