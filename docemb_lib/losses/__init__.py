"""Losses between a student's embeddings and its teachers', and the objective that weighs them.

Everything here sees tensors only: `structural` and `contextual` hold the losses, `projection` the networks
before them, `weighting` the masks and weights of documents, `objective` the module that a trainer optimises,
made of a `Teaching` per teacher. `pair_objective` needs no teacher: it learns from pairs of texts by `info_nce`
and `masked_language`.
"""

from docemb_lib.losses.contextual import CCA, SDL, SoftCCA, SoftCCAParts, contextual_loss
from docemb_lib.losses.objective import Objective, ObjectiveOutput, Peers, Teaching, group_sizes
from docemb_lib.losses.pairs import InfoNCE, MaskedLanguageHead, PairObjective
from docemb_lib.losses.projection import Projection, check_widths
from docemb_lib.losses.structural import MSE, Contrastive, Cosine, MaxMargin, structural_loss
from docemb_lib.losses.weighting import Weighting

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
    "Peers",
    "Projection",
    "SoftCCA",
    "SoftCCAParts",
    "Teaching",
    "Weighting",
    "check_widths",
    "contextual_loss",
    "group_sizes",
    "structural_loss",
]
