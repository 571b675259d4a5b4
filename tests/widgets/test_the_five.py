"""Each explorer shows the library's own numbers for the setting of its controls."""

from __future__ import annotations

import asyncio
import re
from types import SimpleNamespace

import ipywidgets
import numpy as np
import pandas as pd
import pytest

from docemb_lib import widgets
from docemb_lib.errors import InputError
from docemb_lib.evaluation.probes import measure_distances, mistaken, principal_plane, separation
from docemb_lib.experiments.records import Record, save
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings.profile import Profile
from docemb_lib.widgets import weighting as weighting_points
from docemb_lib.widgets.distances import StudentDistances
from docemb_lib.widgets.neighbours import Pool
from docemb_lib.widgets.projections import Spaces
from docemb_lib.workspace import Workspace

HOSTILE = '<script>alert(1)</script><img src=x onerror="alert(1)">'


def numbers(html, name):
    """The contents of all elements of a class, in order."""
    return re.findall(rf'class="docemb-{name}"[^>]*>([^<]*)<', html)


def moved(explorer, **settings):
    """The text after moving live controls one after the other."""
    if not explorer.widgets:
        explorer.live()
    for name, value in settings.items():
        explorer.widgets[name].value = value
    return explorer._text.value


@pytest.fixture(autouse=True)
def nothing_stays_open():
    yield
    ipywidgets.Widget.close_all()


@pytest.fixture
def distances():
    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((9, 4))
    measured = {
        distance: {
            model: measure_distances(
                teacher + noise * rng.standard_normal((9, 4)), teacher, distance=distance, negatives=6
            )
            for model, noise in (("before", 3.0), ("cosine", 1.0))
        }
        for distance in ("cosine", "mse")
    }
    documents = pd.DataFrame(
        {"id": [f"d{n}" for n in range(9)], "text": [HOSTILE] * 9, "source": "s", "length": range(10, 19)}
    )
    return StudentDistances(documents, measured, "cosine")


