"""How much of a document the models of a run read, by exchanged passages."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from docemb_lib.evaluation.reading import (
    Ending,
    Versions,
    by_position,
    ending,
    exchange_passages,
)
from docemb_lib.evaluation.scoreboard import with_interval
from docemb_lib.runs.models import Model
from docemb_lib.runs.run import Run
from docemb_lib.thesis.comparison import LINES
from docemb_lib.views.corpus import structural_limit

READ = 12  # documents whose passages are exchanged: a model embeds each six times


def documents_to_read(run: Run) -> Versions:
    """The `READ` validation documents whose lengths are nearest to twice what SBERT reads at once.

    Fewer than two documents have no versions.
    """
    validation = run.corpus.split("validation")
    lengths = np.asarray(validation["n_structural_tokens"][:])
    rows = np.argsort(np.abs(lengths - 2 * structural_limit(run)), kind="stable")[:READ]
    return Versions.of([validation["text"][int(row)] for row in rows])


def readings(models: Sequence[Model], versions: Versions) -> pd.DataFrame:
    """How far the exchange of a passage moves documents: a row for each model and passage.

    Columns model, kind, metric, and those of `by_position`.
    """
    frames = []
    for model in models:
        frame = by_position(exchange_passages(model.embed, versions))
        frames.append(frame.assign(model=model.label, kind=model.kind.value))
    return pd.concat(frames, ignore_index=True).assign(metric="cosine distance")


def endings(models: Sequence[Model], versions: Versions) -> pd.DataFrame:
    """How much endings count for models beside beginnings, a row each: see `Ending`.

    It is NaN without versions.
    """
    rows = {}
    for model in models:
        rows[model.label] = Ending(np.nan, np.nan, np.nan)
        if versions.documents:
            moved = exchange_passages(model.embed, versions)
            rows[model.label] = ending(moved)
    return pd.DataFrame.from_dict(rows, orient="index", columns=Ending._fields)


def counted_endings(of_models: pd.DataFrame, versions: Versions) -> str:
    """A sentence on how much endings count, with intervals. of_models: see `endings`."""
    said = [f"{name} {with_interval(*row)}" for name, *row in of_models.itertuples()]
    what = "Exchanging the last fifth moves a document by this multiple of exchanging the first"
    return LINES.fill(f"{what} (mean of {len(versions.documents)}): {', '.join(said)}.")
