"""The score stage: scores of models on the profile's tasks, and the final evaluation with its
uncertainty.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.evaluation import protocols, scoreboard, uncertainty
from docemb_lib.evaluation.benchmarks import missing_files
from docemb_lib.evaluation.catalogue import check_task, profile_task, task_inputs
from docemb_lib.evaluation.tasks import Classification, HeadTask, Score, example_lengths
from docemb_lib.evaluation.uncertainty import Scores, differences, score_intervals, verdicts
from docemb_lib.runs import models as made
from docemb_lib.runs import records
from docemb_lib.runs.models import Model, embed_once
from docemb_lib.runs.records import Record
from docemb_lib.runs.stages import CorpusStage, sbert_of
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace, write_text

logger = logging.getLogger(__name__)
NUMBERS = "scores.json"  # {round: {metric, values, extra}}
EXAMPLES = "per_example.npz"  # round/metric: float32 (seeds, N)
LENGTHS = "lengths.npy"
KEPT = (
    "intervals",
    "comparison",
    "models",
)  # frames of `Final` that a record keeps beside the scores

Rounds = dict[
    str, dict[str, dict[str, Score]]
]  # {round: {model: {task: score}}}; most training examples last


class Final(NamedTuple):
    """The final evaluation of several models, as tidy frames."""

    scores: pd.DataFrame  # model, task, metric, seed, value, and round where there are several
    intervals: pd.DataFrame  # see `score_intervals`, and round
    comparison: pd.DataFrame  # see `verdicts`; of the last round
    models: (
        pd.DataFrame
    )  # model, fingerprint, "fitted on", ranks_only: identify the scores' artefacts
    student: str  # the model that is compared with each reference

    @classmethod
    def of_record(cls, workspace: Workspace, record: Record, student: str) -> Self:
        """The evaluation that a run has recorded; its frames are empty where the record lacks them."""
        tables = {name: records.table_of(workspace, record, name) for name in KEPT}
        return cls(records.table_of(workspace, record), **tables, student=student)

    def called(self, own: str, name: str = "this student") -> Self:
        """The same evaluation, in which the label `own` is `name`, also where one of `made.FORMS`
        follows it.
        """
        names = {f"{own}{form}": f"{name}{form}" for form in made.FORMS}
        columns = {"model": names, "reference": names}
        frames = {table: getattr(self, table).replace(columns) for table in ("scores", *KEPT)}
        return self._replace(**frames, student=names.get(self.student, self.student))

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
        """Models × tasks with intervals, best mean first, and what each was fitted on."""
        board = scoreboard.interval_board(self.intervals)
        fitted = self.models.set_index("model")["fitted on"].reindex(
            board.index.get_level_values("model")
        )
        return board.assign(**{"fitted on": fitted.to_numpy()})

    @property
    def beside_references(self) -> pd.DataFrame:
        """The student against each reference in the mean over tasks: rows of `comparison`."""
        return scoreboard.beside_references(self.comparison, self.student)

    def standing(self) -> str:
        """A sentence: the student's mean over tasks beside the best reference, the common practice
        and its start.

        The start of a student that is adapted to the words of a task is adapted to them, too.
        """
        models = set(self.models["model"])
        starts = (
            [made.UNTRAINED_ADAPTED, made.UNTRAINED]
            if self.student.endswith(made.ADAPTED)
            else [made.UNTRAINED]
        )
        before = next((start for start in starts if start in models), None)
        practice = made.SBERT_CHUNKS if made.SBERT_CHUNKS in models else made.SBERT_TRUNCATED
        return scoreboard.standing(
            self.last, self.comparison, student=self.student, before=before, practice=practice
        )

    def choice(self) -> scoreboard.Choice:
        """The simplest model that is not shown to be worse, see `scoreboard.choose_simplest`."""
        order = [*made.SIMPLEST_FIRST, self.student]
        return scoreboard.choose_simplest(
            self.last, self.comparison, student=self.student, simplest_first=order
        )


class ScoreStage:
    """The tasks of a profile, and the scores of models on them.

    Each (model, task) is scored once.
    """

    def __init__(self, profile: Profile, workspace: Workspace, corpus: CorpusStage) -> None:
        self.profile, self.workspace, self.corpus = profile, workspace, corpus
        self.task = cache(lambda name: profile_task(profile, name, lambda: corpus.split("tasks")))
        self._task_inputs = cache(
            lambda name: task_inputs(profile, name, lambda: corpus.fingerprint)
        )

    def by_round(self, models: Iterable[Model], *, final: bool) -> Rounds:
        """Scores with each example's answer, by round: the profile's rounds, or the only one of a
        sweep.

        final: all tasks of the profile on their test splits; otherwise the sweep's tasks on their
        validation splits, so that no choice between runs depends on a test split.
        """
        found: Rounds = {}
        for model in models:
            for task, by_round in self._of_model(model, final=final).items():
                for name, score in by_round.items():
                    found.setdefault(name, {}).setdefault(model.label, {})[task] = score
        return found

    def is_scored(self, model: Model, *, final: bool = True) -> bool:
        """Whether the model has scores on all tasks of the final evaluation or, if not `final`, of
        a sweep.
        """
        return bool(self._names_of(model, final=final)) and not self._unscored(model, final=final)

    def few_shot(self, models: Sequence[Model]) -> pd.DataFrame:
        """Scores on the classification tasks of heads trained on `evaluation.few_shot` examples of
        each class.

        Columns task, model, and those of `few_shot_scores`. A number beyond the smallest class of a
        task is left out.
        """
        frames = [pd.DataFrame(columns=["model", "task", "metric", "per_class", "value"])]
        for name in self.profile.evaluation.tasks:
            if isinstance(task := self.task(name), Classification):
                smallest = min(Counter(task.splits["train"].labels).values())
                numbers = sorted(
                    number for number in self.profile.evaluation.few_shot if number <= smallest
                )
                for model in models if numbers else ():
                    embeddings = embed_once(self.workspace, model, task.texts("test"))
                    scores = protocols.few_shot_scores(task, embeddings, per_class=numbers)
                    frames.append(scores.assign(task=name, model=model.label))
        return pd.concat(frames[1:] or frames, ignore_index=True)

    def evaluate(
        self, models: list[Model], *, student: str, references: Sequence[str], final: bool = True
    ) -> Final:
        """Score the models on the tasks of the profile, with intervals and paired tests.

        final: see `by_round`; student: the label of the model that is compared with each of the
        `references`, labels as well; the other models are compared with the common practice, SBERT
        over chunks.
        """
        rounds = self.by_round(models, final=final)
        rows = [(m.label, m.fingerprint, m.fitted_on, m.ranks_only) for m in models]
        described = pd.DataFrame(rows, columns=["model", "fingerprint", "fitted on", "ranks_only"])
        compared = _comparison([*rounds.values()][-1], student, references)
        return Final(
            _stacked(rounds, scoreboard.score_frame),
            _stacked(rounds, score_intervals),
            compared,
            described,
            student,
        )

    def by_length(self, models: Sequence[Model]) -> pd.DataFrame:
        """Every model's score on each task in buckets of length, with intervals; of the last round.

        Columns model, task, metric, bucket, examples, value, low, high. A length is that of the
        example (of a pair the longer document, of retrieval the query), in tokens of the structural
        teacher.
        """
        tokens = {task: self.lengths(task) for task in self._names(final=True)}
        *_, last = self.by_round(models, final=True).values()
        frames = [
            uncertainty.by_length(s.per_example[s.metric], tokens[task]).assign(
                model=model, task=task, metric=s.metric
            )
            for model, by_task in last.items()
            for task, s in by_task.items()
        ]
        return pd.concat(frames, ignore_index=True)

    def lengths(self, name: str) -> np.ndarray:
        """Tokens of each test example of a task, counted once: (N,)."""
        settings = self.profile.structural_teacher
        inputs = {"tokens": pretrained.fingerprint(settings.model), **self._task_inputs(name)}

        def build(folder: Path) -> None:
            task = self.task(name)
            counted = sbert_of(settings, settings.long).count_tokens(task.texts("test"))
            np.save(folder / LENGTHS, example_lengths(task, counted))

        return np.load(self.workspace.artefact("task-lengths", inputs, build).path / LENGTHS)

    def check(self, splits: Sequence[str] = ("test", "validation")) -> None:
        """Check that all tasks can be read and have the splits that are scored.

        Raises InputError.
        """
        asked = [(name, split) for split in splits for name in self._names(split == "test")]
        needs = []  # files of all tasks, before any is read
        for benchmark, place in self.profile.evaluation.benchmarks.items():
            if benchmark in dict(asked) and (absent := missing_files(benchmark, place)):
                needs.append(f"{benchmark} needs {', '.join(absent)} in {place}")
        if needs:
            mend = "put the published files there (docs/data.md says where they come from), or leave these tasks out"
            raise InputError(f"evaluation.benchmarks: {'; '.join(needs)}; {mend}")
        for name, split in asked:
            check_task(self.profile, self.workspace, name, split)

    def _names(self, final: bool) -> Sequence[str]:
        return self.profile.evaluation.tasks if final else self.profile.evaluation.sweep_tasks

    def _names_of(self, model: Model, *, final: bool) -> list[str]:
        """The tasks that the model can be scored on."""
        return [
            name
            for name in self._names(final)
            if not (model.ranks_only and isinstance(self.task(name), HeadTask))
        ]

    def _of_model(self, model: Model, *, final: bool) -> dict[str, dict[str, Score]]:
        """{task: {round: score}}; the texts of all tasks without a score are embedded together."""
        names, found = self._names_of(model, final=final), {}

        @cache
        def embedded() -> dict[str, np.ndarray]:
            missing = self._unscored(model, final=final)
            texts = list(
                dict.fromkeys(text for name in missing for text in self._texts(name, final=final))
            )
            return dict(zip(texts, embed_once(self.workspace, model, texts), strict=True))

        for name in names:

            def build(folder: Path, name: str = name) -> None:
                texts = self._texts(name, final=final)
                embeddings = (
                    np.stack([embedded()[text] for text in texts])
                    if model.fit is None
                    else model.fit(texts)
                )
                write_scores(folder, self._score(name, embeddings, final=final))

            inputs = self._inputs(model, name, final=final)
            try:
                found[name] = read_scores(self.workspace.artefact("scores", inputs, build).path)
            except InputError as error:
                if model.fit is None:
                    raise
                logger.warning("%s is left out of %s: %s", model.label, name, error)
        return found

    def _unscored(self, model: Model, *, final: bool) -> list[str]:
        names = self._names_of(model, final=final)
        return [
            name
            for name in names
            if not self.workspace.is_built("scores", self._inputs(model, name, final=final))
        ]

    def _inputs(self, model: Model, name: str, *, final: bool) -> dict[str, Any]:
        protocol = {"rounds"} if final else {"limit", "folds"}
        settings = self.profile.evaluation.model_dump(
            include={"head", "seeds", "map_at", *protocol}
        )
        return {"model": model.fingerprint, **self._task_inputs(name), **settings}

    def _texts(self, name: str, *, final: bool) -> list[str]:
        """The texts that scoring needs embedded, each once."""
        task = self.task(name)
        if isinstance(task, HeadTask) and not final:
            return protocols.validation_texts(
                protocols.for_validation(task, self.profile.evaluation.limit)
            )
        return task.texts("test" if final else "validation")

    def _score(self, name: str, embeddings: Any, *, final: bool) -> dict[str, Score]:
        """{round: score}. embeddings: (N, D), row i of `_texts(...)[i]`, or `Similarities` for
        retrieval.
        """
        task, evaluation, split = (
            self.task(name),
            self.profile.evaluation,
            "test" if final else "validation",
        )
        rounds = {
            protocols.round_name(limit): limit for limit in (evaluation.rounds if final else [None])
        }
        if not isinstance(task, HeadTask):
            return dict.fromkeys(rounds, task.score(embeddings, split, top=evaluation.map_at))
        heads: dict[str, Any] = {"head": evaluation.head, "seeds": evaluation.seeds}
        if final:
            return protocols.final_scores(task, embeddings, rounds=rounds, **heads)
        cut = protocols.for_validation(task, evaluation.limit)
        return dict.fromkeys(
            rounds, protocols.validation_score(cut, embeddings, folds=evaluation.folds, **heads)
        )


def write_scores(folder: Path, by_round: Mapping[str, Score]) -> None:
    """Write a task's score of every round."""
    numbers = {
        name: {"metric": s.metric, "values": s.values, "extra": dict(s.extra)}
        for name, s in by_round.items()
    }
    write_text(folder / NUMBERS, json.dumps(numbers))
    examples: Any = {
        f"{name}/{metric}": a for name, s in by_round.items() for metric, a in s.per_example.items()
    }
    np.savez_compressed(folder / EXAMPLES, **examples)


