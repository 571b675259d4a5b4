"""Claims hold in the thesis' own table, and tests decide where per-example scores are known."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from docemb_lib.evaluation.tasks import Classification, Labelled, Score
from docemb_lib.runs.grids import grid
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.run import Run
from docemb_lib.settings.notebooks import CHAPTER_4, EVALUATION, SIMDE
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis import claims as module
from docemb_lib.thesis.claims import (
    FAILS,
    HOLDS,
    NO_INTERVAL,
    UNDECIDED,
    UNTESTED,
    Mean,
    check_claims,
)
from docemb_lib.thesis.comparison import recorded_finals
from docemb_lib.thesis.values import FIGURES, paper_name, published, rows_of

# Claims that the published values contradict.
CONTRADICTED = {"p6", "r2-map", "r2-mrr"}

TASKS = {"accuracy": ["sort", "match"], "map": ["find"], "mrr": ["find"]}
LEVELS = {
    "Longformer": 0.5,
    "DM": 0.45,
    "PV": 0.55,
    "SBERT": 0.6,
    "cosine-masked": 0.7,
    "MSE-contextual": 0.8,
    "only-MSE": 0.9,
}
STUDENTS = ("cosine-masked", "MSE-contextual", "only-MSE")
CLAIMS = module.claims(EVALUATION.name)
ABSENT = "no scores on aan, arxiv, imdb, oc, pan, s2orc"
COUNTS = {
    "aan": 106.592,
    "arxiv": 28.388,
    "imdb": 25.0,
    "oc": 240.0,
    "pan": 17.968,
    "s2orc": 152.0,
    "masked": 3.26,
}


def right(examples, right):
    """An accuracy with the first `right` examples answered correctly."""
    answers = (np.arange(examples) < right).astype(np.float32)[None]
    return Score("accuracy", (right / examples,), per_example={"accuracy": answers})


def world(levels, *, rounds=("1k", "10k", "all"), examples=400):
    """Scores in which each model has its level on all tasks, in all rounds."""

    def ranked(level):
        answers = np.full((1, 60), level, dtype=np.float32)
        return Score("map", (level,), {"mrr": level}, {"map": answers, "mrr": answers})

    def scores(level):
        return {
            **dict.fromkeys(TASKS["accuracy"], right(examples, round(level * examples))),
            "find": ranked(level),
        }

    return {name: {model: scores(level) for model, level in levels.items()} for name in rounds}


def holds_as_published(claims):
    """The verdict on each claim in the thesis' own values, by claim."""
    names = [claim["id"] for claim in claims]
    return {name: (FAILS if name in CONTRADICTED else HOLDS) + NO_INTERVAL for name in names}


def test_every_claim_has_a_verdict_in_the_thesis_own_table_which_has_no_intervals():
    checked = check_claims(
        CLAIMS, module.scores_of_rows(published("table_5_7")), module.thesis_tasks(), COUNTS
    )
    assert checked["verdict"].to_dict() == holds_as_published(CLAIMS)
    assert checked.loc[["c4", "c5", "c6"], "because"].tolist() == ["0.7878", "3.26", "17.97 to 240"]
    assert checked.loc["c1", "because"].startswith(
        "48 of 48 "
    )  # 3 students, 4 baselines, 2 rounds, raw and normalised


@pytest.mark.parametrize(
    ("levels", "examples", "expected"),
    [
        ({}, 400, {"c1": HOLDS, "c3": HOLDS, "c2": FAILS}),  # SBERT is behind
        ({"SBERT": 0.95}, 400, {"c1": FAILS, "c2": HOLDS}),
        (
            {"SBERT": 0.6975},
            400,
            {"c1": UNDECIDED},
        ),  # one example of a task less than cosine-masked
        ({}, 10, {"c3": UNDECIDED}),
    ],
)
def test_an_order_holds_if_tests_show_all_of_it_and_fails_if_one_shows_the_opposite(
    levels, examples, expected
):
    checked = check_claims(CLAIMS, world(LEVELS | levels, examples=examples), TASKS)["verdict"]
    assert checked[list(expected)].to_dict() == expected


