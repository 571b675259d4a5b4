"""Figures: a tidy frame in, in one palette, one width and one size of text.

Call `use_style()` first in a notebook. Figures are transparent, with text and lines of one grey, so
that they are legible on a light and on a dark page.
"""

from docemb_lib.figures.documents import plot_distances, plot_plane
from docemb_lib.figures.names import named, short_names, table
from docemb_lib.figures.results import (
    plot_history,
    plot_lines,
    plot_rows,
    plot_runs,
)
from docemb_lib.figures.style import (
    BESIDE,
    GREY,
    PALETTE,
    SERIES,
    WIDTH,
    axes,
    colour_of,
    series_colors,
    use_style,
)

__all__ = [
    "BESIDE",
    "GREY",
    "PALETTE",
    "SERIES",
    "WIDTH",
    "axes",
    "colour_of",
    "named",
    "plot_distances",
    "plot_history",
    "plot_lines",
    "plot_plane",
    "plot_rows",
    "plot_runs",
    "series_colors",
    "short_names",
    "table",
    "use_style",
]
