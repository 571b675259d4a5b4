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

from importlib.resources import files
from typing import Any, NamedTuple

import pandas as pd
import yaml

from docemb_lib.errors import InputError
from docemb_lib.experiments.grids import THESIS, grid
from docemb_lib.experiments.models import SBERT_TRUNCATED, UNTRAINED, contextual_labels
from docemb_lib.experiments.runkey import STRUCTURAL, RunKey
from docemb_lib.settings import Parameters
from docemb_lib.settings.profile import NOTEBOOKS, Profile

# ---- The thesis' results as data, to be shown beside our own.


BASELINE = "baseline"  # `kind` of a figure's rows that are no run of its grid
MAX_MARGIN = {"structural_loss": "max-margin", "distance": "mse", "gamma": 1.0}
# The structural losses of Figure 4.4 from top to bottom, below the untrained student.
FIGURE_4_4: tuple[dict[str, Any], ...] = (
    {"structural_loss": "mse"},
    MAX_MARGIN,
    {**MAX_MARGIN, "gamma": 1.5},
    {**MAX_MARGIN, "gamma": 0.5},
    {"structural_loss": "cosine"},
    {"structural_loss": "contrastive"},
    {**MAX_MARGIN, "distance": "cosine", "gamma": 0.5},
)
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
    structural: dict[str, Any] | None  # the structural loss of all runs of its grids; None: they have several, or none


FIGURES = (
    Figure("figure 4.5", "paragraph_vectors", "02_paragraph_vector", ("paragraph-vector",), None),
    Figure("figure 4.3", "structural_losses", "03_structural", (), None),
    Figure("figure 4.7", "projections", "04_projections", ("projections-contextual",), {"structural_loss": None}),
    Figure("figure 4.8", "projections", "04_projections", ("projections-cosine",), {"structural_loss": "cosine"}),
    Figure("figure 4.9", "projections", "04_projections", ("projections-max-margin",), MAX_MARGIN),
    Figure("figure 4.10", "weighting", "05_weighting", ("weighting-cosine",), {"structural_loss": "cosine"}),
    Figure("figure 4.11", "weighting", "05_weighting", ("weighting-max-margin",), MAX_MARGIN),
    Figure("figure 4.12", "weighting", "06_evaluation", ("weighting-cosine", "weighting-max-margin"), None),
)
MODELS_HERE = {UNTRAINED: "Longformer", SBERT_TRUNCATED: "SBERT"}
FINAL = "06_evaluation"
STUDENTS = ("cosine-masked", "MSE-contextual", "only-MSE")  # Table 5.7's names of the runs of the grid `final`
SWITCHES = ("structural_loss", "contextual_teacher", "lam", "max_structural_len")  # null there means: switched off


class ThesisValues:
    """Mean normalised accuracies of the thesis' figures for a notebook's runs, those of the profile's own loss first.

    Of the final notebook they are those of the four best students of chapter 4 (Figure 4.12).
    A figure's values are relative to the models it shows: across figures they cannot be compared at all.
    """

    def __init__(self, notebook: str, profile: Profile) -> None:
        figures = [figure for figure in FIGURES if figure.notebook == notebook]
        figures.sort(key=lambda figure: not _has_loss(figure, notebook, profile))
        self.notebook, self.profile = notebook, profile
        self.models = {**MODELS_HERE, **contextual_labels(profile)}
        self.runs: dict[str, float] = {}
        self.baselines: dict[str, float] = {}
        for figure in figures:
            rows = published(figure.data)
            rows = rows[rows["source"] == figure.source]
            places = _scaled(figure, profile)
            for _, row in rows[rows["kind"] != BASELINE].iterrows():
                key = _cell_of(notebook, THESIS, _parameters(row, notebook))
                for place in (key, places.get(key, key)):
                    self.runs.setdefault(place, row["value"])
            if _has_loss(figure, notebook, profile):
                shown = rows[rows["kind"] == BASELINE]
                names = shown["label"].replace(contextual_labels(THESIS))
                self.baselines |= dict(zip(names, shown["value"], strict=True))

    def of_run(self, key: RunKey) -> float | None:
        """The thesis' value of a run; None if the thesis has no such run."""
        return self.runs.get(_cell(key))

    def of_baseline(self, label: str) -> float | None:
        """The thesis' value of a baseline of this profile, whatever its width here."""
        return self.baselines.get(self.models.get(label, ""))


def final_name(key: RunKey) -> str | None:
    """The name in Table 5.7 of the student of a final run; None if the table lacks it."""
    for name, thesis, own in zip(STUDENTS, grid("final", THESIS), grid("final", key.profile), strict=True):
        if _cell(key) in {_cell_of(FINAL, THESIS, thesis), _cell_of(FINAL, key.profile, own)}:
            return name
    return None


def baseline_name(label: str, profile: Profile) -> str | None:
    """The name in Table 5.7 of a baseline of this profile, whatever its width here: Longformer, SBERT, DM or PV."""
    name = {**MODELS_HERE, **contextual_labels(profile)}.get(label)
    return name if name in {*MODELS_HERE.values(), "DM", "PV"} else None


def _scaled(figure: Figure, profile: Profile) -> dict[str, str]:
    """Cells of the grids' runs at the thesis' widths → cells of the same runs at the profile's."""
    pairs = [pair for name in figure.grids for pair in zip(grid(name, THESIS), grid(name, profile), strict=True)]
    notebook = figure.notebook
    return {_cell_of(notebook, THESIS, thesis): _cell_of(notebook, profile, own) for thesis, own in pairs}


def _cell(key: RunKey) -> str:
    """Equal for runs that one number of the thesis stands for: it has one seed and one corpus."""
    return key.same_but("seed", "documents")


def _cell_of(notebook: str, profile: Profile, parameters: dict[str, Any]) -> str:
    """The cell of a run of the profile with these parameters, and the defaults for all others."""
    return _cell(RunKey.of(notebook, profile.model_copy(update={"parameters": Parameters()}), **parameters))


def _has_loss(figure: Figure, notebook: str, profile: Profile) -> bool:
    """Whether the runs of a figure have the structural loss of the profile's parameters."""
    if figure.structural is None:
        return True
    return loss_of(**figure.structural) == RunKey(notebook, profile).only(*STRUCTURAL)


def loss_of(**parameters: Any) -> str:
    """A structural loss, comparable with `RunKey.only(*STRUCTURAL)`."""
    return RunKey.of(FINAL, THESIS, **parameters).only(*STRUCTURAL)


def _parameters(row: pd.Series, notebook: str) -> dict[str, Any]:
    """The notebook parameters of a published row."""
    if row["kind"] == "DM+DBOW":
        return {"compound": row["label"]}
    known = {name: None if pd.isna(row[name]) else row[name] for name in NOTEBOOKS[notebook] if name in row}
    return {name: value for name, value in known.items() if value is not None or name in SWITCHES}
