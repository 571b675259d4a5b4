"""The first output of a run: its resolved settings, and which artefacts were there already or had to be built."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from docemb_lib import pretrained
from docemb_lib.corpus.sources import source_fingerprint
from docemb_lib.doctor import warn_of_other_versions
from docemb_lib.evaluation.catalogue import task_fingerprint
from docemb_lib.evaluation.scoreboard import last_round
from docemb_lib.experiments import records
from docemb_lib.experiments.check import check
from docemb_lib.experiments.runkey import label_of, objective_settings, pair_settings, slug_of
from docemb_lib.experiments.students import SIMDE, SimDEStages, Stages
from docemb_lib.private import INJECTED_CELL
from docemb_lib.settings import NOT_IN_FINGERPRINT
from docemb_lib.settings.profile import NOTEBOOKS, TRAINING, Profile, check_names
from docemb_lib.workspace import Artefact, Workspace, fingerprint_of, installed_versions

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# ---- the first output of a run


class Overview:
    """A table that is shown once and renewed in place, in JupyterLab as in the notebook that papermill saves.

    settings: columns value and whatever else there is to say of it, a row per parameter.
    """

    def __init__(self, settings: pd.DataFrame, workspace: Workspace) -> None:
        self.settings, self.workspace = settings, workspace
        self._handle: Any = None  # of what is on show

    def artefacts(self) -> dict[str, str]:
        """The kinds of artefacts that were `reused` and `built` so far, as far as there are any."""
        said = {}
        for name, built in (("reused", False), ("built", True)):
            kinds = Counter(found.kind.split("/")[0] for found, by_us in self.workspace.used.items() if by_us is built)
            if kinds:
                said[name] = ", ".join(kind if number == 1 else f"{number} × {kind}" for kind, number in kinds.items())
        return said

    def renew(self) -> None:
        """Bring what is on show up to date."""
        if self._handle is not None:
            self._handle.update(self._rendered(), raw=True)

    def _rendered(self) -> dict[str, str]:
        said = self.artefacts()
        with pd.option_context("display.max_colwidth", None):
            html, text = self.settings.to_html(), self.settings.to_string()
        return {
            "text/html": html + "".join(f"<p><b>{name}</b>: {kinds}</p>" for name, kinds in said.items()),
            "text/plain": "\n".join([text, *(f"{name}: {kinds}" for name, kinds in said.items())]),
        }

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self._handle = display(self._rendered(), raw=True, display_id=True)


# ---- a notebook's handle on its one run


RECIPE = 1  # raised whenever notebooks record something else for the same parameters


class Run:
    """One run of one notebook. `Run.begin` checks everything cheap before any long work starts."""

    def __init__(self, notebook: str, profile: Profile, workspace: Workspace, own: Mapping[str, Any]) -> None:
        """own: the parameters that the profile has by itself, by name, as far as they are to be told."""
        self.notebook, self.profile, self.workspace = notebook, profile, workspace
        self.stages: Stages = (SimDEStages if notebook == SIMDE else Stages)(profile, workspace)
        self.label = label_of(notebook, profile.parameters, profile.further_teachers)
        self.slug = slug_of(notebook, profile)
        self.fingerprint = fingerprint_of_run(notebook, profile)
        self.setting = setting_of(notebook, profile)
        self.parameters = run_parameters(notebook, profile)
        self.overview = Overview(self._settings(own), workspace)
        self.figures: list[str] = []
        self.started = time.perf_counter()

    @classmethod
    def begin(cls, notebook: str, *, profile: str | Path = "tiny", **parameters: Any) -> Run:
        """Start a run of `notebook` with its parameters cell's values.

        Raises InputError for values that do not fit, and for parameters that papermill was given (`-p`) but the
        notebook does not have, on which papermill itself only warns.
        """
        warn_of_other_versions()
        check_names(notebook, [*parameters, *_injected_by_papermill()])
        loaded = Profile.load(profile)
        resolved = loaded.for_notebook(notebook, **parameters)
        run = cls(notebook, resolved, Workspace(), loaded.parameters.model_dump())
        check(run.stages, notebook)
        return run

    def settings(self) -> Overview:
        """The resolved configuration; as a cell's last value it shows what is reused and built as the run goes on."""
        return self.overview

    def _settings(self, own: Mapping[str, Any]) -> pd.DataFrame:
        """A row per parameter of this notebook, and the profile's own value where the run has another."""
        rows = [("profile", self.profile.name, "")]
        for name, value in self.parameters.items():
            rows.append((name, str(value), "" if own.get(name, value) == value else str(own[name])))
        table = pd.DataFrame(rows, columns=["", "value", "instead of the profile's"])
        return table.set_index("").rename_axis(None)

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
        self.overview.renew()

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
        """Publish the run's record and return its numbers, a row each.

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
        self.overview.renew()
        return pd.DataFrame({record.label: {**record.metrics, "seconds": record.seconds}}).round(4)


def run_parameters(notebook: str, profile: Profile) -> dict[str, Any]:
    """The parameters that a run of this notebook has, by name."""
    return {name: getattr(profile.parameters, name) for name in ("seed", *NOTEBOOKS[notebook])}


def fingerprint_of_run(notebook: str, profile: Profile) -> str:
    """What a run's record is found by: all that its numbers depend on, known without loading anything.

    Of a student's parameters only those count that its objective reads.
    """
    p, parameters = profile.parameters, run_parameters(notebook, profile)
    if notebook in TRAINING:
        settings_of = pair_settings if notebook == SIMDE else objective_settings
        objective = settings_of(p, profile.further_teachers)
        parameters = {"seed": p.seed, "documents": p.documents, "objective": objective}
    return fingerprint_of({"notebook": notebook, "parameters": parameters, "setting": setting_of(notebook, profile)})


def setting_of(notebook: str, profile: Profile) -> str:
    """What stands for everything but a run's parameters: the profile, the texts, the models, the versions.

    It is the same in all notebooks but that of SimDE, whose settings count there alone.
    """
    evaluation = profile.evaluation
    further = [teacher.model for teacher in profile.further_teachers if teacher.model]
    models = (profile.student.model, profile.structural_teacher.model, *further)
    said_below: Any = {"corpus": True, "contextual_teachers": {"corpus"}}
    decided_elsewhere: Any = {"plan": True, "parameters": True, "training": NOT_IN_FINGERPRINT, **said_below}
    decided_elsewhere["simde"] = {"training": NOT_IN_FINGERPRINT} if notebook == SIMDE else True
    inputs = {
        "recipe": RECIPE,
        "profile": profile.model_dump(mode="json", exclude=decided_elsewhere),
        "sources": [source_fingerprint(texts) for texts in profile.text_sources],
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
    injected = [cell for cell in cells if cell.startswith(INJECTED_CELL)]
    return re.findall(r"^([A-Za-z_]\w*) = ", injected[0], flags=re.MULTILINE) if injected else []
