"""The final tables as LaTeX, read back cell by cell and compared with the frames."""

import re
import shutil
import subprocess

import pandas as pd
import pytest
from conftest import docemb

from docemb_lib.cli.latex import escaped, latex_tables
from docemb_lib.evaluation.scoreboard import BETTER, UNCLEAR, WORSE
from docemb_lib.evaluation.uncertainty import OVERALL
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.scores import Final
from docemb_lib.thesis.values import published

CHUNKS = "SBERT over chunks"
SCORES = {  # round, task, metric, model: value
    ("1k", "arxiv", "accuracy", "mine"): 0.5,
    ("1k", "arxiv", "accuracy", "A & B ⊕ λ"): 0.25,
    ("all", "arxiv", "accuracy", "mine"): 0.75,
    ("all", "arxiv", "accuracy", "A & B ⊕ λ"): 0.625,
    ("all", "news_20", "accuracy", "mine"): 0.125,
    ("all", "news_20", "accuracy", "A & B ⊕ λ"): 0.25,
    ("1k", "links", "map", "mine"): 0.375,
    ("1k", "links", "map", "BM25"): 0.5,
    ("all", "links", "map", "mine"): 0.375,
    ("all", "links", "map", "BM25"): 0.5,
}
TESTS = [
    ("arxiv", "accuracy", "mine", CHUNKS, 0.125, 1510, BETTER),
    ("links", "map", "mine", CHUNKS, 0.0, 80, UNCLEAR),
    ("links", "map", "mine", "BM25", -0.125, 80, WORSE),
    (OVERALL, "mean", "mine", CHUNKS, 0.0625, 1590, UNCLEAR),
    ("arxiv", "accuracy", "A & B ⊕ λ", CHUNKS, -0.25, 1510, WORSE),
    ("links", "map", "BM25", CHUNKS, 0.25, 80, BETTER),
]
OTHER = [("arxiv", "accuracy", "other", CHUNKS, -0.5, 1510, WORSE)]


def final(student, scores, tests):
    rows = [(*key, value) for key, value in scores.items()]
    intervals = pd.DataFrame(rows, columns=["round", "task", "metric", "model", "value"])
    columns = ["task", "metric", "model", "reference", "difference", "examples", "verdict"]
    comparison = pd.DataFrame(tests, columns=columns)
    kinds = {student: Kind.STUDENT, CHUNKS: Kind.SBERT_CHUNKS}
    models = [
        {
            "model": model,
            "kind": kind.value,
            "form": Form.SAVED.value,
            "name": model if kind == Kind.STUDENT else "",
            "fingerprint": model,
            "fitted on": "",
            "ranks_only": False,
        }
        for model, kind in kinds.items()
    ]
    return Final(pd.DataFrame(), intervals, comparison, pd.DataFrame(models), student)


@pytest.fixture(scope="module")
def written():
    others = {(round, "arxiv", "accuracy", "other"): 0.0625 for round in ("1k", "all")}
    names = {"A & B ⊕ λ": "SBERT", "mine": "cosine-masked"}
    return latex_tables([final("other", others, OTHER), final("mine", SCORES, TESTS)], names)


def in_thesis(model, round):
    """A value of Table 5.7 on arxiv, as a cell."""
    table = published("table_5_7")
    row = table[(table["model"] == model) & (table["round"] == round) & (table["task"] == "arxiv")]
    return f"${row['value'].item():.3f}$".replace("$0.", "$.")


def cells(latex, label):
    """The cells of a table by their row; the first row names the columns."""
    (table,) = (part for part in latex.split(r"\end{table}") if f"{{tab:{label}}}" in part)
    rules = re.compile(r"\\(?:top|mid|bottom)rule\n")
    assert len(rules.findall(table)) == 3
    lines = "".join(rules.split(table)[1:3]).strip().splitlines()
    return [re.split(r" (?<!\\)& ", line.removesuffix(r" \\")) for line in lines]


@pytest.mark.parametrize(
    ("round", "values"),
    [
        ("1k", ["$.500$", "$.250$", "$.062$"]),
        ("all", ["$.750^{+}$", "$.625^{-}$", "$.062^{-}$"]),
    ],
)
def test_accuracies_are_those_of_the_frame_with_superscripts_in_the_last_round(
    written, round, values
):
    names, *rows = cells(written, f"accuracy-{round}")
    assert names[:4] == ["model", "in the thesis", "arxiv", "arxiv, thesis"]
    by_model = {row[0]: row[2] for row in rows}
    assert by_model == dict(
        zip(["mine", r"A \& B $\oplus$ $\lambda$", "other"], values, strict=True)
    )


@pytest.mark.parametrize("round", ["1k", "all"])
def test_published_values_stand_beside_those_of_the_same_model_and_round(written, round):
    _, *rows = cells(written, f"accuracy-{round}")
    assert {row[0]: (row[1], row[3]) for row in rows} == {
        "mine": ("cosine-masked", in_thesis("cosine-masked", round)),
        r"A \& B $\oplus$ $\lambda$": ("SBERT", in_thesis("SBERT", round)),
        "other": ("", ""),
    }


def test_a_task_that_the_thesis_lacks_has_no_column_of_published_values(written):
    names, *_ = cells(written, "accuracy-all")
    assert names[2:] == ["arxiv", "arxiv, thesis", r"news\_20", "mean", "normalised mean"]


def test_retrieval_has_one_row_for_each_model(written):
    names, *rows = cells(written, "map")
    column = names.index("links")
    assert [(row[0], row[column]) for row in rows] == [("BM25", "$.500^{+}$"), ("mine", "$.375$")]


def test_the_tests_of_a_student_are_differences_with_what_is_shown(written):
    assert cells(written, "tests-2") == [
        ["reference", "arxiv", "links", "mean over tasks"],
        [CHUNKS, "$+.125^{+}$", "$+.000$", "$+.062$"],
        ["BM25", "", "$-.125^{-}$", ""],
    ]


def test_every_student_of_the_board_has_a_table_of_its_tests(written):
    assert cells(written, "tests-1") == [["reference", "arxiv"], [CHUNKS, "$-.500^{-}$"]]


def test_captions_name_the_tests_and_the_numbers_of_examples(written):
    captions = re.findall(r"\\caption\{(.*)\}", written)
    assert len(captions) == 5
    untested, *tested = captions
    assert untested.endswith(
        "heads trained on 1k examples, the best mean first. These scores are not tested."
    )
    assert all("paired permutation tests" in caption for caption in tested)
    assert all(f"than {CHUNKS}, in the round" in caption for caption in tested[:3])
    assert "Examples: arxiv 1,510." in tested[0]
    assert "Examples: arxiv 1,510, links 80, mean over tasks 1,590." in tested[-1]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex here")
def test_the_tables_compile_and_fit_the_page(written, tmp_path):
    page = rf"""\documentclass{{article}}
\usepackage{{booktabs,graphicx}}
\begin{{document}}
{written}
\end{{document}}
"""
    (tmp_path / "page.tex").write_text(page)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "Overfull" in done.stdout) == (0, False), done.stdout


@pytest.mark.parametrize(
    ("text", "latex"),
    [("a_b", r"a\_b"), ("5% & #1", r"5\% \& \#1"), ("λ⊕γ;τ", r"$\lambda$$\oplus$$\gamma$, $\tau$")],
)
def test_special_signs_are_escaped(text, latex):
    assert escaped(text) == latex


def test_a_profile_without_runs_has_no_tables(workspace_root):
    done = docemb("report", "--profile", "small", "--latex", "tables.tex")
    assert (done.returncode, (workspace_root / "tables.tex").exists()) == (2, False)
