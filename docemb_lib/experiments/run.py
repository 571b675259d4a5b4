"""A notebook's handle on its one run: the resolved settings, the stages, the figures it saves, the record it leaves."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from docemb_lib import pretrained
from docemb_lib.corpus.origin import source_fingerprint
from docemb_lib.evaluation.outside_tasks import task_fingerprint
from docemb_lib.evaluation.scoreboard import last_round
from docemb_lib.experiments import records
from docemb_lib.experiments.check import check
from docemb_lib.experiments.labels import label_of, slug_of
from docemb_lib.experiments.objectives import objective_settings
from docemb_lib.experiments.stages import Stages
from docemb_lib.profile import NOTEBOOKS, TRAINING, Profile, check_names
from docemb_lib.settings import UNDECISIVE
from docemb_lib.workspace import Artefact, Workspace, fingerprint_of, installed_versions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RECIPE = 1  # raised whenever notebooks record something else for the same parameters


class Run:
    """One run of one notebook. `Run.begin` checks everything cheap before any long work starts."""

    def __init__(self, notebook: str, profile: Profile, workspace: Workspace, given: Mapping[str, Any]) -> None:
        self.notebook, self.profile, self.workspace = notebook, profile, workspace
        self.given = dict(given)
        self.stages = Stages(profile, workspace)
        self.label = label_of(notebook, profile.parameters, profile.further_teachers)
        self.slug = slug_of(notebook, profile)
        self.fingerprint = fingerprint_of_run(notebook, profile)
        self.setting = setting_of(profile)
        self.parameters = run_parameters(notebook, profile)
        self.figures: list[str] = []
        self.started = time.perf_counter()

    @classmethod
    def begin(cls, notebook: str, *, profile: str | Path = "tiny", **parameters: Any) -> Run:
        """Start a run of `notebook` with its parameters cell's values.

        Raises InputError for values that do not fit, and for parameters that papermill was given (`-p`) but the
        notebook does not have, on which papermill itself only warns.
        """
        check_names(notebook, [*parameters, *_injected_by_papermill()])
        resolved = Profile.load(profile).for_notebook(notebook, **parameters)
        run = cls(notebook, resolved, Workspace(), parameters)
        check(run.stages, notebook)
        return run

    def settings(self) -> pd.DataFrame:
        """The resolved configuration: a row per parameter of this notebook, and where its value comes from."""
        rows = [("profile", self.profile.name, "")]
        for name in ("seed", *NOTEBOOKS[self.notebook]):
            said = self.given.get(name, "profile")
            source = f"params of {self.profile.name}" if said == "profile" else "notebook"
            rows.append((name, str(getattr(self.profile.parameters, name)), source))
        return pd.DataFrame(rows, columns=["parameter", "value", "from"]).set_index("parameter")

    def save_figure(self, drawn: Axes | Figure, name: str, data: pd.DataFrame | None = None) -> None:
        """Save a figure as PNG and SVG, and the data it shows as CSV, under `outputs/figures/<notebook>/<run>/`."""
        figure: Any = drawn if hasattr(drawn, "savefig") else drawn.figure
        folder = self.workspace.outputs / "figures" / self.notebook / self.slug
        folder.mkdir(parents=True, exist_ok=True)
        for suffix in ("png", "svg"):
            temporary = folder / f".{name}.{suffix}"
            figure.savefig(temporary, dpi=150, bbox_inches="tight", format=suffix)
            temporary.replace(folder / f"{name}.{suffix}")
        if data is not None:
            data.to_csv(folder / f"{name}.csv", index=False)
        self.figures.append(self.workspace.shown(folder / f"{name}.png"))

    def link_student(self, student: Artefact, scores: pd.DataFrame | None = None) -> str:
        """Let `outputs/students/<label>` point at the run's student; returns that path as people are told it.

        Its rows of `scores` (tidy, see `score_models`) are written into the student's model card.
        """
        if scores is not None:
            from docemb_lib.student.export import add_scores

            own = last_round(scores).query("model == @self.label")
            rows = []
            for task, metric in own[["task", "metric"]].drop_duplicates().itertuples(index=False):
                values = own[(own["task"] == task) & (own["metric"] == metric)]["value"]
                spread = float(values.std()) if values.nunique() > 1 else None  # retrieval trains no heads
                rows.append((task, metric, float(values.mean()), spread))
            add_scores(student.path, rows)
        return self.workspace.shown(self.workspace.link("students", self.slug, student.path))

    def finish(
        self,
        metrics: Mapping[str, float],
        *,
        scores: pd.DataFrame | None = None,
        student: str | None = None,
        tables: Mapping[str, pd.DataFrame] | None = None,
    ) -> pd.DataFrame:
        """Publish the run's record and return it as a one-row table.

        scores: tidy rows, see `score_models`; tables: what else is kept, by name.
        """
        record = records.Record(
            notebook=self.notebook,
            label=self.label,
            fingerprint=self.fingerprint,
            setting=self.setting,
            profile=self.profile.name,
            parameters=self.parameters,
            metrics={name: float(value) for name, value in metrics.items()},
            seconds=round(time.perf_counter() - self.started, 1),
            figures=self.figures,
            student=student,
            revision=records.revision(self.workspace.root),
        )
        frames = {records.SCORES: pd.DataFrame() if scores is None else scores, **(tables or {})}
        rows = {name: json.loads(frame.to_json(orient="records")) for name, frame in frames.items()}
        records.save(self.workspace, record, rows.pop(records.SCORES), rows)
        shown = {"run": record.label, **record.metrics, "seconds": record.seconds}
        return pd.DataFrame([shown]).set_index("run")


def run_parameters(notebook: str, profile: Profile) -> dict[str, Any]:
    """The parameters that a run of this notebook has, by name."""
    return {name: getattr(profile.parameters, name) for name in ("seed", *NOTEBOOKS[notebook])}


def fingerprint_of_run(notebook: str, profile: Profile) -> str:
    """What a run's record is found by: all that its numbers depend on, known without loading anything.

    Of a student's parameters only those count that its objective reads.
    """
    p, parameters = profile.parameters, run_parameters(notebook, profile)
    if notebook in TRAINING:
        objective = objective_settings(p, profile.further_teachers)
        parameters = {"seed": p.seed, "documents": p.documents, "objective": objective}
    return fingerprint_of({"notebook": notebook, "parameters": parameters, "setting": setting_of(profile)})


def setting_of(profile: Profile) -> str:
    """What stands for everything but a run's parameters: the profile, the texts, the models, the versions."""
    evaluation = profile.evaluation
    further = [teacher.model for teacher in profile.further_teachers if teacher.model]
    models = (profile.student.model, profile.structural_teacher.model, *further)
    decided_elsewhere: Any = {"plan": True, "parameters": True, "corpus": True, "training": UNDECISIVE}
    inputs = {
        "recipe": RECIPE,
        "profile": profile.model_dump(mode="json", exclude=decided_elsewhere),
        "source": source_fingerprint(profile.corpus),
        "tasks": [task_fingerprint(name, evaluation) for name in (*evaluation.tasks, *evaluation.sweep_tasks)],
        "models": [pretrained.fingerprint(pretrained.resolve(name)) for name in models],
        "versions": {name: v for name, v in installed_versions().items() if name not in {"docemb", "python"}},
    }
    return fingerprint_of(inputs)


def _injected_by_papermill() -> list[str]:
    """The names that papermill's injected cell sets; none outside papermill or IPython."""
    try:
        from IPython import get_ipython
    except ImportError:
        return []
    shell = get_ipython()
    cells = [] if shell is None else shell.user_ns.get("In", [])
    injected = [cell for cell in cells if cell.startswith("# Parameters\n")]
    return re.findall(r"^([A-Za-z_]\w*) = ", injected[0], flags=re.MULTILINE) if injected else []
