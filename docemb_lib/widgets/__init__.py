"""Explorers: controls over what was computed before, for people in a notebook.

Each call is the last value of a cell. No logic of their own: numbers come from the rooms above, pictures from
`figures`. Where nobody can move a control (papermill, nbconvert), the same call gives a plain figure and its numbers.
"""

from docemb_lib.widgets.distances import distance_explorer, distances_to_teacher
from docemb_lib.widgets.monitor import run_monitor
from docemb_lib.widgets.neighbours import neighbour_browser, neighbourhoods_of
from docemb_lib.widgets.projections import projection_explorer, spaces_of_run
from docemb_lib.widgets.weighting import weighting_explorer, weighting_points

__all__ = [
    "distance_explorer",
    "distances_to_teacher",
    "neighbour_browser",
    "neighbourhoods_of",
    "projection_explorer",
    "run_monitor",
    "spaces_of_run",
    "weighting_explorer",
    "weighting_points",
]
