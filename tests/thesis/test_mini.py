"""The plan of the miniature is that of the thesis, and its runs end with tables."""

import runpy
import shutil
from pathlib import Path

import pandas as pd
import pytest

from docemb_lib import thesis
from docemb_lib.runs.plan import resolve_plan
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.values import FIGURES, ThesisValues, cells_of, final_name

PARAMS = Path(__file__).resolve().parents[2] / "params"
CLASSIFIED = {"aan", "arxiv", "imdb", "oc", "pan", "s2orc"}
RANKED = {"games", "wines"}
# A tenth of the runs, by their places in the grids; the first of `structural` is in Figure 4.12.
FEW = {
    "paragraph-vector": [0, 1, 18],
    "structural": [2, 3],
    "projections-contextual": [3],
    "projections-cosine": [0],
    "projections-max-margin": [0],
    "weighting-cosine": [2],
    "weighting-max-margin": [6, 8],
    "final": [0],
}

# Less to embed, fit and train than the miniature has: what each run ends with does not depend on
# it.
SMALLER = {
    "thesis-mini": {
        "seeds: 2": "seeds: 1",
        "epochs: 30": "epochs: 3",
        "epochs: 3}": "epochs: 1}",
        "documents: 400": "documents: 120",
        "max_tokens: 64}": "max_tokens: 32}",
        "max_tokens: 128": "max_tokens: 64",
        "layers: [0, 5]": "layers: [0]",
    },
    "thesis-mini-final": {
        "documents: 600": "documents: 160",
        "documents: 1000": "documents: 240",
        "epochs: 3,": "epochs: 1,",
    },
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A workspace with the profiles and notebooks of this repository."""
    for folder in ("params", "notebooks"):
        shutil.copytree(
            PARAMS.parent / folder,
            tmp_path / folder,
            ignore=shutil.ignore_patterns(".ipynb_checkpoints"),
        )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def data(root):
    runpy.run_path(str(PARAMS / "thesis-mini.py"))["make_data"](
        root / "data" / "mini", ["numpy", "seaborn"]
    )


def rows_of(runs):
    """The rows of the thesis' figures that each run is, and the names of final students."""
    figures = [figure for figure in FIGURES if figure.notebook == runs[0].notebook]
    cells = {figure.source: cells_of(figure, runs[0].profile) for figure in figures}
    of_runs = [[(source, labels.get(run.cell)) for source, labels in cells.items()] for run in runs]
    if runs[0].notebook == "06_evaluation":
        return [[*rows, final_name(run)] for rows, run in zip(of_runs, runs, strict=True)]
    return of_runs


def test_the_plan_of_the_miniature_has_the_runs_of_the_thesis_one_to_one(root):
    steps, mini = (resolve_plan(Profile.load(name)) for name in ("thesis", "thesis-mini"))
    assert [(step.grid, len(step.runs)) for step in mini] == [
        (step.grid, len(step.runs)) for step in steps
    ]
    small = [run for step in mini for run in step.runs]
    assert len({run.folder for run in small}) == len(small) == 121
    for there, here in zip(steps, mini, strict=True):
        of_step = rows_of(here.runs)
        assert of_step == rows_of(there.runs)
        assert all(
            any(label for _, label in rows[:3])
            for rows in of_step
            if here.grid not in (None, "final")
        )
    assert [rows[-1] for rows in rows_of(mini[-1].runs)] == [
        "cosine-masked",
        "MSE-contextual",
        "only-MSE",
    ]


# fields in which the miniature may differ: sources, models, sizes, and heads for dozens of examples
SIZES = {
    "name",
    "plan",
    "corpus.datasets",
    "corpus.documents",
    "corpus.validation",
    "corpus.tasks",
    "structural_teacher.model",
    "structural_teacher.max_tokens",
    "contextual_teachers.DM",
    "contextual_teachers.DBOW",
    "contextual_teachers.PV",
    "contextual_teachers.corpus",
    "contextual_teachers.lsa_dim",
    "student.model",
    "student.layers",
    "student.max_tokens",
    "student.attention_window",
    "training.accumulation",
    "training.warmup",
    "evaluation.benchmarks",
    "evaluation.limit",
    "evaluation.seeds",
    "evaluation.head",
    "parameters.documents",
    "parameters.max_structural_len",
    "parameters.student_projection",
}


@pytest.mark.parametrize("chapter", ["", "-final"])
def test_the_miniature_differs_from_the_thesis_in_sources_and_sizes_alone(chapter):
    loaded = (
        Profile.load(PARAMS / f"{name}{chapter}.yaml").model_dump()
        for name in ("thesis-mini", "thesis")
    )
    mini, whole = (pd.json_normalize(profile, max_level=1).iloc[0].to_dict() for profile in loaded)
    differ = {name for name in {*mini, *whole} if mini[name] != whole[name]}
    assert differ - SIZES == set()
    assert {"evaluation.limit", "student.layers", "corpus.documents"} <= differ


@pytest.mark.slow
def test_a_tenth_ends_with_the_thesis_beside_it(root, data, infer_in_process):
    for name, smaller in SMALLER.items():
        profile = root / "params" / f"{name}.yaml"
        text = profile.read_text()
        for many, few in smaller.items():
            assert many in text
            text = text.replace(many, few)
        profile.write_text(text)
    steps = {step.grid: step for step in resolve_plan(Profile.load("thesis-mini"))}
    for name, run in [
        (name, steps[name].runs[place]) for name, places in FEW.items() for place in places
    ]:
        run.check()
        final = run.evaluate()
        run.finish(run.metrics(final.scores), scores=final.scores, tables=final.tables)
        if name != "final":
            assert ThesisValues(run.notebook, run.profile).of_run(run) is not None
            assert set(final.scores["task"]) == CLASSIFIED
    finals = thesis.recorded_finals(run)
    accuracy, ranking = (thesis.table_5_7(finals.scores, metric) for metric in ("accuracy", "map"))
    assert list(accuracy.index.unique("round")) == ["1k", "10k", "all"]
    assert set(accuracy) >= CLASSIFIED
    assert set(ranking) >= RANKED
    assert {"cosine-masked", "Longformer", "SBERT", "DM", "PV"} == set(finals.models)
    counts = thesis.deviations(finals.scores).groupby("metric").size().to_dict()
    assert counts == {
        "accuracy": 5 * 3 * 6,
        "map": 5 * 3 * 2,
        "mrr": 5 * 3 * 2,
    }  # models × rounds × tasks
    assert not thesis.best_of_chapter_4(run).empty
