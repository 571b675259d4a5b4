"""The final tables as LaTeX, read back cell by cell and compared with the frames."""

import re

import pandas as pd
import pytest
from conftest import docemb

from docemb_lib.cli.latex import escaped, latex_tables
from docemb_lib.evaluation.scoreboard import BETTER, UNCLEAR, WORSE
from docemb_lib.evaluation.uncertainty import OVERALL
from docemb_lib.runs.scores import Final

SCORES = {  # round, task, metric, model: value
    ("few", "news_20", "accuracy", "mine"): 0.5,
    ("few", "news_20", "accuracy", "A & B ⊕ λ"): 0.25,
    ("all", "news_20", "accuracy", "mine"): 0.75,
    ("all", "news_20", "accuracy", "A & B ⊕ λ"): 0.625,
    ("few", "links", "map", "mine"): 0.375,
    ("few", "links", "map", "BM25"): 0.5,
    ("all", "links", "map", "mine"): 0.375,
    ("all", "links", "map", "BM25"): 0.5,
}
TESTS = [
    ("news_20", "accuracy", "mine", "A & B ⊕ λ", 0.125, 1510, BETTER),
    ("links", "map", "mine", "BM25", -0.125, 80, WORSE),
    (OVERALL, "mean", "mine", "A & B ⊕ λ", 0.0625, 1590, UNCLEAR),
    ("links", "map", "other", "BM25", 0.25, 80, BETTER),
]


@pytest.fixture(scope="module")
def written():
    rows = [(*key, value) for key, value in SCORES.items()]
    intervals = pd.DataFrame(rows, columns=["round", "task", "metric", "model", "value"])
    columns = ["task", "metric", "model", "reference", "difference", "examples", "verdict"]
    comparison = pd.DataFrame(TESTS, columns=columns)
    empty = pd.DataFrame()
    return latex_tables([Final(empty, intervals, comparison, empty, "mine")])


def cells(latex, label):
    """The cells of a table by their row; the first row names the columns."""
    (table,) = (part for part in latex.split(r"\end{table}") if f"{{tab:{label}}}" in part)
    rules = re.compile(r"\\(?:top|mid|bottom)rule\n")
    assert len(rules.findall(table)) == 3
    lines = "".join(rules.split(table)[1:3]).strip().splitlines()
    return [re.split(r" (?<!\\)& ", line.removesuffix(r" \\")) for line in lines]


def test_accuracies_are_those_of_the_frame_with_superscripts_in_the_last_round(written):
    names, *rows = cells(written, "accuracy")
    assert names[:3] == ["round", "model", r"news\_20"]
    assert [row[:3] for row in rows] == [
        ["few", "mine", "$.500$"],
        ["few", r"A \& B $\oplus$ $\lambda$", "$.250$"],
        ["all", "mine", "$.750$"],
        ["all", r"A \& B $\oplus$ $\lambda$", "$.625^{+}$"],
    ]


def test_retrieval_has_one_row_for_each_model(written):
    _, *rows = cells(written, "map")
    assert [row[:2] for row in rows] == [["BM25", "$.500^{-}$"], ["mine", "$.375$"]]


def test_the_tests_of_the_student_are_differences_with_what_is_shown(written):
    assert cells(written, "tests") == [
        ["reference", r"news\_20", "links", "mean over tasks"],
        [r"A \& B $\oplus$ $\lambda$", "$+.125^{+}$", "", "$+.062$"],
        ["BM25", "", "$-.125^{-}$", ""],
    ]


def test_captions_name_the_tests_and_the_numbers_of_examples(written):
    captions = re.findall(r"\\caption\{(.*)\}", written)
    assert len(captions) == 3
    assert all("paired permutation tests" in caption for caption in captions)
    assert r"Examples: news\_20 1,510." in captions[0]
    assert r"Examples: news\_20 1,510, links 80, mean over tasks 1,590." in captions[2]


@pytest.mark.parametrize(
    ("text", "latex"),
    [("a_b", r"a\_b"), ("5% & #1", r"5\% \& \#1"), ("λ⊕γ;τ", r"$\lambda$$\oplus$$\gamma$, $\tau$")],
)
def test_special_signs_are_escaped(text, latex):
    assert escaped(text) == latex


def test_a_profile_without_runs_has_no_tables(workspace_root):
    done = docemb("report", "--profile", "small", "--latex", "tables.tex")
    assert (done.returncode, (workspace_root / "tables.tex").exists()) == (2, False)
