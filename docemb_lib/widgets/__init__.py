"""Explorers for notebooks: controls over computed results; each call is the last value of a cell.

Executed without a person (papermill, nbconvert), a call shows its answer to the first setting.
"""

from docemb_lib.widgets.explorer import explore
from docemb_lib.widgets.neighbours import (
    Neighbourhoods,
    Pool,
    neighbour_browser,
    neighbourhoods_of,
)
from docemb_lib.widgets.spaces import (
    distance_explorer,
    distances_to_teacher,
    projection_explorer,
    spaces_of_run,
)
from docemb_lib.widgets.weighting import weighting_explorer

__all__ = [
    "Neighbourhoods",
    "Pool",
    "distance_explorer",
    "distances_to_teacher",
    "explore",
    "neighbour_browser",
    "neighbourhoods_of",
    "projection_explorer",
    "spaces_of_run",
    "weighting_explorer",
]
