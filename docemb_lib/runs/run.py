"""The run of a notebook: its stages from corpus to scores, and the calls that a notebook makes."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from docemb_lib.base import pretrained
from docemb_lib.base.hardware import tune_environment
from docemb_lib.base.private import INJECTED_CELL
from docemb_lib.base.progress import log_to_notebook
from docemb_lib.corpus.sources import source_fingerprint
from docemb_lib.evaluation.scoreboard import last_round, mean_over_tasks
from docemb_lib.runs import records
from docemb_lib.runs.checks import check_student, check_training
from docemb_lib.runs.execution import (
    BY_HAND,
    RunFolder,
    compare_pair,
    publish_by_hand,
    record_of,
)
from docemb_lib.runs.kinds import Kind
from docemb_lib.runs.models import (
    Model,
    StudentForms,
    beside_lsa,
    centred_model,
    contextual_models,
    on_task_models,
    published_model,
    sbert_models,
    student_forms,
    student_model,
    teacher_model,
    tfidf_model,
)
from docemb_lib.runs.scores import Final, Scorer
from docemb_lib.runs.stages import Corpus, Teachers
from docemb_lib.runs.store import PARTIAL, installed_versions, link, relative, revision
from docemb_lib.settings.files import find_root
from docemb_lib.settings.notebooks import REGISTRY
from docemb_lib.settings.profile import Profile, check_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from docemb_lib.runs.students import Students


class Run(RunFolder):
    """One run of one notebook. A notebook starts it with `begin` and ends it with `finish`.

    The stages are built when they are first accessed, from what is there already. Replace an
    attribute of a stage to replace what the stage makes.

    Example:
        >>> from docemb_lib import Profile, Run
        >>> run = Run.of("05_weighting", Profile.load("tiny"), lam=0.8)
        >>> other = Run.of("05_weighting", Profile.load("tiny"), lam=0.2)
        >>> run.key == other.key, run.same_but("lam") == other.same_but("lam")
        (False, True)
        >>> run.student.name == other.student.name  # trains both
        False
    """

    def __init__(self, notebook: str, profile: Profile) -> None:
        super().__init__(notebook, profile)
        self.shown: list[str] = []  # the keys of the runs that are recorded when it begins
        self.started = time.process_time()

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process without what was computed in this one."""
        return type(self), (self.notebook, self.profile.fresh()), {"beside": self.beside}

    @cached_property
    def corpus(self) -> Corpus:
        return Corpus(self.profile)

    @cached_property
    def teachers(self) -> Teachers:
        return Teachers(self.profile, self.corpus)

    @cached_property
    def students(self) -> Students:
        """The student before and after its training."""
        from docemb_lib.runs.students import Students  # imports torch

        return Students(self, self.corpus, self.teachers)

    @property
    def student(self) -> Path:
        """The folder of the trained student."""
        return self.students.trained

    @cached_property
    def scorer(self) -> Scorer:
        """The tasks, and scores of models on them."""
        return Scorer(self.profile, self.corpus, final=self.is_final)

    def check(self) -> None:
        """Check everything about the run that is cheap to check, before any long work.

        Raises InputError.
        """
        for check in self.checks():
            check()

    def checks(self) -> Iterator[Callable[[], object]]:
        """The checks of settings, data, models and hub that `check` calls in turn.

        Each of them raises InputError.
        """
        yield self.check_parameters
        if self.own_loss is not None:
            yield partial(_check_loss, self.own_loss)
        for source in self.profile.text_sources:
            yield partial(source_fingerprint, source)
        if self.trains:
            yield partial(check_student, self, self.corpus)
        yield self.scorer.check
        for model in self.models_to_load:
            yield partial(pretrained.require, model, stay_online=True)

    def check_parameters(self) -> None:
        """Check that the parameters and settings fit each other. Raises InputError."""
        if self.trains:
            check_training(self)

    @property
    def checked_as(self) -> tuple[object, ...]:
        """What `checks` depend on: those of two runs with equal values have the same results.

        `check_parameters` is not covered. It depends on all parameters, and a plan is resolved by
        it.
        """
        return (self.notebook, self.sections, self.profile.parameters.documents, self.own_loss)

    @property
    def models_to_load(self) -> list[str]:
        """The pretrained models that the run loads, by name.

        A corpus to be built needs the tokenizers of student and structural teacher. A final
        evaluation compares with the models of `evaluation.beside`.
        """
        profile = self.profile
        names = [] if self.corpus.is_built else profile.models
        if self.is_final:
            names += profile.evaluation.beside
        return names

    def history(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The student's training history: a row per update, and a row per validation."""
        return self.students.history()

    @cached_property
    def model(self) -> Model:
        """The student that the run trains or, in 02_paragraph_vector, its Paragraph Vectors."""
        if self.trains:
            return self._forms.saved
        seed = self.profile.parameters.seed
        teacher = self.teachers.paragraph_vectors(self.paragraph_vectors, seed=seed)
        return teacher_model(teacher, name=teacher.label)

    @cached_property
    def untrained(self) -> Model:
        """The student before distillation."""
        return student_model("", self.students.untrained, kind=Kind.UNTRAINED)

    @cached_property
    def references(self) -> list[Model]:
        """The fixed models that the notebook compares its own model with."""
        sbert = sbert_models(self.teachers)
        models = []
        if self.trains:
            models.append(self.untrained)
            if self.has_words:
                models.append(beside_lsa(self.untrained, self.profile.student.words))
        models.append(sbert.truncated)
        if self.is_final:
            models.append(sbert.chunks)
            for name, prompt in self.profile.evaluation.beside.items():
                models.append(published_model(name, prompt))
        contextual: dict[Kind, Model] = {}
        if self.registered.beside_contextual:
            contextual = contextual_models(self.teachers)
            models += contextual.values()
        if self.is_final:
            models += on_task_models(sbert, contextual.get(Kind.PV))
        elif not self.trains:
            models.append(tfidf_model())
        return models

    @cached_property
    def _forms(self) -> StudentForms:
        return student_forms(self.label, self.student)

    def models(self, others: Sequence[Model] = ()) -> list[Model]:
        """The run's own model in all its forms, the `others`, and the references."""
        forms = self._forms.models if self.trains else [self.model]
        if self.is_final and len(forms) == 1:
            forms.append(centred_model(self.model))
        return [*forms, *others, *self.references]

    @cached_property
    def evaluation(self) -> Final:
        """The run's model and the references on the run's tasks, see `evaluate`."""
        return self.evaluate()

    def scores(self) -> pd.DataFrame:
        """The tidy scores of `evaluation`, with low and high, the bounds of their 95% intervals."""
        final = self.evaluation
        keys = ["model", "task", "metric"]
        return final.scores.merge(final.intervals[[*keys, "low", "high"]], on=keys, how="left")

    def evaluate(self, others: Sequence[Model] = ()) -> Final:
        """Compare the run's model and the `others` with the references.

        A final evaluation scores test splits, any other validation splits. It compares a student
        with a half of words as it is used, adapted.
        """
        compared = self.model
        if self.is_final:
            compared = self._forms.adapted or compared
        models = self.models(others)
        return self.scorer.evaluate(models, student=compared, references=self.references)

    def metrics(self, scores: pd.DataFrame) -> dict[str, float]:
        """The numbers that the run records, of the last round of its tidy scores.

        `mean` over tasks and `<task>/<metric>`, means over head seeds; of a student also its
        validation loss and its spread before and after training, and whether it has collapsed.
        """
        scores = last_round(scores)
        student = scores[scores["model"] == self.label]
        metrics = {"mean": float(mean_over_tasks(student).mean())}
        by_task: Any = student.groupby(["task", "metric"])["value"].mean()
        metrics |= {f"{task}/{metric}": value for (task, metric), value in by_task.items()}
        return metrics | self._trained_metrics

    @cached_property
    def _trained_metrics(self) -> dict[str, float]:
        """The numbers of the student's validation history; none without a student."""
        if not self.trains:
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
        run = self if notebook is None else type(self)(notebook, self.profile)
        return [
            record
            for record in records.comparable(run)
            if record.folder not in (self.folder, self.filled)
            and record.sources == self.of_record(record).sources
        ]

    def of_record(self, record: records.Record) -> Self:
        """A recorded run, with the profile of this run."""
        return self.of(record.notebook, self.profile, **record.parameters)

    def identify(self) -> tuple[Path, str]:
        """The folder that the run fills, and its key, both as they are at the first call."""
        return self.filled, self.key

    @cached_property
    def filled(self) -> Path:
        """The folder that tables and figures are written into, before it is published."""
        if records.filled_here() == self.partial:
            return self.partial
        return self.folder.with_name(self.folder.name + BY_HAND + PARTIAL)

    def save_figure(
        self, drawn: Axes | Figure, name: str, data: pd.DataFrame | None = None
    ) -> None:
        """Save a figure as PNG and SVG in the folder of the run, and show it in a notebook.

        data: what the figure shows, saved as CSV.
        """
        from matplotlib import pyplot

        figure: Any = drawn if hasattr(drawn, "savefig") else drawn.figure
        folder = self.filled
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
            data.to_csv(folder / f"{name}.csv", index=False)

    def link_student(self, scores: pd.DataFrame | None = None) -> str:
        """Link `outputs/students/<slug>` to the student and return the link.

        scores: tidy; those of the last round are written into the student's model card.
        """
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
            add_scores(self.student, rows)
        return relative(link("students", self.slug, self.student))

    def record_scores(self, final: Final | None = None) -> str:
        """Finish the run with its scores, and return where the student and all else are.

        final: the final evaluation, which the model card of the student quotes; None: the
        validation scores.
        """
        scores = self.scores() if final is None else final.scores
        student = self.link_student(final and final.scores) if self.trains else None
        tables = (final or self.evaluation).tables
        self.finish(self.metrics(scores), scores=scores, student=student, tables=tables)
        of_run = f"tables and figures: outputs/runs/{self.notebook}"
        return of_run if student is None else f"student: {student}; {of_run}"

    def finish(
        self,
        metrics: Mapping[str, float],
        *,
        scores: pd.DataFrame | None = None,
        student: str | None = None,
        tables: Mapping[str, pd.DataFrame] | None = None,
    ) -> pd.DataFrame:
        """Write the run's record and return its numbers and its own code, a row each.

        The folder of a run that a person executes is published here, any other by `execute`.

        Args:
            metrics: flat and named, see `metrics`.
            scores: tidy.
            student: the student's folder, relative to the working folder, or a link to it (see
                `link_student`). The record keeps the folder, because the link may lead elsewhere
                later.
            tables: further tables to keep, by name.
        """
        root = find_root()
        numbers = {
            name: value if isinstance(value, int) else float(value)
            for name, value in metrics.items()
        }
        record = record_of(
            self,
            metrics=numbers,
            seconds=round(time.process_time() - self.started, 1),
            shown=self.shown,
            student=student and relative((root / student).resolve()),
            versions=installed_versions(),
            revision=revision(root),
        )
        record.write(self.filled, {**(tables or {}), records.SCORES: _filled(scores)})
        if self.filled != self.partial:
            publish_by_hand(self, self.filled)
        numbers = {**numbers, "seconds": record.seconds}
        cells: dict[str, object] = {name: round(value, 4) for name, value in numbers.items()}
        for file, digest in record.sources.items():
            cells[file] = f"SHA-256 {digest[:12]}…"
        # As objects, counts stay integers.
        return pd.Series(cells, dtype=object, name=record.label).to_frame()


def _filled(table: pd.DataFrame | None) -> pd.DataFrame:
    return pd.DataFrame() if table is None else table


def _check_loss(name: str) -> None:
    """Check that a loss of one's own is one. Raises InputError."""
    from docemb_lib.losses import structural  # imports torch

    structural.structural_loss(name)


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
    run = Run.of(notebook, profile, **given)
    run.check()
    filled, _ = run.identify()  # now: files may change while the run lasts
    compare_pair(run.source)
    run.shown = [record.key for record in records.comparable(run)]
    if filled != run.partial:
        shutil.rmtree(filled, ignore_errors=True)
    return run