def test_each_group_is_compared_with_all_later_groups_and_corrected_for_their_number():
    means = {
        name: Mean([np.array([value])])
        for name, value in zip("abcd", (3.0, 2.0, 1.0, 0.5), strict=True)
    }
    compared = module.comparisons([["a"], ["b", "c"], ["d"]], means, "all")
    assert (compared["ahead"] + compared["behind"]).tolist() == ["ab", "ac", "ad", "bd", "cd"]
    assert module.check_order(compared).verdict == HOLDS + NO_INTERVAL
    single = compared[:1].assign(p=0.03, error=0.45, step=1.0, examples=100)
    assert module.check_order(single).verdict == HOLDS
    undecided = module.check_order(pd.concat([single] * 10))
    assert undecided.verdict == UNDECIDED
    assert undecided.because.endswith("; 100 examples can show 1.637, about 270 this")


def test_a_verdict_on_p_values_alone_says_nothing_of_the_examples_that_it_takes():
    row = ("a", "b", "all", 0.2, 0.5)
    compared = pd.DataFrame([row], columns=["ahead", "behind", "where", "difference", "p"])
    assert module.check_order(compared) == (
        UNDECIDED,
        "0 of 1 differences significant; least: a minus b +0.200 (all)",
    )


def test_normalised_means_divide_each_task_and_its_answers_by_the_best():
    a = np.array([1.0, 0.0])
    b = np.array([1.0, 0.6])
    of_b = [np.array([1.0]), np.array([0.4])]
    normalised = module.normalised_means({"a": Mean([a, b], tested=True), "b": Mean(of_b)})
    np.testing.assert_allclose(
        [normalised["a"].values, normalised["b"].values], [[0.5, 1.0], [1.0, 0.5]]
    )
    np.testing.assert_allclose(normalised["a"].answers, [[1, 0], [1.25, 0.75]])
    assert (normalised["a"].tested, normalised["b"].tested) == (True, False)


@pytest.mark.parametrize(
    ("rounds", "tasks", "because"),
    [
        (world(LEVELS, rounds=("all",)), TASKS, {"c1": "no round 1k"}),
        (
            world({m: v for m, v in LEVELS.items() if m not in {"only-MSE", "DM"}}),
            TASKS,
            {
                "c1": "no run of only-MSE, DM",
                "c2": "no run of only-MSE, DM",
                "c7-mrr": "no run of only-MSE, DM",
            },
        ),
        (
            world(LEVELS),
            {"accuracy": ["sort", "oc", "aan"]},
            {"c3": "no scores on aan, oc", "c7-map": "no tasks with map"},
        ),
        (
            {"all": {**world(LEVELS)["all"], "PV": {"sort": right(10, 5)}}},
            TASKS,
            {"c2": "no scores of PV on match"},
        ),
        ({}, TASKS, {"c2": "no scores on match, sort"}),
    ],
)
def test_a_claim_that_is_not_tested_names_what_is_missing(rounds, tasks, because):
    checked = check_claims(CLAIMS, rounds, tasks)
    for claim, reason in because.items():
        assert checked.loc[claim].tolist() == [UNTESTED, reason]


def test_claims_are_about_models_and_rounds_that_the_thesis_has():
    table = published("table_5_7")
    for claim in CLAIMS:
        assert {"id", "says"} < set(claim)
        named = [model for group in claim.get("order", []) for model in group]
        assert len(set(named)) == len(named)
        assert {*named} <= set(table["model"])
        assert {*claim.get("rounds", [])} <= set(table["round"].dropna())
    assert len({claim["id"] for claim in CLAIMS}) == len(CLAIMS) == 20


@pytest.mark.parametrize(
    ("first", "counts", "verdicts"),
    [  # first: scores of the first round, as a share of the last
        (0.8, {"sort": 17.0, "match": 240.0, "masked": 3.5}, {HOLDS + NO_INTERVAL}),
        (0.7, {"sort": 16.9, "match": 100.0, "masked": 2.9}, {FAILS + NO_INTERVAL}),
        (0.9, {"match": 100.0}, {FAILS + NO_INTERVAL, UNTESTED}),
    ],
)
def test_a_number_is_compared_with_its_bounds(first, counts, verdicts):
    rounds = world(LEVELS) | world(
        {name: level * first for name, level in LEVELS.items()}, rounds=["1k"]
    )
    checked = check_claims(CLAIMS, rounds, TASKS, counts).loc[["c4", "c5", "c6"]]
    assert {*checked["verdict"]} == verdicts
    assert float(checked.loc["c4", "because"]) == pytest.approx(first, abs=2e-3)  # whole examples


