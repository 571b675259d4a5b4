"""Scores of models on the tasks of a profile, with intervals and paired tests."""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from docemb_lib.base import pretrained
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
from docemb_lib.evaluation.tasks import (
    Classification,
    HeadTask,
    Retrieval,
    Score,
    example_lengths,
    relevant_lengths,
)
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
from docemb_lib.runs.stages import Corpus, sbert_of
from docemb_lib.runs.store import cached, folder_of, is_whole
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import HeadSettings

logger = logging.getLogger(__name__)
NUMBERS = "scores.json"  # {round: {metric, values, extra}}
EXAMPLES = "per_example.npz"  # round/metric: float32 (seeds, N); RELEVANT + round: float32 (R,)
RELEVANT = "relevant/"
SPLITS = "splits.json"
LENGTHS = "lengths.npy"
RELEVANT_LENGTHS = "relevant.npy"
# See outputs/published/archive/proxies.md
NO_CHOICE = (
    "Without labels no measure chooses reliably: halves set the best of seven models first on 2 of "
    "6 labelled tasks; links between your documents would decide it (docemb evaluate)."
)
# Frames of `Final` that a record keeps beside the scores.
KEPT = ("intervals", "comparison", "models", "further")

# {round: {model: {task: score}}}; the round with most training examples comes last.
Rounds = dict[str, Scores]


