"""The distance and the projection explorer: documents in the spaces of students, teachers and
projected views.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation import probes as probing
from docemb_lib.evaluation.probes import Distance, Distances, principal_plane, tidy_distances
from docemb_lib.figures import short_name
from docemb_lib.figures.documents import UNITS, plot_distances, plot_plane
from docemb_lib.runs.models import UNTRAINED, Model, untrained_model
from docemb_lib.runs.run import Run
from docemb_lib.runs.stages import CorpusStage
from docemb_lib.views.students import SHOWN, validation_embeddings
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer, choice, slider

if TYPE_CHECKING:
    from docemb_lib.losses import Objective

NEGATIVES = 20  # per document, equal for all students and both distances
ALL_LOSSES = "all losses"
STUDENT, CONTEXTUAL = "student", "contextual"
MISTAKEN = 10  # pairs that a slider reaches
LEAST = 5  # documents whose distances are shown


class StudentDistances(NamedTuple):
    documents: pd.DataFrame  # id, text, source, length (structural tokens); a row per document
    measured: dict[Distance, dict[str, Distances]]  # by student, in the order of display
    own: str  # the student of this run

    def tidy(self) -> pd.DataFrame:
        """All students in one frame: distance, model, and the columns of `tidy_distances`."""
        frames = [
            _tidy(by_model).assign(distance=distance)
            for distance, by_model in self.measured.items()
        ]
        return pd.concat(frames, ignore_index=True)


def _tidy(by_model: dict[str, Distances]) -> pd.DataFrame:
    frames = [tidy_distances(found).assign(model=model) for model, found in by_model.items()]
    return pd.concat(frames, ignore_index=True)


def distances_to_teacher(
    run: Run, models: Sequence[Model], *, negatives: int = NEGATIVES
) -> StudentDistances:
    """Both distances of every model on at most the first `SHOWN` validation documents."""
    corpus, teachers = run.stages.corpus, run.stages.teachers
    rows = len(corpus.split("validation"))
    teacher = np.asarray(teachers.embeddings(teachers.structural, "validation", rows)[:SHOWN])
    embedded = {
        short_name(model.label, run.label): validation_embeddings(corpus, model) for model in models
    }
    measured: dict[Distance, dict[str, Distances]] = {}
    for distance in get_args(Distance):
        measure = partial(
            probing.measure_distances, teacher=teacher, distance=distance, negatives=negatives
        )
        measured[distance] = {label: measure(student) for label, student in embedded.items()}
    return StudentDistances(
        validation_documents(corpus), measured, short_name(run.label, run.label)
    )


def validation_documents(corpus: CorpusStage) -> pd.DataFrame:
    """The first `SHOWN` validation documents: id, text, source, length (tokens of the structural
    teacher).
    """
    split = corpus.split("validation")
    columns = {"id": "id", "text": "text", "source": "source", "length": "n_structural_tokens"}
    return pd.DataFrame({name: split[column][:SHOWN] for name, column in columns.items()})


def distance_explorer(distances: StudentDistances) -> Explorer:
    """Explore distances by loss, distance, γ, negatives and document length, and the pairs that are
    mistaken most.

    With `all losses`, these pairs are those of the student of this run.
    """
    documents, lengths = distances.documents, distances.documents["length"].to_numpy()
    models = list(distances.measured["cosine"])
    drawn: dict[str, Any] = {}  # the last figure, and what it is of
    most, ends = (
        distances.measured["cosine"][models[0]].negative.shape[1],
        (int(lengths.min()), int(lengths.max())),
    )

    def answer(
        loss: str,
        distance: Distance,
        gamma: float,
        negatives: int,
        tokens: tuple[int, int],
        pair: int,
    ) -> Answer:
        chosen = (lengths >= tokens[0]) & (lengths <= tokens[1])
        if (count := int(chosen.sum())) < LEAST:
            few = f"only {count} of {len(lengths)} documents have {tokens[0]} to {tokens[1]} tokens"
            raise InputError(f"{few}; choose a wider range with at least {LEAST}")
        parts = {
            model: found.part(chosen, negatives)
            for model, found in distances.measured[distance].items()
        }
        shown = parts if loss == ALL_LOSSES else {loss: parts[loss]}
        margin = f"max-margin {'MSE' if distance == 'mse' else distance}, γ = {gamma:g}"
        rows = [(model, *probing.separation(found, gamma=gamma)) for model, found in shown.items()]
        separations = pd.DataFrame(rows, columns=["student", "AUC", margin])
        text = html.table("separation", separations, {margin: "{:.4g}".format})
        text += (
            f"<p>{html.number('documents', count)} documents of {tokens[0]} to {tokens[1]} tokens, "
        )
        text += f"{negatives} negatives each</p>"
        pairs = probing.mistaken(parts[distances.own if loss == ALL_LOSSES else loss], k=MISTAKEN)
        if drawn.get("of") != (
            settings := (loss, distance, gamma, negatives, tokens)
        ):  # the pair does not change it
            figure = Figure(figsize=(8.5, 1.35 + 0.75 * len(shown)), layout="constrained")
            plot_distances(_tidy(shown), distance=distance, gamma=gamma, ax=figure.subplots())
            drawn.update(of=settings, figure=figure)
        alt = f"{UNITS[distance]} to the own and to other teacher embeddings, one row each for {', '.join(shown)}"
        return Answer(
            text + _pair(documents, pairs.iloc[min(pair, len(pairs)) - 1]), drawn["figure"], alt
        )

    controls = {
        "loss": choice({model: model for model in (ALL_LOSSES, *models)}, ALL_LOSSES),
        "distance": choice({name: key for key, name in UNITS.items()}, "cosine"),
        "γ": slider(0.0, 2.0, 0.1, 1.0),
        "negatives": slider(1, most, 1, most),
        "tokens": slider(*ends, 1, ends),
        "pair": slider(1, MISTAKEN, 1, 1),
    }
    return Explorer(controls, answer)


def _pair(documents: pd.DataFrame, pair: pd.Series) -> str:
    """A mistaken pair, side by side: the document, and the other with the nearer teacher embedding."""
    one, other = (documents.iloc[int(row)] for row in pair[["document", "other"]])
    texts = "".join(
        html.document(f"{own['id']}, {own['length']} tokens", own["text"]) for own in (one, other)
    )
    nearer, by = (
        ("nearer to", pair["ahead"]) if pair["ahead"] > 0 else ("farther from", -pair["ahead"])
    )
    text = f"The student of {one['id']} is {by:.3f} {nearer} the teacher embedding of {other['id']} than its own."
    return f'<p>{html.escape(text)}</p><div style="display: flex; flex-wrap: wrap; gap: 8px;">{texts}</div>'


class Spaces(NamedTuple):
    documents: pd.DataFrame  # id, source, length
    planes: dict[str, probing.Plane]  # by space


def spaces_of_run(run: Run) -> Spaces:
    """The first `SHOWN` validation documents in several spaces.

    The spaces: the student before and after, the teachers, and both projected views of the
    contextual loss.
    """
    stages, documents = run.stages, validation_documents(run.stages.corpus)
    models = {STUDENT: run.model, UNTRAINED: untrained_model(stages.students)}
    found = {name: validation_embeddings(stages.corpus, model) for name, model in models.items()}
    rows = len(stages.corpus.split("validation"))
    for name, teacher in stages.teachers.of_student.items():
        found[f"{name} teacher"] = np.asarray(
            stages.teachers.embeddings(teacher, "validation", rows)[: len(documents)]
        )
    if run.profile.parameters.contextual_teacher is not None:
        found |= project(stages.students.objective(), found)
    return Spaces(documents, {space: principal_plane(X) for space, X in found.items()})


def project(objective: Objective, embeddings: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Both views of the contextual loss, (N, P): embeddings of student and teacher through the
    trained projections.
    """
    import torch

    (contextual,) = (one for one in objective.teachings if one.name == CONTEXTUAL)
    given = (
        np.array(embeddings[space], dtype=np.float32)
        for space in (STUDENT, f"{CONTEXTUAL} teacher")
    )
    with torch.no_grad():
        views = contextual.views(*map(torch.from_numpy, given))
    return {
        f"{side} view": view.numpy()
        for side, view in zip((STUDENT, CONTEXTUAL), views, strict=True)
    }


def projection_explorer(spaces: Spaces) -> Explorer:
    """Compare the documents in two spaces, coloured by source or length."""
    documents, names = spaces.documents, {name: name for name in spaces.planes}
    titles = [f"{own.id}, {own.length} tokens" for own in documents.itertuples()]

    def answer(space: str, beside: str, colour: str) -> Answer:
        figure, dots = Figure(figsize=(9, 4), layout="constrained"), []
        for name, ax in zip((space, beside), figure.subplots(1, 2), strict=True):
            points, explained = spaces.planes[name]
            frame = documents.assign(first=points[:, 0], second=points[:, 1])
            last = ax is figure.axes[1]  # one legend: both panels have the same colours
            plot_plane(frame, colour=colour, explained=explained, legend=last, ax=ax).set_title(
                name
            )
            dots.append((ax, points, titles))
        alt = f"validation documents along the principal axes of {space} and of {beside}, coloured by {colour}"
        return Answer("", figure, alt, dots)

    controls = {
        "space": choice(
            names, view if (view := f"{STUDENT} view") in names else STUDENT
        ),  # beside the other view
        "beside": choice(names, list(names)[-1]),
        "colour": choice({name: name for name in ("source", "length")}, "source"),
    }
    return Explorer(controls, answer)
