"""The verdicts of claims on the published values, each against a plain computation."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from conftest import make_workspace

from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import OVERALL
from docemb_lib.runs.run import Run
from docemb_lib.settings.notebooks import CHAPTER_4, EVALUATION, SIMDE
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis import claims as module
from docemb_lib.thesis.claims import FAILS, HOLDS, NO_INTERVAL, UNDECIDED, UNTESTED, check_claims
from docemb_lib.thesis.values import FIGURES, published, rows_of, thesis_tasks

STUDENTS = ["only-MSE", "MSE-contextual", "cosine-masked"]
PAIRS = ["aan", "oc", "pan", "s2orc"]
VECTORS = published("paragraph_vectors")
SINGLE = VECTORS[VECTORS["kind"] != "DM+DBOW"]
COMPOUND = VECTORS.loc[VECTORS["kind"] == "DM+DBOW", "value"]
# Mean normalised accuracy by figure and label.
MEANS = {figure.source: rows_of(figure)["value"] for figure in FIGURES}
F47 = MEANS["figure 4.7"]
F48 = MEANS["figure 4.8"]
F49 = MEANS["figure 4.9"]
F412 = MEANS["figure 4.12"]
# {(round, model): {task: accuracy}}, {metric: models × tasks}
TABLE = published("table_5_7")
ACCURACY = TABLE.query("metric == 'accuracy'").pivot(
    index=["round", "model"], columns="task", values="value"
)
MAP = TABLE.query("metric == 'map'").pivot(index="model", columns="task", values="value")
MRR = TABLE.query("metric == 'mrr'").pivot(index="model", columns="task", values="value")


def average(column, value):
    return SINGLE.loc[SINGLE[column] == value, "value"].mean()


def students(figure, width):
    return figure[figure.index.str.startswith(f"{width}d;S:")]


def differ(table):
    """The difference of both tasks, by model."""
    return (table["games"] - table["wines"]).abs()


def relative_gain(model, over, round_):
    rows = published("simde").query("source == 'table 2' and metric == 'f1_macro'")
    rows = rows[rows["round"] == round_].pivot(index="task", columns="model", values="value")
    return 100 * (rows[model] / rows[over] - 1).mean()


WEAK_AND_STRONG = [  # under the same student projection of Figure 4.9
    (["100d;S:768;C:768"], "100d;S:768;C:100(ReLU)x768"),
    (
        ["100d;S:768(ReLU)x1024(ReLU)x768;C:768"],
        "100d;S:768(ReLU)x1024(ReLU)x768;C:100(ReLU)x768",
    ),
    (
        ["1024d;S:768(ReLU)x1024;C:-", "1024d;S:768(ReLU)x1024;C:1024"],
        "1024d;S:768(ReLU)x1024;C:768x1024",
    ),
    (
        ["2048d;S:1024(ReLU)x2048;C:-", "2048d;S:1024(ReLU)x2048;C:2048"],
        "2048d;S:1024(ReLU)x2048;C:1024x2048",
    ),
    (
        ["2048d;S:768(ReLU)x4096(ReLU)x2048;C:-"],
        "2048d;S:768(ReLU)x4096(ReLU)x2048;C:2048(ReLU)x2048",
    ),
]
BASELINES_48 = ["DM;100d", "DBOW;1024d", "PV;2048d", "Longformer", "SBERT"]
TEACHERS = {100: "DM;100d", 1024: "DBOW;1024d", 2048: "PV;2048d"}
BEST_47 = [students(F47, width).max() for width in TEACHERS]
STUDENTS_47 = pd.concat([students(F47, width) for width in TEACHERS])
STUDENTS_48 = pd.concat([students(F48, width) for width in TEACHERS])
LARGE = STUDENTS_48[STUDENTS_48.index.str.contains("x4096")]
ORDER = ["only-MSE", "MSE-contextual", "cosine-masked", "PV", "Longformer", "DM"]
GAINS = ACCURACY.loc["all"] - ACCURACY.loc["1k"]
TEN = ACCURACY.loc["10k"]
BY_HAND = {
    "v1": average("vector_size", 1024) > average("vector_size", 768) > average("vector_size", 100),
    "v2": average("min_count", 2) > average("min_count", "10%"),
    "v3": min(average("preprocess", "lowercase"), average("preprocess", "stem"))
    > average("preprocess", "none"),
    "v4": SINGLE.groupby("kind")["value"].std()["DBOW"]
    > SINGLE.groupby("kind")["value"].std()["DM"],
    "v5": round(COMPOUND.std(), 3) == 0.002,
    "v6": COMPOUND.min() > SINGLE["value"].max(),
    "s5": MEANS["figure 4.2"]["MSE"] < MEANS["figure 4.2"]["Longformer"],
    "s6": MEANS["figure 4.2"]["SBERT"] > MEANS["figure 4.2"][["MSE", "Longformer"]].max(),
    "p6": all(F49[weak].max() < F49[strong] for weak, strong in WEAK_AND_STRONG),
    "p8": STUDENTS_47.gt(F47["Longformer"]).sum() == len(STUDENTS_47) / 2 == 8,
    "p9": all(a > b for a, b in pairwise(BEST_47)),
    "p10": (
        students(F47, 1024).sort_values().to_numpy() >= students(F47, 2048).sort_values().to_numpy()
    ).all(),
    "p11": sum((students(F47, w) > F47[t]).sum() for w, t in TEACHERS.items()) < 16 / 2,
    "p12": F47["PV;2048d"] > F47["SBERT"],
    "p13": STUDENTS_48.gt(F48[BASELINES_48].max()).sum() == len(STUDENTS_48) - 1 == 11,
    "p14": LARGE.max() > F48.drop(LARGE.index).max(),
    "w8": F412[["only-structural;mm-MSE", "mm-MSE;λ=0.5"]].min()
    > F412[["masked-cosine;λ=0.5", "cosine;no-weighting"]].max(),
    "w9": F412["only-structural;mm-MSE"] > F412["mm-MSE;λ=0.5"] > F412["masked-cosine;λ=0.5"],
    "t1": (ACCURACY["imdb"].unstack().idxmax(axis=1) == "Longformer").all(),
    "t2": ACCURACY.loc["all", "arxiv"].idxmax() == "PV",
    "t3": (GAINS[["aan", "oc", "s2orc"]].idxmax() == "SBERT").all(),
    "t4": TEN[PAIRS].idxmax().isin(STUDENTS).all(),
    "t5": all(
        ACCURACY.loc[r].mean(axis=1)[ORDER].is_monotonic_decreasing for r in ("1k", "10k", "all")
    ),
    "r1": (MAP["games"] > MAP["wines"]).all(),
    "r2-map": differ(MAP).idxmin() == "cosine-masked",
    "r2-mrr": differ(MRR).idxmin() == "cosine-masked",
    "r3-map": differ(MAP)[STUDENTS].idxmin() == "cosine-masked",
    "r3-mrr": differ(MRR)[STUDENTS].idxmin() == "cosine-masked",
    "d1": round(relative_gain("SimDE_bert", "SimCSE", "all"), 1) == 3.9,
    "d2": round(relative_gain("SimDE_long", "Longformer", "all"), 1) == 9.4,
    "d3": round(relative_gain("SimDE_bert", "SimCSE", "few-shot"), 1) == 12.0,
    "d4": round(relative_gain("SimDE_long", "Longformer", "few-shot"), 1) == 24.3,
}
NOT_SO = ["p6", "r2-map", "r2-mrr"]  # claims that the published values contradict


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """The verdicts on the published values, by claim."""
    rows = pd.concat([rows_of(figure) for figure in FIGURES]).reset_index()
    rows = rows.rename(columns={"source": "round", "label": "model"})
    of_figures = module.scores_of_rows(rows.assign(task=OVERALL, metric="accuracy"))
    in_chapter_4 = check_claims(
        module.claims(*(notebook.name for notebook in CHAPTER_4)),
        of_figures,
        {"accuracy": [OVERALL]},
    )
    in_chapter_5 = check_claims(
        module.claims(EVALUATION.name), module.scores_of_rows(TABLE), thesis_tasks()
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_workspace(tmp_path_factory.mktemp("nothing") / "recorded", monkeypatch)
        run = Run.of(SIMDE.name, Profile.load("small"))
        of_paper = module.claims_of_paper(run).rename(columns={"as published": "verdict"})
    return pd.concat([in_chapter_4, in_chapter_5, of_paper[["verdict"]]])


@pytest.mark.parametrize("claim", BY_HAND)
def test_a_claim_has_the_verdict_of_a_plain_computation(checked, claim):
    expected = HOLDS if BY_HAND[claim] else FAILS
    assert checked.loc[claim, "verdict"] == expected + NO_INTERVAL


def test_the_published_values_contradict_three_claims_as_printed(checked):
    assert sorted(checked.index[checked["verdict"] == FAILS + NO_INTERVAL]) == NOT_SO


def test_the_weaker_contextual_projection_wins_three_of_five_pairs(checked):
    ahead = [F49[weak].max() > F49[strong] for weak, strong in WEAK_AND_STRONG]
    assert ahead.count(True) == 3
    assert checked.loc["p6", "because"].startswith("2 of 5 differences as claimed; ")


@pytest.mark.parametrize(
    ("column", "means"),
    [
        ("vector_size", {100: 0.873, 768: 0.925, 1024: 0.929}),
        ("min_count", {2: 0.922, "10%": 0.895}),
        ("preprocess", {"stem": 0.912, "lowercase": 0.910, "none": 0.905}),
    ],
)
def test_paragraph_vectors_have_the_averages_that_were_read_off_figure_4_5(column, means):
    for value, mean in means.items():
        assert average(column, value) == pytest.approx(mean, abs=0.001)


def test_the_attention_of_simde_is_not_tested_because_the_paper_prints_no_numbers(checked):
    assert checked.loc["d5", "verdict"] == UNTESTED


def test_claims_of_all_chapters_are_listed():
    chapters = (*CHAPTER_4, EVALUATION, SIMDE)
    listed = module.claims(*(notebook.name for notebook in chapters))
    assert len({claim["id"] for claim in listed}) == len(listed) == 60


# ---- how groups and numbers are compared, on scores of two models and two tasks


def claim(**fields):
    return [{"id": "x", "says": "", "metric": "accuracy", **fields}]


def scores(**models):
    """{model: [score on each task]} in one round; `a` and `b` are tasks."""
    return {
        m: dict(zip("ab", (Score("accuracy", (v,)) for v in vs), strict=True))
        for m, vs in models.items()
    }


ROUNDS = {
    "1k": scores(m=[0.5, 0.5], n=[0.4, 0.6], o=[0.1, 0.1]),
    "all": scores(m=[0.6, 0.9], n=[0.8, 0.6], o=[0.7, 0.7]),
}


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ({"order": [["m"], ["n"], ["o"]]}, FAILS),  # means .75, .7, .7
        ({"order": [["m"], ["o", "n"]]}, HOLDS),
        ({"order": [["n"], ["o"]]}, FAILS),
        ({"order": [["n"], ["o"]], "ties": True}, HOLDS),
        ({"order": [["n"], ["m"]], "tasks": ["a"]}, HOLDS),
        ({"order": [["m"], ["n"]], "over_tasks": "each"}, FAILS),
        ({"order": [["o"], ["n"], ["m"]], "over_tasks": "span"}, HOLDS),  # spans 0, .2, .3
        (
            {
                "order": [["o"], ["m"], ["n"]],
                "rounds": ["1k", "all"],
                "gain": {"from": "1k", "to": "all"},
            },
            HOLDS,
        ),
        ({"order": [["m", "o"], ["n"]], "of_group": "mean"}, HOLDS),
        ({"order": [["o", "n"], ["m"]], "of_group": "best"}, FAILS),
        ({"order": [["m", "n", "o"], ["n"]], "ahead": [1, 1]}, HOLDS),
        ({"order": [["m", "n", "o"], ["n"]], "ahead": [2, 3]}, FAILS),
        ({"order": [["m", "n"]], "over_tasks": "fall", "between": [-0.31, 0.21]}, HOLDS),
        ({"order": [["m", "n"]], "over_tasks": "fall", "between": [0, 1]}, FAILS),
        ({"order": [["m", "n"]], "of_group": "deviation", "between": [0.03, 0.04]}, HOLDS),
        ({"order": [["m"], ["n"]], "relative": True, "between": [0.124, 0.126]}, HOLDS),
    ],
)
def test_the_fields_of_a_claim_say_what_is_compared(fields, verdict):
    checked = check_claims(claim(**fields), ROUNDS, {"accuracy": ["a", "b"]})
    assert checked.loc["x", "verdict"] == verdict + NO_INTERVAL


def test_a_claim_about_tasks_is_not_tested_on_others():
    checked = check_claims(claim(order=[["m"]], tasks=["imdb"]), ROUNDS, {"accuracy": ["a"]})
    assert checked.loc["x"].tolist() == [UNTESTED, "the claim is about imdb"]


def answered(share, n=400):
    answers = (np.arange(n) < share * n).astype(np.float32)[None]
    return {"a": Score("accuracy", (share,), per_example={"accuracy": answers})}


@pytest.mark.parametrize(
    ("levels", "fields", "verdict"),
    [
        ((0.9, 0.6, 0.5), {"ahead": [1, 1]}, HOLDS),
        ((0.9, 0.9, 0.5), {"ahead": [1, 1]}, FAILS),
        ((0.9, 0.605, 0.5), {"ahead": [2, 2]}, UNDECIDED),  # two examples more than `o`
        ((0.9, 0.8, 0.5), {"of_group": "mean"}, HOLDS),
        ((0.9, 0.31, 0.5), {"of_group": "mean"}, UNDECIDED),
        ((0.9, 0.31, 0.5), {"of_group": "best"}, HOLDS),
    ],
)
def test_groups_and_numbers_of_models_are_decided_by_paired_tests(levels, fields, verdict):
    reference = 0.7 if fields.get("ahead") == [1, 1] else 0.6
    rounds = {"all": {m: answered(v) for m, v in zip("mnp", levels, strict=True)}}
    rounds["all"]["o"] = answered(reference)
    members = ["m", "n", "p"] if "ahead" in fields else ["m", "n"]
    checked = check_claims(claim(order=[members, ["o"]], **fields), rounds, {"accuracy": ["a"]})
    assert checked.loc["x", "verdict"] == verdict
