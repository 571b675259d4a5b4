"""Tables of the thesis as data frames: tasks, hyper-parameters, grids of chapter 4, and results."""

import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.thesis.comparison import MEAN, NORMALISED, table_5_7
from docemb_lib.thesis.values import published

INDEX = ("parameter", "contextual teacher", "student projection")
OF_TASKS = ("4.2", "5.3", "5.4", "5.5")
RESULTS = "5.7"
PRINTED = "normalised mean as printed"
COMPUTED = "normalised mean from the rows"


def table(number: str) -> pd.DataFrame:
    """Return a table of the thesis by its number.

    These are "4.2", "4.5" to "4.9", "5.3" to "5.5" and "5.7", which has both normalised means, that
    of the print and that which follows from its rows. Raises InputError for another number.

    Example:
        >>> table("4.9").loc["lam", "values"]
        '0.95, 0.8, 0.5, 0.2, None (no weighting)'
    """
    if number == RESULTS:
        return _results()
    if number in OF_TASKS:
        rows = published("tasks")
        rows = rows[rows["source"] == f"table {number}"]
        frame = rows.pivot_table("value", ["task", "split"], "statistic", sort=False)
        return frame.rename_axis(columns=None)
    rows = published("tables")
    rows = rows[rows["source"] == f"table {number}"]
    if rows.empty:
        problem = f"is none of {', '.join(OF_TASKS)}, 4.5 to 4.9 and {RESULTS}"
        raise InputError(f"table {number}: {problem}; give one of these")
    frame = rows.drop(columns=["source", "read_from"]).dropna(axis="columns", how="all")
    return frame.set_index([name for name in INDEX if name in frame]).convert_dtypes()


def _results() -> pd.DataFrame:
    """Table 5.7: accuracy by round, then MAP, best mean first; both normalised means."""
    printed = published("means").fillna({"round": ""}).set_index(["round", "model"])
    accuracy = table_5_7(published("table_5_7").dropna(subset="round"), "accuracy")
    ranking = table_5_7(published("table_5_7"), "map")
    ranking.index = pd.MultiIndex.from_product([[""], ranking.index], names=["round", "model"])
    frame = pd.concat([accuracy, ranking]).rename(columns={NORMALISED: COMPUTED})
    frame[PRINTED] = printed["normalised"]
    tasks = [name for name in frame if name not in (MEAN, COMPUTED, PRINTED)]
    return frame[[*tasks, MEAN, PRINTED, COMPUTED]]
