"""The live curve: what it draws of a history, and when a training shows it."""

import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup

from docemb_lib.training import curve, trainer

UPDATES = 12
VALIDATIONS = [0, 6, 12]


def history_of(updates, **values):
    """Rows of training with the values of each name, and a validation before the first."""
    before = {f"eval_{name}": float(values[name][0]) for name in values}
    rows = [{"step": 0, "eval_loss": 2.0, **before}]
    for update in range(1, updates + 1):
        row = {name: float(each[update - 1]) for name, each in values.items()}
        rows.append({"step": update, "learning_rate": 0.1, "tokens_per_second": 5120.0, **row})
    return rows


@pytest.fixture
def drawing():
    return lambda history, updates: BeautifulSoup(curve.drawn(history, updates), "html.parser")


def points_of(line):
    return [tuple(map(float, place.split(","))) for place in line["points"].split()]


def test_the_newest_values_of_training_and_validation_stand_above_the_panels(drawing):
    history = history_of(3, loss=[3, 2, 1.5], spread=[0.5, 0.4, 0.25], norm=[1, 1, 1])
    text = drawing(history, 9).get_text(" ", strip=True)
    assert text.startswith("loss 1.5, validation 3")
    assert "spread 0.25, validation 0.5" in text
    assert "5,120 tokens a second" in text
    assert "norm" not in text


def test_a_line_lies_where_its_values_belong_on_the_axes_of_its_panel(drawing):
    page = drawing(history_of(3, loss=[3, 2, 1], spread=[0.5, 0.5, 0.5]), 4)
    panel = page.find("svg", attrs={"aria-label": "loss over updates"})
    ticks = {}
    for tick in panel.find_all("text", attrs={"text-anchor": "end"})[:-1]:
        ticks[float(tick.get_text())] = float(tick["y"]) - 4
    line = points_of(panel.find("polyline"))
    low, high = min(ticks), max(ticks)
    for (_, y), value in zip(line, (3, 2, 1), strict=True):
        share = (value - low) / (high - low)
        assert y == pytest.approx(ticks[low] + share * (ticks[high] - ticks[low]), abs=0.6)
    left = curve.LEFT
    right = curve.WIDTHS["loss"] - curve.RIGHT
    expected = [left + update / 4 * (right - left) for update in (1, 2, 3)]
    assert [x for x, _ in line] == pytest.approx(expected, abs=0.06)


def test_a_long_line_has_a_point_for_the_mean_of_each_of_its_bins(drawing):
    values = np.arange(1, 3001) % 20  # of 150 bins, each has the same values
    page = drawing(history_of(3000, loss=values, spread=values), 3000)
    line = points_of(page.find("polyline"))
    assert len(line) == 150
    assert len({y for _, y in line}) == 1


def test_validations_are_dots(drawing):
    history = history_of(3, loss=[3, 2, 1], spread=[0.5, 0.5, 0.5])
    page = drawing([*history, {"step": 3, "eval_loss": 1.0, "eval_spread": 0.5}], 3)
    assert [len(panel.find_all("circle")) for panel in page.find_all("svg")] == [2, 2]


@pytest.mark.parametrize(
    ("structural", "names"),
    [([3, 2], ["loss", "spread"]), ([1, 1], ["loss", "structural", "spread"])],
)
def test_the_only_part_of_a_loss_is_not_drawn_beside_it(drawing, structural, names):
    values = {"loss": [3, 2], "structural": structural, "spread": [0.5, 0.5]}
    page = drawing(history_of(2, **values), 2)
    assert [name.get_text() for name in page.find_all("b")] == names


def test_names_of_teachers_are_escaped():
    name = "<script>"
    history = history_of(2, loss=[3, 2], spread=[1, 1], **{name: [1, 1]})
    assert name not in curve.drawn(history, 2)


def test_parts_have_colours_of_their_own():
    rows = pd.DataFrame({"loss": [3.0], "contextual": [1.0], "a": [2.0], "b": [4.0], "cca": [1.0]})
    colours = curve.colours_of(curve.parts_of(rows))
    assert [*colours] == ["loss", "contextual", "a", "b"]
    assert len({*colours.values()}) == len(colours)


@pytest.fixture
def shown(monkeypatch):
    """What a cell shows of the curve, one after the other."""
    states = []

    class Handle:
        def update(self, content, *, raw):
            states.append(content["text/html"])

    def display(content, *, raw, display_id):
        states.append(content["text/html"])
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr(trainer, "live_cell", lambda: "a cell")
    return states


def test_a_training_draws_each_row_and_takes_the_drawing_away_at_its_end(
    tmp_path, distil, shown, monkeypatch
):
    monkeypatch.setattr(trainer, "EVERY", 0.0)
    distil.train(tmp_path, validations=3)
    first, *drawn, last = shown
    assert (first, last) == ("", "")
    assert len(drawn) == UPDATES + len(VALIDATIONS) + 1  # the Trainer's summary is a row
    lines = drawn[-1].count("<polyline") // 2  # each of training and of validation
    assert drawn[-1].count("<circle") == lines * len(VALIDATIONS)


def test_a_fast_training_draws_once_a_second(tmp_path, distil, shown, monkeypatch):
    monkeypatch.setattr(trainer, "EVERY", 1e9)
    distil.train(tmp_path)
    assert sum(state != "" for state in shown) <= 1


def test_a_stopped_training_leaves_its_last_state(tmp_path, distil, shown, monkeypatch):
    def stop(self, args, state, control, **_):
        control.should_training_stop = state.global_step == 5

    monkeypatch.setattr(trainer.Bar, "on_step_end", stop)
    monkeypatch.setattr(trainer, "EVERY", 0.0)
    distil.train(tmp_path)
    assert "<svg" in shown[-1]


def test_without_a_person_nothing_is_drawn(tmp_path, distil, shown, monkeypatch):
    monkeypatch.setattr(trainer, "live_cell", lambda: None)
    monkeypatch.setattr(curve, "drawn", lambda *_: pytest.fail("drawn"))
    distil.train(tmp_path)
    assert shown == []
