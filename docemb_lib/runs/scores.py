"""Scores of models on the tasks of a profile, with intervals and paired tests."""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.base.files import Inputs, write_text
from docemb_lib.evaluation import protocols, scoreboard, uncertainty
from docemb_lib.evaluation.benchmarks import missing_files
from docemb_lib.evaluation.catalogue import (
    is_in_files,
    profile_task,
    splits_to_score,
    task_fingerprint,
    task_inputs,
)
from docemb_lib.evaluation.retrieval import METRICS
from docemb_lib.evaluation.tasks import HeadTask, Retrieval, Score, ScoredPairs
from docemb_lib.evaluation.uncertainty import (
    Scores,
    decided_by,
    differences,
    score_intervals,
    verdicts,
)
from docemb_lib.runs.kinds import Form, Identity, Kind
from docemb_lib.runs.models import SIMPLEST_FIRST, Fitted, Model, models_of_table
from docemb_lib.runs.records import Record
from docemb_lib.runs.stages import Corpus
from docemb_lib.runs.store import cached, folder_of, is_whole
from docemb_lib.settings.profile import Profile

logger = logging.getLogger(__name__)
NUMBERS = "scores.json"  # {round: extra}
SPLITS = "splits.json"
EXAMPLES = "per_example.npz"  # round/metric: (seeds, N), see `Score`
# See outputs/published/archive/proxies.md
NO_CHOICE = (
    "Without labels no measure chooses reliably: halves set the best of seven models first on 2 of "
    "6 labelled tasks; links between your documents would decide it (docemb evaluate)."
)
# Frames of `Final` that a record keeps beside the scores.
KEPT = ("intervals", "comparison", "models")

# {round: {model: {task: score}}}; the round with most training examples comes last.
Rounds = dict[str, Scores]