@pytest.fixture
def three(make_run, recorded, students):
    """All three students of the thesis; two are recorded."""
    for name in STUDENTS[:0:-1]:
        recorded(LEVELS[name], **students[name])
    run = make_run(documents=4, **students["cosine-masked"])
    task = Classification("halves", {"train": Labelled(["a", "b"] * 100, ["x", "y"] * 100)})
    scores = SimpleNamespace(is_scored=lambda model, *, final: False, task=lambda name: task)
    lengths = np.array([9, 400, 64, 65, 1])
    run.corpus = SimpleNamespace(is_built=True)
    run.teachers = SimpleNamespace(structural_lengths=lambda split, rows: lengths[:rows])
    run.scorer = scores
    return run


def test_examples_and_masked_documents_are_counted_in_recorded_tasks_and_corpora(three, evaluated):
    evaluation = three.profile.evaluation.model_copy(
        update={"tasks": ["halves", "package"], "rounds": [10, None]}
    )
    three.profile = three.profile.model_copy(update={"evaluation": evaluation})
    finals = recorded_finals(three, evaluated(three.label))
    assert module._recorded_counts(three, finals) == {"halves": 20, "package": 20, "masked": 2}


def test_claims_are_checked_on_other_tasks_but_not_tested(three, evaluated):
    table = module.claims_of_run(three, recorded_finals(three, evaluated(three.label)))
    assert list(table.columns) == [
        "claim",
        "as published",
        "on thesis tasks",
        "on other tasks",
        "because",
    ]
    assert table["as published"].to_dict() == holds_as_published(CLAIMS)
    assert set(table["on thesis tasks"]) == {UNTESTED}
    # c2: SBERT is behind; c7-map: only-MSE is first, SBERT not second
    expected = {"c1": UNTESTED} | dict.fromkeys(["c2", "c7-map"], FAILS + NO_INTERVAL)
    assert table["on other tasks"][list(expected)].to_dict() == expected
    assert table.loc["c1", "because"] == f"{ABSENT}; on halves, package: no round 1k"


OF_KINDS = {"classification": ["sort"], "pairs": ["match"], "retrieval": ["find"]}


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [("t1", FAILS), ("t2", FAILS), ("t4", HOLDS), ("r1", UNTESTED), ("r3-map", UNTESTED)],
)
def test_claims_about_tasks_are_illustrated_on_others_of_their_kind(claim, verdict):
    checked = check_claims(CLAIMS, world(LEVELS), {**TASKS, **OF_KINDS})
    assert checked.loc[claim, "verdict"] == verdict


def test_a_span_needs_two_tasks():
    checked = check_claims(CLAIMS, world(LEVELS), {**TASKS, **OF_KINDS})
    assert checked.loc["r3-map", "because"] == "find alone has no span"


@pytest.fixture
def simde(workspace_root):
    """A run of the notebook of SimDE, its models, and F1 of heads on all and on few examples."""
    small = Profile.load("small")
    student = small.student.model_copy(update={"max_tokens": 1024})  # more than BERT reads
    profile = small.model_copy(update={"student": student})
    run = Run.of(SIMDE.name, profile, pairs="halves")
    rows = [
        (run.label, Kind.STUDENT, 0.6),
        ("student before distillation", Kind.UNTRAINED, 0.5),
        ("another student", Kind.STUDENT, 0.9),
    ]
    models = pd.DataFrame(rows, columns=["model", "kind", "f1"]).assign(form=Form.SAVED, name="")
    scores = []
    for metric, more in (("accuracy", 0.1), ("f1_macro", 0.0)):
        of_metric = models.assign(task="package", metric=metric, seed=0, value=models["f1"] + more)
        scores.append(of_metric)
    few_shot = pd.concat(scores).assign(draw=0, per_class=5)
    few_shot["value"] = few_shot["value"].replace(0.5, 0.48)
    other = few_shot.assign(per_class=2, value=0.1)
    final = SimpleNamespace(models=models, scores=pd.concat(scores))
    return run, final, pd.concat([other, few_shot])