class TaskLengths(NamedTuple):
    """Tokens of the test split of a task."""

    examples: np.ndarray  # (N,), see `example_lengths`
    relevant: np.ndarray  # (2, R), see `relevant_lengths`


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
    # As `comparison`, by each further metric that has a result for each example; corrected for the
    # tests of one metric
    further: pd.DataFrame = pd.DataFrame()

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

    @property
    def further_board(self) -> pd.DataFrame:
        """Models × further metrics with intervals."""
        return scoreboard.further_board(self.last)

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

    @property
    def beside_references(self) -> pd.DataFrame:
        """The student against each reference in the mean over tasks: rows of `comparison`."""
        return scoreboard.beside_references(self.comparison, self.student)

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

    def choice(self) -> scoreboard.Choice:
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
    """The tasks of a profile, and the scores of models on them.

    Each model is scored once on each task. In all methods, `final` means the tasks of the final
    evaluation on their test splits. Otherwise the tasks of a sweep are scored on their validation
    splits, so that no choice between runs depends on a test split.
    """

    def __init__(self, profile: Profile, corpus: Corpus) -> None:
        self.profile = profile
        self.corpus = corpus
        self.task = cache(lambda name: profile_task(profile, name, lambda: corpus.split("tasks")))
        self._task_inputs = cache(
            lambda name: task_inputs(profile, name, lambda: corpus.fingerprint)
        )

    def with_head(self, head: HeadSettings) -> Self:
        """The same tasks with another head on the frozen embeddings."""
        evaluation = self.profile.evaluation.model_copy(update={"head": head})
        profile = self.profile.model_copy(update={"evaluation": evaluation})
        return type(self)(profile, self.corpus)

    def by_round(self, models: Iterable[Model], *, final: bool) -> Rounds:
        """Scores with the answer to each example, by round.

        A sweep has one round, a final evaluation those of the profile.
        """
        rounds: dict[str, dict[str, dict[str, Score]]] = {}
        for model in models:
            for task, scores in self._of_model(model, final=final).items():
                for name, score in scores.items():
                    rounds.setdefault(name, {}).setdefault(model.label, {})[task] = score
        return {**rounds}

    def validation_texts(self) -> list[str]:
        """The texts that scoring on the tasks of a sweep needs embedded, each once."""
        texts: dict[str, None] = {}
        for name in self._names(final=False):
            texts |= dict.fromkeys(self._documents(name, final=False).values())
        return list(texts)

    def is_scored(self, model: Model, *, final: bool = True) -> bool:
        """Whether the model has scores on all tasks that it can be scored on, at least one."""
        return bool(self._names_of(model, final=final)) and not self._unscored(model, final=final)

    def largest_round(self, final: bool) -> str:
        """The name of the round with most training examples."""
        return protocols.round_name(self.profile.evaluation.largest_round if final else None)

    def few_shot(self, models: Sequence[Model]) -> pd.DataFrame:
        """Scores of heads trained on `evaluation.few_shot` examples of each class.

        Columns task, model, kind, form, and those of `few_shot_scores`, on classification tasks. A
        number beyond the smallest class of a task is left out.
        """
        frames = []
        for name in self.profile.evaluation.tasks:
            task = self.task(name)
            if not isinstance(task, Classification):
                continue
            smallest = min(Counter(task.splits["train"].labels).values())
            numbers = sorted(n for n in self.profile.evaluation.few_shot if n <= smallest)
            if not numbers:
                continue
            for model in models:
                embeddings = model.embed(task.texts("test"))
                scores = protocols.few_shot_scores(task, embeddings, per_class=numbers)
                frames.append(scores.assign(task=name, **_described(model)))
        if not frames:
            columns = ["model", "kind", "form", "task", "metric", "per_class", "value"]
            return pd.DataFrame(columns=columns)
        return pd.concat(frames, ignore_index=True)

    def evaluate(
        self,
        models: list[Model],
        *,
        student: Model,
        references: Sequence[Model],
        final: bool = True,
        metric: str = Retrieval.metric,
    ) -> Final:
        """Score the models on the tasks of the profile, with intervals and paired tests.

        student: the model that is compared with each of the `references`. The other models are
        compared with the common practice, SBERT over chunks. metric: that of METRICS which decides
        on retrieval.
        """
        rounds: Rounds = {}
        for name, scores in self.by_round(models, final=final).items():
            rounds[name] = decided_by(scores, metric)
        last = rounds[self.largest_round(final)]
        rows = []
        for model in models:
            row = {
                **_described(model),
                "name": model.identity.name,
                "fingerprint": model.fingerprint,
                "fitted on": model.identity.fitted_on,
            }
            rows.append(row)
        comparison = _comparison(last, student, references)
        further = [pd.DataFrame()]
        for other in METRICS:
            if other != metric:
                on_retrieval = decided_by(last, other, alone=True)
                further.append(_comparison(on_retrieval, student, references))
        return Final(
            scores=_with_kinds(_stacked(rounds, scoreboard.score_frame), models),
            intervals=_with_kinds(_stacked(rounds, score_intervals), models),
            comparison=_with_kinds(comparison, models),
            models=pd.DataFrame(rows),
            student=student.label,
            further=_with_kinds(pd.concat(further, ignore_index=True), models),
        )

    def by_length(self, models: Sequence[Model]) -> pd.DataFrame:
        """Every model's score on each task in buckets of length, with intervals; of the last round.

        Columns model, kind, form, task, metric, bucket, examples, value, low, high. A length is
        that of the example (of a pair the longer document, of retrieval the query), in tokens of
        the structural teacher. Retrieval has further rows whose task is called `by_found(task)`:
        there a length is that of the relevant document, and an example is a query with relevant
        documents of this length, whose value is the mean precision at the ranks of these.
        """
        lengths = {task: self.lengths(task) for task in self._names(final=True)}
        last = self.by_round(models, final=True)[self.largest_round(final=True)]
        frames = []
        for model in models:
            for task, score in last.get(model.label, {}).items():
                of_examples, (query, of_relevant) = lengths[task]
                parts = {task: (score.per_example[score.metric], of_examples, None)}
                if score.per_relevant is not None:
                    parts[by_found(task)] = (score.per_relevant[None], of_relevant, query)
                for name, (results, tokens, group) in parts.items():
                    frame = uncertainty.by_length(results, tokens, group)
                    frames.append(frame.assign(**_described(model), task=name, metric=score.metric))
        return pd.concat(frames, ignore_index=True)

    def lengths(self, name: str) -> TaskLengths:
        """Tokens of the test examples of a task, in the structural teacher's, counted once."""
        settings = self.profile.structural_teacher
        inputs = {"tokens": pretrained.fingerprint(settings.model), **self._task_inputs(name)}

        def build(folder: Path) -> None:
            task = self.task(name)
            tokens = sbert_of(settings, settings.long).count_tokens(task.texts("test"))
            np.save(folder / LENGTHS, example_lengths(task, tokens))
            np.save(folder / RELEVANT_LENGTHS, relevant_lengths(task, tokens))

        folder = cached("task-lengths", inputs, build)
        return TaskLengths(np.load(folder / LENGTHS), np.load(folder / RELEVANT_LENGTHS))

    def check(self, splits: Sequence[str] = ("test", "validation")) -> None:
        """Check that all tasks can be read and have the splits that are scored.

        Raises InputError.
        """
        asked = [(name, split) for split in splits for name in self._names(split == "test")]
        names = {name for name, _ in asked}
        needs = []  # the files of all tasks are looked for before any is read
        for benchmark, place in self.profile.evaluation.benchmarks.items():
            absent = missing_files(benchmark, place) if benchmark in names else []
            if absent:
                needs.append(f"{benchmark} needs {', '.join(absent)} in {place}")
        if needs:
            mend = "put the published files there (docs/data.md says where they come from)"
            raise InputError(
                f"evaluation.benchmarks: {'; '.join(needs)}; {mend}, or leave these tasks out"
            )
        for name, split in asked:
            if is_in_files(name, self.profile.evaluation):
                self._check_split(name, split)

    def _check_split(self, name: str, split: str) -> None:
        """Raise InputError for a task in files that cannot be scored on a split.

        The files are read once until they change.
        """
        evaluation = self.profile.evaluation
        inputs = {
            "task": name,
            "outline": task_fingerprint(name, evaluation),
            "limit": evaluation.limit,
            "folds": evaluation.folds,
        }

        def build(folder: Path) -> None:
            write_text(folder / SPLITS, json.dumps(splits_to_score(name, evaluation)))

        folder = cached("task", inputs, build)
        if split not in json.loads((folder / SPLITS).read_text(encoding="utf-8")):
            problem = f"it has no split {split}"
            if split != "test":
                problem += f", and cannot be cross-validated (evaluation.folds {evaluation.folds})"
            raise InputError(f"task {name}: {problem}; add this split, or leave the task out")

    def _names(self, final: bool) -> Sequence[str]:
        return self.profile.evaluation.tasks if final else self.profile.evaluation.sweep_tasks

    def _names_of(self, model: Model, *, final: bool) -> list[str]:
        """The tasks that the model can be scored on."""
        names = list(self._names(final))
        if model.identity.ranks_only:
            names = [name for name in names if not isinstance(self.task(name), HeadTask)]
        return names

    def _of_model(self, model: Model, *, final: bool) -> dict[str, dict[str, Score]]:
        """The model's scores, {task: {round: score}}.

        A model that cannot be fitted on the texts of a task is left out of the task.
        """
        self._embed_unscored(model, final=final)
        scores = {}
        for name in self._names_of(model, final=final):
            inputs = self._inputs(model, name, final=final)
            build = partial(self._write, model, name, final=final)
            try:
                folder = cached("scores", inputs, build)
            except InputError as error:
                if not isinstance(model.embedder, Fitted):
                    raise
                logger.warning("%s is left out of %s: %s", model.label, name, error)
                continue
            scores[name] = read_scores(folder)
        return scores

    def _embed_unscored(self, model: Model, *, final: bool) -> None:
        """Embed the documents of all tasks without a score together.

        Nothing is done for a model that is fitted on each task.
        """
        if isinstance(model.embedder, Fitted):
            return
        texts: list[str] = []
        for name in self._unscored(model, final=final):
            texts += self._documents(name, final=final).values()
        if texts:
            model.embed(texts)

    def _write(self, model: Model, name: str, folder: Path, *, final: bool) -> None:
        """Score the model on a task."""
        texts = list(self._documents(name, final=final).values())
        task = self.task(name)
        fitted = None
        if not isinstance(task, HeadTask):
            fitted = len(set(task.splits["test" if final else "validation"].pool))
        write_scores(folder, self._score(name, model.on_texts(texts, fitted), final=final))

    def _unscored(self, model: Model, *, final: bool) -> list[str]:
        return [
            name
            for name in self._names_of(model, final=final)
            if not is_whole(folder_of("scores", self._inputs(model, name, final=final)))
        ]

    def _inputs(self, model: Model, name: str, *, final: bool) -> Inputs:
        protocol = {"rounds"} if final else {"limit", "folds"}
        settings = self.profile.evaluation.model_dump(
            include={"head", "seeds", "map_at", *protocol}
        )
        return {"model": model.fingerprint, **self._task_inputs(name), **settings}

    def _documents(self, name: str, *, final: bool) -> dict[str, str]:
        """The texts that scoring needs embedded, by the ids of their documents."""
        task = self.task(name)
        if final:
            return task.documents("test")
        if isinstance(task, HeadTask):
            cut = protocols.for_validation(task, self.profile.evaluation.limit)
            return protocols.validation_documents(cut)
        return task.documents("validation")

    def _score(self, name: str, embeddings: Any, *, final: bool) -> dict[str, Score]:
        """The score of a task in every round.

        embeddings: (N, D), row i belongs to document i of `_documents`, or `Similarities` for
        retrieval.
        """
        task = self.task(name)
        evaluation = self.profile.evaluation
        limits = evaluation.rounds if final else [None]
        rounds = {protocols.round_name(limit): limit for limit in limits}
        if not isinstance(task, HeadTask):
            split = "test" if final else "validation"
            return dict.fromkeys(rounds, task.score(embeddings, split, top=evaluation.map_at))
        seeds = evaluation.seeds
        if final:
            return protocols.final_scores(
                task, embeddings, rounds=rounds, head=evaluation.head, seeds=seeds
            )
        cut = protocols.for_validation(task, evaluation.limit)
        score = protocols.validation_score(
            cut, embeddings, head=evaluation.head, seeds=seeds, folds=evaluation.folds
        )
        return dict.fromkeys(rounds, score)


