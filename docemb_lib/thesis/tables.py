"""Tables of the thesis as data frames: hyper-parameters, grids of chapter 4, and Table 5.7."""

from collections.abc import Callable
from functools import partial

import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.runs.grids import THESIS, grid
from docemb_lib.runs.identity import PV_NAMES
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.comparison import MEAN, NORMALISED, table_5_7
from docemb_lib.thesis.values import published

# What Table 4.5 holds fixed for all models, with its reason.
FIXED = {
    "window": (5, "default of the library"),
    "negative": (5, "default of the library; Lau and Baldwin (2016)"),
    "sample": (0, "default, as the thesis says; that of gensim is 1e-3"),
    "dbow_words": (1, "Lau and Baldwin (2016); DBOW alone"),
    "epochs": (10, "default of the library; Dai et al. (2015)"),
}
PRINTED = "normalised mean as printed"
COMPUTED = "normalised mean from the rows"


def table(number: str, profile: Profile = THESIS) -> pd.DataFrame:
    """A table of the thesis by its number, "4.5" to "4.9" or "5.7".

    The grids of Tables 4.5 to 4.9 are in the widths of `profile`. "5.7" is the table of the thesis
    with both normalised means, that of the print and that which follows from its rows. Raises
    InputError for another number.

    Example:
        >>> table("4.9").loc["lam", "values"]
        '0.95, 0.8, 0.5, 0.2, None (no weighting)'
    """
    if number not in TABLES:
        raise InputError(f"table {number}: is none of {', '.join(TABLES)}; give one of these")
    return TABLES[number](profile)


def _paragraph_vectors(profile: Profile) -> pd.DataFrame:
    """Table 4.5: the values of each hyper-parameter, and why it has them."""
    runs = grid("paragraph-vector", profile)
    singles = [run for run in runs if "compound" not in run]
    rows: dict[str, tuple[object, str]] = {}
    for name in singles[0]:
        values = dict.fromkeys(str(run[name]) for run in singles)
        rows[name] = (", ".join(values), "all combinations")
    rows |= FIXED
    compounds = len(runs) - len(singles)
    rows["compound"] = (f"{compounds} of two models", "the best three of DM and of DBOW")
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["values", "why"])
    return frame.rename_axis("parameter")


def _projections(profile: Profile, *, name: str) -> pd.DataFrame:
    """Tables 4.6 to 4.8: the contextual projections tried under each student projection."""
    runs = pd.DataFrame(grid(name, profile))
    widths = {
        teacher: f"{teacher}, {profile.contextual_teachers.width(teacher)}" for teacher in PV_NAMES
    }
    runs["contextual teacher"] = runs["contextual_teacher"].map(widths)
    by_student = runs.groupby(["contextual teacher", "student_projection"], sort=False)
    frame = by_student["contextual_projection"].agg([" or ".join, "size"])
    frame.columns = pd.Index(["contextual projections", "runs"])
    return frame.rename_axis(["contextual teacher", "student projection"])


def _weighting(profile: Profile) -> pd.DataFrame:
    """Table 4.9: the weightings and masks that are tried beside each structural loss."""
    runs = pd.DataFrame(grid("weighting-cosine", profile), dtype=object)
    rows = {}
    for name, none in (("max_structural_len", "no mask"), ("lam", "no weighting")):
        values = [f"None ({none})" if pd.isna(value) else str(value) for value in runs[name]]
        rows[name] = ", ".join(dict.fromkeys(values))
    frame = pd.DataFrame.from_dict(rows, orient="index", columns=["values"])
    frame["runs"] = len(runs)
    return frame.rename_axis("parameter")


def _results(_: Profile) -> pd.DataFrame:
    """Table 5.7: accuracy by round, then MAP, best mean first; both normalised means."""
    printed = published("means").fillna({"round": ""}).set_index(["round", "model"])
    accuracy = table_5_7(published("table_5_7").dropna(subset="round"), "accuracy")
    ranking = table_5_7(published("table_5_7"), "map")
    ranking.index = pd.MultiIndex.from_product([[""], ranking.index], names=["round", "model"])
    frame = pd.concat([accuracy, ranking]).rename(columns={NORMALISED: COMPUTED})
    frame[PRINTED] = printed["normalised"]
    tasks = [name for name in frame if name not in (MEAN, COMPUTED, PRINTED)]
    return frame[[*tasks, MEAN, PRINTED, COMPUTED]]


TABLES: dict[str, Callable[[Profile], pd.DataFrame]] = {
    "4.5": _paragraph_vectors,
    "4.6": partial(_projections, name="projections-contextual"),
    "4.7": partial(_projections, name="projections-cosine"),
    "4.8": partial(_projections, name="projections-max-margin"),
    "4.9": _weighting,
    "5.7": _results,
}
