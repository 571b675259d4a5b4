"""The projection explorer: documents in the spaces of a student, of the teachers, and of both projected views."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from docemb_lib.evaluation.probes import ALL, Plane, principal_plane
from docemb_lib.evaluation.protocols import for_validation
from docemb_lib.evaluation.tasks import Classification
from docemb_lib.experiments.models import UNTRAINED, Model, embed_once, untrained_model
from docemb_lib.experiments.run import Run
from docemb_lib.figures.embeddings import plot_plane
from docemb_lib.views import SHOWN
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.distances import validation_documents
from docemb_lib.widgets.explorer import Answer, Explorer, Options, choice
from docemb_lib.workspace import Artefact

Side = Literal["student", "contextual"]
VALIDATION = "validation documents"
STUDENT = "student"
PROJECTIONS = "projections.safetensors"
COLOURS = ("source", "label", "length")


class Spaces(NamedTuple):
    documents: dict[str, pd.DataFrame]  # by collection: length, and source or label
    planes: dict[str, dict[str, Plane]]  # by collection and space


def spaces_of_run(run: Run) -> Spaces:
    """The validation documents, and those of each classification task among the sweep's tasks, in several spaces.

    The spaces: the student before and after, the teachers, and both projected views of the contextual loss. At most
    `SHOWN` documents of each collection; those of a task are the ones that runs are scored on, with labels.
    """
    stages = run.stages
    collections = {VALIDATION: validation_documents(stages.corpus)}
    for name in run.profile.evaluation.sweep_tasks:
        if isinstance(task := stages.scores.tasks[name], Classification):
            splits = for_validation(task, SHOWN).splits
            data = splits["validation" if "validation" in splits else "train"]
            columns = {"text": data.texts, "length": stages.teachers.structural.count_tokens(data.texts)}
            collections[f"task {name}"] = pd.DataFrame({**columns, "label": list(map(str, data.labels))})
    spaces = Spaces({}, {})
    for name, documents in collections.items():
        spaces.documents[name] = documents.drop(columns="text")
        spaces.planes[name] = {space: principal_plane(X) for space, X in _spaces(run, name, documents).items()}
    return spaces


def _spaces(run: Run, collection: str, documents: pd.DataFrame) -> dict[str, np.ndarray]:
    """The embeddings (N, ·) of the documents in each space, by name."""
    stages, texts = run.stages, list(documents["text"])
    models = {STUDENT: run.model, UNTRAINED: untrained_model(stages.students)}
    found = {name: embed_once(run.workspace, model, texts) for name, model in models.items()}
    for name, teacher in stages.teachers.of_student.items():
        if collection == VALIDATION:  # their embeddings were made for training
            rows = len(stages.corpus.split("validation"))
            known = np.asarray(stages.teachers.embeddings(teacher, "validation", rows)[: len(texts)])
        else:
            frozen = Model(name, f"teacher/{teacher.fingerprint}", lambda teacher=teacher: teacher)
            known = embed_once(run.workspace, frozen, texts)
        found[f"{name} teacher"] = known
    if run.profile.parameters.contextual_teacher is None:
        return found
    sides: dict[Side, str] = {"student": STUDENT, "contextual": "contextual teacher"}
    if run.profile.student.centre:  # the projection was trained on embeddings that are not centred
        del sides["student"]
    views = {f"{side} view": project(run, run.student(), side, found[space]) for side, space in sides.items()}
    return found | views


def project(run: Run, student: Artefact, side: Side, embeddings: np.ndarray) -> np.ndarray:
    """Embeddings (N, D) of one side of the contextual loss through the projection trained with the student: (N, P)."""
    import torch
    from safetensors.torch import load_file

    from docemb_lib.losses import Projection

    start = f"contextual.{'student' if side == 'student' else 'teacher'}_projection."
    weights = load_file(str(student.path / PROJECTIONS))
    projection = Projection(getattr(run.profile.parameters, f"{side}_projection"), embeddings.shape[1])
    projection.load_state_dict({k.removeprefix(start): v for k, v in weights.items() if k.startswith(start)})
    with torch.no_grad():
        return projection(torch.from_numpy(np.array(embeddings, dtype=np.float32))).numpy()


def projection_explorer(spaces: Spaces, probes: pd.DataFrame) -> Explorer:
    """Compare documents in two spaces, coloured by a column; below, how well a linear probe predicts each teacher.

    probes: see `probes_of_teachers`.
    """
    collections, names = list(spaces.planes), list(next(iter(spaces.planes.values())))

    def choices(documents: str, *_: str) -> dict[str, Options]:
        columns = spaces.documents[documents].columns
        return {"colour": [(name, name) for name in COLOURS if name in columns]}

    def answer(documents: str, space: str, beside: str, colour: str) -> Answer:
        planes, frame = spaces.planes[documents], spaces.documents[documents]
        figure = Figure(figsize=(9, 4), layout="constrained")
        for name, ax in zip((space, beside), figure.subplots(1, 2), strict=True):
            last = ax is figure.axes[1]  # one legend: both panels have the same colours
            points = frame.assign(first=planes[name].points[:, 0], second=planes[name].points[:, 1])
            plot_plane(points, colour=colour, explained=planes[name].explained, legend=last, ax=ax)
            ax.set_title(name)
        shares = {name: f"{planes[name].explained:.3f}" for name in (space, beside)}
        rows = [html.row({"space": name, "explained": share}, space=name) for name, share in shares.items()]
        text = html.table("planes", ["space", "share of variance in the plane"], rows) + _readable(probes)
        alt = f"{documents} along the two principal axes of {space} and of {beside}, coloured by {colour}"
        return Answer(text, figure, alt)

    controls = {
        "documents": choice([(name, name) for name in collections]),
        "space": choice([(name, name) for name in names]),
        "beside": choice([(name, name) for name in names], len(names) - 1),
        "colour": choice(choices(collections[0])["colour"]),
    }
    return Explorer(controls, answer, choices=choices)


def _readable(probes: pd.DataFrame) -> str:
    """The probes over all validation documents as a table."""
    rows = []
    for probe in probes[probes["bucket"] == ALL].to_dict("records"):
        who = {"teacher": probe["teacher"], "model": probe["model"]}
        rows.append(html.row(who | {"r2": f"{probe['r2']:.3f}", "common": f"{probe['overlap']:.3f}"}, **who))
    return html.table("readable", ["probe of the", "from", "R²", "common neighbours"], rows)
