"""What the command line shows: tables that are never cut."""

import re
import sys
from textwrap import wrap

import pandas as pd
from rich.console import Console, JustifyMethod
from rich.table import Table

from docemb_lib.evaluation.scoreboard import NO_BREAK
from docemb_lib.runs import records

RUN_COLUMNS = ("notebook", "label", "documents", "validation", "test", "collapsed", "seconds")
# Columns of runs that stand in the title where all runs have the same value.
ALIKE = ("profile", "status", "seed")
# Characters in a line of a cell, tried until the table fits.
FOLDS = (sys.maxsize, 60, 40, 30, 20, 15, 10, 7)
BREAKS = re.compile(rf"[;)/]|,(?!{NO_BREAK})|(?<=\S)-(?=\w)")
SCORES = "Test scores (accuracy; {} for retrieval)"


def print_scoreboard(board: pd.DataFrame, console: Console) -> None:
    """Print a table of models and tasks.

    board: index model; a column per task, `mean` as text, `fitted on`; NaN where there is no score.
    """
    table = board.drop(columns=["mean", "fitted on"]).map("{:.3f}".format).replace("nan", "")
    table["mean [95%]"] = board["mean"].str.replace(", ", f",{NO_BREAK}")
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
    """Print a frame as a table that fits the terminal; no word is broken.

    Where the terminal is too narrow, cells become several lines. Where that is not enough, the
    columns are shared out among several tables, each with those that name the rows.
    """
    unlimited = console.options.update(width=sys.maxsize)
    for fold in FOLDS:
        table = _table(frame, title, fold)
        table.width = console.measure(table, options=unlimited).maximum
        if table.width <= console.width:
            console.print(table, soft_wrap=True)
            return
    names = {"round", "model", "label"}.intersection(frame) or {frame.columns[0]}
    further = [name for name in frame if name not in names]
    half = len(further) // 2
    if not half:
        console.print(table, soft_wrap=True)
        return
    for part, heading in ((further[:half], title), (further[half:], None)):
        columns = [name for name in frame if name in names or name in part]
        print_table(frame[columns], console, heading)


def write_json(frame: pd.DataFrame) -> None:
    sys.stdout.write(frame.to_json(orient="records", force_ascii=False, indent=1) + "\n")


def _table(frame: pd.DataFrame, title: str | None, fold: int) -> Table:
    """A table whose cells have at most `fold` characters in a line where possible."""
    table = Table(title=title or None, title_justify="left", show_lines=fold < FOLDS[0])
    columns = []
    for name, column in frame.items():
        justify: JustifyMethod = "right" if column.dtype.kind in "if" else "left"
        table.add_column(_folded(str(name), fold), justify=justify, no_wrap=True)
        columns.append([_folded(cell, fold) for cell in _cells(column)])
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    return table


def _folded(text: str, width: int) -> str:
    """A text in lines of at most `width` characters where possible.

    The lines are broken at spaces and after `BREAKS`; rich breaks at spaces alone.
    """
    if len(text) > width:
        breakable = BREAKS.sub(r"\g<0>\t", text)  # a tab marks a place to break at
        lines = wrap(
            breakable,
            width,
            expand_tabs=False,
            replace_whitespace=False,
            break_long_words=False,
            break_on_hyphens=False,
        )
        text = "\n".join(lines).replace("\t", "")
    return text.replace(NO_BREAK, " ")


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