def gain_elsewhere(table, claim):
    """The relative gain on the task `package`, which the paper lacks."""
    _, gain = table.loc[claim, "because"].split("; on package: ")
    return float(gain)


def test_claims_of_simde_are_illustrated_by_a_run(simde):
    table = module.claims_of_paper(*simde)
    assert table.loc["d2", "on other tasks"] == FAILS + NO_INTERVAL  # 20% are no 9.4%
    assert gain_elsewhere(table, "d2") == pytest.approx(0.6 / 0.5 - 1, rel=1e-3)
    assert gain_elsewhere(table, "d4") == pytest.approx(0.6 / 0.48 - 1, rel=1e-3)


def test_claims_of_simde_are_not_tested_by_other_tasks(simde):
    assert {*module.claims_of_paper(*simde)["on thesis tasks"]} == {UNTESTED}


def test_claims_of_simde_are_illustrated_by_recorded_runs(simde):
    run, final, _ = simde
    run.finish({}, scores=final.scores, tables={"models": final.models})
    table = module.claims_of_paper(run)
    assert gain_elsewhere(table, "d2") == pytest.approx(0.6 / 0.5 - 1, rel=1e-3)
    assert table.loc["d4", "because"].endswith("no round few-shot")


def test_of_two_records_of_a_student_of_simde_the_newest_counts(simde):
    run, final, _ = simde
    before = Run.of(SIMDE.name, run.profile, seed=1)
    worse = final.scores.assign(value=0.01)
    before.finish({}, scores=worse, tables={"models": final.models})
    run.finish({}, scores=final.scores, tables={"models": final.models})
    table = module.claims_of_paper(run)
    assert gain_elsewhere(table, "d2") == pytest.approx(0.6 / 0.5 - 1, rel=1e-3)


def test_a_claim_of_simde_names_the_model_that_is_missing(simde):
    table = module.claims_of_paper(*simde)
    assert table.loc["d1", "because"].endswith("; on package: no run of SimDE_bert, SimCSE")


@pytest.mark.parametrize(
    ("model", "parameters", "tokens", "name"),
    [
        ({"kind": Kind.STUDENT}, {}, 4096, "SimDE_long"),
        ({"kind": Kind.STUDENT}, {}, 512, "SimDE_bert"),
        ({"kind": Kind.STUDENT}, {"pairs": "dropout"}, 512, "SimCSE_long"),
        ({"kind": Kind.UNTRAINED}, {}, 512, "BERT"),
        ({"kind": Kind.UNTRAINED}, {}, 4096, "Longformer"),
        ({"kind": Kind.PUBLISHED, "name": "allenai/longformer-base-4096"}, {}, 512, "Longformer"),
        ({"kind": Kind.PUBLISHED, "name": "some/other"}, {}, 512, None),
        ({"kind": Kind.UNTRAINED, "form": Form.ADAPTED}, {}, 512, None),
        ({"kind": Kind.SBERT_CHUNKS}, {}, 512, None),
    ],
)
def test_models_have_their_names_in_the_simde_paper(small, model, parameters, tokens, name):
    student = small.student.model_copy(update={"max_tokens": tokens})
    key = Run.of(SIMDE.name, small.model_copy(update={"student": student}), **parameters)
    row = pd.Series({"form": Form.SAVED, "name": "", **model})
    assert paper_name(key, row, is_own=True) == name


def test_a_student_beside_a_run_has_no_name_in_the_simde_paper(small):
    row = pd.Series({"kind": Kind.STUDENT, "form": Form.SAVED, "name": ""})
    assert paper_name(Run.of(SIMDE.name, small), row, is_own=False) is None


