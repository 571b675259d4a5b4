"""Explorers: controls over what was computed before, for people in a notebook.

Each call is the last value of a cell. No logic of their own: numbers come from the rooms above, pictures from
`figures`. Where nobody can move a control (papermill, nbconvert), the same call gives a plain figure and its numbers.
"""

from docemb_lib.widgets.distances import distance_explorer
from docemb_lib.widgets.monitor import run_monitor
from docemb_lib.widgets.neighbours import neighbour_browser
from docemb_lib.widgets.projections import projection_explorer
from docemb_lib.widgets.weighting import weighting_explorer

__all__ = ["distance_explorer", "neighbour_browser", "projection_explorer", "run_monitor", "weighting_explorer"]