class Final(NamedTuple):
    """The final evaluation of several models, as tidy frames.

    The column `model` has labels. `kind` and `form` (see `Kind` and `Form`) say what it is.
    """

    # model, kind, form, task, metric, seed, value, and round where there are several
    scores: pd.DataFrame
    intervals: pd.DataFrame  # see `score_intervals`, with kind and form, and round
    comparison: pd.DataFrame  # see `verdicts`, with kind and form; of the last round
    # A row per model: model, kind, form, name, fingerprint, "fitted on" (see `Model`). Kind, form
    # and name make the label; the fingerprint identifies the artefacts of the scores.
    models: pd.DataFrame
    student: str  # the label of the model that is compared with each reference

    @classmethod
    def of_record(cls, record: Record, student: str) -> Self:
        """The evaluation that a run has recorded.

        Its frames are empty where the record lacks them.
        """
        tables = {name: record.table(name) for name in KEPT}
        return cls(record.table(), **tables, student=student)

    def called(self, new: Mapping[str, str]) -> Self:
        """The same evaluation with new names for models, by their labels as saved, in all forms."""
        names = []
        labels = {}
        for model in models_of_table(self.models):
            identity = model.identity
            saved = identity._replace(form=Form.SAVED)
            name = new.get(saved.label, identity.name)
            names.append(name)
            labels[identity.label] = identity._replace(name=name).label
        columns = {"model": labels, "reference": labels}
        frames = {"scores": self.scores, **self.tables}
        frames["models"] = self.models.assign(name=names)
        replaced = {table: frame.replace(columns) for table, frame in frames.items()}
        return self._replace(**replaced, student=labels.get(self.student, self.student))

    def label(self, kind: Kind, form: Form = Form.SAVED) -> str | None:
        """The label of the first model of this kind and form; None without one."""
        for model in models_of_table(self.models):
            if (model.kind, model.form) == (kind, form):
                return model.label
        return None

    def model(self, label: str) -> Model:
        """The model of this label, with its scores alone."""
        (model,) = models_of_table(self.models[self.models["model"] == label])
        return model

    @property
    def adapted(self) -> str | None:
        """The label of the student that is fitted on the texts of a task; None without one."""
        return self.label(Kind.STUDENT, Form.ADAPTED)

    @property
    def practice(self) -> str | None:
        """The label of the common practice, SBERT over chunks, or else SBERT on truncated texts."""
        return self.label(Kind.SBERT_CHUNKS) or self.label(Kind.SBERT_TRUNCATED)

    @property
    def last(self) -> pd.DataFrame:
        """The intervals of the round with most training examples."""
        return scoreboard.last_round(self.intervals)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """What a record keeps beside the scores."""
        return {name: getattr(self, name) for name in KEPT}

    @property
    def board(self) -> pd.DataFrame:
        """Models × tasks with intervals, best mean first, and what each model was fitted on."""
        board = scoreboard.interval_board(self.intervals)
        fitted_on = self.models.set_index("model")["fitted on"]
        labels = board.index.get_level_values("model")
        return board.assign(**{"fitted on": fitted_on.reindex(labels).to_numpy()})

    def deciding(self, contextual_teacher: str | None) -> list[str]:
        """The labels of the models that a choice is between, in the order of `models`.

        These are students, the student before training, its teachers, SBERT over chunks, LSA, and
        of all models the one with the best mean over tasks.
        """
        kinds = {Kind.SBERT_TRUNCATED, Kind.SBERT_CHUNKS, Kind.TASK_LSA, contextual_teacher}
        form = self.model(self.student).form
        means = scoreboard.over_tasks(self.last).set_index("model")["value"]
        chosen = {self.before, means.idxmax()}
        for model in models_of_table(self.models):
            wanted = form if model.kind == Kind.STUDENT else Form.SAVED
            if model.form == wanted and model.kind in {*kinds, Kind.STUDENT}:
                chosen.add(model.label)
        return [label for label in self.models["model"] if label in chosen]

    def standing(self, *, practice: bool = True) -> str:
        """A sentence that compares the student's mean over tasks with those of other models.

        These are the best reference, with `practice` the common practice (SBERT), and the student
        before training. A student that is adapted to a task is compared with an untrained one that
        is adapted, too. The student's own refitted form is no other model.
        """
        refitted = self.label(Kind.STUDENT, Form.REFITTED)
        sbert = self.practice or Identity(Kind.SBERT_TRUNCATED).label
        return scoreboard.standing(
            self.last,
            self.comparison[self.comparison["reference"] != refitted],
            student=self.student,
            before=self.before,
            practice=sbert if practice else None,
        )

    @property
    def before(self) -> str | None:
        """The student before training, in the form that the student has; None: there is none."""
        before = self.label(Kind.UNTRAINED)
        if self.model(self.student).form == Form.ADAPTED:
            return self.label(Kind.UNTRAINED, Form.ADAPTED) or before
        return before

    def by_task(self) -> str:
        """A sentence on the tasks on which the student is shown to be better or worse.

        It is compared with the student before training, whose mean `standing` has, or else with the
        structural teacher, also in the mean. There is no sentence for a single task, of which
        `standing` says all.
        """
        reference = self.before or self.label(Kind.SBERT_TRUNCATED)
        tests = self.comparison.query("model == @self.student and reference == @reference")
        if uncertainty.OVERALL not in set(tests["task"]):
            return ""
        if self.before is not None:
            tests = tests[tests["task"] != uncertainty.OVERALL]
        return f"Beside {reference} it is {scoreboard.told(tests)}."

    @property
    def without_labels(self) -> str:
        """A sentence on choosing by `halves` alone; "" where there are other tasks."""
        return NO_CHOICE if set(self.last["task"]) == {"halves"} else ""

    def choice(self) -> tuple[str, str]:
        """The simplest model that is not shown to be worse, see `scoreboard.choose_simplest`."""
        labels = [self.label(identity.kind, identity.form) for identity in SIMPLEST_FIRST]
        order = [label for label in labels if label is not None]
        return scoreboard.choose_simplest(
            self.last,
            self.comparison,
            student=self.student,
            simplest_first=[*order, self.student],
        )


