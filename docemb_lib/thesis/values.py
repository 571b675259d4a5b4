"""Published results of the thesis and of the SimDE paper, and the published value that corresponds
to a run.

Each row of a file in `published/` names its table or figure, and the file says how the values of
that table or figure were obtained (docs/sources.md). The thesis prints no numbers for its figures;
their values were measured on the vector graphics, with an error of about 0.0003. Normalised
accuracy is relative to the models of one figure: do not compare values of different figures.
"""

from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any, NamedTuple

import pandas as pd
import yaml

from docemb_lib.runs.key import STRUCTURAL, RunKey
from docemb_lib.runs.models import SBERT_TRUNCATED, UNTRAINED, contextual_labels
from docemb_lib.settings.profile import NOTEBOOKS, Profile
from docemb_lib.sweeps.plan import THESIS, grid, names_in_grids

BASELINE = "baseline"  # `kind` of the rows of a figure that are no run of its grid
MAX_MARGIN = {"structural_loss": "max-margin", "distance": "mse", "gamma": 1.0}


def published(name: str) -> pd.DataFrame:
    """One published result as a tidy frame: a row per `value` (corpora: per split).

    `source` is the table or figure of the row. `read_from` says how its values were obtained:
    "table" where they are printed, "vector graphics" where they were measured; docs/sources.md has
    the rest. Table 5.7 and SimDE have the columns of recorded scores (model, task, metric, value)
    and `round`. A figure has the run's `label`, the notebook parameters (missing: switched off),
    and the box over tasks.
    """
    data = read_file(name)
    rows = pd.DataFrame(data["rows"], columns=data["columns"])
    return rows.assign(read_from=rows["source"].map(data["read_from"]))


@cache  # each reading takes some hundredths of a second, and claims ask for all figures
def read_file(name: str) -> Any:
    return yaml.safe_load(
        files("docemb_lib.thesis").joinpath("published", f"{name}.yaml").read_text(encoding="utf-8")
    )


class Figure(NamedTuple):
    source: str  # column `source` of published(data)
    data: str
    notebook: str
    grids: tuple[str, ...]  # empty: no parameter of the figure depends on a width
    structural: (
        dict[str, Any] | None
    )  # structural loss of all runs of the grids; None: several losses, or none


FIGURES = (
    Figure("figure 4.5", "paragraph_vectors", "02_paragraph_vector", ("paragraph-vector",), None),
    Figure("figure 4.3", "structural_losses", "03_structural", (), None),
    Figure("figure 4.2", "structural_losses", "03_structural", (), None),
    Figure(
        "figure 4.7",
        "projections",
        "04_projections",
        ("projections-contextual",),
        {"structural_loss": None},
    ),
    Figure(
        "figure 4.8",
        "projections",
        "04_projections",
        ("projections-cosine",),
        {"structural_loss": "cosine"},
    ),
    Figure("figure 4.9", "projections", "04_projections", ("projections-max-margin",), MAX_MARGIN),
    Figure(
        "figure 4.10",
        "weighting",
        "05_weighting",
        ("weighting-cosine",),
        {"structural_loss": "cosine"},
    ),
    Figure("figure 4.11", "weighting", "05_weighting", ("weighting-max-margin",), MAX_MARGIN),
    Figure(
        "figure 4.12",
        "weighting",
        "06_evaluation",
        ("weighting-cosine", "weighting-max-margin"),
        None,
    ),
)
MODELS_HERE = {UNTRAINED: "Longformer", SBERT_TRUNCATED: "SBERT"}
FINAL = "06_evaluation"
SWITCHES = (
    "structural_loss",
    "contextual_teacher",
    "lam",
    "max_structural_len",
)  # published null: switched off


def thesis_tasks() -> dict[str, list[str]]:
    """The tasks of Table 5.7, by metric."""
    return {
        str(metric): sorted(rows["task"].unique())
        for metric, rows in published("table_5_7").groupby("metric")
    }