def by_found(task: str) -> str:
    """What `ScoreStage.by_length` calls a task by the length of the documents to find."""
    return f"{task}, length of the document to find"


def write_scores(folder: Path, by_round: Mapping[str, Score]) -> None:
    """Write a task's score of every round."""
    numbers = {}
    examples: dict[str, Any] = {}
    for name, score in by_round.items():
        numbers[name] = {
            "metric": score.metric,
            "values": score.values,
            "extra": dict(score.extra),
        }
        for metric, answers in score.per_example.items():
            examples[f"{name}/{metric}"] = answers
        if score.per_relevant is not None:
            examples[RELEVANT + name] = score.per_relevant
    write_text(folder / NUMBERS, json.dumps(numbers))
    np.savez_compressed(folder / EXAMPLES, **examples)


def read_scores(folder: Path) -> dict[str, Score]:
    """{round: score}, as `write_scores` wrote them."""
    scores = {}
    numbers = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
    with np.load(folder / EXAMPLES) as stored:
        for name, score in numbers.items():
            start = f"{name}/"
            answers = {
                key.removeprefix(start): stored[key]
                for key in stored.files
                if key.startswith(start)
            }
            scores[name] = Score(
                score["metric"],
                tuple(score["values"]),
                score["extra"],
                answers,
                stored.get(RELEVANT + name),
            )
    return scores


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
