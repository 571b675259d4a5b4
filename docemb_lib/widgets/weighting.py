"""The weighting explorer: how students differ from one of them."""

from collections.abc import Iterable
from functools import cache, partial
from typing import Any

import ipywidgets
import pandas as pd

from docemb_lib.evaluation.scoreboard import main_rows, with_interval
from docemb_lib.evaluation.uncertainty import Scores, differences, score_intervals
from docemb_lib.widgets.explorer import explore

INTERVAL = ["value", "low", "high"]


def weighting_explorer(scores: Scores) -> ipywidgets.VBox | None:
    """Explore how students differ from one of them, paired over validation examples.

    scores: by the names of students; the first one is selected first.
    """
    intervals = main_rows(score_intervals(scores))
    ahead_of = cache(partial(differences, scores))

    def answer(task: str, selected: str) -> Iterable[Any]:
        shown = intervals[intervals["task"] == task].set_index("model")
        tests = ahead_of(selected)
        tests = tests[tests["task"] == task].set_index("model")
        ahead = {selected: "selected"}
        for name, difference, low, high in tests[["difference", "low", "high"]].itertuples():
            ahead[name] = f"{difference:+.3f} [{low:+.3f}, {high:+.3f}]"
        table = pd.DataFrame(index=shown.index.rename("student"))
        table["score [95%]"] = [*map(with_interval, *shown[INTERVAL].to_numpy().T)]
        table["difference [95%]"] = [ahead[name] for name in shown.index]
        return [table]

    tasks = list(intervals["task"].unique())[::-1]  # the mean first
    return explore(
        answer,
        task=ipywidgets.Dropdown(options=tasks),
        selected=ipywidgets.Dropdown(options=[*scores]),
    )
