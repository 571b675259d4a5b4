"""Claims: those of the chapters on the thesis' own numbers, and verdicts on made scores."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from conftest import REPOSITORY
from scipy.stats import ttest_rel

from docemb_lib import thesis
from docemb_lib.evaluation.tasks import Score
from docemb_lib.thesis import claims
from docemb_lib.thesis.claims import Compared, better, verdict
from docemb_lib.thesis.values import FIGURES, rows_of

CHAPTERS = {"02": 2, "03": 5, "04": 1, "05": 4, "10": 10}  # how many claims each has


def published_figure(run, source: str) -> Compared:
    (figure,) = [figure for figure in FIGURES if figure.source == source]
    return Compared(rows_of(figure), {}, tests=False)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_claims_of_a_chapter_hold_on_the_published_numbers(monkeypatch, chapter):
    monkeypatch.setattr(thesis, "in_figure", published_figure)
    monkeypatch.setattr(claims, "_scores_of", lambda *_, **__: {})
    (file,) = (REPOSITORY / "notebooks").glob(f"{chapter}_*.py")
    cells = re.split(r"^# %%.*$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    made = []

    def noted(*given, **named):
        made.append(better(*given, **named))
        return made[-1]

    monkeypatch.setattr(thesis, "better", noted)
    figures = SimpleNamespace(table=lambda table, **named: None)
    in_thesis = {number: published_figure(None, f"figure 4.{number}") for number in (10, 11)}
    run = SimpleNamespace(parameters={"contextual_teacher": "PV"})
    views = SimpleNamespace(compared=lambda *names: "")
    names = {"thesis": thesis, "figures": figures, "run": run, "in_thesis": in_thesis}
    names |= {"finals": SimpleNamespace(models={}), "views": views, "scores": {}}
    for cell in cells:
        if "thesis.better(" in cell:
            exec(cell, names)
    assert len(made) == CHAPTERS[chapter]
    assert all(claim["thesis"].startswith("holds (+") for claim in made), made
    assert {claim["here"] for claim in made} == {"not tested: not all of them have scores here"}


def score(answers: np.ndarray) -> Score:
    return Score({"accuracy": answers[None]})


def compared(shifts: dict[str, float], *, tests: bool = True) -> Compared:
    """Models that answer 400 examples alike, but for a shift and noise."""
    rng = np.random.default_rng(0)
    base = rng.normal(size=400)
    scores = {}
    for name, shift in shifts.items():
        scores[name] = {"package": score(base + shift + 0.1 * rng.normal(size=400))}
    rows = pd.DataFrame({"value": list(shifts.values())}, index=list(shifts))
    return Compared(rows, scores, tests)


@pytest.mark.parametrize(
    ("shifts", "here", "in_thesis"),
    [
        ({"a": 0.5, "b": 0.0, "c": 0.0}, "holds", "holds"),
        ({"a": 0.5, "b": 0.0, "c": 0.7}, "does not hold", "does not hold"),
        ({"a": 0.5, "b": 0.0, "c": 0.5001}, "undecided", "does not hold"),
    ],
)
def test_a_claim_holds_where_tests_confirm_each_difference(shifts, here, in_thesis):
    models = compared(shifts)
    row = better(models, "a is best", ["a"], ["b", "c"])
    assert row["claim"] == "a is best"
    margin = shifts["a"] - max(shifts["b"], shifts["c"])
    assert row["thesis"] == f"{in_thesis} ({margin:+.3f})"
    of = {
        name: by_task["package"].per_example["accuracy"][0]
        for name, by_task in models.scores.items()
    }
    smallest = min((of["a"] - of[other]).mean() for other in "bc")
    assert row["here"] == f"{here} ({smallest:+.3f})"
    p = np.array([ttest_rel(of["a"], of[other]).pvalue for other in "bc"])
    assert (p.max() < 0.025) == (here != "undecided")


def test_other_data_and_missing_runs_test_nothing():
    shifts = {"a": 0.5, "b": 0.0}
    assert better(compared(shifts, tests=False), "", ["a"], ["b"])["here"].startswith(
        "not tested: other data (+0.5"
    )
    known = compared(shifts)
    unknown = known._replace(scores={"a": known.scores["a"]})
    assert (
        better(unknown, "", ["a"], ["b"])["here"] == "not tested: not all of them have scores here"
    )


def test_groups_are_compared_by_their_means():
    values = {"a": 0.6, "b": 0.8, "c": 0.3, "d": 0.7}
    models = compared(values)
    rows = models.published.assign(kind=["x", "x", "y", "y"])
    row = better(models._replace(published=rows), "", [{"kind": "x"}], [{"kind": "y"}], of="mean")
    assert row["thesis"] == "holds (+0.200)"
    assert row["here"].startswith("means only (+")


def test_a_verdict_corrects_for_the_number_of_differences():
    up = np.array([0.02, 0.01])
    assert verdict(up, np.array([0.01, 0.02])) == "holds"
    assert verdict(up, np.array([0.03, 0.04])) == "undecided"  # each alone would be significant
    assert verdict(-up, np.array([0.01, 0.30])) == "does not hold"
