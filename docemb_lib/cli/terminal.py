"""What the command line shows: tables, whose texts wrap and are never cut."""

import sys

import pandas as pd
from rich.console import Console, JustifyMethod
from rich.table import Table

from docemb_lib.runs import records

RUN_COLUMNS = ("notebook", "label", "documents", "validation", "test", "collapsed", "seconds")
# Columns of runs that stand in the title where all runs have the same value.
ALIKE = ("profile", "status", "seed")
SCORES = "Test scores (accuracy; {} for retrieval)"


def print_scoreboard(board: pd.DataFrame, console: Console) -> None:
    """Print a table of models and tasks.

    board: index model; a column per task, `mean` as text, `fitted on`; NaN where there is no score.
    """
    table = board.drop(columns=["mean", "fitted on"]).map("{:.3f}".format).replace("nan", "")
    table["mean [95%]"] = board["mean"]
    table["fitted on"] = board["fitted on"]
    print_table(table.rename_axis("model").reset_index(), console, SCORES.format("MAP"))


def print_runs(frame: pd.DataFrame, console: Console) -> None:
    """Print recorded runs, a row each, and what to change where a student has collapsed.

    `docemb results --csv` has every column.

    frame: see `records.frame`.
    """
    if frame.empty:
        console.print("No recorded runs yet; `docemb run` makes some.")
        return
    collapsed = frame.get("collapsed", pd.Series(0, frame.index)) == 1
    # The column is there only if a student has collapsed.
    frame = frame.assign(
        collapsed=collapsed.map({True: "yes", False: ""}) if any(collapsed) else None
    )
    alike = [name for name in ALIKE if name in frame and frame[name].nunique(dropna=False) == 1]
    title = ", ".join(f"{name} {frame[name].iloc[0]}" for name in alike)
    names = [name for name in (*ALIKE, *RUN_COLUMNS) if name in frame and frame[name].notna().any()]
    print_table(frame[[name for name in names if name not in alike]], console, title)
    if any(collapsed):
        console.print(
            f"collapsed: all documents have nearly the same embedding; {records.COLLAPSE_MEND}"
        )


def print_table(frame: pd.DataFrame, console: Console, title: str | None = None) -> None:
    """Print a frame as a table that fits the terminal: texts become several lines."""
    table = Table(title=title or None, title_justify="left")
    columns = []
    for name, column in frame.items():
        is_number = column.dtype.kind in "if"
        justify: JustifyMethod = "right" if is_number else "left"
        table.add_column(str(name), justify=justify, no_wrap=is_number, overflow="fold")
        columns.append(_cells(column))
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    console.print(table, soft_wrap=False)


def write_json(frame: pd.DataFrame) -> None:
    sys.stdout.write(frame.to_json(orient="records", force_ascii=False, indent=1) + "\n")


def _cells(column: pd.Series) -> list[str]:
    """The values as text, "" for NaN.

    All numbers have as many decimals, up to three, as one of them needs.
    """
    numbers = [value for value in column if isinstance(value, float)]
    decimals = max((len(f"{x:.3f}".rstrip("0").partition(".")[2]) for x in numbers), default=0)
    return [
        f"{value:.{decimals}f}".replace("nan", "") if isinstance(value, float) else str(value)
        for value in column
    ]
