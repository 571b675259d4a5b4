"""Tables of the thesis as data frames, and the settings of a run beside those of its paper."""

from dataclasses import dataclass
from html import escape

import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.runs.run import Run
from docemb_lib.settings.files import SHIPPED
from docemb_lib.settings.labels import PAPER
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.comparison import MEAN, NORMALISED, table_5_7
from docemb_lib.thesis.values import final_name, published

INDEX = ("parameter", "contextual teacher", "student projection")
OF_TASKS = ("4.2", "5.3", "5.4", "5.5")
RESULTS = "5.7"
PRINTED = "normalised mean as printed"
COMPUTED = "normalised mean from the rows"
# The settings of a profile that decide a result and stand in Tables 4.3 to 4.5, 5.2 or 5.6, by
# section. Lists of Paragraph Vectors are those of `contextual_teachers`.
SHOWN = {
    "corpus": ("source", "documents", "validation"),
    "structural_teacher": ("model", "max_tokens", "long"),
    "contextual_teachers": ("DM", "DBOW", "PV", "documents"),
    "student": ("model", "layers", "max_tokens", "attention_window", "pooling", "dropout"),
    "training": (
        "batch_size",
        "accumulation",
        "learning_rate",
        "warmup",
        "weight_decay",
        "max_grad_norm",
        "epochs",
        "precision",
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
}
# A head without a hidden layer is a logistic regression, which reads these alone.
OF_REGRESSION = ("hidden", "pair_features")
# Settings that the SimDE paper gives.
OF_SIMDE = {
    "corpus.documents",
    "student.model",
    "student.pooling",
    "training.batch_size",
    "training.learning_rate",
    "training.epochs",
    "head.batch_size",
    "head.learning_rate",
}
# Notebook parameters with one value in a paper; others vary there.
PARAMETERS = {"delta", "beta", "pair_temperature", "mlm_weight"}
LONGFORMER = "allenai/longformer-base-4096"


def table(number: str) -> pd.DataFrame:
    """Return a table of the thesis by its number.

    These are "4.2", "4.5" to "4.9", "5.3" to "5.5" and "5.7", which has both normalised means, that
    of the print and that which follows from its rows. Raises InputError for another number.

    Example:
        >>> table("4.9").loc["lam", "values"]
        '0.95, 0.8, 0.5, 0.2, None (no weighting)'
    """
    if number == RESULTS:
        return _results()
    if number in OF_TASKS:
        rows = published("tasks")
        rows = rows[rows["source"] == f"table {number}"]
        frame = rows.pivot_table("value", ["task", "split"], "statistic", sort=False)
        return frame.rename_axis(columns=None)
    rows = published("tables")
    rows = rows[rows["source"] == f"table {number}"]
    if rows.empty:
        problem = f"is none of {', '.join(OF_TASKS)}, 4.5 to 4.9 and {RESULTS}"
        raise InputError(f"table {number}: {problem}; give one of these")
    frame = rows.drop(columns=["source", "read_from"]).dropna(axis="columns", how="all")
    return frame.set_index([name for name in INDEX if name in frame]).convert_dtypes()


def _results() -> pd.DataFrame:
    """Table 5.7: accuracy by round, then MAP, best mean first; both normalised means."""
    printed = published("means").fillna({"round": ""}).set_index(["round", "model"])
    accuracy = table_5_7(published("table_5_7").dropna(subset="round"), "accuracy")
    ranking = table_5_7(published("table_5_7"), "map")
    ranking.index = pd.MultiIndex.from_product([[""], ranking.index], names=["round", "model"])
    frame = pd.concat([accuracy, ranking]).rename(columns={NORMALISED: COMPUTED})
    frame[PRINTED] = printed["normalised"]
    tasks = [name for name in frame if name not in (MEAN, COMPUTED, PRINTED)]
    return frame[[*tasks, MEAN, PRINTED, COMPUTED]]


@dataclass(frozen=True)
class Settings:
    """The settings of a run beside those of its paper, in a notebook folded to one line.

    Both tables have a column `value` and one for the paper, which is empty where it is equal.
    """

    label: str  # of the run
    listed: pd.DataFrame  # the parameters that count, and a row per section that differs
    every: pd.DataFrame  # a row per setting

    def __repr__(self) -> str:
        return f"{self._summary}: see its .every"

    def _repr_html_(self) -> str:
        summary = f"<summary>{escape(self._summary)}</summary>"
        every = f"<details><summary>all of them</summary>{self.every.to_html()}</details>"
        return f"<details>{summary}{self.listed.to_html()}{every}</details>"

    @property
    def _summary(self) -> str:
        return f"{self.label}: {len(self.every)} settings, beside those {self.every.columns[-1]}"


def settings(run: Run) -> Settings:
    """What the notebook of the run varies, and what differs from the paper; the rest is folded.

    The settings of a section of the profile that differ share a row.
    """
    paper_column = "in the paper" if run.self_supervised else "in the thesis"
    rows = {
        "this run": (run.label, final_name(run) or ""),
        "profile": (run.profile.name, ""),
    }
    for name, value in run.counting.items():
        paper = getattr(PAPER, name) if name in PARAMETERS else value
        rows[name] = (str(value), "" if paper == value else str(paper))
    here = _settings_of(run)
    of_paper = _settings_of_paper(run)
    every = {}
    differing: dict[str, list[tuple[str, str, str]]] = {}
    for name, value in here.items():
        paper = of_paper.get(name, value)
        every[name] = (value, "" if paper == value else paper)
        if paper != value:
            section, _, field = name.partition(".")
            differing.setdefault(section, []).append((field, value, paper))
    listed = dict(rows)
    for section, fields in differing.items():
        values = ", ".join(f"{field} {value}" for field, value, _ in fields)
        listed[section] = (values, ", ".join(f"{field} {paper}" for field, _, paper in fields))
    columns = ["value", paper_column]
    tables = [
        pd.DataFrame.from_dict(table, orient="index", columns=columns)
        for table in (listed, {**rows, **every})
    ]
    return Settings(run.label, *tables)


def _settings_of(run: Run) -> dict[str, str]:
    """The values of `SHOWN`; None is the model's own, or means all."""
    profile = run.profile
    sections = {**dict(profile), "training": run.training, "head": profile.evaluation.head}
    shown = dict(SHOWN)
    if not run.trains:
        del shown["training"]
    if not profile.evaluation.head.hidden:
        shown["head"] = OF_REGRESSION
    values = {}
    for section, fields in shown.items():
        for field in fields:
            values[f"{section}.{field}"] = getattr(sections[section], field)
    if run.self_supervised:
        for field in ("max_tokens", "dropout"):
            value = getattr(profile.simde, field)
            if value is not None:
                values[f"student.{field}"] = value
    for name in ("DM", "DBOW", "PV"):
        members = profile.contextual_teachers.members(name)
        described = " + ".join(member.described for member in members)
        values[f"contextual_teachers.{name}"] = described
    return {name: str(value) for name, value in values.items()}


def _settings_of_paper(run: Run) -> dict[str, str]:
    """The same settings as far as the run's paper gives them.

    Of a Longformer that learns from pairs they are those of SimDE_long, of any other of SimDE_bert.
    """
    name = "thesis-final" if run.is_final else "thesis"
    if run.self_supervised:
        name = "simde-long" if run.profile.student.model == LONGFORMER else "simde"
    paper = Run(run.notebook, Profile.load(SHIPPED / "params" / f"{name}.yaml"))
    corpus = paper.profile.corpus
    # No paper holds out documents for tasks, and that of SimDE none for validation.
    documents = (corpus.documents or 0) - corpus.tasks
    if run.self_supervised:
        documents -= corpus.validation
    given = {"corpus.documents": str(documents), "training.precision": "fp16"}
    settings = {**_settings_of(paper), **given}
    if not run.self_supervised:
        return settings
    return {name: settings[name] for name in OF_SIMDE}