def test_recorded_claims_are_of_both_chapters_and_nothing_is_built(
    workspace_root, recorded, validated, students, refused
):
    absent = "small: no run of chapter 4 and no final evaluation is recorded; make one with"
    refused(absent, module.recorded_claims, "small")
    validated("03_structural", 0.9, structural_loss="cosine")
    table = module.recorded_claims("small")
    assert list(table.index) == [c["id"] for c in (*OF_FIGURES, *CLAIMS, *OF_PAPER)]
    assert table.loc["s1", "because"].endswith("on package: no run of MSE")
    recorded(**students["only-MSE"])
    table = module.recorded_claims("small")
    assert table.loc["c7-mrr", "on other tasks"] == UNTESTED
    assert table.loc["c7-mrr", "because"].endswith(": no run of cosine-masked, MSE-contextual")
    assert not (workspace_root / "outputs" / "artefacts").exists()


def test_a_claim_is_tested_where_per_example_scores_are_known(three, evaluated):
    finals = recorded_finals(three, evaluated(three.label))
    levels = finals.scores.groupby("model")["value"].first()

    def by_round(models, *, final):
        (model,) = models
        assert final is True
        assert model.fingerprint == f"f/{model.label}"
        score = right(1000, 1000 * levels[model.label])
        level = levels[model.label]
        scores = {"package": score, "halves": score, "find": Score("map", (level,), {"mrr": level})}
        return {"all": {model.label: scores}}

    three.scorer.is_scored = lambda model, *, final: final
    three.scorer.by_round = by_round
    table = module.claims_of_run(three, finals)
    assert table.loc["c2", "on other tasks"] == FAILS
    said = "12 of 15 differences significant, 3 significant in the opposite direction; least: "
    assert table.loc["c2", "because"].startswith(f"{ABSENT}; on halves, package: {said}")
    assert (
        table.loc["c7-map", "on other tasks"] == FAILS + NO_INTERVAL
    )  # rankings have no per-example scores here


# ---- chapter 4

OF_FIGURES = module.claims(*(notebook.name for notebook in CHAPTER_4))
OF_PAPER = module.claims(SIMDE.name)
MARGIN = {"structural_loss": "max-margin", "distance": "mse"}


def test_claims_of_chapter_4_are_about_rows_of_a_figure():
    rows = {figure.source: set(rows_of(figure).index) for figure in FIGURES}
    for claim in OF_FIGURES:
        named = [[model for group in order for model in group] for order in module.orders_of(claim)]
        for models in named:
            assert len(set(models)) == len(models)
            assert {*models} <= rows[claim["figure"]]
    assert {claim["figure"] for claim in OF_FIGURES} == {
        f"figure 4.{n}" for n in (2, 3, 5, 7, 8, 9, 10, 11, 12)
    }
    assert len({claim["id"] for claim in OF_FIGURES}) == len(OF_FIGURES) == 35


@pytest.mark.parametrize(
    ("chapter", "ahead"),
    [
        ("04_projections", {"p1": "16 of 16 ", "p3": "8 of 8 ", "p7": "14 of 14 "}),
        ("05_weighting", {"w1": "27 of 27 ", "w7": "9 of 9 "}),
    ],
)
def test_every_claim_of_chapter_4_has_a_verdict_in_the_thesis_own_figures(make_run, chapter, ahead):
    asked = module.claims(chapter)
    rounds = {
        f.source: {m: {"mean": Score("accuracy", (v,))} for m, v in rows_of(f)["value"].items()}
        for f in FIGURES
    }
    checked = check_claims(asked, rounds, {"accuracy": ["mean"]})
    assert checked["verdict"].to_dict() == holds_as_published(asked)
    for claim, counted in ahead.items():
        assert checked.loc[claim, "because"].startswith(counted)
    table = module.claims_of_figures(make_run(chapter))
    assert table["as published"].to_dict() == checked["verdict"].to_dict()
    assert set(table["on thesis tasks"]) | set(table["on other tasks"]) == {UNTESTED}
    assert set(table["because"]) == {f"no run of {claim['figure']}" for claim in asked}


