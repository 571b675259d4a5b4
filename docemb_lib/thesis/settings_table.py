"""The settings of a run, beside those of its paper: the first table of each notebook."""

from dataclasses import dataclass

import pandas as pd

from docemb_lib.runs.grids import grid_place, names_in_grids
from docemb_lib.runs.identity import PV_NAMES
from docemb_lib.runs.run import Run
from docemb_lib.settings.labels import PAPER
from docemb_lib.settings.profile import SHIPPED, Profile

# The settings of a profile that decide a result and stand in Tables 4.3 to 4.5, 5.2 or 5.6.
SHOWN = (
    "corpus.source",
    "corpus.documents",
    "corpus.validation",
    "corpus.tasks",
    "structural_teacher.model",
    "structural_teacher.max_tokens",
    "structural_teacher.long",
    "student.model",
    "student.layers",
    "student.max_tokens",
    "student.attention_window",
    "student.pooling",
    "student.dropout",
    "student.lexical",
    "training.batch_size",
    "training.accumulation",
    "training.learning_rate",
    "training.warmup",
    "training.weight_decay",
    "training.max_grad_norm",
    "training.epochs",
    "training.precision",
    "head.hidden",
    "head.dropout",
    "head.epochs",
    "head.batch_size",
    "head.learning_rate",
    "head.weight_decay",
    "head.label_smoothing",
    "head.max_grad_norm",
    "head.pair_features",
    "contextual_teachers.documents",
)
# A head without a hidden layer is a logistic regression, which reads these alone.
OF_REGRESSION = {"head.hidden", "head.pair_features"}
# Settings whose value None is the model's own; in others it means all.
OF_MODEL = {"structural_teacher.max_tokens", "student.attention_window", "student.dropout"}
# Settings that no paper has.
OURS = {"corpus.tasks", "student.lexical"}
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


IN_PAPER = "in the paper"
# Parameters for which None is a choice; None in any other parameter means that it is not used.
CHOICES = {"structural_loss", "contextual_teacher", "lam", "max_structural_len"}


@dataclass(frozen=True)
class Settings:
    """The settings of a run. In a notebook those that are as in the paper are folded.

    Both tables have the columns `value` and `in the paper`, the latter empty where it is equal.
    """

    listed: pd.DataFrame  # the parameters of the notebook, and a row per section that differs
    every: pd.DataFrame  # see `all_settings`

    def __repr__(self) -> str:
        return f"{self.listed}\n{self._summary}: thesis.settings(run).every"

    def _repr_html_(self) -> str:
        every = f"<details><summary>{self._summary}</summary>{self.every.to_html()}</details>"
        return f"{self.listed.to_html()}{every}"

    @property
    def _summary(self) -> str:
        return f"all {len(self.every)} settings"


def settings(run: Run) -> Settings:
    """What the notebook of the run varies, and what differs from the paper; the rest is folded.

    The settings of a section of the profile that differ share a row.
    """
    key = run
    every = all_settings(run)
    rows = {name: every.loc[name] for name in ("this run", "profile")}
    for name in key.registered.values:
        if name in every.index and (every["value"][name] != "None" or name in CHOICES):
            rows[name] = every.loc[name]

    registered = key.registered
    contextual = registered.fits_paragraph_vector or registered.beside_contextual
    differing = every[(every[IN_PAPER] != "") & every.index.str.contains(".", regex=False)]
    by_section = differing.groupby(lambda name: name.partition(".")[0], sort=False)
    for section, of_section in by_section:
        if section != "contextual_teachers" or contextual:
            fields = of_section.rename(index=lambda name: name.partition(".")[2])
            rows[str(section)] = fields.apply(_one_line)
    return Settings(pd.DataFrame(rows).T, every)


def _one_line(values: pd.Series) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def all_settings(run: Run) -> pd.DataFrame:
    """The run's settings, a row each, beside those of its paper where these differ."""
    key = run
    rows = {
        "this run": (key.label, ""),
        "profile": (key.profile.name, ""),
        "grid": (grid_place(key), ", ".join(names_in_grids(key))),
    }
    for name in ("structural_loss", "contextual_teacher"):
        if name in key.parameters:
            rows[name] = ("None", "")  # of a teacher that the run lacks; replaced below otherwise
    for name, value in key.counting.items():
        paper = getattr(PAPER, name) if name in PARAMETERS else value
        rows[name] = (str(value), "" if paper == value else str(paper))
    of_paper = _settings_of_paper(key)
    for name, text in _settings_of(key).items():
        paper = of_paper.get(name, text)
        rows[name] = (text, "" if paper == text else paper)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["value", IN_PAPER])


def _settings_of(key: Run) -> dict[str, str]:
    """The values of `SHOWN`, and the contextual teachers (Table 4.5)."""
    profile = key.profile
    sections = {**dict(profile), "training": key.training, "head": profile.evaluation.head}
    values = {}
    for name in SHOWN:
        section, field = name.split(".")
        if section != "training" or key.trains:
            values[name] = getattr(sections[section], field)
    if key.trains:
        from docemb_lib.training.run import precision_of  # with torch

        values["training.precision"] = precision_of(key.training.precision)
    if key.self_supervised:
        for field in ("max_tokens", "dropout"):
            value = getattr(profile.simde, field)
            if value is not None:
                values[f"student.{field}"] = value

    texts = {}
    is_regression = not profile.evaluation.head.hidden
    for name, value in values.items():
        if is_regression and name.startswith("head.") and name not in OF_REGRESSION:
            continue
        if value is None:
            value = "the model's own" if name in OF_MODEL else "all"
        texts[name] = str(value)
    for name in PV_NAMES:
        members = profile.contextual_teachers.members(name)
        texts[f"contextual_teachers.{name}"] = " + ".join(member.described for member in members)
    return texts


def _settings_of_paper(key: Run) -> dict[str, str]:
    """The same settings as far as the run's paper gives them.

    The paper of a student of over 512 tokens that learns from pairs is that of SimDE_long.
    """
    if key.self_supervised:
        name = "simde-long" if key.profile.student.max_tokens > 512 else "simde"
    else:
        name = "thesis-final" if key.registered.final else "thesis"
    paper = Profile.load(SHIPPED / "params" / f"{name}.yaml")
    texts = _settings_of(Run(key.notebook, paper))
    # No paper holds out documents for tasks, and that of SimDE none for validation.
    documents = (paper.corpus.documents or 0) - paper.corpus.tasks
    if key.self_supervised:
        documents -= paper.corpus.validation
    texts |= {"corpus.documents": str(documents), "training.precision": "fp16"}
    given = OF_SIMDE if key.self_supervised else texts.keys() - OURS
    return {name: text for name, text in texts.items() if name in given}
