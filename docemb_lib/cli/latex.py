"""The final evaluations of a plan as LaTeX: the counterpart of Table 5.7, and the paired tests."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd

from docemb_lib.evaluation.scoreboard import BETTER, METRIC_NAMES, WORSE
from docemb_lib.evaluation.uncertainty import ALPHA, OVERALL
from docemb_lib.figures import typeset
from docemb_lib.runs.scores import Final
from docemb_lib.thesis.comparison import table_5_7

SUPERSCRIPTS = {BETTER: "+", WORSE: "-"}
ESCAPES = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "λ": r"$\lambda$",
    "γ": r"$\gamma$",
    "τ": r"$\tau$",
    "⊕": r"$\oplus$",
    "×": r"$\times$",
}
SPECIAL = re.compile("|".join(map(re.escape, ESCAPES)))


def escaped(text: object) -> str:
    """A label or text as LaTeX prints it, see `typeset`: symbols are mathematics."""
    return SPECIAL.sub(lambda sign: ESCAPES[sign[0]], typeset(str(text)))


def latex_tables(evaluations: Sequence[Final]) -> str:
    """Tables of several final evaluations: accuracy, MAP, and the tests of the last one's student.

    They need the package booktabs. A superscript says what the paired tests of the last round show:
    + that the student is better than the model of the row, - that it is worse.
    """
    last = evaluations[-1]
    tests = last.comparison[last.comparison["model"] == last.student]
    rows = pd.concat(each.intervals for each in evaluations)
    rows = rows[rows["task"] != OVERALL]
    if "round" not in rows:
        rows = rows.assign(round="all")
    rows = rows.drop_duplicates(["round", "model", "task", "metric"])
    tables = []
    for metric in ("accuracy", "map"):
        if (rows["metric"] == metric).any():
            tables.append(_scores(rows, tests, metric, last.student))
    tables.append(_tests(tests, last.student))
    return "\n".join(tables)


def _scores(rows: pd.DataFrame, tests: pd.DataFrame, metric: str, student: str) -> str:
    """The models × tasks of one metric, with superscripts in the last round."""
    table = table_5_7(rows, metric)
    tested = tests[tests["metric"] == metric]
    verdicts = tested.set_index(["reference", "task"])["verdict"].to_dict()
    latest = rows["round"].unique()[-1]  # has most examples
    lines = []
    for label, values in table.iterrows():
        round, model = label if isinstance(label, tuple) else (latest, label)
        line = {"round": round} if isinstance(label, tuple) else {}
        line["model"] = escaped(model)
        for task, value in values.items():
            verdict = verdicts.get((model, task), "") if round == latest else ""
            line[escaped(task)] = _number(f"{value:.3f}", verdict)
        lines.append(line)
    name = METRIC_NAMES.get(metric, metric)
    caption = f"{name[0].upper()}{name[1:]} of all models, the best mean first."
    return _latex(lines, f"{caption} {_key(tested, student)}", f"tab:{metric}")


def _tests(tests: pd.DataFrame, student: str) -> str:
    """The references × tasks of differences to the student."""
    lines = []
    for reference, rows in tests.groupby("reference", sort=False):
        line = {"reference": escaped(reference)}
        for task in tests["task"].unique():
            line[escaped(task)] = ""
        for task, difference, verdict in zip(
            rows["task"], rows["difference"], rows["verdict"], strict=True
        ):
            line[escaped(task)] = _number(f"{difference:+.3f}", verdict)
        lines.append(line)
    caption = f"Differences of {escaped(student)} to each reference."
    return _latex(lines, f"{caption} {_key(tests, student)}", "tab:tests")


def _number(number: str, verdict: str) -> str:
    """A cell, as in `.792` or `$+.041^{+}$`; empty for a score that is not there."""
    if "nan" in number:
        return ""
    superscript = SUPERSCRIPTS.get(verdict, "")
    number = re.sub(r"\b0\.", ".", number)
    return f"${number}^{{{superscript}}}$" if superscript else f"${number}$"


def _key(tests: pd.DataFrame, student: str) -> str:
    """The end of a caption: superscripts, test, and numbers of examples."""
    examples = tests.drop_duplicates("task")
    counts = [
        f"{escaped(task)} {count:,}"
        for task, count in zip(examples["task"], examples["examples"], strict=True)
    ]
    return (
        f"A superscript says that {escaped(student)} is shown to be better ($+$) or worse ($-$) "
        "than the model of the row, in the round of most training examples: paired permutation "
        f"tests over test examples, two-sided, p-values corrected by Holm, level {ALPHA}. "
        f"Examples: {', '.join(counts)}."
    )


def _latex(lines: Sequence[dict[str, str]], caption: str, label: str) -> str:
    """A table with the rules of booktabs; texts to the left and numbers to the right."""
    frame = pd.DataFrame(lines)
    texts = [name for name in frame if name in ("round", "model", "reference")]
    columns = "l" * len(texts) + "r" * (len(frame.columns) - len(texts))
    return str(
        frame.to_latex(
            index=False, escape=False, column_format=columns, caption=caption, label=label
        )
    )