class ThesisValues:
    """Mean normalised accuracies in the thesis of the runs of a notebook.

    If several figures show a run, the figure with the structural loss of the profile's parameters
    counts, then the first in `FIGURES`. The final notebook has the values of Figure 4.12, the four
    best students of chapter 4. source: only the values of this figure.
    """

    def __init__(self, notebook: str, profile: Profile, source: str | None = None) -> None:
        figures = [
            figure
            for figure in FIGURES
            if figure.notebook == notebook and source in (None, figure.source)
        ]
        models = [(one.student.model, one.structural_teacher.model) for one in (profile, THESIS)]
        same = (
            models[0] == models[1]
            and sorted(profile.evaluation.sweep_tasks) == thesis_tasks()["accuracy"]
        )
        self.source = source
        self.legend = "thesis" if same else "thesis, with other tasks or models"
        self.models = baselines_of(profile)
        self.runs: dict[str, float] = {}
        self.baselines: dict[str, float] = {}
        for figure in sorted(figures, key=lambda figure: not _has_loss(figure, profile)):
            rows = rows_of(figure)
            for cell, label in cells_of(figure, profile).items():
                self.runs.setdefault(cell, rows["value"][label])
            if source or _has_loss(figure, profile):
                for baseline, value in rows.loc[rows["kind"] == BASELINE, "value"].items():
                    self.baselines.setdefault(str(baseline), value)

    def of_run(self, key: RunKey) -> float | None:
        """The thesis' value of a run; None if the thesis has no such run."""
        return self.runs.get(key.cell)

    def of_baseline(self, label: str) -> float | None:
        """The thesis' value of a baseline of the profile, of any width; None if the figure lacks
        it.
        """
        return self.baselines.get(self.models.get(label, ""))


def rows_of(figure: Figure) -> pd.DataFrame:
    """The published rows of a figure, by their labels."""
    rows = published(figure.data)
    return rows[rows["source"] == figure.source].set_index("label")


def cells_of(figure: Figure, profile: Profile) -> dict[str, str]:
    """{cell of a run (`RunKey.cell`): label of its row in a figure}, in the widths of the thesis
    and of the profile.
    """
    rows, notebook = rows_of(figure), figure.notebook
    runs = rows[rows["kind"] != BASELINE].iterrows()
    found = {
        RunKey.bare(notebook, THESIS, **_parameters(row, notebook)).cell: str(label)
        for label, row in runs
    }
    grids = (zip(grid(name, THESIS), grid(name, profile), strict=True) for name in figure.grids)
    for thesis, own in chain.from_iterable(grids):
        cell = RunKey.bare(notebook, THESIS, **thesis).cell
        if cell in found:
            found.setdefault(RunKey.bare(notebook, profile, **own).cell, found[cell])
    return found


def baselines_of(profile: Profile) -> dict[str, str]:
    """{label of a baseline of the profile: its label in the figures of the thesis}."""
    own, thesis = contextual_labels(profile), contextual_labels(THESIS)
    return MODELS_HERE | dict(zip(own, thesis, strict=True))


def final_name(key: RunKey) -> str | None:
    """The name in Table 5.7 of the student of a final run; None if the table lacks it."""
    return next(iter(names_in_grids(key, "final")), None)


def baseline_name(label: str, profile: Profile) -> str | None:
    """The name in Table 5.7 of a baseline of the profile, of any width: Longformer, SBERT, DM or
    PV.
    """
    name = (MODELS_HERE | contextual_labels(profile)).get(label)
    return name if name in {*MODELS_HERE.values(), "DM", "PV"} else None


def _has_loss(figure: Figure, profile: Profile) -> bool:
    """Whether the runs of a figure have the structural loss of the profile's parameters."""
    own = RunKey(figure.notebook, profile).only(*STRUCTURAL)
    return (
        figure.structural is None
        or RunKey.of(FINAL, THESIS, **figure.structural).only(*STRUCTURAL) == own
    )


def _parameters(row: pd.Series, notebook: str) -> dict[str, Any]:
    if row["kind"] == "DM+DBOW":
        return {"compound": row.name}
    known = {
        name: None if pd.isna(row[name]) else row[name]
        for name in NOTEBOOKS[notebook]
        if name in row
    }
    return {name: value for name, value in known.items() if value is not None or name in SWITCHES}
