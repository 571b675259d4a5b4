"""Explorers of distances and projections: documents in the spaces of students and teachers."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import ipywidgets
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from docemb_lib.evaluation.probes import (
    Distance,
    Plane,
    measure_distances,
    principal_plane,
    tidy_distances,
)
from docemb_lib.figures.documents import UNITS, plot_distances, plot_plane
from docemb_lib.figures.style import WIDTH
from docemb_lib.runs.models import Model
from docemb_lib.runs.run import Run
from docemb_lib.views.students import SHOWN, validation_embeddings
from docemb_lib.widgets.explorer import explore

NEGATIVES = 20  # per document, equal for all students and both distances
ALL_LOSSES = "all losses"
STUDENT = "student"
CONTEXTUAL = "contextual"
# Training documents on a map. A student embeds them for it alone, and a thousand would take as long
# as those of the tasks.
TRAINING = 150
COLUMNS = {"text": "text", "source": "source", "length": "n_structural_tokens"}


def distances_to_teacher(
    run: Run, models: Sequence[Model], *, negatives: int = NEGATIVES
) -> pd.DataFrame:
    """Return both distances of each model on at most the first `SHOWN` validation documents.

    Columns: distance, model, and kind and value, see `tidy_distances`.
    """
    teachers = run.teachers
    rows = len(run.corpus.split("validation"))
    teacher = np.asarray(teachers.embeddings(teachers.structural, "validation", rows)[:SHOWN])
    frames = []
    for model in models:
        student = validation_embeddings(run.corpus, model)
        for distance in UNITS:
            measured = measure_distances(student, teacher, distance=distance, negatives=negatives)
            frames.append(tidy_distances(measured).assign(model=model.label, distance=distance))
    return pd.concat(frames, ignore_index=True)


def distance_explorer(distances: pd.DataFrame) -> ipywidgets.VBox | None:
    """Explore `distances_to_teacher` by loss, distance and γ."""

    def answer(loss: str, distance: Distance, γ: float) -> Iterable[Any]:
        rows = distances[distances["distance"] == distance]
        if loss != ALL_LOSSES:
            rows = rows[rows["model"] == loss]
        means = rows.groupby(["model", "kind"], sort=False)["value"].mean().unstack()
        means["max-margin loss"] = means["positive"] - γ * means["negative"]
        figure = Figure(figsize=(WIDTH, 1.4 + 0.7 * len(means)))
        plot_distances(rows, distance=distance, gamma=γ, ax=figure.subplots())
        return figure, means.round(4)

    return explore(
        answer,
        loss=ipywidgets.Dropdown(options=[ALL_LOSSES, *distances["model"].unique()]),
        distance=ipywidgets.Dropdown(options=[(unit, name) for name, unit in UNITS.items()]),
        γ=ipywidgets.FloatSlider(1.0, min=0.0, max=2.0),
    )


class Spaces(NamedTuple):
    documents: pd.DataFrame  # text, source, length, split
    planes: dict[str, Plane]  # by space


def spaces_of_run(run: Run) -> Spaces:
    """Return documents in the planes of several spaces: `TRAINING` of training, and validation.

    The spaces: the student before and after, the teachers, and both projected views of the
    contextual loss. Of the validation documents there are at most `SHOWN`.
    """
    import torch

    parameters = run.profile.parameters
    corpus = run.corpus
    embedded = {"train": parameters.documents, "validation": len(corpus.split("validation"))}
    frames = []
    by_split = []
    for split, count in {"train": TRAINING, "validation": SHOWN}.items():
        count = min(count, embedded[split])
        columns = {name: corpus.split(split)[column][:count] for name, column in COLUMNS.items()}
        frames.append(pd.DataFrame(columns).assign(split=split))
        of_teachers = run.teachers.of_documents(split, embedded[split])
        by_split.append({name: X[:count] for name, X in of_teachers.items()})
    documents = pd.concat(frames, ignore_index=True)
    texts = documents["text"].tolist()
    spaces = {STUDENT: run.model.embed(texts), "start": run.untrained.embed(texts)}
    for name in by_split[0]:
        spaces[f"{name} teacher"] = np.concatenate([of_split[name] for of_split in by_split])
    if parameters.contextual_teacher is not None:
        teachings = run.students.objective().teachings
        (contextual,) = (teaching for teaching in teachings if teaching.name == CONTEXTUAL)
        sides = (spaces[STUDENT], spaces[f"{CONTEXTUAL} teacher"])
        y, c = (torch.tensor(side, dtype=torch.float32) for side in sides)
        with torch.no_grad():
            views = contextual.views(y, c)
        for name, view in zip((STUDENT, CONTEXTUAL), views, strict=True):
            spaces[f"{name} view"] = view.numpy()
    return Spaces(documents, {name: principal_plane(X) for name, X in spaces.items()})


def projection_explorer(spaces: Spaces) -> ipywidgets.VBox | None:
    """Compare the documents in two spaces, coloured by source, length or split."""

    def answer(space: str, beside: str, colour: str) -> Iterable[Any]:
        figure = Figure(figsize=(WIDTH, 3))
        for ax, name in zip(figure.subplots(1, 2), (space, beside), strict=True):
            places, explained = spaces.planes[name]
            points = spaces.documents.assign(first=places[:, 0], second=places[:, 1])
            plot_plane(points, colour=colour, legend=name == beside, ax=ax)
            ax.set(title=name, xlabel=f"{explained:.0%} of the variance")
        return [figure]

    names = list(spaces.planes)
    return explore(
        answer,
        space=ipywidgets.Dropdown(options=names, value=names[-2]),
        beside=ipywidgets.Dropdown(options=names, value=names[-1]),
        colour=ipywidgets.Dropdown(options=["source", "length", "split"]),
    )
