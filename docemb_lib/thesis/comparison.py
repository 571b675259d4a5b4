"""All comparable recorded runs of a notebook beside this one: their scores, what each is called, how it is coloured."""

from __future__ import annotations

from collections.abc import Sequence
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
NEITHER = "–"  # the group of runs that have nothing of what others are coloured by
ALONG = ("lam", "max_structural_len")  # what siblings may differ in


class Entry(NamedTuple):
    """One run in the comparison."""

    label: str  # as it is shown
    model: str  # as its scores call its own model
    parameters: dict[str, Any]
    scores: pd.DataFrame  # tidy: its own model's and those of its baselines


def scores_of_runs(run: Run, scores: pd.DataFrame) -> pd.DataFrame:
    """This run's `scores` and those of the recorded runs comparable with it, tidy, for `plot_runs`.

    Comparable are runs of the same notebook whose profile, texts and versions are the same. Runs with a contextual
    teacher are joined by those of the structural notebook with their loss, documents and seed. Columns besides those of
    `scores`: own (a run's model, not a baseline), group (what the thesis' figure colours by: a category, in order),
    thesis (its value of the same run, see `ThesisValues`), sibling (differs from this run in λ and mask alone), and the
    notebook's parameters, None in baselines. What sets a run apart is added to its label where it would be another's.
    """
    entries = [Entry(run.label, run.label, run.parameters, scores)]
    entries += [
        Entry(record.label, record.label, record.parameters, records.scores_of(run.workspace, record))
        for record in comparable(run)
    ]
    entries += _structural_only(run, entries)
    thesis = ThesisValues(run.notebook, run.profile)
    groups = [_group(run, entry.parameters) for entry in entries]
    own, baselines = [], []
    for entry, label, group in zip(entries, _distinct(entries), groups, strict=True):
        mine = entry.scores["model"] == entry.model
        known = {name: entry.parameters.get(name) for name in NOTEBOOKS[run.notebook]}
        value, sibling = thesis.of_run(entry.parameters), is_sibling(run, entry.parameters)
        own.append(
            entry.scores[mine].assign(model=label, own=True, group=group, thesis=value, sibling=sibling, **known)
        )
        others = entry.scores[~mine]
        values = others["model"].map(thesis.of_baseline)
        nothing = dict.fromkeys(known)
        baselines.append(others.assign(own=False, group=BASELINE, thesis=values, sibling=False, **nothing))
    once = pd.concat(baselines).drop_duplicates(["model", "task", "metric", "seed"])
    together = pd.concat([*own, once], ignore_index=True)
    order = [*sorted(set(groups), key=_rank), BASELINE]
    together["group"] = pd.Categorical(together["group"], categories=order)
    return together.astype({"thesis": float})


def comparable(run: Run, notebook: str | None = None) -> list[Record]:
    """Recorded runs of `notebook` (None: its own) comparable with this one, newest first, without it."""
    of_notebook = notebook or run.notebook
    found, setting = records.all_records(of_notebook, workspace=run.workspace), setting_of(of_notebook, run.profile)
    same = [r for r in found if r.status == "done" and r.setting == setting and r.fingerprint != run.fingerprint]
    return same[::-1]


def _structural_only(run: Run, entries: Sequence[Entry]) -> list[Entry]:
    """Runs of the structural notebook as the thesis shows them beside runs with a contextual teacher."""
    further = run.profile.further_teachers
    if "contextual_teacher" not in run.parameters or any(teacher.role == "contextual" for teacher in further):
        return []  # with further contextual teachers they are no structural-only runs
    wanted = {structural_label(_complete(run.notebook, entry.parameters), further) for entry in entries}
    wanted |= {"cosine"} if "only-contextual" in wanted else set()  # its best one, in Figure 4.7 too
    shown = {entry.label for entry in entries}
    return [
        Entry(label, record.label, {**record.parameters, **FIXED[STRUCTURAL]}, records.scores_of(run.workspace, record))
        for record in comparable(run, STRUCTURAL)
        if record.label in wanted
        and all(record.parameters[name] == run.parameters[name] for name in ("documents", "seed"))
        and (label := f"only-structural;{record.label}") not in shown
    ]


def _distinct(entries: Sequence[Entry]) -> list[str]:
    """A label for each, the first one's its own: where labels are equal, with what sets them apart.

    Runs of other documents or another seed than the first one's say so in any case.
    """
    first = entries[0].parameters
    labels = [entries[0].label]
    for entry in entries[1:]:
        alike = [other.parameters for other in entries if other.label == entry.label]
        rivals = [first] if first in alike else alike  # the first one's label stays bare
        said = [
            f"{name} {value}"
            for name, value in entry.parameters.items()
            if any(other.get(name) != value for other in ([first] if name in {"documents", "seed"} else rivals))
        ]
        labels.append(f"{entry.label} ({', '.join(said)})" if said else entry.label)
    return labels


def _group(run: Run, parameters: dict[str, Any]) -> str:
    """What the thesis' figure of this notebook tells runs apart by."""
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
    """Numbers by their size, words by the alphabet, nothing first."""
    try:
        return float(group), group
    except ValueError:
        return -1.0 if group == NEITHER else float("inf"), group


def is_sibling(run: Run, parameters: dict[str, Any]) -> bool:
    """Whether both have teachers of both roles, and whatever counts but λ and mask is the same."""
    further, ours = run.profile.further_teachers, run.profile.parameters
    if run.notebook not in TRAINING or len(roles_of(ours, further)) < 2:
        return False

    def beside(p: Parameters) -> dict[str, Any]:
        objective = objective_settings(p, further)
        return {"documents": p.documents, "seed": p.seed, **{n: v for n, v in objective.items() if n not in ALONG}}

    return beside(_complete(run.notebook, parameters)) == beside(ours)


def _complete(notebook: str, parameters: dict[str, Any]) -> Parameters:
    return Parameters(**{**parameters, **FIXED.get(notebook, {})})
