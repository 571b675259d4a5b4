"""Published results of the thesis and of the SimDE paper, and the value that corresponds to a run.

Each row of a file in `published/` names its table or figure, and the file says how the values of
that table or figure were obtained (docs/sources.md). The thesis prints no numbers for its figures;
their values were measured on the vector graphics, with an error of about 0.0003. Normalised
accuracy is relative to the models of one figure: do not compare values of different figures.
"""

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import pandas as pd
import yaml

from docemb_lib.runs.grids import THESIS, grid, load_grid
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.models import contextual_names
from docemb_lib.runs.run import Run
from docemb_lib.settings import notebooks
from docemb_lib.settings.profile import Profile

BASELINE = "baseline"  # `kind` of the rows of a figure that are no run of its grid
# The names of baselines in Table 5.7.
IN_TABLE_5_7 = {
    Kind.UNTRAINED: "Longformer",
    Kind.SBERT_TRUNCATED: "SBERT",
    Kind.DM: "DM",
    Kind.PV: "PV",
}
# The labels of baselines in the figures of the thesis.
IN_FIGURES = {**IN_TABLE_5_7, **contextual_names(THESIS)}
# The columns in which `scores_of_runs` has the published box of a run, and what matplotlib's `bxp`
# calls them.
PUBLISHED_BOX = {
    "thesis_low": "whislo",
    "thesis_q1": "q1",
    "thesis_median": "med",
    "thesis_q3": "q3",
    "thesis_high": "whishi",
}
# Parameters that are switched off where they are published as null; others are not given then.
SWITCHES = {"structural_loss", "contextual_teacher", "lam", "max_structural_len"}


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
    path = files("docemb_lib.thesis") / "published" / f"{name}.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


class Figure(NamedTuple):
    """A figure of chapter 4 and the runs that it shows."""

    source: str  # column `source` of published(data)
    data: str
    notebook: str
    grids: tuple[str, ...] = ()  # empty: no parameter of the figure depends on a width
    loss: dict[str, Any] | None = None  # the structural loss of all runs; None: several, or any


NO_LOSS = {"structural_loss": None}
COSINE = {"structural_loss": "cosine"}
MAX_MARGIN = {"structural_loss": "max-margin", "distance": "mse", "gamma": 1.0}
BEST = ("weighting-cosine", "weighting-max-margin")  # grids of the best students of chapter 4
PROJECTIONS = ("projections", notebooks.PROJECTIONS.name)
WEIGHTING = ("weighting", notebooks.WEIGHTING.name)
FIGURES = (
    Figure(
        "figure 4.5",
        "paragraph_vectors",
        notebooks.PARAGRAPH_VECTOR.name,
        ("paragraph-vector",),
    ),
    Figure("figure 4.3", "structural_losses", notebooks.STRUCTURAL.name),
    Figure("figure 4.2", "structural_losses", notebooks.STRUCTURAL.name),
    Figure("figure 4.7", *PROJECTIONS, ("projections-contextual",), NO_LOSS),
    Figure("figure 4.8", *PROJECTIONS, ("projections-cosine",), COSINE),
    Figure("figure 4.9", *PROJECTIONS, ("projections-max-margin",), MAX_MARGIN),
    Figure("figure 4.10", *WEIGHTING, ("weighting-cosine",), COSINE),
    Figure("figure 4.11", *WEIGHTING, ("weighting-max-margin",), MAX_MARGIN),
    Figure("figure 4.12", "weighting", notebooks.EVALUATION.name, BEST),
)


def thesis_tasks() -> dict[str, list[str]]:
    """The tasks of Table 5.7, by metric."""
    tasks = published("table_5_7").groupby("metric")["task"].unique()
    return {str(metric): sorted(names) for metric, names in tasks.items()}


