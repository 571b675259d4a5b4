"""The distances of several students to their structural teacher on the validation documents, measured once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np
import pandas as pd

from docemb_lib.evaluation.distances import Distance, Distances, measure_distances, tidy_distances
from docemb_lib.experiments.embedding_cache import Model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.stages import Stages
from docemb_lib.experiments.views import SHOWN, validation_embeddings

NEGATIVES = 20  # of a document, the same in every student and both distances


class StudentDistances(NamedTuple):
    """What the distance explorer moves in."""

    documents: pd.DataFrame  # id, text, source, length (tokens of the structural teacher); a row per document
    measured: dict[Distance, dict[str, Distances]]  # by student, in the order in which they are shown
    own: str  # the student of the run at hand

    def tidy(self) -> pd.DataFrame:
        """All students' distances as a frame: distance, model, and the columns of `tidy_distances`."""
        frames = [
            tidy_distances(found).assign(distance=distance, model=model)
            for distance, by_model in self.measured.items()
            for model, found in by_model.items()
        ]
        return pd.concat(frames, ignore_index=True)


def distances_to_teacher(run: Run, models: Sequence[Model], *, negatives: int = NEGATIVES) -> StudentDistances:
    """Both distances of every model on at most the first `SHOWN` validation documents."""
    stages = run.stages
    rows = len(stages.split("validation"))
    teacher = np.asarray(stages.teacher_embeddings(stages.structural_teacher, "validation", rows)[:SHOWN])
    embedded = {model.label: validation_embeddings(stages, model) for model in models}
    measured: dict[Distance, dict[str, Distances]] = {
        distance: {
            label: measure_distances(student, teacher, distance=distance, negatives=negatives)
            for label, student in embedded.items()
        }
        for distance in get_args(Distance)
    }
    return StudentDistances(validation_documents(stages), measured, run.label)


def validation_documents(stages: Stages) -> pd.DataFrame:
    """The first `SHOWN` validation documents: id, text, source, length (tokens of the structural teacher)."""
    split = stages.split("validation")
    columns = {"id": "id", "text": "text", "source": "source", "length": "n_structural_tokens"}
    return pd.DataFrame({name: split[column][:SHOWN] for name, column in columns.items()})
