"""Projection explorer: the same documents in the spaces of student, teachers and projected views."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from docemb_lib.evaluation.probe import ALL
from docemb_lib.figures.planes import plot_plane
from docemb_lib.widgets import html
from docemb_lib.widgets.controls import Choice, Control, Options
from docemb_lib.widgets.explorer import Answer, Explorer

if TYPE_CHECKING:
    from docemb_lib.experiments.projected_spaces import Spaces

COLOURS = {"source": "source", "label": "label", "length": "length"}


def projection_explorer(spaces: Spaces, probes: pd.DataFrame) -> Explorer:
    """Choose documents, two spaces beside each other and what points are coloured by; beneath stands how much of each
    teacher a linear map reads off the student. probes: see `probes_of_teachers`."""
    names = {name: list(planes) for name, planes in spaces.planes.items()}
    first = next(iter(names))

    def choices(documents: str, space: str, beside: str, colour: str) -> dict[str, Options]:
        columns = spaces.documents[documents].columns
        return {"colour": [(name, name) for name in COLOURS if name in columns]}

    def answer(documents: str, space: str, beside: str, colour: str) -> Answer:
        planes, frame = spaces.planes[documents], spaces.documents[documents]
        figure = Figure(figsize=(9, 4), layout="constrained")
        for name, ax in zip((space, beside), figure.subplots(1, 2), strict=True):
            last = ax is figure.axes[1]  # both have the same colours
            points = frame.assign(first=planes[name].points[:, 0], second=planes[name].points[:, 1])
            plot_plane(points, colour=colour, explained=planes[name].explained, legend=last, ax=ax)
            ax.set_title(name)
        rows = [
            html.row([html.cell("space", name), html.cell("explained", f"{planes[name].explained:.3f}")], space=name)
            for name in dict.fromkeys((space, beside))
        ]
        return Answer(
            html.table("planes", ["space", "share of variance in the plane"], rows) + _readable(probes),
            figure,
            f"{documents} along the two principal axes of {space} and of {beside}, coloured by {colour}",
        )

    controls: dict[str, Control] = {
        "documents": Choice([(name, name) for name in names]),
        "space": Choice([(name, name) for name in names[first]]),
        "beside": Choice([(name, name) for name in names[first]], len(names[first]) - 1),
        "colour": Choice([(name, name) for name in COLOURS if name in spaces.documents[first].columns]),
    }
    return Explorer(controls, answer, choices=choices)


def _readable(probes: pd.DataFrame) -> str:
    """What is read of each teacher, over all validation documents."""
    rows = [
        html.row(
            [
                html.cell("teacher", probe["teacher"]),
                html.cell("model", probe["model"]),
                html.cell("r2", f"{probe['r2']:.3f}"),
                html.cell("common", f"{probe['overlap']:.3f}"),
            ],
            teacher=probe["teacher"],
            model=probe["model"],
        )
        for probe in probes[probes["bucket"] == ALL].to_dict("records")
    ]
    return html.table("readable", ["readable of the", "from", "R²", "common neighbours"], rows)
