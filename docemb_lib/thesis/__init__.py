"""All that relates recorded runs to the numbers of the thesis and of the SimDE paper.

`values` holds the published results and finds the one that corresponds to a run, `comparison` puts
comparable runs beside each other and builds Table 5.7 and Figure 4.12 from records, `conclusion`
says what paired tests show of them, `claims` checks what the thesis says of them, `tables` has its
tables, and the settings of a run beside its paper.
"""

from docemb_lib.thesis.claims import SECTION as CLAIMS
from docemb_lib.thesis.claims import better, claim_table, in_figure, in_table
from docemb_lib.thesis.comparison import (
    beside_paper,
    best_of_chapter_4,
    deviations,
    recorded_finals,
    scores_of_runs,
    table_5_7,
)
from docemb_lib.thesis.findings import conclusion, over_recorded_seeds
from docemb_lib.thesis.tables import settings, table
from docemb_lib.thesis.values import published

__all__ = [
    "CLAIMS",
    "beside_paper",
    "best_of_chapter_4",
    "better",
    "claim_table",
    "conclusion",
    "deviations",
    "in_figure",
    "in_table",
    "over_recorded_seeds",
    "published",
    "recorded_finals",
    "scores_of_runs",
    "settings",
    "table",
    "table_5_7",
]
