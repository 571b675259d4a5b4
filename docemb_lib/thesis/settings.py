"""The settings of a run, beside those of its paper: the first table of each notebook."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from docemb_lib.base import pretrained
from docemb_lib.runs.key import PAIRS, PAPER, PV_NAMES, SOFT_CCA, RunKey
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import FINAL, SHIPPED, Profile, local_config
from docemb_lib.sweeps.plan import grid_place, names_in_grids

# The settings of a profile that decide a result and stand in Tables 4.3 to 4.5, 5.2 or 5.6, by
# section.
SHOWN = {
    "corpus": ("source", "documents", "validation", "tasks"),
    "structural_teacher": ("model", "max_tokens", "long"),
    "student": (
        "model",
        "layers",
        "max_tokens",
        "attention_window",
        "pooling",
        "dropout",
        "lexical",
    ),
    "training": (
        "batch_size",
        "accumulation",
        "learning_rate",
        "warmup",
        "weight_decay",
        "max_grad_norm",
        "epochs",
        "precision",
        "attention",
    ),
    "head": (
        "hidden",
        "dropout",
        "epochs",
        "batch_size",
        "learning_rate",
        "weight_decay",
        "label_smoothing",
        "max_grad_norm",
        "pair_features",
    ),
    "contextual_teachers": ("documents",),
}
MLP = {f"head.{name}" for name in SHOWN["head"][1:-1]}
OF_MODEL = (
    "structural_teacher.max_tokens",
    "student.attention_window",
    "student.dropout",
)  # where they are None
OURS = (
    "corpus.tasks",
    "student.lexical",
    "training.attention",
)  # settings that no paper has
# Those that the SimDE paper gives.
OF_SIMDE = r"corpus\.documents|student\.(model|pooling)|training\.epochs|(training|head)\.(batch_size|learning_rate)"


def settings(run: Run) -> pd.DataFrame:
    """The run's settings, a row each, beside those of its paper where these differ."""
    key = run.key
    rows = {"this run": (key.label, ""), "profile": (key.profile.name, "")}
    rows["grid"] = grid_place(key), ", ".join(names_in_grids(key))
    named = {
        name: None for name in ("structural_loss", "contextual_teacher") if name in key.parameters
    }
    for name, value in (
        named | key.counting
    ).items():  # a teacher that the run lacks is shown as None
        paper = (
            getattr(PAPER, name) if name in (*SOFT_CCA, *PAIRS[1:]) else value
        )  # others vary in the papers
        rows[name] = (str(value), "" if paper == value else str(paper))
    published = _published(key)
    for name, value in _shown(key).items():
        rows[name] = (value, "" if published.get(name) in (value, None) else published[name])
    return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "in the paper"])


def _shown(key: RunKey) -> dict[str, str]:
    """{section.name: value} of `SHOWN`, and the contextual teachers (Table 4.5)."""
    profile, teachers = key.profile, key.profile.contextual_teachers
    sections: dict[str, Any] = {
        **dict(profile),
        "training": key.training,
        "head": profile.evaluation.head,
    }
    names = [section for section in SHOWN if key.trains or section != "training"]
    every = {
        f"{section}.{name}": getattr(sections[section], name)
        for section in names
        for name in SHOWN[section]
    }
    if key.trains:
        from docemb_lib.training.run import chosen_here  # with torch

        kind = local_config(pretrained.resolve(profile.student.model)).get("model_type")
        every |= chosen_here(
            key.training, packed=kind != "modernbert" and profile.student.pooling != "cls"
        )
    if key.self_supervised:
        given = {
            f"student.{name}": getattr(profile.simde, name) for name in ("max_tokens", "dropout")
        }
        every |= {name: value for name, value in given.items() if value is not None}
    unread = set() if profile.evaluation.head.hidden else MLP  # by a logistic regression
    every = {
        name: ("the model's own" if name in OF_MODEL else "all") if v is None else v
        for name, v in every.items()
    }
    for name in PV_NAMES:
        every[f"contextual_teachers.{name}"] = " + ".join(
            one.described for one in teachers.members(name)
        )
    return {name: str(value) for name, value in every.items() if name not in unread}


def _published(key: RunKey) -> dict[str, str]:
    """The same settings as far as the run's paper gives them.

    A student of over 512 tokens is beside SimDE_long.
    """
    simde = "simde-long" if key.profile.student.max_tokens > 512 else "simde"
    name = simde if key.self_supervised else "thesis-final" if key.notebook in FINAL else "thesis"
    paper = Profile.load(SHIPPED / "params" / f"{name}.yaml")
    # No paper holds out documents for tasks, and that of SimDE none for validation.
    documents = (
        (paper.corpus.documents or 0)
        - paper.corpus.tasks
        - paper.corpus.validation * key.self_supervised
    )
    shown = _shown(RunKey(key.notebook, paper)) | {
        "corpus.documents": str(documents),
        "training.precision": "fp16",
    }
    return {
        n: v
        for n, v in shown.items()
        if (re.fullmatch(OF_SIMDE, n) if key.self_supervised else n not in OURS)
    }
