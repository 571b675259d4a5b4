"""The thesis: its published results, the runs of ours that they correspond to, its claims, and tables of both."""

from docemb_lib.thesis.claims import claims_of_run
from docemb_lib.thesis.comparison import scores_of_runs
from docemb_lib.thesis.tables import best_of_chapter_4, deviations, recorded_finals, table_5_7
from docemb_lib.thesis.values import published

__all__ = [
    "best_of_chapter_4",
    "claims_of_run",
    "deviations",
    "published",
    "recorded_finals",
    "scores_of_runs",
    "table_5_7",
]