def test_recorded_runs_of_a_figure_are_found_by_parameters_and_missing_ones_named(
    make_run, validated, capsys
):
    for loss, level in (("mse", 0.55), ("cosine", 0.9)):
        validated("03_structural", level, structural_loss=loss)
    validated("03_structural", 0.95, structural_loss="mse", documents=12)  # of another size
    validated("03_structural", 0.1, structural_loss="contrastive", temperature=0.1)
    validated("03_structural", 0.99, **MARGIN, gamma=0.7)  # not in the thesis
    elsewhere = make_run().profile.with_tasks(["halves"], source="test")
    validated("03_structural", 0.99, profile=elsewhere, **MARGIN, gamma=1.0)  # of another setting
    table = module.claims_of_figures(make_run("03_structural"))
    assert table.loc["s1", ["on thesis tasks", "on other tasks"]].tolist() == [
        UNTESTED,
        HOLDS + NO_INTERVAL,
    ]
    said = "no scores on aan, arxiv, imdb, oc, pan, s2orc; on package: "
    assert table.loc["s1", "because"].startswith(
        said + "3 of 3 differences as claimed; least: cosine minus SBERT"
    )
    names = "max-margin;MSE;γ=0.1, max-margin;MSE;γ=0.5, max-margin;MSE;γ=1.0, max-margin;MSE;γ=1.5"
    assert table.loc["s2", "because"] == f"{said}no run of {names}"
    assert list(module.tested(table, "small").index) == ["s1", "s5", "s6"]
    assert capsys.readouterr().out.startswith("3 of 6 claims are not tested, because")
    for gamma, level in ((0.1, 0.56), (0.5, 0.57), (1.0, 0.8), (1.5, 0.5)):
        validated("03_structural", level, task="arxiv", **MARGIN, gamma=gamma)
    table = module.claims_of_figures(make_run("03_structural"))
    assert (
        table.loc["s2", "on other tasks"] == UNTESTED
    )  # they have no score on the task of the others
    assert table.loc["s2", "because"].endswith("no scores of max-margin;MSE;γ=0.1 on package")


def test_a_claim_of_chapter_4_is_tested_where_per_example_scores_are_known(make_run, validated):
    run = make_run("05_weighting")
    half = [p for p in grid("weighting-cosine", run.profile) if p["lam"] == 0.5]
    masked, plain = (validated("05_weighting", 0.5, models=True, **p).label for p in half)
    levels = {masked: 0.8, plain: 0.6}

    def by_round(models, *, final):
        assert not final
        (model,) = models
        assert model.fingerprint == f"f/{model.label}"
        return {"all": {model.label: {"package": right(1000, 1000 * levels.get(model.label, 0.7))}}}

    run.scorer = SimpleNamespace(is_scored=lambda model, *, final: True, by_round=by_round)
    run.corpus = SimpleNamespace(is_built=True)
    for level, verdict in ((0.6, HOLDS), (0.801, UNDECIDED), (0.95, FAILS)):
        levels[plain] = level
        assert module.claims_of_figures(run).loc["w3", "on other tasks"] == verdict


def test_groups_of_paragraph_vectors_are_compared_on_recorded_runs(make_run, validated):
    run = make_run("02_paragraph_vector")
    for parameters in grid("paragraph-vector", run.profile)[:36]:
        validated("02_paragraph_vector", 0.5 + (parameters["min_count"] == 2) / 10, **parameters)
    table = module.claims_of_figures(run)
    expected = {"v1": FAILS, "v2": HOLDS, "v3": FAILS}  # only min_count makes a difference
    for name, verdict in expected.items():
        assert table.loc[name, "on other tasks"] == verdict + NO_INTERVAL
    assert "no run of DM;768;stem;2+DBOW;1024;None;2" in table.loc["v6", "because"]


def test_figure_4_12_is_checked_on_runs_of_the_two_grids_of_its_students(make_run, validated):
    run = make_run("05_weighting")
    levels = {"weighting-cosine": {2: 0.7, 8: 0.6}, "weighting-max-margin": {6: 0.8}}
    for name, runs in levels.items():
        for place, level in runs.items():
            validated("05_weighting", level, **grid(name, run.profile)[place])
    validated("03_structural", 0.9, **MARGIN, gamma=1.0)
    table = module.claims_of_figures(run)
    assert table.loc[["w8", "w9"], "on other tasks"].tolist() == [HOLDS + NO_INTERVAL] * 2
