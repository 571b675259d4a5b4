"""Explorers of distances and projections: documents in the spaces of students and teachers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, get_args

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation.probes import (
    Distance,
    Plane,
    measure_distances,
    principal_plane,
    separation,
    tidy_distances,
)
from docemb_lib.figures import short_names
from docemb_lib.figures.documents import UNITS, plot_distances, plot_plane
from docemb_lib.runs.models import Model
from docemb_lib.runs.run import Run
from docemb_lib.runs.stages import Corpus
from docemb_lib.settings.labels import typeset
from docemb_lib.views.students import SHOWN, validation_embeddings
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer, choice, slider

if TYPE_CHECKING:
    from docemb_lib.losses import Objective

NEGATIVES = 20  # per document, equal for all students and both distances
ALL_LOSSES = "all losses"
STUDENT = "student"
CONTEXTUAL = "contextual"
LEAST = 5  # documents whose distances are shown
# Training documents on a map. A student embeds them for it alone, and a thousand would take as long
# as those of the tasks.
TRAINING = 150


class StudentDistances(NamedTuple):
    lengths: np.ndarray  # (N,), structural tokens of the documents
    measured: dict[Distance, dict[str, np.ndarray]]  # by student, in the order of display

    def tidy(self) -> pd.DataFrame:
        """All students in one frame: distance, model, and the columns of `tidy_distances`."""
        frames = []
        for distance, by_model in self.measured.items():
            frames.append(_tidy(by_model).assign(distance=distance))
        return pd.concat(frames, ignore_index=True)


def _tidy(by_model: Mapping[str, np.ndarray]) -> pd.DataFrame:
    frames = [tidy_distances(part).assign(model=model) for model, part in by_model.items()]
    return pd.concat(frames, ignore_index=True)


def distances_to_teacher(
    run: Run, models: Sequence[Model], *, negatives: int = NEGATIVES
) -> StudentDistances:
    """Both distances of every model on at most the first `SHOWN` validation documents."""
    corpus = run.corpus
    teachers = run.teachers
    rows = len(corpus.split("validation"))
    teacher = np.asarray(teachers.embeddings(teachers.structural, "validation", rows)[:SHOWN])
    names = short_names(models, run.label)
    measured: dict[Distance, dict[str, np.ndarray]] = {name: {} for name in get_args(Distance)}
    for model in models:
        student = validation_embeddings(corpus, model)
        for distance, by_model in measured.items():
            name = names.get(model.label) or typeset(model.label)
            by_model[name] = measure_distances(
                student, teacher, distance=distance, negatives=negatives
            )
    lengths = np.asarray(corpus.split("validation")["n_structural_tokens"][:SHOWN])
    return StudentDistances(lengths, measured)


def distance_explorer(distances: StudentDistances) -> Explorer:
    """Explore distances by loss, distance, γ, negatives and document length."""
    lengths = distances.lengths
    models = list(distances.measured["cosine"])

    def answer(
        loss: str, distance: Distance, gamma: float, negatives: int, tokens: tuple[int, int]
    ) -> Answer:
        shortest, longest = tokens
        chosen = (lengths >= shortest) & (lengths <= longest)
        count = int(chosen.sum())
        if count < LEAST:
            few = (
                f"only {count} of {len(lengths)} documents have {shortest:,} to {longest:,} tokens"
            )
            raise InputError(f"{few}; choose a wider range with at least {LEAST}")
        measured = distances.measured[distance]
        names = models if loss == ALL_LOSSES else [loss]
        parts = {model: measured[model][chosen, : 1 + negatives] for model in names}

        margin = f"max-margin {'MSE' if distance == 'mse' else distance}, γ = {gamma:g}"
        rows = [(model, *separation(part, gamma=gamma)) for model, part in parts.items()]
        separations = pd.DataFrame(rows, columns=["student", "AUC", margin])
        text = html.table("separation", separations, {margin: "{:.4g}".format})
        text += (
            f"<p>{html.number('documents', count)} documents of {shortest:,} to {longest:,} "
            f"tokens, {negatives} negatives each</p>"
        )
        figure = Figure(figsize=(8.5, 1.35 + 0.75 * len(parts)), layout="constrained")
        plot_distances(_tidy(parts), distance=distance, gamma=gamma, ax=figure.subplots())
        alt = (
            f"{UNITS[distance]} to the own and to other teacher embeddings, "
            f"one row each for {', '.join(parts)}"
        )
        return Answer(text, figure, alt)

    most = distances.measured["cosine"][models[0]].shape[1] - 1
    ends = (int(lengths.min()), int(lengths.max()))
    losses = {model: model for model in (ALL_LOSSES, *models)}
    units = {name: key for key, name in UNITS.items()}
    controls = {
        "loss": choice(losses, ALL_LOSSES),
        "distance": choice(units, "cosine"),
        "γ": slider(0.0, 2.0, 0.1, 1.0),
        "negatives": slider(1, most, 1, most),
        "tokens": slider(*ends, 1, ends),
    }
    return Explorer(controls, answer)


class Spaces(NamedTuple):
    documents: pd.DataFrame  # text, source, length, split
    planes: dict[str, Plane]  # by space


def spaces_of_run(run: Run) -> Spaces:
    """Documents in the planes of several spaces: `TRAINING` of training, and those of validation.

    The spaces: the student before and after, the teachers, and both projected views of the
    contextual loss. Of the validation documents there are at most `SHOWN`.
    """
    counts = {"train": min(TRAINING, run.profile.parameters.documents), "validation": SHOWN}
    models = {STUDENT: run.model, run.untrained.label: run.untrained}
    documents = []
    parts: dict[str, list[np.ndarray]] = {}
    for split, count in counts.items():
        of_split = split_documents(run.corpus, split, count)
        documents.append(of_split)
        rows = len(run.corpus.split(split))
        if split == "train":
            rows = run.profile.parameters.documents
        for name, model in models.items():
            embeddings = model.embed(of_split["text"].tolist())
            parts.setdefault(name, []).append(embeddings)
        for name, of_teacher in run.teachers.of_documents(split, rows).items():
            embeddings = np.asarray(of_teacher[: len(of_split)])
            parts.setdefault(f"{name} teacher", []).append(embeddings)
    spaces = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    if run.profile.parameters.contextual_teacher is not None:
        spaces |= project(run.students.objective(), spaces)
    planes = {space: principal_plane(X) for space, X in spaces.items()}
    return Spaces(pd.concat(documents, ignore_index=True), planes)


def split_documents(corpus: Corpus, split: str, count: int) -> pd.DataFrame:
    """The first documents of a split: text, source, length (structural tokens), split."""
    rows = corpus.split(split)
    columns = {"text": "text", "source": "source", "length": "n_structural_tokens"}
    frame = pd.DataFrame({name: rows[column][:count] for name, column in columns.items()})
    return frame.assign(split=split)


def project(objective: Objective, embeddings: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Both views of the contextual loss, (N, P), by the trained projections.

    `embeddings` has those of the student, (N, D), and of the contextual teacher, (N, C), by space.
    """
    import torch

    (contextual,) = (teaching for teaching in objective.teachings if teaching.name == CONTEXTUAL)
    student = np.array(embeddings[STUDENT], dtype=np.float32)
    teacher = np.array(embeddings[f"{CONTEXTUAL} teacher"], dtype=np.float32)
    with torch.no_grad():
        f, c = contextual.views(torch.from_numpy(student), torch.from_numpy(teacher))
    return {f"{STUDENT} view": f.numpy(), f"{CONTEXTUAL} view": c.numpy()}


def projection_explorer(spaces: Spaces) -> Explorer:
    """Compare the documents in two spaces, coloured by source, length or split."""

    def answer(left: str, right: str, colour: str) -> Answer:
        shown = list(dict.fromkeys((left, right)))
        figure = Figure(figsize=(4 * len(shown) + 2, 4), layout="constrained")
        axes = figure.subplots(1, len(shown), squeeze=False)[0]
        for ax, space in zip(axes, shown, strict=True):
            places, explained = spaces.planes[space]
            points = spaces.documents.assign(first=places[:, 0], second=places[:, 1])
            plot_plane(points, colour=colour, legend=ax is axes[-1], ax=ax)
            share = "no variance" if np.isnan(explained) else f"{explained:.0%} of the variance"
            ax.set(title=space, xlabel=share)
        alt = f"documents along the principal axes of {left} and of {right}, coloured by {colour}"
        return Answer("", figure, alt)

    names = {name: name for name in spaces.planes}
    view = f"{STUDENT} view"
    colours = {name: name for name in ("source", "length", "split")}
    controls = {
        "space": choice(names, view if view in names else STUDENT),  # next to the other view
        "beside": choice(names, list(names)[-1]),
        "colour": choice(colours, "source"),
    }
    return Explorer(controls, answer)
