"""Losses between a student's embeddings and its two teachers', and the objective that weighs them.

Everything here sees tensors only: `structural` and `contextual` hold the losses, `projection` the networks
before the contextual one, `objective` the masks, the weights and the module that a trainer optimises.
"""

from docemb_lib.losses.contextual import CCA, SDL, SoftCCA, SoftCCAParts, contextual_loss
from docemb_lib.losses.objective import Objective, ObjectiveOutput, Peers, Weighting
from docemb_lib.losses.projection import Projection, check_widths
from docemb_lib.losses.structural import MSE, Contrastive, Cosine, MaxMargin, structural_loss

__all__ = [
    "CCA",
    "MSE",
    "SDL",
    "Contrastive",
    "Cosine",
    "MaxMargin",
    "Objective",
    "ObjectiveOutput",
    "Peers",
    "Projection",
    "SoftCCA",
    "SoftCCAParts",
    "Weighting",
    "check_widths",
    "contextual_loss",
    "structural_loss",
]