class Scorer:
    """Tasks of a profile, and the scores of models on them; each model is scored once on a task.

    final: the tasks of the final evaluation on their test splits. Otherwise those of a sweep on
    their validation splits, so that no choice between runs depends on a test split.
    """

    def __init__(self, profile: Profile, corpus: Corpus, *, final: bool) -> None:
        self.profile = profile
        self.corpus = corpus
        self.final = final
        self.settings = profile.evaluation
        self.split = "test" if final else "validation"
        self.names = self.settings.tasks if final else self.settings.sweep_tasks
        self.task = cache(lambda name: profile_task(profile, name, lambda: corpus.split("tasks")))
        self._task_inputs = cache(
            lambda name: task_inputs(profile, name, lambda: corpus.fingerprint)
        )

    @property
    def largest_round(self) -> str:
        """The name of the round with most training examples."""
        return protocols.round_name(self.settings.largest_round if self.final else None)

    def by_round(self, models: Iterable[Model]) -> Rounds:
        """Scores with the answer to each example, by round.

        A sweep has one round, a final evaluation those of the profile.
        """
        rounds: dict[str, dict[str, dict[str, Score]]] = {}
        for model in models:
            for task, scores in self._of_model(model).items():
                for name, score in scores.items():
                    rounds.setdefault(name, {}).setdefault(model.label, {})[task] = score
        return {**rounds}

    def recorded(self, models: Iterable[Model], round_: str | None = None) -> Scores:
        """The scores of those models that are scored already.

        round_: None for the largest one.
        """
        scored = [model for model in models if self.is_scored(model)]
        return self.by_round(scored).get(round_ or self.largest_round, {})

    def is_scored(self, model: Model) -> bool:
        """Whether the model has scores on all tasks that it can be scored on, at least one."""
        return bool(self._names_of(model)) and not self._unscored(model)

    def texts(self) -> list[str]:
        """The texts that scoring needs embedded, each once."""
        texts: dict[str, None] = {}
        for name in self.names:
            texts |= dict.fromkeys(self._documents(name).values())
        return list(texts)

    def evaluate(
        self,
        models: list[Model],
        *,
        student: Model,
        references: Sequence[Model],
        metric: str = METRICS[0],
    ) -> Final:
        """Score the models on the tasks, with intervals and paired tests.

        student: the model that is compared with each of the `references`. The other models are
        compared with the common practice, SBERT over chunks. metric: that of METRICS which decides
        on retrieval.
        """
        rounds: Rounds = {}
        for name, scores in self.by_round(models).items():
            rounds[name] = decided_by(scores, metric)
        comparison = _comparison(rounds[self.largest_round], student, references)
        rows = []
        for model in models:
            row = {
                **_described(model),
                "name": model.identity.name,
                "fingerprint": model.fingerprint,
                "fitted on": model.identity.fitted_on,
            }
            rows.append(row)
        return Final(
            scores=_with_kinds(_stacked(rounds, scoreboard.score_frame), models),
            intervals=_with_kinds(_stacked(rounds, score_intervals), models),
            comparison=_with_kinds(comparison, models),
            models=pd.DataFrame(rows),
            student=student.label,
        )

    def check(self) -> None:
        """Check that all tasks can be read and have the split that is scored.

        Raises InputError.
        """
        needs = []  # the files of all tasks are looked for before any is read
        for benchmark, place in self.settings.benchmarks.items():
            absent = missing_files(benchmark, place) if benchmark in self.names else []
            if absent:
                needs.append(f"{benchmark} needs {', '.join(absent)} in {place}")
        if needs:
            mend = "put the published files there (docs/data.md says where they come from)"
            raise InputError(
                f"evaluation.benchmarks: {'; '.join(needs)}; {mend}, or leave these tasks out"
            )
        for name in self.names:
            if is_in_files(name, self.settings):
                self._check_split(name)

    def _check_split(self, name: str) -> None:
        """Raise InputError for a task in files that cannot be scored.

        The files are read once until they change.
        """
        settings = self.settings
        inputs = {
            "task": name,
            "outline": task_fingerprint(name, settings),
            "limit": settings.limit,
            "folds": settings.folds,
        }

        def build(folder: Path) -> None:
            write_text(folder / SPLITS, json.dumps(splits_to_score(name, settings)))

        folder = cached("task", inputs, build)
        if self.split not in json.loads((folder / SPLITS).read_text(encoding="utf-8")):
            problem = f"it has no split {self.split}"
            if not self.final:
                problem += f", and cannot be cross-validated (evaluation.folds {settings.folds})"
            raise InputError(f"task {name}: {problem}; add this split, or leave the task out")

    def _names_of(self, model: Model) -> list[str]:
        """The tasks that the model can be scored on."""
        if not model.identity.ranks_only:
            return [*self.names]
        return [name for name in self.names if not isinstance(self.task(name), HeadTask)]

    def _of_model(self, model: Model) -> dict[str, dict[str, Score]]:
        """The model's scores, {task: {round: score}}.

        A model that cannot be fitted on the texts of a task is left out of the task.
        """
        if not isinstance(model.embedder, Fitted):  # it embeds the texts of all tasks together
            texts: list[str] = []
            for name in self._unscored(model):
                texts += self._documents(name).values()
            if texts:
                model.embed(texts)
        scores = {}
        for name in self._names_of(model):
            try:
                folder = cached(
                    "scores", self._inputs(model, name), partial(self._write, model, name)
                )
            except InputError as error:
                if not isinstance(model.embedder, Fitted):
                    raise
                logger.warning("%s is left out of %s: %s", model.label, name, error)
                continue
            scores[name] = read_scores(folder)
        return scores

    def _unscored(self, model: Model) -> list[str]:
        return [
            name
            for name in self._names_of(model)
            if not is_whole(folder_of("scores", self._inputs(model, name)))
        ]

    def _inputs(self, model: Model, name: str) -> Inputs:
        protocol = {"rounds"} if self.final else {"limit", "folds"}
        settings = self.settings.model_dump(include={"head", "seeds", "map_at", *protocol})
        return {"model": model.fingerprint, **self._task_inputs(name), **settings}

    def _asked(self, name: str) -> tuple[HeadTask | Retrieval | ScoredPairs, str]:
        """The task and the split that is scored."""
        task = self.task(name)
        if self.final or not isinstance(task, HeadTask):
            return task, self.split
        cut = protocols.for_validation(task, self.settings.limit)
        return cut, cut.validation_split

    def _documents(self, name: str) -> dict[str, str]:
        """The texts that scoring needs embedded, by the ids of their documents."""
        task, split = self._asked(name)
        return task.documents(split)

    def _write(self, model: Model, name: str, folder: Path) -> None:
        """Score the model on a task."""
        task, split = self._asked(name)
        fitted = None
        if isinstance(task, Retrieval):
            fitted = len(set(task.splits[split].pool))
        embeddings = model.on_texts(task.texts(split), fitted)
        write_scores(folder, self._score(task, split, embeddings))

    def _score(
        self, task: HeadTask | Retrieval | ScoredPairs, split: str, embeddings: Any
    ) -> dict[str, Score]:
        """The score of a task in every round.

        embeddings: (N, D), row i belongs to document i of `task.documents(split)`, or
        `Similarities` for tasks without heads.
        """
        settings = self.settings
        limits = settings.rounds if self.final else [None]
        rounds = {protocols.round_name(limit): limit for limit in limits}
        if not isinstance(task, HeadTask):
            return dict.fromkeys(rounds, task.score(embeddings, split, top=settings.map_at))
        scores = {}
        for name, limit in rounds.items():
            scores[name] = task.score(
                embeddings,
                split,
                head=settings.head,
                seeds=settings.seeds,
                examples=limit,
                folds=settings.folds,
            )
        return scores