def test_the_distance_explorer_shows_separation_and_the_most_mistaken_pair(distances):
    explorer = widgets.distance_explorer(distances)
    text = moved(explorer)
    expected = [separation(found) for found in distances.measured["cosine"].values()]
    assert numbers(text, "auc") == [f"{told.auc:.3f}" for told in expected]

    text = moved(explorer, loss="before", distance="mse", γ=0.3, negatives=4, tokens=(12, 17))
    part = distances.measured["mse"]["before"].part(np.arange(10, 19) // 6 == 2, 4)  # 12 to 17 tokens
    told = separation(part, gamma=0.3)
    assert numbers(text, "auc") == [f"{told.auc:.3f}"]
    assert numbers(text, "overlap") == [f"{told.overlap:.3f}"]
    assert numbers(text, "loss") == [f"{told.loss:.4g}"]
    assert numbers(text, "documents") == ["6"]
    pairs = mistaken(part, k=10)
    assert [pair for _, pair in explorer.widgets["pair"].options] == list(
        zip(pairs["document"], pairs["other"], strict=True)
    )
    picked = explorer.widgets["pair"].options[2][1]
    text = moved(explorer, pair=picked)
    assert [f"d{row}, {10 + row} tokens" in text for row in picked] == [True, True]
    assert "<script" not in text
    assert "<img" not in text
    assert text.count("&lt;script&gt;") == 2


def test_the_figure_of_distances_is_drawn_anew_for_other_distances_alone(distances):
    explorer = widgets.distance_explorer(distances)
    first = explorer.answer()
    assert explorer.answer(γ=0.2).figure is first.figure
    assert explorer.answer(pair=(1, 2)).figure is first.figure
    for changed in ({"loss": "before"}, {"distance": "mse"}, {"negatives": 2}, {"tokens": (11, 18)}):
        assert explorer.answer(**changed).figure is not explorer.answer().figure


def test_a_range_without_documents_is_said_and_can_be_left_again(distances):
    distances = distances._replace(documents=distances.documents.assign(length=[10] * 4 + [90] * 5))
    explorer = widgets.distance_explorer(distances)
    assert "no document has 20 to 30 tokens" in moved(explorer, tokens=(20, 30))
    assert numbers(moved(explorer, tokens=(10, 90)), "documents") == ["9"]


def test_the_projection_explorer_offers_the_colours_of_the_documents_and_their_variance():
    rng = np.random.default_rng(0)
    frames = {"validation documents": pd.DataFrame({"length": range(1, 9), "source": list("aabbaabb")}),
              "task t": pd.DataFrame({"length": range(1, 6), "label": list("xyxyx")})}  # fmt: skip
    planes = {
        name: {
            space: principal_plane(rng.standard_normal((len(frame), 5))) for space in ("student", "contextual teacher")
        }
        for name, frame in frames.items()
    }
    probes = pd.DataFrame(
        [("after", "structural teacher", "all", 8, 0.25, 0.5), ("after", "structural teacher", "longer", 4, 0.9, 0.9)],
        columns=["model", "teacher", "bucket", "documents", "r2", "overlap"],
    )
    explorer = widgets.projection_explorer(Spaces(frames, planes), probes)
    text = moved(explorer, documents="task t", colour="label")
    assert [value for _, value in explorer.widgets["colour"].options] == ["label", "length"]
    assert numbers(text, "explained") == [f"{plane.explained:.3f}" for plane in planes["task t"].values()]
    assert (numbers(text, "r2"), numbers(text, "common")) == (["0.250"], ["0.500"])
    assert numbers(moved(explorer, beside="student"), "space") == ["student"]
    figure = explorer.answer(space="contextual teacher", colour="length").figure
    for ax, space in zip(figure.axes, ("contextual teacher", "student"), strict=False):
        assert ax.get_title() == space
        np.testing.assert_allclose(ax.collections[0].get_offsets(), planes["task t"][space].points)
    assert [value for _, value in explorer.widgets["colour"].options] == ["label", "length"]


def test_the_weighting_explorer_tells_recorded_from_guessed_from_missing(workspace_root):
    profile, workspace = Profile.load("small"), Workspace(workspace_root)
    run = Run(RunKey.of("05_weighting", profile, lam=0.5, max_structural_len=None), workspace)
    points = pd.DataFrame(
        [(0.2, np.nan, "sort", "accuracy", 0.4, 0.3, 0.5), (0.8, np.nan, "sort", "accuracy", 0.7, 0.6, 0.8)],
        columns=weighting_points.COLUMNS,
    )
    explorer = widgets.weighting_explorer(run, points, profile="small")
    text = moved(explorer)
    assert (numbers(text, "status"), numbers(text, "score"), numbers(text, "interval")) == (
        ["recorded"],
        ["0.400"],
        ["[.30, .50]"],
    )
    assert "command" not in text
    text = moved(explorer, λ=0.4)
    assert (numbers(text, "status"), numbers(text, "score")) == (["no run"], [])
    assert "-p lam 0.4 " in "".join(numbers(text, "command")) + " "
    text = moved(explorer, interpolate=True)
    assert (numbers(text, "status"), numbers(text, "score"), numbers(text, "interval")) == (
        ["interpolated"],
        ["0.500"],
        [""],
    )
    assert "λ = 0.2 and 0.8" in text
    assert numbers(moved(explorer, mask=64), "status") == ["no run"]

    none_yet = widgets.weighting_explorer(run, points.assign(lam=np.nan), profile="small")
    assert "no recorded run has a λ yet" in moved(none_yet)

    alone = Run(RunKey.of("05_weighting", profile, contextual_teacher=None), workspace)
    alone = widgets.weighting_explorer(alone, points, profile="small")
    assert "one teacher alone" in moved(alone)


def test_the_neighbour_browser_shows_neighbours_of_a_document_and_of_a_text(monkeypatch):
    rng = np.random.default_rng(0)
    spaces = {"student": rng.standard_normal((6, 4)), "SBERT over chunks": rng.standard_normal((6, 3))}
    pool = Pool([f"page {n} {HOSTILE}" for n in range(6)], np.arange(6), spaces, {2: [4]})
    asked = []
    neighbourhoods = SimpleNamespace(
        tasks=["find"], models=spaces, pool=lambda task: pool,
        embed=lambda text: asked.append(text) or {model: X[3] for model, X in spaces.items()},
    )  # fmt: skip
    by_length = pd.DataFrame(
        [("student", "find", "map", "≤ 256", 20, 0.5, 0.4, 0.6)],
        columns=["model", "task", "metric", "bucket", "examples", "value", "low", "high"],
    )
    explorer = widgets.neighbour_browser(neighbourhoods, by_length)

    def rows(text, model):
        return [int(row) for row in re.findall(rf'data-model="{model}" data-row="(\d+)"', text)]

    text = moved(explorer, document=2, neighbours=3)
    found = pool.neighbours(2, 3)
    for model, own in found.items():
        assert rows(text, model) == own.rows.tolist()
    common = len(set(found["student"].rows) & set(found["SBERT over chunks"].rows))
    assert numbers(text, "common") == [str(common)]
    assert ("✓ ·" in text) == any(4 in own.rows for own in found.values())
    assert "<script" not in text
    assert explorer._picture.value.startswith("<img")

    assert "documents are listed" not in text
    monkeypatch.setattr(widgets.neighbours, "LISTED", 4)
    assert "the first 4 of 6 documents are listed" in moved(explorer, neighbours=4)
    assert len(moved(explorer, find="page") and explorer.widgets["document"].options) == 4
    assert [value for _, value in moved(explorer, find="PAGE 5") and explorer.widgets["document"].options] == [5]
    assert "no document of find holds" in moved(explorer, find="<nowhere>")
    text = moved(explorer, **{"your text": "my <b>own</b> words"})
    assert rows(text, "student")[0] == 3
    assert "<b>own" not in text
    moved(explorer, neighbours=2)
    assert asked == ["my <b>own</b> words"]  # embedded once


def test_the_monitor_says_what_to_run_and_shows_what_has(workspace_root):
    async def watched():
        monitor = widgets.run_monitor("05_weighting")
        assert "nothing has run yet; docemb run" in moved(monitor)
        record = Record(notebook="05_weighting", label=HOSTILE, fingerprint="a", setting="s", profile="small", parameters={},
                        status="failed", error="out of <memory>")  # fmt: skip
        folder = save(Workspace(workspace_root), record)
        monitor.refresh()
        text = monitor._text.value
        assert (numbers(text, "failed"), numbers(text, "state")) == (["1"], ["failed"])
        assert "<script" not in text
        assert "out of &lt;memory&gt;" in text
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
        monitor.refresh()
        assert "nothing has run yet" in monitor._text.value
        monitor.close()
        await asyncio.sleep(0)

    asyncio.run(watched())


def test_the_monitor_looks_again_by_itself_until_it_is_closed(workspace_root, monkeypatch):
    async def watched():
        monitor = widgets.run_monitor()
        monitor.live()
        looks = []
        monkeypatch.setattr(monitor, "refresh", lambda: looks.append(1))
        monitor.settings["every"] = 0.01
        monitor._watch.cancel()
        monitor._watch = asyncio.get_running_loop().create_task(monitor._keep_looking())
        while len(looks) < 2:
            await asyncio.sleep(0.01)
        watch = monitor._watch
        monitor.close()
        await asyncio.gather(watch, return_exceptions=True)
        assert watch.cancelled()

    asyncio.run(asyncio.wait_for(watched(), 20))


def test_a_monitor_knows_notebooks_by_their_number(workspace_root):
    save(Workspace(workspace_root), Record(notebook="05_weighting", label="x", fingerprint="a", setting="s",
                                           profile="small", parameters={}))  # fmt: skip
    assert numbers(widgets.run_monitor("05").answer().html, "done") == ["1"]
    assert "recorded runs:" not in widgets.run_monitor("05").answer().html
    assert "nothing has run yet" in widgets.run_monitor("03").answer().html
    with pytest.raises(InputError, match="notebook '5' is unknown"):
        widgets.run_monitor("5")


def test_a_monitor_counts_all_runs_and_lists_the_last(workspace_root, monkeypatch):
    monkeypatch.setattr(widgets.monitor, "LAST", 2)
    for number in range(3):
        save(Workspace(workspace_root), Record(notebook="05_weighting", label=f"run {number}", fingerprint=str(number),
                                               setting="s", profile="small", parameters={},
                                               finished=f"2024-01-0{number + 1}T00:00:00"))  # fmt: skip
    text = widgets.run_monitor().answer().html
    assert numbers(text, "done") == ["3"]
    assert numbers(text, "run") == ["run 2", "run 1"]
    assert "the last 2 of 3 recorded runs" in text


def test_a_monitor_of_a_grid_has_all_of_its_runs(workspace_root):
    grid = [{"lam": 0.2}, {"lam": 0.7}]
    text = widgets.run_monitor("05", grid, profile="small").answer().html
    assert numbers(text, "waiting") == ["2"]
    assert numbers(text, "left") == ["not known yet"]
