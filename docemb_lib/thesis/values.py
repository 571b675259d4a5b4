"""Published results of the thesis and of the SimDE paper, and the published value that corresponds to a run.

Each file of `published/` says in its first lines from which tables and figures it was taken.
The thesis prints no numbers for its figures; their values were read off the graphics, with an error of about 0.0003.
Normalised accuracy is relative to the models of one figure: do not compare values of different figures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import pandas as pd
import yaml

from docemb_lib.errors import InputError
from docemb_lib.experiments.grids import THESIS, grid
from docemb_lib.experiments.models import SBERT_TRUNCATED, UNTRAINED
from docemb_lib.experiments.runkey import objective_settings, structural_label
from docemb_lib.settings import Parameters
from docemb_lib.settings.profile import FIXED, NOTEBOOKS, Profile

BASELINE = "baseline"  # `kind` of the rows of a figure that are no run of its grid
# The rows of Figure 4.4 from top to bottom, by their names in the other figures.
FIGURE_4_4 = (
    "Longformer", "MSE", "max-margin;MSE;γ=1.0", "max-margin;MSE;γ=1.5", "max-margin;MSE;γ=0.5", "cosine",
    "contrastive", "max-margin;cosine;γ=0.5",
)  # fmt: skip
NAMES = ("table_5_7", "structural_losses", "paragraph_vectors", "projections", "weighting", "corpora", "simde")


def published(name: str) -> pd.DataFrame:
    """Return one published result as a tidy frame: a row per `value` (corpora: per split), with its `source`.

    Table 5.7 and SimDE have the columns of recorded scores (model, task, metric, value) and `round`. A figure has the
    run's `label`, the notebook parameters (missing: switched off), and the box over tasks.

    Example:
        >>> table = published("table_5_7")
        >>> table[table["metric"] == "map"].groupby("model")["value"].mean().idxmax()
        'only-MSE'
    """
    if name not in NAMES:
        raise InputError(f"published results: {name!r} is not one of {', '.join(NAMES)}")
    data = read_published(name)
    return pd.DataFrame(data["rows"], columns=data["columns"])


def read_published(name: str) -> dict[str, Any]:
    """Read a file of `docemb_lib/thesis/published`."""
    path = files("docemb_lib.thesis").joinpath("published", f"{name}.yaml")
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return data


class Figure(NamedTuple):
    """A figure of the thesis that shows the runs of a grid."""

    source: str  # column `source` of published(data)
    data: str
    notebook: str
    grids: tuple[str, ...]  # empty: no parameter of the figure depends on a width
    structural: str | None  # label of the structural loss of all runs of the grid; None: several losses, or none


FIGURES = (
    Figure("figure 4.5", "paragraph_vectors", "02_paragraph_vector", ("paragraph-vector",), None),
    Figure("figure 4.3", "structural_losses", "03_structural", (), None),
    Figure("figure 4.7", "projections", "04_projections", ("projections-contextual",), "only-contextual"),
    Figure("figure 4.8", "projections", "04_projections", ("projections-cosine",), "cosine"),
    Figure("figure 4.9", "projections", "04_projections", ("projections-max-margin",), "max-margin;MSE;γ=1.0"),
    Figure("figure 4.10", "weighting", "05_weighting", ("weighting-cosine",), "cosine"),
    Figure("figure 4.11", "weighting", "05_weighting", ("weighting-max-margin",), "max-margin;MSE;γ=1.0"),
    Figure("figure 4.12", "weighting", "06_evaluation", ("weighting-cosine", "weighting-max-margin"), None),
)
MODELS = {"Longformer": UNTRAINED, "SBERT": SBERT_TRUNCATED}
FINAL = "06_evaluation"
STUDENTS = ("cosine-masked", "MSE-contextual", "only-MSE")  # names in Table 5.7 of the runs of the grid `final`
SWITCHES = ("structural_loss", "contextual_teacher", "lam", "max_structural_len")  # published null: switched off


class ThesisValues:
    """Mean normalised accuracies in the thesis of the runs of a notebook.

    If several figures show a run, the figure of the profile's structural loss decides. The final notebook has the
    values of Figure 4.12, the four best students of chapter 4.
    """

    def __init__(self, notebook: str, profile: Profile) -> None:
        own = structural_label(profile.parameters)
        figures = [figure for figure in FIGURES if figure.notebook == notebook]
        figures.sort(key=lambda figure: figure.structural not in {None, own})
        self.notebook, self.profile = notebook, profile
        self.runs: dict[str, float] = {}
        self.baselines: dict[str, float] = {}
        for figure in figures:
            rows = published(figure.data)
            rows = rows[rows["source"] == figure.source]
            places = _scaled(figure, profile)
            for _, row in rows[rows["kind"] != BASELINE].iterrows():
                key = _key(notebook, THESIS, _parameters(row, notebook))
                for place in (key, places.get(key, key)):
                    self.runs.setdefault(place, row["value"])
            if figure.structural in {None, own}:
                shown = rows[rows["kind"] == BASELINE]
                self.baselines |= dict(zip(shown["label"], shown["value"], strict=True))

    def of_run(self, parameters: Mapping[str, Any]) -> float | None:
        """The thesis' value of the run with these notebook parameters; None if the thesis has no such run."""
        return self.runs.get(_key(self.notebook, self.profile, parameters))

    def of_baseline(self, label: str) -> float | None:
        """The thesis' value of a baseline by its label here, e.g. `SBERT truncated`; Paragraph Vectors of any width."""
        for name, value in self.baselines.items():
            if label == MODELS.get(name) or (";" in name and label.startswith(name.split(";")[0] + ";")):
                return value
        return None


