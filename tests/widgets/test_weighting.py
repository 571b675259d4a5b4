"""The differences of students to the selected one."""

import re

import numpy as np
import pytest

from docemb_lib.evaluation.tasks import Score
from docemb_lib.widgets import weighting_explorer

ANSWERS = {"λ .2": np.arange(40) % 2, "λ .8": np.arange(40) % 5 > 0}


@pytest.mark.parametrize(("selected", "sign"), [("λ .2", 1), ("λ .8", -1)])
def test_the_other_student_is_shown_by_its_paired_difference_to_the_selected_one(
    opened, selected, sign
):
    scores = {}
    for name, answers in ANSWERS.items():
        scores[name] = {"sort": Score({"accuracy": answers.astype(np.float32)[None]})}
    answer = opened(weighting_explorer, scores)(selected=selected)
    rows = [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in answer.page("tr")]
    shown = {name: difference for name, _, difference in rows[2:]}
    (other,) = {*ANSWERS} - {selected}
    assert shown[selected] == "selected"
    paired = sign * (ANSWERS["λ .8"].astype(float) - ANSWERS["λ .2"])
    difference, low, high = map(float, re.findall(r"[+-][\d.]+", shown[other]))
    assert difference == pytest.approx(paired.mean(), abs=6e-4)
    assert low < difference < high  # as `tests/evaluation/test_uncertainty.py` compares them
