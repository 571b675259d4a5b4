"""The final evaluation of any sentence-transformers model or student: the `docemb evaluate` command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import numpy as np

from docemb_lib import pretrained
from docemb_lib.errors import InputError
from docemb_lib.evaluation.scoreboard import last_round, standing
from docemb_lib.experiments import records
from docemb_lib.experiments.check import check_benchmarks
from docemb_lib.experiments.embedding_cache import Model
from docemb_lib.experiments.final import REFERENCES, Final, final_evaluation
from docemb_lib.experiments.models import SBERT_LABELS, UNTRAINED, student_model
from docemb_lib.experiments.profile_tasks import check_task
from docemb_lib.experiments.report import FINAL
from docemb_lib.experiments.run import setting_of
from docemb_lib.experiments.scoring import is_scored
from docemb_lib.experiments.stages import Stages
from docemb_lib.hardware import devices_at_hand
from docemb_lib.profile import Profile
from docemb_lib.progress import progress
from docemb_lib.workspace import MANIFEST, Artefact, Workspace

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

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
    from docemb_lib.student import loading

    try:
        config = loading.load_config(source, subfolder=loading.transformer_subfolder(source))
        loading.saved_pooling(source)
    except InputError:
        return False
    return config.model_type in loading.LONG


def _not_here() -> NoReturn:
    raise AssertionError("a recorded baseline is only looked up where it is scored")
