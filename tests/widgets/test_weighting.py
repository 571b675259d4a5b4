"""The differences of students to the selected one."""

import numpy as np
import pytest
from scipy.stats import bootstrap

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
    drawn = bootstrap((paired,), np.mean, rng=np.random.default_rng(0), n_resamples=20000)
    numbers = shown[other].replace("[", "").replace("]", "").replace(",", "").split()
    assert numbers[0] == f"{paired.mean():+.3f}"
    np.testing.assert_allclose([*map(float, numbers[1:])], drawn.confidence_interval, atol=0.02)
