"""The run of a notebook: the calls that a notebook makes, from its parameters to its record."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from docemb_lib.base.errors import spreadsheet_cell
from docemb_lib.base.hardware import tune_environment
from docemb_lib.base.private import INJECTED_CELL
from docemb_lib.base.progress import log_to_notebook
from docemb_lib.evaluation.scoreboard import last_round, mean_over_tasks
from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.kinds import Kind
from docemb_lib.runs.models import (
    Model,
    StudentForms,
    beside_lsa,
    centred_model,
    contextual_models,
    lexical_models,
    on_task_models,
    paragraph_vector_model,
    published_model,
    sbert_models,
    tfidf_model,
    untrained_model,
)
from docemb_lib.runs.pipeline import Stages
from docemb_lib.runs.scores import Final
from docemb_lib.settings.notebooks import REGISTRY
from docemb_lib.settings.profile import Profile, check_names
from docemb_lib.workspace import Workspace, revision

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Run:
    """One run of one notebook. A notebook starts it with `begin` and ends it with `finish`."""

    def __init__(self, key: RunKey, workspace: Workspace | None = None) -> None:
        self.key = key
        self.workspace = workspace or Workspace()
        self.stages = Stages(key, self.workspace)
        self.notebook = key.notebook
        self.profile = key.profile
        self.label = key.label
        self.parameters = key.parameters
        self.fingerprint = key.fingerprint  # computed now: files may change while the run lasts
        self.figures: list[str] = []
        self.started = time.perf_counter()

    def history(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The student's training history: a row per update, and a row per validation."""
        return self.stages.students.history()

    @property
    def is_final(self) -> bool:
        """Whether the run is scored on test splits."""
        return self.key.registered.final

    @cached_property
    def model(self) -> Model:
        """The student that the run trains or, in 02_paragraph_vector, its Paragraph Vectors."""
        if self.key.trains:
            return self._student.saved
        return paragraph_vector_model(
            self.stages.teachers,
            self.key.paragraph_vectors,
            seed=self.profile.parameters.seed,
        )

    @cached_property
    def untrained(self) -> Model:
        """The student before distillation."""
        return untrained_model(self.stages.students)

    @cached_property
    def references(self) -> list[Model]:
        """The fixed models that the notebook compares its own model with."""
        teachers = self.stages.teachers
        sbert = sbert_models(teachers)
        models = []
        if self.key.trains:
            models.append(self.untrained)
            if self.key.has_lexical_half:
                adapted = beside_lsa(
                    self.workspace,
                    self.untrained,
                    dim=self.profile.student.lexical,
                )
                models.append(adapted)
        models.append(sbert.truncated)
        if self.is_final:
            models.append(sbert.chunks)
            for name, prompt in self.profile.evaluation.beside.items():
                models.append(published_model(name, prompt))
        contextual: dict[Kind, Model] = {}
        if self.key.registered.beside_contextual:
            contextual = contextual_models(teachers)
            models += contextual.values()
        if self.is_final:
            models += on_task_models(self.workspace, sbert, contextual.get(Kind.PV))
        elif not self.key.trains:
            models.append(tfidf_model())
        return models

    @cached_property
    def _student(self) -> StudentForms:
        return lexical_models(self.label, self.stages.students.trained.path, self.workspace)

    def models(self, others: Sequence[Model] = ()) -> list[Model]:
        """The run's own model in all its forms, the `others`, and the references."""
        forms = self._student.models if self.key.trains else [self.model]
        if self.is_final and len(forms) == 1:
            forms.append(centred_model(self.workspace, self.model))
        return [*forms, *others, *self.references]

    @cached_property
    def validation(self) -> Final:
        """The run's model and the references on the sweep's tasks, on validation splits."""
        return self._evaluate(self.models(), self.model, final=False)

    def scores(self) -> pd.DataFrame:
        """The tidy scores of `validation`, with low and high, the bounds of their 95% intervals."""
        final = self.validation
        keys = ["model", "task", "metric"]
        return final.scores.merge(final.intervals[[*keys, "low", "high"]], on=keys, how="left")

    def evaluate(self, others: Sequence[Model] = ()) -> Final:
        """The final evaluation, on test splits.

        It compares the run's model and the `others` with the references. A student with a lexical
        half is compared as it is used, adapted.
        """
        compared = self._student.adapted or self._student.saved
        return self._evaluate(self.models(others), compared, final=True)

    def _evaluate(self, models: list[Model], student: Model, *, final: bool) -> Final:
        return self.stages.scores.evaluate(
            models, student=student, references=self.references, final=final
        )

    def metrics(self, scores: pd.DataFrame) -> dict[str, float]:
        """The numbers that the run records, of the last round of its tidy scores.

        `mean` over tasks and `<task>/<metric>`, means over head seeds; of a student also its
        validation loss and its spread before and after training, and whether it has collapsed.
        """
        scores = last_round(scores)
        student = scores[scores["model"] == self.label]
        metrics = {"mean": float(mean_over_tasks(student)["value"].mean())}
        by_task: Any = student.groupby(["task", "metric"])["value"].mean()
        metrics |= {f"{task}/{metric}": value for (task, metric), value in by_task.items()}
        return metrics | self._trained_metrics

    @cached_property
    def _trained_metrics(self) -> dict[str, float]:
        """The numbers of the student's validation history; none without a student."""
        if not self.key.trains:
            return {}
        _, validations = self.history()
        by_step = validations.set_index("step")
        before = by_step.loc[0]
        after = by_step.loc[by_step.index.max()]
        return {
            "validation_loss_before": before["loss"],
            "validation_loss_after": after["loss"],
            "spread_before": before["spread"],
            "spread": after["spread"],
            "collapsed": int(after["collapsed"]),
        }

    @cached_property
    def collapse_note(self) -> str:
        """What to change where the run's student has collapsed; "" where it has not."""
        return records.collapse_note(self._trained_metrics)

    def comparable(self, notebook: str | None = None) -> list[records.Record]:
        """The other finished runs of `notebook` in the same setting; the newest comes first.

        Records made by other code of one's own are left out.

        notebook: None for that of this run.
        """
        key = self.key if notebook is None else RunKey(notebook, self.profile)
        return [
            record
            for record in records.comparable(key, self.workspace)
            if record.fingerprint != self.fingerprint
            and record.sources == self.key_of(record).sources
        ]

    def key_of(self, record: records.Record) -> RunKey:
        """The key of a recorded run, with the profile of this run."""
        return RunKey.of(record.notebook, self.profile, **record.parameters)

    def save_figure(
        self, drawn: Axes | Figure, name: str, data: pd.DataFrame | None = None
    ) -> None:
        """Save a figure as PNG and SVG, and show it in a notebook.

        data: what the figure shows, saved as CSV. The folder is
        `outputs/figures/<notebook>/<run>/`.
        """
        from matplotlib import pyplot

        figure: Any = drawn if hasattr(drawn, "savefig") else drawn.figure
        folder = self.workspace.outputs / "figures" / self.notebook / self.key.slug
        folder.mkdir(parents=True, exist_ok=True)
        # The resolution of the files; text is wider there than at the figure's own.
        figure_dpi = figure.dpi
        figure.dpi = 150
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            # The layout is computed; with an engine, each further drawing would be done twice.
            figure.set_layout_engine(None)
        box = figure.get_tightbbox().padded(0.1)  # inches; computed once for both files
        for suffix in ("png", "svg"):
            figure.savefig(folder / f"{name}.{suffix}", dpi=figure.dpi, bbox_inches=box)
        figure.dpi = figure_dpi
        if "inline" in pyplot.get_backend():
            # Show the file, because the backend would draw the figure again.
            from IPython.display import Image, display

            display(Image(filename=folder / f"{name}.png", width=round(box.width * figure_dpi)))
            pyplot.close(figure)
        if data is not None:
            data.map(spreadsheet_cell).to_csv(folder / f"{name}.csv", index=False)
        self.figures.append(self.workspace.relative(folder / f"{name}.png"))

    def link_student(self, scores: pd.DataFrame | None = None) -> str:
        """Link `outputs/students/<slug>` to the student and return the link.

        scores: tidy; those of the last round are written into the student's model card.
        """
        student = self.stages.students.trained
        if scores is not None:
            from docemb_lib.student.export import add_scores

            last = last_round(scores)
            of_student = last[last["model"] == self.label]
            rows = []
            by_task: Any = of_student.groupby(["task", "metric"], sort=False)["value"]
            for (task, metric), values in by_task:
                # Retrieval trains no heads, so that its score has no deviation.
                deviation = float(values.std()) if values.nunique() > 1 else None
                rows.append((task, metric, float(values.mean()), deviation))
            add_scores(student.path, rows)
        return self.workspace.relative(self.workspace.link("students", self.key.slug, student.path))

    def finish(
        self,
        metrics: Mapping[str, float],
        *,
        scores: pd.DataFrame | None = None,
        student: str | None = None,
        tables: Mapping[str, pd.DataFrame] | None = None,
    ) -> pd.DataFrame:
        """Publish the run's record and return its numbers and its own code, a row each.

        A run that is executed again keeps the times of its first execution, because it reuses the
        artefacts of that one.

        Args:
            metrics: flat and named, see `metrics`.
            scores: tidy.
            student: the student's folder, relative to the workspace, or a link to it (see
                `link_student`). The record keeps the folder, because the link may lead elsewhere
                later.
            tables: further tables to keep, by name.
        """
        root = self.workspace.root
        numbers = {
            name: value if isinstance(value, int) else float(value)
            for name, value in metrics.items()
        }
        result: dict[str, Any] = {
            "metrics": numbers,
            "figures": self.figures,
            "student": student and self.workspace.relative((root / student).resolve()),
            "revision": revision(root),
        }
        first = records.find_done(self.workspace, self.notebook, self.fingerprint)
        if first is not None:
            result |= {"seconds": first.seconds, "finished": first.finished}
        else:
            result["seconds"] = round(time.perf_counter() - self.started, 1)
        record = records.Record.of(self.key, **result)

        rows = {name: _rows(table) for name, table in (tables or {}).items()}
        records.save(self.workspace, record, [] if scores is None else _rows(scores), rows)
        numbers = {**numbers, "seconds": record.seconds}
        cells: dict[str, object] = {name: round(value, 4) for name, value in numbers.items()}
        for file, digest in record.sources.items():
            cells[file] = f"SHA-256 {digest[:12]}…"
        # As objects, counts stay integers.
        return pd.Series(cells, dtype=object, name=record.label).to_frame()


def _rows(table: pd.DataFrame) -> records.Rows:
    return json.loads(table.to_json(orient="records"))


def begin(notebook: str, namespace: Mapping[str, Any]) -> Run:
    """Start the run of a notebook. What is cheap to check is checked before any long work.

    namespace: the notebook's `globals()`, from which the run takes the parameters of the notebook
    by name. Other parameters have the profile's values. Raises InputError also for parameters that
    papermill was given (`-p`) and the notebook lacks.

    Example:
        >>> run = begin("05_weighting", {"profile": "tiny", "lam": 0.8})
        >>> train_history, validation_history = run.history()
    """
    tune_environment()
    log_to_notebook()
    # papermill sets the parameters that it was given in a cell of its own.
    cells = namespace.get("In", [])
    injected = next((cell for cell in cells if cell.startswith(INJECTED_CELL)), "")
    check_names(notebook, re.findall(r"^([A-Za-z_]\w*) = ", injected, flags=re.MULTILINE))
    profile = Profile.load(namespace.get("profile", "tiny"))
    given = {name: namespace[name] for name in REGISTRY[notebook].values if name in namespace}
    run = Run(RunKey.of(notebook, profile, **given))
    run.stages.check()
    return run
