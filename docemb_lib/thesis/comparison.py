"""A run beside the recorded runs that are comparable with it, and Table 5.7 and Figures 4.12, 5.3
to 5.6 from records.

Scores are rows of model, round, task, metric, value, like `published("table_5_7")`; intervals add
low and high. MAP on GAMES is that of the thesis only with `evaluation.map_at: 1000`, see
`Evaluation`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from textwrap import TextWrapper
from typing import Any, NamedTuple

import pandas as pd

from docemb_lib.evaluation.protocols import round_name
from docemb_lib.evaluation.scoreboard import (
    MAIN_METRICS,
    RELATIONS,
    last_round,
    normalised,
    over_tasks,
    with_interval,
)
from docemb_lib.evaluation.uncertainty import OVERALL, VERDICTS, differences, verdicts
from docemb_lib.runs import records
from docemb_lib.runs.key import STRUCTURAL, RunKey
from docemb_lib.runs.models import UNTRAINED, Model
from docemb_lib.runs.records import Record
from docemb_lib.runs.run import Run
from docemb_lib.runs.scores import Final
from docemb_lib.settings.profile import NOTEBOOKS
from docemb_lib.thesis.values import (
    BASELINE,
    FIGURES,
    ThesisValues,
    baseline_name,
    cells_of,
    final_name,
    published,
)

NOTEBOOK_03 = "03_structural"
HERE, THESIS = "here", "thesis"  # where the rows of a table are from
NEITHER = "none"  # the group of runs without the property that defines groups
MEAN, NORMALISED = "mean", "normalised mean"  # the last columns of Table 5.7
NAME = "in the thesis"  # column: the name of a model in Table 5.7
CHAPTER_4 = (
    NOTEBOOK_03,
    "04_projections",
    "05_weighting",
)  # notebooks whose runs are students in its figures
LINES = TextWrapper(
    100, break_on_hyphens=False
)  # JupyterLab breaks longer ones in words; reports join them
FIRST = "It is the first recorded run.\nMake another as described below, and execute this cell again to compare them."
BEST = "figure 4.12"  # of the students of Table 4.10


class Entry(NamedTuple):
    """One run in a comparison."""

    label: str  # as shown
    model: str  # the run's own model in `scores`
    key: RunKey
    scores: pd.DataFrame  # tidy: of the run's own model and of the baselines
    record: Record | None = None  # None: of the run that is being made


def scores_of_runs(run: Run, scores: pd.DataFrame, source: str | None = None) -> pd.DataFrame:
    """The scores of this run and of the comparable recorded runs of its notebook, tidy, for
    `plot_runs`.

    scores: those of this run's model and of its baselines. source: only the models of this figure
    of the thesis, with its values. Runs with a contextual teacher are shown with the runs of the
    structural notebook that have the same structural loss, documents and seed. Returns the rows of
    all runs, then each baseline once, with the columns own (model of a run, not a baseline), group
    (the categories, in order, that the thesis' figure colours) and thesis (see `ThesisValues`).
    Equal labels get the parameters that differ.
    """
    return _shown(run, _entries(run, scores), ThesisValues(run.notebook, run.profile, source))


def runs_by_figure(run: Run, scores: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """`scores_of_runs`; if several figures of the thesis have runs of these, its values stand in a
    frame for each.
    """
    entries, sources = (
        _entries(run, scores),
        [figure.source for figure in FIGURES if figure.notebook == run.notebook],
    )
    made = [
        entry.key for entry in entries if entry.key.notebook == run.notebook
    ]  # the others are in several figures
    figures = [ThesisValues(run.notebook, run.profile, source) for source in sources]
    figures = [thesis for thesis in figures if any(thesis.of_run(key) is not None for key in made)]
    runs = _shown(run, entries, ThesisValues(run.notebook, run.profile))
    if len(figures) < 2:
        return {"runs": runs}
    of_figures = {f"runs, {thesis.source}": _shown(run, entries, thesis) for thesis in figures}
    return {"runs": runs.assign(thesis=float("nan")), **of_figures}


def _shown(run: Run, entries: Sequence[Entry], thesis: ThesisValues) -> pd.DataFrame:
    """What `scores_of_runs` returns for these entries, beside these values."""
    columns = [
        {"group": _group(run.notebook, one.key), "thesis": thesis.of_run(one.key)}
        for one in entries
    ]
    rows = beside_baselines(entries, columns, thesis)
    rows = rows if thesis.source is None else rows[rows["thesis"].notna()]
    order = [*sorted({*rows.loc[rows["own"], "group"]}, key=_rank), BASELINE]
    return rows.assign(group=pd.Categorical(rows["group"], categories=order))


def conclusion(run: Run, final: Final | None = None) -> str:
    """Sentences on validation scores: this run beside its references, and the best recorded run
    beside the others.

    Of a `final` evaluation: its student beside the references, and which model to use.

    The runs are those of `scores_of_runs`. Paired tests of the mean over tasks, corrected for their
    number, compare the best with each other run, where 95% intervals that do not overlap replace
    them if scores of single examples are gone, and each run with the student before distillation.
    """
    called = (
        "this student" if run.key.trains else "this model"
    )  # the settings of a run show its whole label
    if final is not None:
        final = final.called(run.label, called)
        return "\n".join(map(LINES.fill, (final.standing(), str(final.choice()))))
    own, stage = run.validation, run.stages.scores
    others = ((one, one.record) for one in _entries(run, own.scores))
    recorded = {
        one.label: Final.of_record(run.workspace, made, one.model) for one, made in others if made
    }
    finals = {run.label: own} | {
        name: final for name, final in recorded.items() if len(final.comparison)
    }
    standing = own.called(run.label, called).standing()
    if len(finals) == 1:
        return f"{LINES.fill(standing)}\n{FIRST}"
    rows = (
        over_tasks(f.intervals).query("model == @f.student").assign(model=name)
        for name, f in finals.items()
    )
    means = pd.concat(rows).set_index("model")
    fingerprints = {
        name: f.models.set_index("model")["fingerprint"][f.student] for name, f in finals.items()
    }
    models = [Model(*labelled) for labelled in fingerprints.items()]
    best, count = str(means["value"].idxmax()), len(finals) - 1
    if all(stage.is_scored(model, final=False) for model in models):
        (scores,) = stage.by_round(models, final=False).values()
        found, how = verdicts(over_tasks(differences(scores, best))), "paired tests"
        worse = {*found.loc[found["verdict"] == VERDICTS[1], "model"]}
    else:
        worse, how = {*means.index[means["high"] < means["low"][best]]}, "the intervals"
    this = (
        ""
        if best == run.label
        else ", this run included"
        if run.label in worse
        else ", but not than this run"
    )
    some = "every other" if len(worse) == count else f"{len(worse)} of the {count} others{this}"
    which = "the other" if count == 1 else some if worse else "any other"
    score = with_interval(*means.loc[best, ["value", "low", "high"]])
    ties = int((means["value"] == means["value"][best]).sum()) - 1
    rank = f"Of {count + 1} recorded runs {called if best == run.label else best} ({score}) has the best mean"
    rank += f", and {ties} {'has' if ties == 1 else 'have'} the same" if ties else ""
    said = [f"{rank}; {how} {'show' if worse else 'do not show'} it to be better than {which}."]
    compared = {name: final.beside_references for name, final in finals.items()}
    starts = pd.concat(compared.values()).query("reference == @UNTRAINED")
    if len(starts):
        better, less = ((verdicts(starts)["verdict"] == verdict).sum() for verdict in VERDICTS[:2])
        said += [
            f"{less} of {len(starts)} recorded runs are shown to be worse than the {UNTRAINED}, {better} better."
        ]
    if best != run.label:
        by_verdict = compared[best].groupby("verdict")["reference"].agg(", ".join)
        listed = "; ".join(
            f"{RELATIONS[str(verdict)]} {names}" for verdict, names in by_verdict.items()
        )
        said.append(f"The best run is {listed}.")
    more = f"more than {means['examples'][best]} validation examples, or other seeds, may show further differences"
    repeat = "train the best with another seed; the tests are about the choice of examples alone"
    said.append(f"Next: {repeat if len(worse) == count else more}.")
    return "\n".join(map(LINES.fill, (standing, *said)))


def _entries(run: Run, scores: pd.DataFrame) -> list[Entry]:
    """This run, the comparable recorded runs, and the structural-only runs beside them, under
    labels that differ.
    """
    entries = [Entry(run.label, run.label, run.key, scores)]
    recorded = [(record, records.table_of(run.workspace, record)) for record in run.comparable()]
    entries += [
        Entry(record.label, record.label, run.key_of(record), rows, record)
        for record, rows in recorded
    ]
    for record in structural_only(run, [entry.key for entry in entries]):
        if (label := f"only-structural;{record.label}") not in (entry.label for entry in entries):
            rows = records.table_of(run.workspace, record)
            entries.append(Entry(label, record.label, run.key_of(record), rows, record))
    return [
        entry._replace(label=label)
        for entry, label in zip(entries, _distinct(entries), strict=True)
    ]


def beside_baselines(
    entries: Sequence[Entry], columns: Sequence[dict[str, Any]], thesis: ThesisValues
) -> pd.DataFrame:
    """The scores of the entries' own models with further `columns` of each entry, then each
    baseline once.
    """
    own, baselines = [], []
    for entry, values in zip(entries, columns, strict=True):
        is_own = entry.scores["model"] == entry.model
        own.append(entry.scores[is_own].assign(model=entry.label, own=True, **values))
        baselines.append(entry.scores[~is_own])
    once = pd.concat(baselines).drop_duplicates(["model", "task", "metric", "seed"])
    values = {"group": BASELINE, "thesis": once["model"].map(thesis.of_baseline)}
    once = once.assign(own=False, **dict.fromkeys(columns[0]) | values)
    return (
        pd.concat([*own, once], ignore_index=True)
        .astype({"thesis": float})
        .assign(legend=thesis.legend)
    )


def is_sibling(run: Run, key: RunKey) -> bool:
    """Whether this run has teachers of both roles and differs from the other in λ and mask at most."""
    along = "lam", "max_structural_len"
    return (
        len(run.key.roles) == 2
        and run.key.trains
        and key.same_but(*along) == run.key.same_but(*along)
    )


def structural_only(run: Run, keys: Collection[RunKey]) -> list[Record]:
    """Recorded runs of the structural notebook with the structural loss of one of `keys`, and this
    run's size and seed.

    The thesis shows them beside runs with a contextual teacher.
    """
    further = run.profile.further_teachers
    if "contextual_teacher" not in run.parameters or any(
        teacher.role == "contextual" for teacher in further
    ):
        return []  # with a further contextual teacher no run is structural-only
    wanted = {key.only(*STRUCTURAL) for key in keys}
    if any("structural" not in key.roles for key in keys):  # as in Figure 4.7
        wanted.add(
            RunKey.bare(NOTEBOOK_03, run.profile, structural_loss="cosine").only(*STRUCTURAL)
        )
    size = {name: run.parameters[name] for name in ("documents", "seed")}
    made = [(record, run.key_of(record)) for record in run.comparable(NOTEBOOK_03)]
    return [
        record
        for record, key in made
        if key.only(*STRUCTURAL) in wanted and size.items() <= key.counting.items()
    ]


def _distinct(entries: Sequence[Entry]) -> list[str]:
    """Labels that differ: what differs from the first run of a label is added, and other documents
    or another seed.
    """
    size = {
        name: value
        for name, value in entries[0].key.parameters.items()
        if name in ("documents", "seed")
    }
    labels = []
    for entry in entries:
        first = next(other.key.parameters for other in entries if other.label == entry.label) | size
        added = ", ".join(
            f"{name} {value}"
            for name, value in entry.key.parameters.items()
            if first.get(name) != value
        )
        labels.append(f"{entry.label} ({added})" if added else entry.label)
    return labels


def _group(notebook: str, key: RunKey) -> str:
    """The property that the thesis' figure of this notebook colours: kind of model, loss, width or
    λ.
    """
    p = key.profile.parameters
    match notebook:
        case "02_paragraph_vector":
            return "+".join("DM" if one.dm else "DBOW" for one in key.paragraph_vectors)
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


def table_5_7(scores: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Models × tasks of one metric, best mean first: part (a) with accuracy, by round; part (b)
    with map.

    The columns after the tasks are the unweighted mean over them, the mean of scores divided by the
    best model's score of the same round, and NAME, if `scores` has it. Retrieval has the same score
    in each round.
    """
    rows = scores[scores["metric"] == metric]
    if metric != "accuracy":
        rows = rows.drop_duplicates(["model", "task"]).drop(columns="round")
    rows = normalised(rows)
    index = ["round", "model"] if "round" in rows else ["model"]
    table = rows.pivot_table(index=index, columns="task", values="value").rename_axis(columns=None)
    table[[MEAN, NORMALISED]] = rows.groupby(index)[["value", "normalised"]].mean()
    table = table.sort_values(MEAN, ascending=False, kind="stable")
    if NAME in rows:
        table[NAME] = rows.groupby(index)[NAME].first().fillna("")
    return table.loc[list(rows["round"].unique())] if "round" in rows else table


def beside_thesis(scores: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Add `thesis`, the value in Table 5.7, or NaN, and NAME. names: {model: name there}, of the
    models it has.
    """
    keys = ["model", "round", "task", "metric"]
    table = published("table_5_7").fillna({"round": ""}).set_index(keys)["value"].rename("thesis")
    no_rounds = scores["metric"] != "accuracy"  # in the table, retrieval belongs to no round
    wanted = scores.assign(
        model=scores["model"].map(names), round=scores["round"].mask(no_rounds, "")
    )
    return scores.assign(
        thesis=wanted[keys].join(table, on=keys)["thesis"], **{NAME: wanted["model"]}
    )


def deviations(scores: pd.DataFrame) -> pd.DataFrame:
    """A row per score that the thesis has, too: the difference, and whether the thesis' value is in
    the interval.

    scores: see `beside_thesis`, with low and high, the bounds of the 95% interval.
    """
    rows = scores[scores["thesis"].notna()].reset_index(drop=True)
    here = [with_interval(*row) for row in rows[["value", "low", "high"]].itertuples(index=False)]
    within = {"within interval": rows["thesis"].between(rows["low"], rows["high"])}
    table = rows[["round", "model", NAME, "task", "metric"]].assign(
        here=here, thesis=rows["thesis"]
    )
    return table.assign(difference=rows["value"] - rows["thesis"], **within)


class Finals(NamedTuple):
    """Several final evaluations, each model once."""

    scores: (
        pd.DataFrame
    )  # round, model, task, metric, value, low, high, and the columns of `beside_thesis`
    labels: dict[str, str]  # {name in Table 5.7: model}
    fingerprints: dict[str, str]  # {model: fingerprint}
    runs: int = 0

    @property
    def compared(self) -> pd.DataFrame:
        """The scores, unless they are those of one run, in one round, on tasks that the thesis
        lacks: then none.
        """
        rows = self.scores
        return (
            rows
            if self.runs > 1 or rows["round"].nunique() > 1 or rows["thesis"].notna().any()
            else rows.head(0)
        )


def recorded_finals(run: Run, own: Final | None = None) -> Finals:
    """The final evaluation of this run (`own`; None: as it is recorded, if it is) and the
    comparable recorded ones.

    If several runs are the same student of the thesis, the run with most documents represents it,
    then the newest.
    """
    found, shown = [], run.comparable()
    if own is not None:
        found.append((run.label, run.key, own.intervals, own.models))
    elif (
        record := records.find(run.workspace, run.notebook, run.fingerprint)
    ) and record.status == "done":
        shown.insert(0, record)
    for other in shown:
        intervals, models = (
            records.table_of(run.workspace, other, name) for name in ("intervals", "models")
        )
        found.append((other.label, run.key_of(other), intervals, models))
    if not found:
        return Finals(
            pd.DataFrame(columns=["round", "model", "task", "metric", "value", "thesis"]), {}, {}
        )
    only = round_name(
        run.profile.evaluation.rounds[-1]
    )  # intervals of a single round do not name it
    rows = pd.concat([one if "round" in one else one.assign(round=only) for _, _, one, _ in found])
    rows = rows[rows["metric"].isin([*MAIN_METRICS, "mrr"]) & (rows["task"] != OVERALL)]
    rows = rows.drop_duplicates(["round", "model", "task", "metric"]).reset_index(drop=True)
    students = {
        label: key
        for label, key, *_ in sorted(found, key=lambda one: -one[1].counting["documents"])
    }
    names = {label: final_name(key) for label, key in students.items()}
    names |= {
        model: baseline_name(model, run.profile)
        for model in rows["model"].unique()
        if model not in students
    }
    known = {model: name for model, name in names.items() if name is not None}
    labels = {name: model for model, name in reversed(known.items())}  # the first model of a name
    models = pd.concat([models for *_, models in found]).drop_duplicates("model")
    fingerprints = dict(zip(models["model"], models["fingerprint"], strict=True))
    return Finals(beside_thesis(rows, known), labels, fingerprints, len(found))


def recorded_in_figures(
    run: Run, sources: Iterable[str], *, elsewhere: bool = False
) -> dict[str, dict[str, Record]]:
    """{figure of chapter 4: {label of a row: recorded run}}, in the order in which the runs ended.

    The runs of a figure have the setting of `run`, one number of documents and one seed: those of
    most runs in the figure, then those of most documents, then the newest. elsewhere: if there are
    none, take runs of one other setting.
    """
    cells = {
        figure.source: cells_of(figure, run.profile)
        for figure in FIGURES
        if figure.source in {*sources}
    }
    found: dict[str, dict[tuple[Any, ...], dict[str, Record]]] = {source: {} for source in cells}
    for record in (
        one
        for notebook in CHAPTER_4
        for one in records.all_records(notebook, workspace=run.workspace)
    ):
        own = record.setting == run.key.setting
        this_version = record.parameters.keys() <= {"seed", *NOTEBOOKS[record.notebook]}
        if record.status == "done" and (own or (elsewhere and this_version)):
            key = run.key_of(record)
            alike = own, key.counting["documents"], key.counting["seed"], record.setting
            for source in (source for source, labels in cells.items() if key.cell in labels):
                found[source].setdefault(alike, {})[cells[source][key.cell]] = record

    def preferred(group: tuple[tuple[Any, ...], dict[str, Record]]) -> tuple[bool, int, int, str]:
        (own, documents, *_), runs = group
        return own, len(runs), documents, max(record.finished for record in runs.values())

    return {
        source: max(groups.items(), key=preferred)[1] for source, groups in found.items() if groups
    }


def best_of_chapter_4(run: Run) -> pd.DataFrame:
    """Validation scores for Figure 4.12: recorded runs of Table 4.10 and the baselines, as
    `plot_runs` takes them.

    The runs have their names in the thesis. The frame is empty if none of them is recorded, see
    `recorded_in_figures`.
    """
    thesis = ThesisValues(run.notebook, run.profile)
    best = recorded_in_figures(run, [BEST], elsewhere=True).get(BEST, {})
    entries = [
        Entry(label, r.label, run.key_of(r), records.table_of(run.workspace, r))
        for label, r in best.items()
    ]
    if not entries:
        return pd.DataFrame()
    columns = [{"group": "student", "thesis": thesis.of_run(entry.key)} for entry in entries]
    rows = beside_baselines(entries, columns, thesis)
    rows = rows[rows["own"] | rows["thesis"].notna()]
    return rows.assign(group=pd.Categorical(rows["group"], categories=["student", BASELINE]))


def corpus_tables(statistics: pd.DataFrame, name: str) -> pd.DataFrame:
    """Tables 4.1 and 5.1 with this corpus first: a row per corpus and split.

    statistics: see `views.corpus_statistics`; name: of this corpus.
    """
    here = statistics[statistics["split"].isin(["train", "validation"])].assign(
        corpus=name, of=HERE
    )
    both = pd.concat([here, published("corpora").assign(of=THESIS)])
    return both.set_index(["of", "corpus", "split"])[
        ["documents", "tokens", "mean", "std", "over_384", "over_512"]
    ]


def beside_paper(scores: pd.DataFrame, few_shot: Mapping[str, int] | None = None) -> pd.DataFrame:
    """Tidy scores beside the SimDE paper's on common tasks (Table 2): rows (source, model), columns
    (task, metric).

    few_shot: for scores of `ScoreStage.few_shot`, `evaluation.few_shot_table`.
    """
    own, paper = last_round(scores) if few_shot is None else scores, published("simde")
    if few_shot is not None:
        own = own[own["per_class"] == own["task"].map(few_shot).fillna(few_shot.get("other", 0))]
    paper = paper[paper["round"] == ("all" if few_shot is None else "few-shot")]
    rows = pd.concat(
        [
            own[["model", "task", "metric", "value"]].assign(source="here"),
            paper.assign(source="paper"),
        ]
    )
    common = rows.groupby(["task", "metric"])["source"].transform("nunique") == 2
    return rows[common].pivot_table(
        index=["source", "model"], columns=["task", "metric"], values="value", sort=False
    )
