"""One run of a notebook: its stages wired together, the calls that a notebook makes, and its
record.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from docemb_lib.base.hardware import tune_environment
from docemb_lib.base.private import INJECTED_CELL
from docemb_lib.base.progress import log_to_notebook
from docemb_lib.doctor import warn_of_other_versions
from docemb_lib.evaluation.scoreboard import last_round, mean_over_tasks
from docemb_lib.runs import models as made
from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.models import (
    SBERT_CHUNKS,
    SBERT_TRUNCATED,
    UNTRAINED,
    UNTRAINED_ADAPTED,
    Model,
)
from docemb_lib.runs.pipeline import Stages
from docemb_lib.runs.scores import Final
from docemb_lib.settings.profile import BESIDE_CONTEXTUAL, FINAL, NOTEBOOKS, Profile, check_names
from docemb_lib.workspace import Workspace, revision

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Run:
    """One run of one notebook. A notebook starts it with `begin` and ends it with `finish`."""

    def __init__(self, key: RunKey, workspace: Workspace | None = None) -> None:
        self.key, self.workspace = key, workspace or Workspace()
        self.stages = Stages(key, self.workspace)
        self.notebook, self.profile, self.label, self.parameters = (
            key.notebook,
            key.profile,
            key.label,
            key.parameters,
        )
        self.fingerprint = key.fingerprint  # computed now: files may change while the run lasts
        self.figures: list[str] = []
        self.started = time.perf_counter()

    def history(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The student's training history: a row per update, and a row per validation."""
        return self.stages.students.history()

    @cached_property
    def model(self) -> Model:
        """The student that the run makes or, in 02_paragraph_vector, the Paragraph Vector or
        compound.
        """
        if self.key.trains:
            return self._of_student[0]
        seed = self.profile.parameters.seed
        return made.paragraph_vector_model(
            self.stages.teachers, self.key.paragraph_vectors, seed=seed
        )

    @cached_property
    def references(self) -> list[Model]:
        """The fixed models that the notebook shows beside the run's own."""
        stages, final, trains = self.stages, self.notebook in FINAL, self.key.trains
        sbert = made.sbert_models(stages.teachers, together=final)
        before = [made.untrained_model(stages.students)] if trains else []
        if self.key.has_lexical_half:
            student, label = self.profile.student, UNTRAINED_ADAPTED
            sizes = student.lexical, student.lexical_words
            before.append(made.beside_lsa(self.workspace, before[0], label, *sizes))
        contextual = (
            made.contextual_models(stages.teachers) if self.notebook in BESIDE_CONTEXTUAL else []
        )
        both = next((model for model in contextual if model.label.startswith("PV")), None)
        on_task = made.on_task_models(self.workspace, sbert, both)
        beside = self.profile.evaluation.beside.items() if final else ()
        return [
            *before,
            *sbert[: 2 if final else 1],
            *(made.published_model(name, prompt) for name, prompt in beside),
            *contextual,
            *(on_task if final else [] if trains else on_task[:1]),
        ]

    @cached_property
    def _of_student(self) -> list[Model]:
        """The student; with a lexical half also its dense half, and last the student adapted to
        each task.
        """
        return made.lexical_models(self.label, self.stages.students.trained, self.workspace)

    def models(self, beside: Sequence[Model] = ()) -> list[Model]:
        """The run's own model (in its other forms, too), those `beside` it, and the references."""
        own = self._of_student if self.key.trains else [self.model]
        if self.notebook in FINAL and len(own) == 1:
            own = [*own, made.centred_model(self.workspace, self.model)]
        return [*own, *beside, *self.references]

    @cached_property
    def validation(self) -> Final:
        """The run's model and the references on the sweep's tasks, on validation splits."""
        names = [model.label for model in self.references]
        return self.stages.scores.evaluate(
            self.models(), student=self.model.label, references=names, final=False
        )

    def scores(self) -> pd.DataFrame:
        """The tidy scores of `validation`."""
        return self.validation.scores

    def evaluate(self, beside: Sequence[Model] = ()) -> Final:
        """The final evaluation of the run's model, the models `beside` it and the references, on
        test splits.
        """
        student = self._of_student[-1].label
        references = [model.label for model in self.references]
        return self.stages.scores.evaluate(
            self.models(beside), student=student, references=references
        )

    def metrics(self, scores: pd.DataFrame) -> dict[str, float]:
        """The numbers that the run records, of the last round of its tidy scores.

        `mean` over tasks and `<task>/<metric>`, means over head seeds; of a student also its
        validation loss before and after training and its spread; of a final evaluation also the
        means of the untrained student and of SBERT.
        """
        scores = last_round(scores)
        own = scores[scores["model"] == self.label]
        by_task: Any = own.groupby(["task", "metric"])["value"].mean()
        metrics = {"mean": float(mean_over_tasks(own)["value"].mean())}
        metrics |= {"/".join(names): value for names, value in by_task.items()}
        if self.key.trains:
            loss, spread = (self.history()[1][name] for name in ("loss", "spread"))
            metrics |= {
                "validation_loss_before": loss.iloc[0],
                "validation_loss_after": loss.iloc[-1],
            }
            metrics["spread"] = spread.iloc[-1]
        if self.notebook in FINAL:
            means = mean_over_tasks(scores).groupby("model")["value"].mean()
            others = {
                "before": UNTRAINED,
                "sbert_truncated": SBERT_TRUNCATED,
                "sbert_chunks": SBERT_CHUNKS,
            }
            others |= (
                {"adapted": f"{self.label}{made.ADAPTED}"} if self.key.has_lexical_half else {}
            )
            metrics |= {f"mean_{name}": float(means[model]) for name, model in others.items()}
        return metrics

    def comparable(self, notebook: str | None = None) -> list[records.Record]:
        """The finished runs of `notebook` (None: of this one) in the same setting, newest first,
        without this run.
        """
        key = self.key if notebook is None else RunKey(notebook, self.profile)
        return [
            r for r in records.comparable(key, self.workspace) if r.fingerprint != self.fingerprint
        ]

    def key_of(self, record: records.Record) -> RunKey:
        return RunKey.of(record.notebook, self.profile, **record.parameters)

    def save_figure(
        self, drawn: Axes | Figure, name: str, data: pd.DataFrame | None = None
    ) -> None:
        """Save a figure as PNG and SVG, and the data it shows as CSV, under
        `outputs/figures/<notebook>/<run>/`.

        In a notebook the figure is shown, too.
        """
        from matplotlib import pyplot

        figure: Any = drawn if hasattr(drawn, "savefig") else drawn.figure
        folder = self.workspace.outputs / "figures" / self.notebook / self.key.slug
        folder.mkdir(parents=True, exist_ok=True)
        shown_at, figure.dpi = (
            figure.dpi,
            150,
        )  # that of the files: text is wider there than at the figure's own
        figure.draw_without_rendering()
        figure.set_layout_engine(
            None
        )  # the layout is found; with an engine each further drawing is done twice
        box = figure.get_tightbbox().padded(0.1)  # inches; computed once for both files
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"{name}.{suffix}", dpi=figure.dpi, bbox_inches=box)
        figure.dpi = shown_at
        if (
            "inline" in pyplot.get_backend()
        ):  # show the file: the backend would draw the figure again
            from IPython.display import Image, display

            display(Image(filename=folder / f"{name}.png", width=round(box.width * shown_at)))
            pyplot.close(figure)
        if data is not None:
            data.to_csv(folder / f"{name}.csv", index=False)
        self.figures.append(self.workspace.shown(folder / f"{name}.png"))

    def link_student(self, scores: pd.DataFrame | None = None) -> str:
        """Link `outputs/students/<slug>` to the student, whose card gets its tidy scores.

        Returns the link.
        """
        student = self.stages.students.trained
        if scores is not None:
            from docemb_lib.student.export import add_scores

            own = last_round(scores).query("model == @self.label")
            rows: list[Any] = []
            for (task, metric), values in own.groupby(["task", "metric"], sort=False)["value"]:
                spread = (
                    float(values.std()) if values.nunique() > 1 else None
                )  # retrieval trains no heads
                rows.append((task, metric, float(values.mean()), spread))
            add_scores(student.path, rows)
        return self.workspace.shown(self.workspace.link("students", self.key.slug, student.path))

    def finish(
        self,
        metrics: Mapping[str, float],
        *,
        scores: pd.DataFrame | None = None,
        student: str | None = None,
        tables: Mapping[str, pd.DataFrame] | None = None,
    ) -> pd.DataFrame:
        """Publish the run's record and return its numbers, a row each.

        A run that is executed again keeps the times of its first execution, whose artefacts it
        reuses.

        metrics: flat and named, see `metrics`; scores: tidy; student: its folder, or a link to it
        (see `link_student`), which may lead elsewhere later, relative to the workspace; tables:
        further ones to keep, by name.
        """
        first = records.find(self.workspace, self.notebook, self.fingerprint)
        root, shown = self.workspace.root, self.workspace.shown
        made_by: dict[str, Any] = {
            "student": student and shown((root / student).resolve()),
            "revision": revision(root),
        }
        if first is not None and first.status == "done":
            made_by |= {
                "seconds": first.seconds,
                "finished": first.finished,
                "threads": first.threads,
            }
        else:
            torch = sys.modules.get(
                "torch"
            )  # not imported for this; without torch nothing depends on threads
            threads = None if torch is None else torch.get_num_threads()
            made_by |= {"seconds": round(time.perf_counter() - self.started, 1), "threads": threads}
        found = {
            name: value if isinstance(value, int) else float(value)
            for name, value in metrics.items()
        }
        record = records.Record.of(self.key, metrics=found, figures=self.figures, **made_by)
        frames = {records.SCORES: pd.DataFrame() if scores is None else scores, **(tables or {})}
        rows = {name: json.loads(frame.to_json(orient="records")) for name, frame in frames.items()}
        records.save(self.workspace, record, rows.pop(records.SCORES), rows)
        numbers = {
            name: round(value, 4) for name, value in {**found, "seconds": record.seconds}.items()
        }
        return pd.Series(
            numbers, dtype=object, name=record.label
        ).to_frame()  # so that counts stay integers


def begin(notebook: str, namespace: Mapping[str, Any]) -> Run:
    """Start the run of a notebook; everything that is cheap to check is checked before any long
    work.

    namespace: the notebook's `globals()`, from which the run takes the notebook's parameters by
    name; others have the profile's values. Raises InputError also for parameters that papermill was
    given (`-p`) but the notebook lacks.

    Example:
        >>> run = begin("05_weighting", {"profile": "tiny", "lam": 0.8})
        >>> train_history, validation_history = run.history()
    """
    tune_environment()
    log_to_notebook()
    warn_of_other_versions()
    # The cell in which papermill sets the parameters that it was given; outside papermill there is
    # none.
    injected = next(
        (cell for cell in namespace.get("In", []) if cell.startswith(INJECTED_CELL)), ""
    )
    check_names(notebook, re.findall(r"^([A-Za-z_]\w*) = ", injected, flags=re.MULTILINE))
    given = {name: namespace[name] for name in ("seed", *NOTEBOOKS[notebook]) if name in namespace}
    run = Run(RunKey.of(notebook, Profile.load(namespace.get("profile", "tiny")), **given))
    run.stages.check()
    return run
