"""Names of models in figures and tables, and tables to read."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from IPython.display import Markdown, display

from docemb_lib.runs.kinds import Kind, short_titles
from docemb_lib.runs.models import Model
from docemb_lib.runs.run import Run
from docemb_lib.settings.labels import typeset


def short_names(run: Run, models: Sequence[Model] | None = None) -> dict[str, str]:
    """Return the short names of models by label; None: of this run's student and references.

    Examples are `S+PV masked`, `start`, `SBERT-256` and `PV, 200d`.
    """
    titles = short_titles(run.profile.structural_teacher.max_tokens)
    names = {}
    for model in run.models() if models is None else models:
        identity = model.identity
        name = typeset(identity.name) or titles[model.kind]
        if model.kind == Kind.STUDENT:
            name = run.name
        names[model.label] = name + identity.ending
    return names


def named(frame: pd.DataFrame, names: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return the frame with names for figures in place of labels of models.

    They are in its columns `model` and `reference` and in the level `model` of its index. names:
    see `short_names`. All are `typeset`.
    """
    of_labels = names or {}

    def name(label: str) -> str:
        return typeset(of_labels.get(label, label))

    frame = frame.copy()
    for column in {"model", "reference"} & set(frame):
        frame[column] = frame[column].map(name)
    return frame.rename(name, level="model") if "model" in frame.index.names else frame


def table(
    frame: pd.DataFrame,
    names: Mapping[str, str] | None = None,
    *,
    digits: int = 3,
    section: str = "",
) -> pd.DataFrame | None:
    """Return the frame to read: names as in figures, rounded numbers, and nothing for NaN.

    names: see `named`; section: Markdown that is shown above the table. A frame without rows is
    left out together with its section.
    """
    if frame.empty:
        return None
    if section:
        display(Markdown(section))

    def text(value: Any) -> Any:
        if pd.isna(value):
            return ""
        return f"{value:.{digits}f}" if isinstance(value, float) else value

    return named(frame, names).map(text)
