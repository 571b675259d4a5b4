"""How much of a document the models of a run read, by its passages."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from docemb_lib.evaluation.reading import (
    Ending,
    Versions,
    by_position,
    ending,
    exchange_passages,
    find_passages,
)
from docemb_lib.evaluation.scoreboard import with_interval
from docemb_lib.runs.embeddings import embed_once
from docemb_lib.runs.models import Model
from docemb_lib.runs.run import Run
from docemb_lib.thesis.comparison import LINES
from docemb_lib.views.corpus import SHOWN, structural_limit

FOUND = "passage → document"  # the names of both measures
MOVED = "exchanged passage"
READ = 12  # documents whose passages are exchanged: a model embeds each six times


def documents_to_read(run: Run) -> Versions:
    """The `READ` validation documents whose lengths are nearest to twice what SBERT reads at once.

    Fewer than two documents have no versions.
    """
    validation = run.stages.corpus.split("validation")
    lengths = np.asarray(validation["n_structural_tokens"][:])
    rows = np.argsort(np.abs(lengths - 2 * structural_limit(run)), kind="stable")[:READ]
    return Versions.of([validation["text"][int(row)] for row in rows])


def readings(run: Run, models: Sequence[Model], versions: Versions) -> pd.DataFrame:
    """What models find and what moves them, by position: a row per model, measure and passage.

    Columns model, kind, task (the measure: FOUND or MOVED), metric, and those of `by_position`.
    Passages find their documents among the first `SHOWN` validation documents.
    """
    validation = run.stages.corpus.split("validation")["text"][:SHOWN]
    others = [text for text in validation if text not in versions.documents]
    frames = []
    for model in models:
        embed = partial(embed_once, run.workspace, model)
        measured = [
            (FOUND, "mrr", find_passages(embed, versions, others)),
            (MOVED, "cosine distance", exchange_passages(embed, versions)),
        ]
        for measure, metric, values in measured:
            frame = by_position(values).assign(task=measure, metric=metric)
            frames.append(frame.assign(model=model.label, kind=model.kind.value))
    return pd.concat(frames, ignore_index=True)


def endings(run: Run, models: Sequence[Model], versions: Versions) -> pd.DataFrame:
    """How much endings count for models beside beginnings, a row each: see `Ending`.

    It is NaN without versions.
    """
    rows = {}
    for model in models:
        rows[model.label] = Ending(np.nan, np.nan, np.nan)
        if versions.documents:
            moved = exchange_passages(partial(embed_once, run.workspace, model), versions)
            rows[model.label] = ending(moved)
    return pd.DataFrame.from_dict(rows, orient="index", columns=Ending._fields)


def counted_endings(of_models: pd.DataFrame, versions: Versions) -> str:
    """A sentence on how much endings count, with intervals. of_models: see `endings`."""
    said = [f"{name} {with_interval(*row)}" for name, *row in of_models.itertuples()]
    what = "An exchange of the last fifth moves a document so many times as far as one of the first"
    return LINES.fill(f"{what} (mean of {len(versions.documents)}): {', '.join(said)}.")
