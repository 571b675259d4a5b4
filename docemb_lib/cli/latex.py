"""The final evaluations of a plan as LaTeX: the counterpart of Table 5.7, and the paired tests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from docemb_lib.evaluation.scoreboard import BETTER, WORSE
from docemb_lib.evaluation.uncertainty import ALPHA, OVERALL
from docemb_lib.runs.scores import Final
from docemb_lib.settings.labels import typeset
from docemb_lib.thesis.comparison import NAME, beside_thesis, table_5_7

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
# A table that is wider than a line is made as wide as the line.
START = (
    "\\centering\\medskip\n" + r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{"
)
SPECIAL = re.compile("|".join(map(re.escape, ESCAPES)))


def escaped(text: object) -> str:
    """A label or text as LaTeX prints it, see `typeset`: symbols are mathematics."""
    return SPECIAL.sub(lambda sign: ESCAPES[sign[0]], typeset(str(text)))


def latex_tables(evaluations: Sequence[Final], names: Mapping[str, str]) -> str:
    """Tables of several final evaluations: accuracy, MAP, and the paired tests of each student.

    They need the packages booktabs and graphicx. Superscripts say what the tests of the last round
    show.

    names: the names of models in Table 5.7 of the thesis, by label. They and the published values
    are columns.
    """
    rows = pd.concat(each.intervals for each in evaluations)
    rows = rows[rows["task"] != OVERALL]
    if "round" not in rows:
        rows = rows.assign(round="all")
    rows = beside_thesis(rows.drop_duplicates(["round", "model", "task", "metric"]), names)
    tests = pd.concat(each.comparison for each in evaluations)
    practice = tests[tests["reference"] == evaluations[-1].practice]
    latest = rows["round"].iloc[-1]  # has most examples
    tables = []
    for round, of_round in rows.groupby("round", sort=False):
        tested = practice if round == latest else practice.head(0)
        title = f"Accuracy of all models, heads trained on {round} examples"
        tables.append(_scores(of_round, tested, "accuracy", title, f"tab:accuracy-{round}"))
    tables.append(_scores(rows, practice, "map", "MAP of all models", "tab:map"))
    for number, each in enumerate(evaluations, 1):
        of_student = each.comparison[each.comparison["model"] == each.student]
        tables.append(_tests(of_student, each.student, f"tab:tests-{number}"))
    return "\n".join(tables)


def _scores(rows: pd.DataFrame, tests: pd.DataFrame, metric: str, title: str, label: str) -> str:
    """The models × tasks of one metric in one round, beside the values of the thesis.

    "" without a score. tests: of the models against one reference.
    """
    rows = rows[rows["metric"] == metric]
    if rows.empty:
        return ""
    known = rows[rows["thesis"].notna()]
    in_thesis = known.set_index(["model", "task"])["thesis"].to_dict()
    tests = tests[tests["metric"] == metric]
    verdicts = tests.set_index(["model", "task"])["verdict"].to_dict()
    table = table_5_7(rows, metric)
    if metric == "accuracy":
        table = table.droplevel("round")
    lines = []
    for model, values in table.iterrows():
        line = {"model": escaped(model), NAME: escaped(values.pop(NAME))}
        for task, value in values.items():
            line[escaped(task)] = _number(f"{value:.3f}", verdicts.get((model, task), ""))
            if task in set(known["task"]):
                published = in_thesis.get((model, task), float("nan"))
                line[f"{escaped(task)}, thesis"] = _number(f"{published:.3f}")
        lines.append(line)
    caption = f"{title}, the best mean first. {_key(tests, 'the model of the row')}"
    return _latex(pd.DataFrame(lines), caption, label)


def _tests(tests: pd.DataFrame, student: str, label: str) -> str:
    """The references × tasks of differences to a student."""
    cells = [*map(_number, tests["difference"].map("{:+.3f}".format), tests["verdict"])]
    table = tests.assign(cell=cells).pivot_table(
        index="reference", columns="task", values="cell", aggfunc="first", sort=False
    )
    table = table.fillna("").rename(index=escaped, columns=escaped).reset_index()
    caption = f"Differences of {escaped(student)} to each reference."
    return _latex(table, f"{caption} {_key(tests, escaped(student))}", label)


def _number(number: str, verdict: str = "") -> str:
    """A cell, as in `.792` or `$+.041^{+}$`; empty for a score that is not there."""
    if "nan" in number:
        return ""
    superscript = SUPERSCRIPTS.get(verdict, "")
    number = re.sub(r"\b0\.", ".", number)
    return f"${number}^{{{superscript}}}$" if superscript else f"${number}$"


def _key(tests: pd.DataFrame, tested: str) -> str:
    """The end of a caption: superscripts, test, and numbers of examples.

    tested: the model or models that are tested, as LaTeX.
    """
    if tests.empty:
        return "These scores are not tested."
    references = tests["reference"].unique()
    reference = escaped(references[0]) if len(references) == 1 else "the reference of the row"
    examples = tests.drop_duplicates("task")
    counts = [
        f"{escaped(task)} {count:,}"
        for task, count in zip(examples["task"], examples["examples"], strict=True)
    ]
    return (
        f"A superscript says that {tested} is shown to be better ($+$) or worse ($-$) than "
        f"{reference}, in the round of most training examples: paired permutation tests over test "
        f"examples, two-sided, p-values corrected by Holm, level {ALPHA}. "
        f"Examples: {', '.join(counts)}."
    )


def _latex(frame: pd.DataFrame, caption: str, label: str) -> str:
    """A table with the rules of booktabs, at most as wide as a line.

    Texts stand to the left and numbers to the right.
    """
    texts = [name for name in frame if name in ("model", NAME, "reference")]
    columns = "l" * len(texts) + "r" * (len(frame.columns) - len(texts))
    table = frame.to_latex(
        index=False, escape=False, column_format=columns, caption=caption, label=label
    )
    fitted = table.replace(r"\begin{tabular}", START + r"\begin{tabular}")
    return str(fitted.replace(r"\end{tabular}", r"\end{tabular}}"))
