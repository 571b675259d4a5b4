"""A run beside the recorded runs that are comparable with it: scores, labels, groups and the thesis' values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from docemb_lib.experiments import records
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import STRUCTURAL as LOSS
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings import members_of
from docemb_lib.settings.profile import FIXED, NOTEBOOKS
from docemb_lib.thesis.values import BASELINE, ThesisValues, loss_of

STRUCTURAL = "03_structural"
NEITHER = "–"  # the group of runs without the property that defines groups
ALONG = ("lam", "max_structural_len")  # the parameters in which siblings may differ


class Entry(NamedTuple):
    """One run in a comparison."""

    label: str  # as shown
    model: str  # the run's own model in `scores`
    key: RunKey
    scores: pd.DataFrame  # tidy: of the run's own model and of the baselines

    @property
    def parameters(self) -> dict[str, Any]:
        return {**self.key.parameters, **FIXED.get(self.key.notebook, {})}


def scores_of_runs(run: Run, scores: pd.DataFrame) -> pd.DataFrame:
    """The scores of this run and of the comparable recorded runs of its notebook, tidy, for `plot_runs`.

    Runs with a contextual teacher are shown with the runs of the structural notebook that have the same structural
    loss, documents and seed.

    Args:
        scores: tidy scores of this run's model and of its baselines.

    Returns:
        The rows of all runs, then each baseline once, with the columns own (model of a run, not a baseline), group (the
        categories, in order, that the thesis' figure colours), thesis (see `ThesisValues`), sibling (the run differs
        from this one in λ and mask alone), and the notebook's parameters. Equal labels get the parameters that differ.
    """
    entries = [Entry(run.label, run.label, run.key, scores)]
    entries += [Entry(r.label, r.label, run.key_of(r), records.scores_of(run.workspace, r)) for r in run.comparable()]
    entries += _structural_only(run, entries)
    thesis = ThesisValues(run.notebook, run.profile)
    groups = [_group(run.notebook, entry.key) for entry in entries]
    columns = [
        {
            "group": group,
            "thesis": thesis.of_run(entry.key),
            "sibling": is_sibling(run, entry.key),
            **{name: entry.parameters.get(name) for name in NOTEBOOKS[run.notebook]},
        }
        for entry, group in zip(entries, groups, strict=True)
    ]
    shown = [entry._replace(label=label) for entry, label in zip(entries, _distinct(entries), strict=True)]
    rows = beside_baselines(shown, columns, thesis)
    order = [*sorted(set(groups), key=_rank), BASELINE]
    return rows.assign(group=pd.Categorical(rows["group"], categories=order))


def beside_baselines(entries: Sequence[Entry], columns: Sequence[dict[str, Any]], thesis: ThesisValues) -> pd.DataFrame:
    """The scores of the entries' own models with further `columns` of each entry, then each baseline once."""
    own, baselines = [], []
    for entry, values in zip(entries, columns, strict=True):
        is_own = entry.scores["model"] == entry.model
        own.append(entry.scores[is_own].assign(model=entry.label, own=True, **values))
        baselines.append(entry.scores[~is_own])
    once = pd.concat(baselines).drop_duplicates(["model", "task", "metric", "seed"])
    values = {"sibling": False, "group": BASELINE, "thesis": once["model"].map(thesis.of_baseline)}
    once = once.assign(own=False, **dict.fromkeys(columns[0]) | values)
    return pd.concat([*own, once], ignore_index=True).astype({"thesis": float})


def is_sibling(run: Run, key: RunKey) -> bool:
    """Whether this run has teachers of both roles and differs from the other in λ and mask at most."""
    return len(run.key.roles) == 2 and run.key.trains and key.same_but(*ALONG) == run.key.same_but(*ALONG)


def _structural_only(run: Run, entries: Sequence[Entry]) -> list[Entry]:
    """Runs of the structural notebook, which the thesis shows beside runs with a contextual teacher."""
    further = run.profile.further_teachers
    if "contextual_teacher" not in run.parameters or any(teacher.role == "contextual" for teacher in further):
        return []  # with a further contextual teacher no run is structural-only
    wanted = {entry.key.only(*LOSS) for entry in entries}
    if any("structural" not in entry.key.roles for entry in entries):  # as in Figure 4.7
        wanted.add(loss_of(structural_loss="cosine"))
    size = {name: run.parameters[name] for name in ("documents", "seed")}
    shown = {entry.label for entry in entries}
    found = []
    for record in run.comparable(STRUCTURAL):
        key, label = run.key_of(record), f"only-structural;{record.label}"
        if key.only(*LOSS) in wanted and size.items() <= key.counting.items() and label not in shown:
            found.append(Entry(label, record.label, key, records.scores_of(run.workspace, record)))
    return found


def _distinct(entries: Sequence[Entry]) -> list[str]:
    """Labels that differ: where labels are equal, the parameters that differ are added to all but the first entry's.

    Documents and seed are added wherever they differ from the first entry's.
    """
    first = entries[0].parameters
    labels = [entries[0].label]
    for entry in entries[1:]:
        alike = [other.parameters for other in entries if other.label == entry.label]
        others = [first] if first in alike else alike
        added = [
            f"{name} {value}"
            for name, value in entry.parameters.items()
            if any(other.get(name) != value for other in ([first] if name in {"documents", "seed"} else others))
        ]
        labels.append(f"{entry.label} ({', '.join(added)})" if added else entry.label)
    return labels


def _group(notebook: str, key: RunKey) -> str:
    """The property that the thesis' figure of this notebook colours: kind of model, loss, width or λ."""
    p = key.profile.parameters
    match notebook:
        case "02_paragraph_vector":
            members = [p.dm] if p.compound is None else [member["dm"] for member in members_of(p.compound)]
            return "+".join("DM" if dm else "DBOW" for dm in members)
        case "03_structural":
            distance = "MSE" if p.distance == "mse" else p.distance
            names = {"mse": "MSE", "max-margin": f"max-margin {distance}"}
            return names.get(str(p.structural_loss), str(p.structural_loss))
        case "04_projections":
            name = p.contextual_teacher
            return NEITHER if name is None else str(key.profile.contextual_teachers.width(name))
    if len(key.roles) == 2:
        return NEITHER if p.lam is None else str(p.lam)
    return "1.0" if "structural" in key.roles else "0.0"


def _rank(group: str) -> tuple[float, str]:
    """Sort key of a group: NEITHER, then numbers by value, then words in alphabetical order."""
    try:
        return float(group), group
    except ValueError:
        return -1.0 if group == NEITHER else float("inf"), group
