"""Which run of the thesis a run of ours is, what the thesis' figure says of it, and what the thesis calls its student.

Ours is the thesis' run where the parameters that count are the same: in the thesis' widths, or in the same place of
its grid scaled to the profile's (see `grids`). Corpus, tasks and models differ, so orders may be compared, not sizes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from docemb_lib.evaluation.published import BASELINE, published
from docemb_lib.experiments.grids import THESIS, grid
from docemb_lib.experiments.labels import structural_label
from docemb_lib.experiments.models import SBERT_TRUNCATED, UNTRAINED
from docemb_lib.experiments.objectives import objective_settings
from docemb_lib.profile import FIXED, NOTEBOOKS, Profile
from docemb_lib.settings import Parameters


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
