"""Losses between the embeddings of a student and of its teachers, on tensors only, and the
objective of a training.
"""

from docemb_lib.losses.contextual import (
    CCA,
    SDL,
    InfoNCE,
    MaskedLanguageHead,
    PairObjective,
    Projection,
    SoftCCA,
    contextual_loss,
)
from docemb_lib.losses.objective import Objective, ObjectiveOutput, Teaching, Weighting, group_sizes
from docemb_lib.losses.structural import (
    MSE,
    Contrastive,
    Cosine,
    MaxMargin,
    StructuralLoss,
    structural_loss,
)

__all__ = [
    "CCA",
    "MSE",
    "SDL",
    "Contrastive",
    "Cosine",
    "InfoNCE",
    "MaskedLanguageHead",
    "MaxMargin",
    "Objective",
    "ObjectiveOutput",
    "PairObjective",
    "Projection",
    "SoftCCA",
    "StructuralLoss",
    "Teaching",
    "Weighting",
    "contextual_loss",
    "group_sizes",
    "structural_loss",
]
