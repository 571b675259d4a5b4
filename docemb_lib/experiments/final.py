"""What a final evaluation says: scores with intervals, which differences are shown, how they change with length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np
import pandas as pd

from docemb_lib import pretrained
from docemb_lib.errors import InputError
from docemb_lib.evaluation.catalogue import check_task, task_inputs
from docemb_lib.evaluation.scoreboard import interval_board, last_round, scoreboard, standing
from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import by_length, differences, score_intervals, verdicts
from docemb_lib.experiments import records
from docemb_lib.experiments.check import check_benchmarks
from docemb_lib.experiments.models import SBERT_CHUNKS, SBERT_LABELS, SBERT_TRUNCATED, UNTRAINED, student_model
from docemb_lib.experiments.report import FINAL
from docemb_lib.experiments.run import setting_of
from docemb_lib.experiments.scores import Model, Rounds, is_scored, scores_by_round, tidy
from docemb_lib.experiments.students import Stages
from docemb_lib.hardware import devices_at_hand
from docemb_lib.progress import progress
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import MANIFEST, Artefact, Workspace

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


# ---- what a final evaluation says


RECIPE = 1  # raised whenever lengths would be counted otherwise
REFERENCES = (SBERT_CHUNKS, SBERT_TRUNCATED, UNTRAINED)  # the first is what a user does today
LENGTHS = "lengths.npy"


class Final(NamedTuple):
    """The final evaluation of several models, as tidy frames."""

    scores: pd.DataFrame  # model, task, metric, seed, value, and round where there are several
    intervals: pd.DataFrame  # see `score_intervals`, and round
    comparison: pd.DataFrame  # see `compare`; of the last round
    models: pd.DataFrame  # model, fingerprint: what the scores are found by again

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """What a record keeps beside the scores."""
        return {"intervals": self.intervals, "comparison": self.comparison, "models": self.models}

    @property
    def board(self) -> pd.DataFrame:
        """Models x tasks with intervals, best mean first; last the deviation of that mean over head seeds."""
        parts = self.scores.groupby("round", sort=False) if "round" in self.scores else [(None, self.scores)]
        spread = {name: scoreboard(rows)["std"] for name, rows in parts}
        of_row = pd.concat(spread) if "round" in self.scores else spread[None]
        return interval_board(self.intervals).assign(**{"± head seeds": of_row.map("{:.3f}".format)})


def final_evaluation(stages: Stages, models: Sequence[Model], *, student: str) -> Final:
    """Score the models on all tasks of the profile and say how sure that is.

    student: the label of the model that is compared with each of the REFERENCES there are among the models; the others
    are compared with the first of these.
    """
    rounds = scores_by_round(stages, models, final=True)
    intervals = pd.concat(
        [score_intervals(scores).assign(round=name) for name, scores in rounds.items()], ignore_index=True
    )
    return Final(
        scores=tidy(rounds),
        intervals=intervals if len(rounds) > 1 else intervals.drop(columns="round"),
        comparison=_comparison(last_scores(rounds), student),
        models=pd.DataFrame([(model.label, model.fingerprint) for model in models], columns=["model", "fingerprint"]),
    )


def scores_by_length(stages: Stages, models: Sequence[Model]) -> pd.DataFrame:
    """Every model's score on each task in buckets of length, with intervals; of the last round.

    Columns model, task, metric, bucket, examples, value, low, high. A length is that of the example, of a pair the
    longer document's, of retrieval the query's, in tokens of the structural teacher.
    """
    scores = last_scores(scores_by_round(stages, models, final=True))
    lengths = {task: example_lengths(stages, task) for task in stages.profile.evaluation.tasks}
    return pd.concat(
        [
            by_length(score.per_example[score.metric], lengths[task]).assign(
                model=model, task=task, metric=score.metric
            )
            for model, by_task in scores.items()
            for task, score in by_task.items()
        ],
        ignore_index=True,
    )


def example_lengths(stages: Stages, name: str) -> np.ndarray:
    """Tokens of each test example of a task, counted once: (N,); see `example_lengths` of a task."""
    inputs = {
        "recipe": RECIPE,
        "tokens": pretrained.fingerprint(pretrained.resolve(stages.profile.structural_teacher.model)),
        **task_inputs(stages.profile, name, lambda: stages.corpus.fingerprint),
    }

    def build(folder: Path) -> None:
        task = stages.tasks[name]
        counted = stages.structural_teacher.count_tokens(task.texts("test"))
        np.save(folder / LENGTHS, task.example_lengths(counted, "test"))

    return np.load(stages.workspace.artefact("task-lengths", inputs, build).path / LENGTHS)


def last_scores(rounds: Rounds) -> dict[str, dict[str, Score]]:
    """{model: {task: score}} of the round with most examples to learn from."""
    return list(rounds.values())[-1]


def _comparison(scores: Mapping[str, Mapping[str, Score]], student: str) -> pd.DataFrame:
    """All of its tests count together when p-values are corrected; empty where no reference is among the models."""
    found = []
    for reference in REFERENCES:
        compared = scores if reference == REFERENCES[0] else (reference, student)
        if reference in scores and reference != student and len(compared) > 1:
            found.append(differences({model: scores[model] for model in compared}, reference))
    return verdicts(pd.concat(found, ignore_index=True)) if found else pd.DataFrame()


# ---- the final evaluation of any sentence-transformers model or student


BLOCK = 1024  # texts that a model sorts by length at a time


class Evaluated(NamedTuple):
    final: Final  # of the model and the baselines beside it
    standing: str  # the model in words; "" where no baselines are beside it


def evaluate_model(name: str, profile: str | Path, tasks: Sequence[str] = ()) -> Evaluated:
    """Score a model on the profile's tasks, or some of them, on their test splits.

    name: a folder, by whose name it is shown, or a hub id. Beside it stand the baselines of the profile that the final
    evaluation has scored already; none is computed. Raises InputError for a model, profile or task that is not there,
    before any long work.
    """
    loaded = Profile.load(profile)
    chosen = loaded.with_tasks(tasks, source="--task") if tasks else loaded
    stages = Stages(chosen, Workspace())
    check_benchmarks(chosen.evaluation, chosen.evaluation.tasks)
    for task in chosen.evaluation.tasks:
        check_task(chosen, stages.workspace, task, "test")
    model = any_model(name)
    beside = [baseline for baseline in recorded_baselines(loaded, stages.workspace) if is_scored(stages, baseline)]
    final = final_evaluation(stages, [model, *beside], student=model.label)
    if not {*REFERENCES} <= {baseline.label for baseline in beside}:
        return Evaluated(final, "")
    intervals = last_round(final.intervals)
    said = standing(intervals, final.comparison, student=model.label, before=UNTRAINED, teachers=SBERT_LABELS)
    return Evaluated(final, said)


def any_model(name: str) -> Model:
    """A student as docemb runs it, any other model as sentence-transformers does. Raises InputError for no model."""
    from docemb_lib.student import loading

    source = pretrained.resolve(name)
    if loading.read_json(source, "modules.json") is None and loading.read_json(source, "config.json") is None:
        raise InputError(f"{name}: no folder or hub id with a modules.json or config.json; give one of a model")
    label = Path(name).absolute().name if Path(name).is_dir() else name
    if not _is_student(source):
        return Model(label, f"sentence-transformers/{pretrained.fingerprint(source)}", lambda: Stock(source))
    folder = Path(source).resolve()
    if (folder / MANIFEST).is_file():  # trained here: what the notebooks have scored is found again
        return student_model(label, Artefact("student", folder.name, folder))
    return student_model(label, Artefact("student", pretrained.fingerprint(source), Path(source)))


def recorded_baselines(profile: Profile, workspace: Workspace) -> list[Model]:
    """What the newest comparable final evaluation compared its student with, as far as scores are concerned."""
    setting = setting_of(FINAL, profile)
    found = [
        record
        for record in records.all_records(FINAL, workspace=workspace)
        if record.status == "done" and record.setting == setting
    ]
    if not found:
        return []
    rows = records.table_of(workspace, found[-1], "models")
    others = rows[rows["model"] != found[-1].label]
    return [Model(row["model"], row["fingerprint"], _not_here) for row in others.to_dict("records")]


class Stock:
    """A model as sentence-transformers runs it, with all of its modules; loaded when it is first used."""

    def __init__(self, source: str) -> None:
        self.source = source

    def embed(self, texts: list[str]) -> np.ndarray:
        """Float32 (N, D)."""
        model = self._load()
        starts = range(0, len(texts), BLOCK)
        shown = progress(starts, desc="embedding", unit="blocks") if len(starts) > 1 else starts
        blocks = [model.encode(texts[start : start + BLOCK], show_progress_bar=False) for start in shown]
        return np.concatenate(blocks).astype(np.float32)

    def _load(self) -> SentenceTransformer:
        from sentence_transformers import SentenceTransformer

        try:
            with pretrained.quiet_loading():
                return SentenceTransformer(self.source, device=devices_at_hand()[0])
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{self.source}: not loadable with sentence-transformers ({error})") from error


def _is_student(source: str) -> bool:
    """Whether `Student.load` reads it: a Longformer or ModernBERT with the pooling of a student."""
    from docemb_lib.student import export, loading

    try:
        config = loading.load_config(source)
        export.saved_pooling(source)
    except InputError:
        return False
    return config.model_type in loading.LONG


def _not_here() -> NoReturn:
    raise AssertionError("a recorded baseline is only looked up where it is scored")
