"""The distance explorer: distances of several students to the structural teacher, and pairs that a student mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, get_args

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from docemb_lib.errors import InputError
from docemb_lib.evaluation.probes import Distance, Distances, measure_distances, mistaken, separation, tidy_distances
from docemb_lib.experiments.models import Model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.stages import CorpusStage
from docemb_lib.figures.embeddings import UNITS, plot_distances
from docemb_lib.views import SHOWN, validation_embeddings
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer, Options, choice, interval, slider

NEGATIVES = 20  # per document, equal for all students and both distances
ALL = "all losses"
MISTAKEN = 10  # pairs in the list
Range = tuple[int, int]


class StudentDistances(NamedTuple):
    """Distances to the structural teacher on the validation documents."""

    documents: pd.DataFrame  # id, text, source, length (structural tokens); a row per document
    measured: dict[Distance, dict[str, Distances]]  # by student, in the order of display
    own: str  # the student of this run

    def tidy(self) -> pd.DataFrame:
        """One frame of all students: columns distance, model, and those of `tidy_distances`."""
        frames = [_tidy(by_model).assign(distance=distance) for distance, by_model in self.measured.items()]
        return pd.concat(frames, ignore_index=True)


def _tidy(by_model: dict[str, Distances]) -> pd.DataFrame:
    frames = [tidy_distances(found).assign(model=model) for model, found in by_model.items()]
    return pd.concat(frames, ignore_index=True)


def distances_to_teacher(run: Run, models: Sequence[Model], *, negatives: int = NEGATIVES) -> StudentDistances:
    """Both distances of every model on at most the first `SHOWN` validation documents."""
    corpus, teachers = run.stages.corpus, run.stages.teachers
    rows = len(corpus.split("validation"))
    teacher = np.asarray(teachers.embeddings(teachers.structural, "validation", rows)[:SHOWN])
    embedded = {model.label: validation_embeddings(corpus, model) for model in models}
    measured: dict[Distance, dict[str, Distances]] = {}
    for distance in get_args(Distance):
        measure = partial(measure_distances, distance=distance, negatives=negatives)
        measured[distance] = {label: measure(student, teacher) for label, student in embedded.items()}
    return StudentDistances(validation_documents(corpus), measured, run.label)


def validation_documents(corpus: CorpusStage) -> pd.DataFrame:
    """The first `SHOWN` validation documents: id, text, source, length (tokens of the structural teacher)."""
    split = corpus.split("validation")
    columns = {"id": "id", "text": "text", "source": "source", "length": "n_structural_tokens"}
    return pd.DataFrame({name: split[column][:SHOWN] for name, column in columns.items()})


def distance_explorer(distances: StudentDistances) -> Explorer:
    """Explore distances by loss, distance, γ, number of negatives and document length.

    Below the figure: the pairs that the student mistakes most (of `all losses`: the student of this run), and both
    texts of the chosen pair.
    """
    documents, lengths = distances.documents, distances.documents["length"].to_numpy()
    models = list(distances.measured["cosine"])
    most = distances.measured["cosine"][models[0]].negative.shape[1]

    def parts(loss: str, distance: Distance, negatives: int, tokens: Range) -> dict[str, Distances]:
        chosen = (lengths >= tokens[0]) & (lengths <= tokens[1])
        if not chosen.any():
            raise InputError(f"no document has {tokens[0]} to {tokens[1]} tokens; widen the range")
        measured = distances.measured[distance]
        return {model: measured[model].part(chosen, negatives) for model in (models if loss == ALL else [loss])}

    @lru_cache(maxsize=1)  # γ and the pair do not change the figure
    def drawn(loss: str, distance: Distance, negatives: int, tokens: Range) -> Figure:
        return _figure(parts(loss, distance, negatives, tokens), distance)

    def choices(loss: str, distance: Distance, _: float, negatives: int, tokens: Range, __: Any) -> dict[str, Options]:
        of_loss = parts(loss, distance, negatives, tokens)
        found = mistaken(of_loss[distances.own if loss == ALL else loss], k=MISTAKEN)
        offered = []
        for number, row in enumerate(found.to_dict("records"), 1):
            pair = (int(row["document"]), int(row["other"]))
            one, other = documents["id"][pair[0]], documents["id"][pair[1]]
            offered.append((f"{number}. {one} → {other} ({row['ahead']:+.3f})", pair))
        return {"pair": offered}

    def answer(loss: str, distance: Distance, gamma: float, negatives: int, tokens: Range, pair: Any) -> Answer:
        shown, rows = parts(loss, distance, negatives, tokens), []
        for model, found in shown.items():
            auc, overlap, mean = separation(found, gamma=gamma)
            cells = {"model": model, "auc": f"{auc:.3f}", "overlap": f"{overlap:.3f}", "loss": f"{mean:.4g}"}
            rows.append(html.row(cells, model=model))
        text = html.table("separation", ["student", "AUC", "overlap", f"max-margin loss, γ = {gamma:g}"], rows)
        text += f"<p>{html.number('documents', len(found.positive))} documents of "
        text += f"{html.number('tokens', f'{tokens[0]} to {tokens[1]}')} tokens, {negatives} negatives each</p>"
        alt = f"{UNITS[distance]} to the own and to other teacher embeddings, one row each for {', '.join(shown)}"
        return Answer(text + _documents(documents, pair), drawn(loss, distance, negatives, tokens), alt)

    controls = {
        "loss": choice([(model, model) for model in (ALL, *models)]),
        "distance": choice([(name, key) for key, name in UNITS.items()]),
        "γ": slider(0.0, 2.0, 0.1, 1.0),
        "negatives": slider(1, most, 1, most),
        "tokens": interval(int(lengths.min()), int(lengths.max())),
        "pair": choice([]),
    }
    return Explorer(controls, answer, choices=choices)


def _figure(shown: dict[str, Distances], distance: Distance) -> Figure:
    width, height = 8.5, 1.2 + 0.75 * len(shown)
    figure = Figure(figsize=(width, height))  # fixed margins: a layout engine would draw all texts twice
    labels = 0.3 + 0.085 * max(map(len, shown))
    axes = figure.add_axes((labels / width, 0.55 / height, 1 - (labels + 0.9) / width, 1 - 1.2 / height))
    plot_distances(_tidy(shown), distance=distance, ax=axes)
    return figure


def _documents(documents: pd.DataFrame, pair: tuple[int, int] | None) -> str:
    titles, texts = ("the document", "the document with the nearer (or nearest) teacher embedding"), ""
    for title, row in zip(titles, pair or (), strict=pair is not None):
        name, length, text = documents.loc[row, ["id", "length", "text"]]
        texts += html.document(f"{title}: {name}, {length} tokens", text)
    return texts and f'<div style="display: flex; flex-wrap: wrap; gap: 8px;">{texts}</div>'
