"""The settings of a run, beside those of its paper: the first table of each notebook."""

import pandas as pd

from docemb_lib.base import pretrained
from docemb_lib.runs.key import PV_NAMES, RunKey
from docemb_lib.runs.run import Run
from docemb_lib.settings.labels import PAPER
from docemb_lib.settings.profile import SHIPPED, Profile, local_config
from docemb_lib.sweeps.grids import grid_place, names_in_grids

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
    "training.attention",
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
OURS = {"corpus.tasks", "student.lexical", "training.attention"}
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


def settings(run: Run) -> pd.DataFrame:
    """The run's settings, a row each, beside those of its paper where these differ."""
    key = run.key
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
    return pd.DataFrame.from_dict(rows, orient="index", columns=["value", "in the paper"])


def _settings_of(key: RunKey) -> dict[str, str]:
    """The values of `SHOWN`, and the contextual teachers (Table 4.5)."""
    profile = key.profile
    sections = {**dict(profile), "training": key.training, "head": profile.evaluation.head}
    values = {}
    for name in SHOWN:
        section, field = name.split(".")
        if section != "training" or key.trains:
            values[name] = getattr(sections[section], field)
    if key.trains:
        from docemb_lib.training.run import chosen_here  # with torch

        kind = local_config(pretrained.resolve(profile.student.model)).get("model_type")
        stock = kind in ("modernbert", "big_bird")
        packed = not stock and profile.student.pooling not in ("cls", "global")
        values |= chosen_here(key.training, packed=packed)
    if key.self_supervised:
        for field in ("max_tokens", "dropout"):
            value = getattr(profile.simde, field)
            if value is not None:
                values[f"student.{field}"] = value

    texts = {}
    for name, value in values.items():
        if value is None:
            value = "the model's own" if name in OF_MODEL else "all"
        texts[name] = str(value)
    for name in PV_NAMES:
        members = profile.contextual_teachers.members(name)
        texts[f"contextual_teachers.{name}"] = " + ".join(member.described for member in members)
    if not profile.evaluation.head.hidden:
        unread = [name for name in texts if name.startswith("head.") and name not in OF_REGRESSION]
        for name in unread:
            del texts[name]
    return texts


def _settings_of_paper(key: RunKey) -> dict[str, str]:
    """The same settings as far as the run's paper gives them.

    The paper of a student of over 512 tokens that learns from pairs is that of SimDE_long.
    """
    if key.self_supervised:
        name = "simde-long" if key.profile.student.max_tokens > 512 else "simde"
    else:
        name = "thesis-final" if key.registered.final else "thesis"
    paper = Profile.load(SHIPPED / "params" / f"{name}.yaml")
    texts = _settings_of(RunKey(key.notebook, paper))
    # No paper holds out documents for tasks, and that of SimDE none for validation.
    documents = (paper.corpus.documents or 0) - paper.corpus.tasks
    if key.self_supervised:
        documents -= paper.corpus.validation
    texts |= {"corpus.documents": str(documents), "training.precision": "fp16"}
    given = OF_SIMDE if key.self_supervised else texts.keys() - OURS
    return {name: text for name, text in texts.items() if name in given}