def write_scores(folder: Path, by_round: Mapping[str, Score]) -> None:
    """Write a task's score of every round."""
    numbers = {name: dict(score.extra) for name, score in by_round.items()}
    answers: dict[str, Any] = {}
    for name, score in by_round.items():
        for metric, results in score.per_example.items():
            answers[f"{name}/{metric}"] = results
    write_text(folder / NUMBERS, json.dumps(numbers))
    np.savez_compressed(folder / EXAMPLES, **answers)


def read_scores(folder: Path) -> dict[str, Score]:
    """{round: score}, as `write_scores` wrote them."""
    numbers = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
    answers: dict[str, dict[str, np.ndarray]] = {name: {} for name in numbers}
    with np.load(folder / EXAMPLES) as stored:
        for key, results in stored.items():
            name, _, metric = key.partition("/")
            answers[name][metric] = results
    return {name: Score(answers[name], extra) for name, extra in numbers.items()}


def _stacked(rounds: Rounds, rows_of: Callable[[Scores], pd.DataFrame]) -> pd.DataFrame:
    """The rows of all rounds; a column `round` tells them apart where there are several."""
    frames = [rows_of(scores).assign(round=name) for name, scores in rounds.items()]
    rows = pd.concat(frames, ignore_index=True)
    return rows if len(rounds) > 1 else rows.drop(columns="round")


def _described(model: Model) -> dict[str, str]:
    """What each row of a tidy frame says of its model."""
    return {"model": model.label, "kind": model.kind.value, "form": model.form.value}


def _with_kinds(rows: pd.DataFrame, models: Sequence[Model]) -> pd.DataFrame:
    """The rows with the kind and the form of the model in their column `model`."""
    if rows.empty:
        return rows
    kinds = rows["model"].map({model.label: model.kind.value for model in models})
    forms = rows["model"].map({model.label: model.form.value for model in models})
    place = list(rows).index("model")
    rows = rows.copy()
    rows.insert(place + 1, "kind", kinds)
    rows.insert(place + 2, "form", forms)
    return rows


def _comparison(scores: Scores, student: Model, references: Sequence[Model]) -> pd.DataFrame:
    """The student against each reference, then the other models against SBERT over chunks.

    p-values are corrected over the tests of the student, and over those of the others, see
    `verdicts`. The frame is empty without references.
    """
    others = {model: by_task for model, by_task in scores.items() if model != student.label}
    compared = [model for model in references if model.label in others]
    if not compared or student.label not in scores:
        return pd.DataFrame()
    of_student = []
    for reference in compared:
        both = {model.label: scores[model.label] for model in (student, reference)}
        of_student.append(differences(both, reference.label))
    families = [pd.concat(of_student, ignore_index=True)]
    for reference in compared:
        if (reference.kind, reference.form) == (Kind.SBERT_CHUNKS, Form.SAVED) and len(others) > 1:
            families.append(differences(others, reference.label))
    return pd.concat([verdicts(family) for family in families], ignore_index=True)
