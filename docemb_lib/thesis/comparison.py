"""The comparable recorded runs of a notebook beside one run: scores, labels, groups and the thesis' values.

Runs are comparable if profile, texts, models and versions are the same; see `setting` of a record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from docemb_lib.experiments import records
from docemb_lib.experiments.records import Record
from docemb_lib.experiments.run import Run, setting_of
from docemb_lib.experiments.runkey import objective_settings, roles_of, structural_label
from docemb_lib.settings import Parameters
from docemb_lib.settings.profile import FIXED, NOTEBOOKS, TRAINING
from docemb_lib.thesis.values import BASELINE, ThesisValues

STRUCTURAL = "03_structural"
NEITHER = "–"  # the group of runs without the property that defines groups
ALONG = ("lam", "max_structural_len")  # the parameters in which siblings may differ


class Entry(NamedTuple):
    """One run in a comparison."""

    label: str  # as shown
    model: str  # the run's own model in `scores`
    parameters: dict[str, Any]
    scores: pd.DataFrame  # tidy: of the run's own model and of its baselines


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
    entries = [Entry(run.label, run.label, run.parameters, scores)]
    entries += [
        Entry(record.label, record.label, record.parameters, records.scores_of(run.workspace, record))
        for record in comparable(run)
    ]
    entries += _structural_only(run, entries)
    thesis = ThesisValues(run.notebook, run.profile)
    groups = [_group(run, entry.parameters) for entry in entries]
    columns = [
        {
            "group": group,
            "thesis": thesis.of_run(entry.parameters),
            "sibling": is_sibling(run, entry.parameters),
            **{name: entry.parameters.get(name) for name in NOTEBOOKS[run.notebook]},
        }
        for entry, group in zip(entries, groups, strict=True)
    ]
    shown = [entry._replace(label=label) for entry, label in zip(entries, _distinct(entries), strict=True)]
    rows = beside_baselines(shown, columns, thesis)
    order = [*sorted(set(groups), key=_rank), BASELINE]
    return rows.assign(group=pd.Categorical(rows["group"], categories=order))


def beside_baselines(
    entries: Sequence[Entry], columns: Sequence[Mapping[str, Any]], thesis: ThesisValues
) -> pd.DataFrame:
    """The scores of the entries' own models with further `columns` of each entry, then each baseline once."""
    own, baselines = [], []
    for entry, values in zip(entries, columns, strict=True):
        is_own = entry.scores["model"] == entry.model
        own.append(entry.scores[is_own].assign(model=entry.label, own=True, **values))
        baselines.append(entry.scores[~is_own])
    once = pd.concat(baselines).drop_duplicates(["model", "task", "metric", "seed"])
    empty = {**dict.fromkeys(columns[0]), "sibling": False, "group": BASELINE}
    once = once.assign(own=False, **empty | {"thesis": once["model"].map(thesis.of_baseline)})
    return pd.concat([*own, once], ignore_index=True).astype({"thesis": float})


def comparable(run: Run, notebook: str | None = None) -> list[Record]:
    """Finished runs of `notebook` (None: the run's own) comparable with this run, newest first, without this run."""
    of_notebook = notebook or run.notebook
    found, setting = records.all_records(of_notebook, workspace=run.workspace), setting_of(of_notebook, run.profile)
    same = [r for r in found if r.status == "done" and r.setting == setting and r.fingerprint != run.fingerprint]
    return same[::-1]


def _structural_only(run: Run, entries: Sequence[Entry]) -> list[Entry]:
    """Runs of the structural notebook, which the thesis shows beside runs with a contextual teacher."""
    further = run.profile.further_teachers
    if "contextual_teacher" not in run.parameters or any(teacher.role == "contextual" for teacher in further):
        return []  # with a further contextual teacher no run is structural-only
    wanted = {structural_label(_complete(run.notebook, entry.parameters), further) for entry in entries}
    wanted |= {"cosine"} if "only-contextual" in wanted else set()  # as in Figure 4.7
    shown = {entry.label for entry in entries}
    return [
        Entry(label, record.label, {**record.parameters, **FIXED[STRUCTURAL]}, records.scores_of(run.workspace, record))
        for record in comparable(run, STRUCTURAL)
        if record.label in wanted
        and all(record.parameters[name] == run.parameters[name] for name in ("documents", "seed"))
        and (label := f"only-structural;{record.label}") not in shown
    ]


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


def _group(run: Run, parameters: dict[str, Any]) -> str:
    """The property that the thesis' figure of this notebook colours: kind of model, loss, width or λ."""
    p = _complete(run.notebook, parameters)
    match run.notebook[:2]:
        case "02":
            single = "DM" if p.dm else "DBOW"
            return single if p.compound is None else "+".join(m.split(";")[0] for m in p.compound.split("+"))
        case "03":
            return " ".join(structural_label(p).split(";")[: 2 if p.structural_loss == "max-margin" else 1])
        case "04":
            return NEITHER if p.contextual_teacher is None else str(run.stages.contextual_width(p.contextual_teacher))
        case _:
            roles = roles_of(p, run.profile.further_teachers)
            if len(roles) == 2:
                return NEITHER if p.lam is None else str(p.lam)
            return "1.0" if "structural" in roles else "0.0"


def _rank(group: str) -> tuple[float, str]:
    """Sort key of a group: NEITHER, then numbers by value, then words in alphabetical order."""
    try:
        return float(group), group
    except ValueError:
        return -1.0 if group == NEITHER else float("inf"), group


def is_sibling(run: Run, parameters: dict[str, Any]) -> bool:
    """Whether both runs have teachers of both roles and differ in λ and mask alone, of the parameters that count."""
    further, ours = run.profile.further_teachers, run.profile.parameters
    if run.notebook not in TRAINING or len(roles_of(ours, further)) < 2:
        return False

    def beside(p: Parameters) -> dict[str, Any]:
        objective = objective_settings(p, further)
        return {"documents": p.documents, "seed": p.seed, **{n: v for n, v in objective.items() if n not in ALONG}}

    return beside(_complete(run.notebook, parameters)) == beside(ours)


def _complete(notebook: str, parameters: dict[str, Any]) -> Parameters:
    return Parameters(**{**parameters, **FIXED.get(notebook, {})})