def final_name(profile: Profile, parameters: Mapping[str, Any]) -> str | None:
    """The name in Table 5.7 of the final student with these notebook parameters; None if the table has none."""
    key = _key(FINAL, profile, parameters)
    for name, thesis, ours in zip(STUDENTS, grid("final", THESIS), grid("final", profile), strict=True):
        if key in {_key(FINAL, THESIS, thesis), _key(FINAL, profile, ours)}:
            return name
    return None


def baseline_name(label: str) -> str | None:
    """The name in Table 5.7 of a baseline: Longformer, SBERT, or DM and PV of any width; None for other models."""
    for name, own in MODELS.items():
        if label == own:
            return name
    kind, *rest = label.split(";")
    return kind if rest and kind in {"DM", "PV"} else None


def _scaled(figure: Figure, profile: Profile) -> dict[str, str]:
    """{key of a run of the grids in the thesis' widths: key of the same run in the profile's widths}."""
    pairs = [pair for name in figure.grids for pair in zip(grid(name, THESIS), grid(name, profile), strict=True)]
    return {_key(figure.notebook, THESIS, thesis): _key(figure.notebook, profile, ours) for thesis, ours in pairs}


def _key(notebook: str, profile: Profile, parameters: Mapping[str, Any]) -> str:
    """Equal for runs in which all parameters that count are."""
    p = Parameters(**{**parameters, **FIXED.get(notebook, {})})
    if notebook != "02_paragraph_vector":
        return json.dumps(objective_settings(p, profile.further_teachers), sort_keys=True)
    if p.compound is not None:
        return p.compound
    return json.dumps([p.dm, p.vector_size, p.preprocess, p.min_count])


def _parameters(row: pd.Series, notebook: str) -> dict[str, Any]:
    """The notebook parameters of a published row."""
    if row["kind"] == "DM+DBOW":
        return {"compound": row["label"]}
    known = {name: None if pd.isna(row[name]) else row[name] for name in NOTEBOOKS[notebook] if name in row}
    return {name: value for name, value in known.items() if value is not None or name in SWITCHES}
