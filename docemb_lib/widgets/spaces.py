"""The distance and the projection explorer: documents in the spaces of students, teachers and projected views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from docemb_lib.errors import InputError
from docemb_lib.evaluation import probes as probing
from docemb_lib.evaluation.probes import Distance, Distances, principal_plane, tidy_distances
from docemb_lib.evaluation.protocols import for_validation
from docemb_lib.evaluation.tasks import Classification
from docemb_lib.experiments.models import UNTRAINED, Model, embed_once, untrained_model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.stages import CorpusStage
from docemb_lib.figures import short_name
from docemb_lib.figures.documents import UNITS, plot_distances, plot_plane
from docemb_lib.views import SHOWN, validation_embeddings
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer, Options, choice, interval, slider

if TYPE_CHECKING:
    from docemb_lib.losses import Objective

NEGATIVES = 20  # per document, equal for all students and both distances
ALL_LOSSES = "all losses"
MISTAKEN = 10  # pairs in the list
LEAST = 5  # documents whose distances are shown
Range = tuple[int, int]


class StudentDistances(NamedTuple):
    documents: pd.DataFrame  # id, text, source, length (structural tokens); a row per document
    measured: dict[Distance, dict[str, Distances]]  # by student, in the order of display
    own: str  # the student of this run

    def tidy(self) -> pd.DataFrame:
        """All students in one frame: distance, model, and the columns of `tidy_distances`."""
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
    embedded = {short_name(model.label, run.label): validation_embeddings(corpus, model) for model in models}
    measured: dict[Distance, dict[str, Distances]] = {}
    for distance in get_args(Distance):
        measure = partial(probing.measure_distances, teacher=teacher, distance=distance, negatives=negatives)
        measured[distance] = {label: measure(student) for label, student in embedded.items()}
    return StudentDistances(validation_documents(corpus), measured, short_name(run.label, run.label))


def validation_documents(corpus: CorpusStage) -> pd.DataFrame:
    """The first `SHOWN` validation documents: id, text, source, length (tokens of the structural teacher)."""
    split = corpus.split("validation")
    columns = {"id": "id", "text": "text", "source": "source", "length": "n_structural_tokens"}
    return pd.DataFrame({name: split[column][:SHOWN] for name, column in columns.items()})


def distance_explorer(distances: StudentDistances) -> Explorer:
    """Explore distances by loss, distance, γ, negatives and document length, and the pairs that are mistaken most.

    With `all losses`, these pairs are those of the student of this run.
    """
    documents, lengths = distances.documents, distances.documents["length"].to_numpy()
    models = list(distances.measured["cosine"])
    most = distances.measured["cosine"][models[0]].negative.shape[1]

    def parts(loss: str, distance: Distance, negatives: int, tokens: Range) -> dict[str, Distances]:
        chosen = (lengths >= tokens[0]) & (lengths <= tokens[1])
        if (count := int(chosen.sum())) < LEAST:
            few = f"only {count} of {len(lengths)} documents have {tokens[0]} to {tokens[1]} tokens"
            raise InputError(f"{few}; distances of fewer than {LEAST} say little: widen the range")
        measured = distances.measured[distance]
        return {model: measured[model].part(chosen, negatives) for model in (models if loss == ALL_LOSSES else [loss])}

    @lru_cache(maxsize=1)  # the pair does not change the figure
    def drawn(loss: str, distance: Distance, gamma: float, negatives: int, tokens: Range) -> Figure:
        return _figure(parts(loss, distance, negatives, tokens), distance, gamma)

    def choices(loss: str, distance: Distance, _: float, negatives: int, tokens: Range, __: Any) -> dict[str, Options]:
        of_loss = parts(loss, distance, negatives, tokens)
        found = probing.mistaken(of_loss[distances.own if loss == ALL_LOSSES else loss], k=MISTAKEN)
        ids, offered = documents["id"], []
        for number, (one, other, _, _, ahead) in enumerate(found.itertuples(index=False), 1):
            offered.append((f"{number}. {ids[one]} → {ids[other]} ({ahead:+.3f})", (one, other)))
        return {"pair": offered}

    def answer(loss: str, distance: Distance, gamma: float, negatives: int, tokens: Range, pair: Any) -> Answer:
        shown, margin = parts(loss, distance, negatives, tokens), f"max-margin loss, γ = {gamma:g}"
        rows = [(model, *probing.separation(found, gamma=gamma)) for model, found in shown.items()]
        separations = pd.DataFrame(rows, columns=["student", "AUC", "overlap", margin])
        text = html.table("separation", separations, {margin: "{:.4g}".format})
        text += f"<p>{html.number('documents', len(next(iter(shown.values())).positive))} documents of "
        text += f"{html.number('tokens', f'{tokens[0]} to {tokens[1]}')} tokens, {negatives} negatives each</p>"
        alt = f"{UNITS[distance]} to the own and to other teacher embeddings, one row each for {', '.join(shown)}"
        return Answer(text + _documents(documents, pair), drawn(loss, distance, gamma, negatives, tokens), alt)

    controls = {
        "loss": choice([(model, model) for model in (ALL_LOSSES, *models)]),
        "distance": choice([(name, key) for key, name in UNITS.items()]),
        "γ": slider(0.0, 2.0, 0.1, 1.0),
        "negatives": slider(1, most, 1, most),
        "tokens": interval(int(lengths.min()), int(lengths.max())),
        "pair": choice([], wide=True),
    }
    return Explorer(controls, answer, choices=choices)


def _figure(shown: dict[str, Distances], distance: Distance, gamma: float) -> Figure:
    width, height = 8.5, 1.35 + 0.75 * len(shown)
    figure = Figure(figsize=(width, height))  # fixed margins: a layout engine would draw all texts twice
    labels = 0.3 + 0.085 * max(map(len, shown))
    axes = figure.add_axes((labels / width, 0.55 / height, 1 - (labels + 0.9) / width, 1 - 1.35 / height))
    plot_distances(_tidy(shown), distance=distance, gamma=gamma, ax=axes)
    return figure


def _documents(documents: pd.DataFrame, pair: tuple[int, int] | None) -> str:
    titles, texts = ("the document", "the document with the nearer (or nearest) teacher embedding"), ""
    for title, row in zip(titles, pair or (), strict=pair is not None):
        own = documents.iloc[row]
        texts += html.document(f"{title}: {own['id']}, {own['length']} tokens", own["text"])
    return texts and f'<div style="display: flex; flex-wrap: wrap; gap: 8px;">{texts}</div>'


VALIDATION = "validation documents"
STUDENT, CONTEXTUAL = "student", "contextual"
COLOURS = ("source", "label", "length")
TITLE = 60  # characters of a text that tell which document a point is


class Spaces(NamedTuple):
    documents: dict[str, pd.DataFrame]  # by collection: title, length, and source or label
    planes: dict[str, dict[str, probing.Plane]]  # by collection and space


def spaces_of_run(run: Run) -> Spaces:
    """The validation documents, and those of the sweep's classification tasks, in several spaces; at most `SHOWN` each.

    The spaces: the student before and after, the teachers, and both projected views of the contextual loss.
    """
    stages = run.stages
    collections = {VALIDATION: validation_documents(stages.corpus)}
    for name in run.profile.evaluation.sweep_tasks:
        if isinstance(task := stages.scores.tasks[name], Classification):
            splits = for_validation(task, SHOWN).splits
            data = splits["validation" if "validation" in splits else "train"]
            columns = {"text": data.texts, "length": stages.teachers.structural.count_tokens(data.texts)}
            collections[f"task {name}"] = pd.DataFrame({**columns, "label": list(map(str, data.labels))})
    objective = stages.students.objective() if run.profile.parameters.contextual_teacher is not None else None
    embedded = {name: _spaces(run, name, documents, objective) for name, documents in collections.items()}
    planes = {name: {space: principal_plane(X) for space, X in own.items()} for name, own in embedded.items()}
    return Spaces({name: _titled(documents) for name, documents in collections.items()}, planes)


def _titled(documents: pd.DataFrame) -> pd.DataFrame:
    """The documents with a title, their id or else their label and first words, in place of their text."""
    if "id" in documents:
        titles = documents["id"]
    else:
        titles = documents["label"] + ": " + documents["text"].map(partial(html.snippet, most=TITLE))
    return documents.assign(title=titles).drop(columns="text")


def _spaces(run: Run, collection: str, documents: pd.DataFrame, objective: Objective | None) -> dict[str, np.ndarray]:
    stages, texts = run.stages, list(documents["text"])
    models = {STUDENT: run.model, UNTRAINED: untrained_model(stages.students)}
    found = {name: embed_once(run.workspace, model, texts) for name, model in models.items()}
    for name, teacher in stages.teachers.of_student.items():
        if collection == VALIDATION:  # their embeddings were made for training
            rows = len(stages.corpus.split("validation"))
            known = np.asarray(stages.teachers.embeddings(teacher, "validation", rows)[: len(texts)])
        else:
            frozen = Model(name, f"teacher/{teacher.fingerprint}", teacher.embed)
            known = embed_once(run.workspace, frozen, texts)
        found[f"{name} teacher"] = known
    if objective is None:
        return found
    return found | project(objective, found)


def project(objective: Objective, embeddings: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Both views of the contextual loss, (N, P): embeddings of student and teacher through the trained projections."""
    import torch

    (contextual,) = (one for one in objective.teachings if one.name == CONTEXTUAL)
    given = (np.array(embeddings[space], dtype=np.float32) for space in (STUDENT, f"{CONTEXTUAL} teacher"))
    with torch.no_grad():
        views = contextual.views(*map(torch.from_numpy, given))
    return {f"{side} view": view.numpy() for side, view in zip((STUDENT, CONTEXTUAL), views, strict=True)}


