"""Explorers: a function of the values of controls, answered at once.

In a notebook that a person runs, controls and answer are widgets. Where the notebook is executed
without a person (papermill, nbconvert), the first answer stands alone.
"""

import io
from collections.abc import Callable, Iterable
from typing import Any

import ipywidgets
from IPython.display import HTML, Image, display
from matplotlib.figure import Figure

from docemb_lib.base.errors import InputError
from docemb_lib.base.progress import live_cell

DPI = 90  # of figures: legible, and small in a saved notebook
STATIC = "<p><i>The first setting; controls appear in JupyterLab.</i></p>"


def explore(
    answer: Callable[..., Iterable[Any]], **controls: ipywidgets.ValueWidget
) -> ipywidgets.VBox | None:
    """Return controls above what `answer` gives for their values; the last value of a cell.

    answer: from the values by name to what is displayed, figures among it. An InputError or OSError
    (files may have been deleted) becomes one line. A control without a description gets its name.
    Returns None after the first answer where nobody can move controls.
    """

    def show(**values: Any) -> None:
        try:
            for each in answer(**values):
                display(
                    picture(each, alt=f"answer to {values}") if isinstance(each, Figure) else each
                )
        except (InputError, OSError) as error:
            print(error)

    if live_cell() is None:
        show(**{name: control.value for name, control in controls.items()})
        display(HTML(STATIC))
        return None
    for name, control in controls.items():
        control.description = control.description or name
    box = ipywidgets.VBox([*controls.values(), ipywidgets.interactive_output(show, controls)])
    box.add_class("docemb-explorer")
    return box


def picture(figure: Figure, *, alt: str) -> Image:
    file = io.BytesIO()
    # The usual compression takes a quarter of the time of an answer.
    figure.savefig(file, format="png", dpi=DPI, pil_kwargs={"compress_level": 1})
    return Image(file.getvalue(), alt=alt)