def read_scores(folder: Path) -> dict[str, Score]:
    """{round: score}, as `write_scores` wrote them."""
    found: dict[str, Score] = {}
    with np.load(folder / EXAMPLES) as stored:
        for name, score in json.loads((folder / NUMBERS).read_text(encoding="utf-8")).items():
            metrics = [
                key.removeprefix(f"{name}/") for key in stored.files if key.startswith(f"{name}/")
            ]
            answers = {metric: stored[f"{name}/{metric}"] for metric in metrics}
            found[name] = Score(score["metric"], tuple(score["values"]), score["extra"], answers)
    return found


def _stacked(rounds: Rounds, rows_of: Callable[[Scores], pd.DataFrame]) -> pd.DataFrame:
    """The rows of all rounds; a column `round` tells them apart where there are several."""
    rows = pd.concat(
        [rows_of(scores).assign(round=name) for name, scores in rounds.items()], ignore_index=True
    )
    return rows if len(rounds) > 1 else rows.drop(columns="round")


def _comparison(scores: Scores, student: str, references: Sequence[str]) -> pd.DataFrame:
    """The student against each reference, then the other models against SBERT over chunks; maybe
    empty.

    p-values are corrected over the tests of the student, and over those of the others, see
    `verdicts`.
    """
    others = {model: by_task for model, by_task in scores.items() if model != student}
    pairs = [
        (name, {student: scores[student], name: scores[name]})
        for name in references
        if name in others
    ]
    if not pairs:
        return pd.DataFrame()
    families = [
        pd.concat([differences(pair, reference) for reference, pair in pairs], ignore_index=True)
    ]
    if made.SBERT_CHUNKS in dict(pairs) and len(others) > 1:
        families.append(differences(others, made.SBERT_CHUNKS))
    return pd.concat([verdicts(family) for family in families], ignore_index=True)