def projection_explorer(spaces: Spaces) -> Explorer:
    """Compare documents in two spaces, coloured by a column."""
    collections, names = list(spaces.planes), list(next(iter(spaces.planes.values())))

    def choices(documents: str, *_: str) -> dict[str, Options]:
        columns = spaces.documents[documents].columns
        return {"colour": [(name, name) for name in COLOURS if name in columns]}

    def answer(documents: str, space: str, beside: str, colour: str) -> Answer:
        planes, frame = spaces.planes[documents], spaces.documents[documents]
        figure, dots = Figure(figsize=(9, 4), layout="constrained"), []
        titles = [f"{title}, {length} tokens" for title, length in zip(frame["title"], frame["length"], strict=True)]
        for name, ax in zip((space, beside), figure.subplots(1, 2), strict=True):
            last = ax is figure.axes[1]  # one legend: both panels have the same colours
            points = frame.assign(first=planes[name].points[:, 0], second=planes[name].points[:, 1])
            plot_plane(points, colour=colour, explained=planes[name].explained, legend=last, ax=ax)
            ax.set_title(name)
            dots.append((ax, planes[name].points, titles))
        shares = {name: planes[name].explained for name in (space, beside)}
        text = html.table("planes", pd.DataFrame(shares.items(), columns=["space", "share of variance in the plane"]))
        alt = f"{documents} along the two principal axes of {space} and of {beside}, coloured by {colour}"
        return Answer(text, figure, alt, dots)

    controls = {
        "documents": choice([(name, name) for name in collections]),
        "space": choice([(name, name) for name in names]),
        "beside": choice([(name, name) for name in names], len(names) - 1),
        "colour": choice([]),
    }
    return Explorer(controls, answer, choices=choices)
