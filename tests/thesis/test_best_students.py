"""Figure 4.12 from recorded runs: which of them it shows, with which baselines and numbers of the thesis."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from docemb_lib.experiments.plan import grid
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.tables import best_of_chapter_4
from docemb_lib.thesis.values import published

sys.path.insert(0, str(Path(__file__).parent))
from final_runs import BASELINES, a_run


def validated(root, notebook, level, **parameters):
    run = a_run(root, notebook, **parameters)
    rows = [(model, "package", "accuracy", 0, value) for model, value in {run.label: level, **BASELINES}.items()]
    run.finish({}, scores=pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"]))
    return run


def test_figure_4_12_is_the_recorded_runs_of_table_4_10_with_its_baselines(workspace_root):
    small = Profile.load("small")
    assert best_of_chapter_4(a_run(workspace_root)).empty
    weighted = {(p["lam"], p["max_structural_len"]): p for p in grid("weighting-cosine", small)}
    no_weighting = validated(workspace_root, "05_weighting", 0.61, **weighted[None, None])
    validated(workspace_root, "05_weighting", 0.1, **weighted[0.8, None])  # not among the four
    structural = {"structural_loss": "max-margin", "distance": "mse", "gamma": 1.0}
    only = validated(workspace_root, "03_structural", 0.64, **structural)
    validated(workspace_root, "03_structural", 0.2, **structural, documents=12)  # fewer documents
    masked = validated(workspace_root, "05_weighting", 0.62, **weighted[0.5, 64])
    rows = best_of_chapter_4(a_run(workspace_root))
    assert not rows.duplicated(["model", "task", "seed"]).any()
    shown = rows.drop_duplicates("model").set_index("model")
    theirs = published("weighting").query("source == 'figure 4.12'").set_index("label")["value"]
    expected = {
        no_weighting.label: ("student", theirs["cosine;no-weighting"]),
        masked.label: ("student", theirs["masked-cosine;λ=0.5"]),
        f"only-structural;{only.label}": ("student", theirs["only-structural;mm-MSE"]),
        "student before distillation": ("baseline", theirs["Longformer"]),
        "SBERT truncated": ("baseline", theirs["SBERT"]),
        "DM;8d": ("baseline", theirs["DM;100d"]),
        "PV;16d": ("baseline", theirs["PV;2048d"]),
    }
    assert {model: (row["group"], row["thesis"]) for model, row in shown.iterrows()} == expected
    assert shown.loc[f"only-structural;{only.label}", "value"] == 0.64


def test_figure_4_12_shows_runs_of_one_setting_this_runs_or_the_newest(workspace_root):
    weighted = grid("weighting-cosine", Profile.load("small"))
    elsewhere = Profile.load("small").with_tasks(["halves"], source="test")
    validated(workspace_root, "05_weighting", 0.61, **weighted[-1])
    other = a_run(workspace_root, profile=elsewhere)
    rows = best_of_chapter_4(other)
    assert rows[rows["group"] == "student"]["value"].tolist() == [0.61]
    theirs = a_run(workspace_root, "05_weighting", profile=elsewhere, **weighted[-1])
    theirs.finish({}, scores=rows.assign(value=0.9, model=rows["model"])[["model", "task", "metric", "seed", "value"]])
    again = best_of_chapter_4(other)
    assert again[again["group"] == "student"]["value"].tolist() == [0.9]
