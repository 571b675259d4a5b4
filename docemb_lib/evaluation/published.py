"""The thesis' results as data, to be shown beside our own.

| name              | from                           | value                                        |
|-------------------|--------------------------------|----------------------------------------------|
| table_5_7         | Table 5.7, Figures 5.5 and 5.6 | accuracy, MAP and MRR of the final models    |
| structural_losses | Figures 4.2 and 4.3            | mean normalised accuracy over six tasks      |
| paragraph_vectors | Figure 4.5                     | the same                                     |
| projections       | Figures 4.7, 4.8 and 4.9       | the same                                     |
| weighting         | Figures 4.10, 4.11 and 4.12    | the same                                     |
| corpora           | Tables 4.1 and 5.1             | documents and their lengths, a row per split |
| simde             | Tables 2 to 5 of SimDE's paper | scores; redundancy and similarity of texts   |

The figures' values were read off the graphics (error about 0.0003): the thesis prints no numbers for them. Normalised
accuracy is relative to the models of one figure, so values of different figures must not be compared.
"""

from __future__ import annotations

from importlib.resources import files

import pandas as pd
import yaml

from docemb_lib.errors import InputError

BASELINE = "baseline"  # `kind` of a figure's rows that are no run of its grid
# The rows of Figure 4.4 from top to bottom, as the other figures call them.
FIGURE_4_4 = (
    "Longformer", "MSE", "max-margin;MSE;γ=1.0", "max-margin;MSE;γ=1.5", "max-margin;MSE;γ=0.5", "cosine",
    "contrastive", "max-margin;cosine;γ=0.5",
)  # fmt: skip
NAMES = ("table_5_7", "structural_losses", "paragraph_vectors", "projections", "weighting", "corpora", "simde")


def published(name: str) -> pd.DataFrame:
    """One published result, tidy: a row per `value` (corpora: per split), with its `source`, a table or figure.

    Table 5.7 and SimDE have the columns of our scores (model, task, metric, value) and `round`. A figure has the run's
    `label`, its parameters under the names of our notebooks' (missing: switched off), and its box over the tasks.
    """
    if name not in NAMES:
        raise InputError(f"published results: {name!r} is not one of {', '.join(NAMES)}")
    text = files("docemb_lib.evaluation").joinpath("published", f"{name}.yaml").read_text(encoding="utf-8")
    data = yaml.safe_load(text)
    return pd.DataFrame(data["rows"], columns=data["columns"])