class ThesisValues:
    """Mean normalised accuracies in the thesis of the runs of a notebook.

    If several figures show a run, the figure with the structural loss of the profile's parameters
    counts, then the first in `FIGURES`. The final notebook has the values of Figure 4.12, the four
    best students of chapter 4.
    """

    def __init__(self, notebook: str, profile: Profile) -> None:
        self.legend = "thesis" if is_of_thesis(profile) else "thesis, with other tasks or models"
        # Rows of the figures by `Run.cell`, and those of baselines by the label in the thesis.
        self.runs: dict[str, pd.Series] = {}
        self.baselines: dict[str, pd.Series] = {}
        figures = [figure for figure in FIGURES if figure.notebook == notebook]
        for figure in sorted(figures, key=lambda figure: not _has_loss(figure, profile)):
            rows = rows_of(figure)
            by_label = dict(rows.iterrows())
            for cell, label in cells_of(figure, profile).items():
                self.runs.setdefault(cell, by_label[label])
            if _has_loss(figure, profile):
                for baseline, row in rows[rows["kind"] == BASELINE].iterrows():
                    self.baselines.setdefault(str(baseline), row)

    def of_run(self, key: Run) -> float | None:
        """The thesis' value of a run; None if the thesis has no such run."""
        row = self._row_of_run(key)
        return None if row is None else row["value"]

    def columns_of_run(self, key: Run) -> dict[str, float]:
        """The thesis' value of a run as `thesis`, and its box, see `PUBLISHED_BOX`."""
        return _columns_of(self._row_of_run(key))

    def columns_of_baseline(self, kind: str, form: str) -> dict[str, float]:
        """The same of a baseline of any width; NaN if the figure lacks it."""
        return _columns_of(self.baselines.get(baseline_label(kind, form) or ""))

    def _row_of_run(self, key: Run) -> pd.Series | None:
        return self.runs.get(key.cell) if key.in_thesis_form else None


def _columns_of(row: pd.Series | None) -> dict[str, float]:
    if row is None:
        return dict.fromkeys(["thesis", *PUBLISHED_BOX], float("nan"))
    box = {name: float(row[name.removeprefix("thesis_")]) for name in PUBLISHED_BOX}
    return {"thesis": float(row["value"]), **box}


def is_of_thesis(profile: Profile) -> bool:
    """Whether the student, the structural teacher and the tasks are those of the thesis."""
    return (
        profile.student.model == THESIS.student.model
        and profile.structural_teacher.model == THESIS.structural_teacher.model
        and sorted(profile.evaluation.sweep_tasks) == thesis_tasks()["accuracy"]
    )


def _has_loss(figure: Figure, profile: Profile) -> bool:
    """Whether the runs of a figure have the structural loss of the profile's parameters."""
    if figure.loss is None:
        return True
    loss = Run.of(notebooks.EVALUATION.name, THESIS, **figure.loss).only(*notebooks.STRUCTURAL_LOSS)
    return loss == Run(figure.notebook, profile).only(*notebooks.STRUCTURAL_LOSS)


def rows_of(figure: Figure) -> pd.DataFrame:
    """The published rows of a figure, by their labels."""
    rows = published(figure.data)
    return rows[rows["source"] == figure.source].set_index("label")


def cells_of(figure: Figure, profile: Profile) -> dict[str, str]:
    """The labels of a figure by `Run.cell`, in the widths of the thesis and of the profile."""
    rows = rows_of(figure)
    labels = {}
    for label, row in rows[rows["kind"] != BASELINE].iterrows():
        parameters = _parameters(row, figure.notebook)
        labels[Run.bare(figure.notebook, THESIS, **parameters).cell] = str(label)
    for name in figure.grids:
        runs = zip(grid(name, THESIS), grid(name, profile), strict=True)
        for in_thesis, here in runs:
            label = labels.get(Run.bare(figure.notebook, THESIS, **in_thesis).cell)
            if label is not None:
                labels.setdefault(Run.bare(figure.notebook, profile, **here).cell, label)
    return labels


def _parameters(row: pd.Series, notebook: str) -> dict[str, Any]:
    """The notebook parameters of a row of a figure."""
    if row["kind"] == "DM+DBOW":
        return {"compound": row.name}
    parameters = {}
    for name in notebooks.REGISTRY[notebook].parameters:
        if name in row and pd.notna(row[name]):
            parameters[name] = row[name]
        elif name in row and name in SWITCHES:
            parameters[name] = None
    return parameters


def baseline_label(kind: str, form: str) -> str | None:
    """The label in the figures of the thesis of a baseline of any width; None if they lack it."""
    return IN_FIGURES.get(Kind(kind)) if form == Form.SAVED else None


def final_name(key: Run) -> str | None:
    """The name in Table 5.7 of the student of a run; None if the table lacks it.

    A run has a name in each notebook that can make its student.
    """
    final = load_grid("final", key.profile)
    for name, parameters in zip(final.names, final.runs, strict=False):
        named = Run.bare(notebooks.EVALUATION.name, key.profile, **parameters)
        if key.in_thesis_form and named.cell == key.cell:
            return name
    return None


def baseline_name(kind: str, form: str) -> str | None:
    """The name in Table 5.7 of a baseline of any width; None if the table lacks it."""
    return IN_TABLE_5_7.get(Kind(kind)) if form == Form.SAVED else None
