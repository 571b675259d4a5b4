"""All comparable recorded runs of a notebook beside this one: their scores, what each is called, how it is coloured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from docemb_lib.experiments import records
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import STRUCTURAL as LOSS
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings import Parameters, members_of
from docemb_lib.settings.profile import FIXED, NOTEBOOKS
from docemb_lib.thesis.values import BASELINE, ThesisValues, loss_of

STRUCTURAL = "03_structural"
NEITHER = "–"  # the group of runs that have nothing of what others are coloured by
ALONG = ("lam", "max_structural_len")  # what siblings may differ in


class Entry(NamedTuple):
    """One run in the comparison."""

    label: str  # as it is shown
    model: str  # as its scores call its own model
    key: RunKey
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
    entries = [Entry(run.label, run.label, run.key, run.parameters, scores)]
    entries += [
        Entry(r.label, r.label, run.key_of(r), r.parameters, records.scores_of(run.workspace, r))
        for r in run.comparable()
    ]
    entries += _structural_only(run, entries)
    thesis = ThesisValues(run.notebook, run.profile)
    groups = [_group(run.notebook, entry.key) for entry in entries]
    own, baselines = [], []
    for entry, label, group in zip(entries, _distinct(entries), groups, strict=True):
        mine = entry.scores["model"] == entry.model
        known = {name: entry.parameters.get(name) for name in NOTEBOOKS[run.notebook]}
        value, sibling = thesis.of_run(entry.key), is_sibling(run, entry.key)
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


def _structural_only(run: Run, entries: Sequence[Entry]) -> list[Entry]:
    """Runs of the structural notebook as the thesis shows them beside runs with a contextual teacher."""
    further = run.profile.further_teachers
    if "contextual_teacher" not in run.parameters or any(teacher.role == "contextual" for teacher in further):
        return []  # with further contextual teachers they are no structural-only runs
    wanted = {entry.key.only(*LOSS) for entry in entries}
    if any("structural" not in entry.key.roles for entry in entries):  # Figure 4.7 shows the best one, too
        wanted.add(loss_of(structural_loss="cosine"))
    size = {name: run.parameters[name] for name in ("documents", "seed")}
    shown = {entry.label for entry in entries}
    found = []
    for record in run.comparable(STRUCTURAL):
        key, label = run.key_of(record), f"only-structural;{record.label}"
        if key.only(*LOSS) in wanted and size.items() <= key.counting.items() and label not in shown:
            parameters = {**record.parameters, **FIXED[STRUCTURAL]}
            found.append(Entry(label, record.label, key, parameters, records.scores_of(run.workspace, record)))
    return found


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


def _group(notebook: str, key: RunKey) -> str:
    """What the thesis' figure of this notebook tells runs apart by."""
    p = key.profile.parameters
    match notebook:
        case "02_paragraph_vector":
            members = [p.dm] if p.compound is None else [member["dm"] for member in members_of(p.compound)]
            return "+".join("DM" if dm else "DBOW" for dm in members)
        case "03_structural":
            return _loss(p)
        case "04_projections":
            name = p.contextual_teacher
            return NEITHER if name is None else str(key.profile.contextual_teachers.width(name))
    if len(key.roles) == 2:
        return NEITHER if p.lam is None else str(p.lam)
    return "1.0" if "structural" in key.roles else "0.0"


def _loss(p: Parameters) -> str:
    names = {"mse": "MSE", "max-margin": f"max-margin {'MSE' if p.distance == 'mse' else p.distance}"}
    return names.get(str(p.structural_loss), str(p.structural_loss))


def _rank(group: str) -> tuple[float, str]:
    """Numbers by their size, words by the alphabet, nothing first."""
    try:
        return float(group), group
    except ValueError:
        return -1.0 if group == NEITHER else float("inf"), group


def is_sibling(run: Run, key: RunKey) -> bool:
    """Whether this run has teachers of both roles, and the other differs from it in λ and mask at most."""
    return len(run.key.roles) == 2 and run.key.trains and key.same_but(*ALONG) == run.key.same_but(*ALONG)
