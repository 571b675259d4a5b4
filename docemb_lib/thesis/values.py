"""The thesis' results as data, to be shown beside our own.

| name              | from                           | value                                        |
|-------------------|--------------------------------|----------------------------------------------|
| table_5_7         | Table 5.7, Figures 5.5 and 5.6 | accuracy, MAP and MRR of the final models    |
| structural_losses | Figures 4.2 and 4.3            | mean normalised accuracy over six tasks      |
| paragraph_vectors | Figure 4.5                     | the same                                     |
| projections       | Figures 4.7, 4.8 and 4.9       | the same                                     |
| weighting         | Figures 4.10, 4.11 and 4.12    | the same                                     |
| corpora           | Tables 4.1 and 5.1             | documents and their lengths, a row per split |
| simde             | Tables 2 to 5 of SimDE's paper | scores; redundancy and similarity of texts   |

The figures' values were read off the graphics (error about 0.0003): the thesis prints no numbers for them. Normalised
accuracy is relative to the models of one figure, so values of different figures must not be compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, NamedTuple

import pandas as pd
import yaml

from docemb_lib.errors import InputError
from docemb_lib.experiments.models import SBERT_TRUNCATED, UNTRAINED
from docemb_lib.experiments.plan import THESIS, grid
from docemb_lib.experiments.runkey import objective_settings, structural_label
from docemb_lib.settings import Parameters
from docemb_lib.settings.profile import FIXED, NOTEBOOKS, Profile

# ---- The thesis' results as data, to be shown beside our own.


BASELINE = "baseline"  # `kind` of a figure's rows that are no run of its grid
# The rows of Figure 4.4 from top to bottom, as the other figures call them.
FIGURE_4_4 = (
    "Longformer", "MSE", "max-margin;MSE;γ=1.0", "max-margin;MSE;γ=1.5", "max-margin;MSE;γ=0.5", "cosine",
    "contrastive", "max-margin;cosine;γ=0.5",
)  # fmt: skip
NAMES = ("table_5_7", "structural_losses", "paragraph_vectors", "projections", "weighting", "corpora", "simde")


def published(name: str) -> pd.DataFrame:
    """One published result, tidy: a row per `value` (corpora: per split), with its `source`, a table or figure.

    Table 5.7 and SimDE have the columns of our scores (model, task, metric, value) and `round`. A figure has the run's
    `label`, its parameters under the names of our notebooks' (missing: switched off), and its box over the tasks.
    """
    if name not in NAMES:
        raise InputError(f"published results: {name!r} is not one of {', '.join(NAMES)}")
    text = files("docemb_lib.thesis").joinpath("published", f"{name}.yaml").read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    return pd.DataFrame(data["rows"], columns=data["columns"])


# ---- which run of the thesis a run of ours is


class Figure(NamedTuple):
    """A figure of the thesis that shows the runs of a grid."""

    source: str  # as in published(data)
    data: str
    notebook: str
    grids: tuple[str, ...]  # none: nothing in it depends on a width
    structural: str | None  # label of the structural loss that all its grid has; None: it has several, or none


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
STUDENTS = ("cosine-masked", "MSE-contextual", "only-MSE")  # Table 5.7's names of the runs of the grid `final`
SWITCHES = ("structural_loss", "contextual_teacher", "lam", "max_structural_len")  # null there means: switched off


class ThesisValues:
    """Mean normalised accuracies of the thesis' figures for a notebook's runs, those of the profile's own loss first.

    Of the final notebook they are those of the four best students of chapter 4 (Figure 4.12).
    A figure's values are relative to the models it shows: across figures they cannot be compared at all.
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
        """The thesis' value of the run with these notebook parameters; None where it made none like it."""
        return self.runs.get(_key(self.notebook, self.profile, parameters))

    def of_baseline(self, label: str) -> float | None:
        """The thesis' value of a baseline by our label: `SBERT truncated`, `DM;100d` whatever its width."""
        for name, value in self.baselines.items():
            if label == MODELS.get(name) or (";" in name and label.startswith(name.split(";")[0] + ";")):
                return value
        return None


def final_name(profile: Profile, parameters: Mapping[str, Any]) -> str | None:
    """What Table 5.7 calls the student of a final run with these notebook parameters; None for one that it lacks."""
    key = _key(FINAL, profile, parameters)
    for name, thesis, ours in zip(STUDENTS, grid("final", THESIS), grid("final", profile), strict=True):
        if key in {_key(FINAL, THESIS, thesis), _key(FINAL, profile, ours)}:
            return name
    return None


def baseline_name(label: str) -> str | None:
    """What Table 5.7 calls a baseline of ours: Longformer, SBERT, DM and PV, whatever their widths."""
    named = {ours: theirs for theirs, ours in MODELS.items()}
    if label in named:
        return named[label]
    kind, semicolon, _ = label.partition(";")
    return kind if semicolon and kind in {"DM", "PV"} else None


def _scaled(figure: Figure, profile: Profile) -> dict[str, str]:
    """Keys of the grids' runs in the thesis' widths → keys of the same runs in the profile's."""
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
