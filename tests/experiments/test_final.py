"""What a final evaluation says of its models, on made-up answers: intervals, comparisons, lengths, and the report."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from docemb_lib.evaluation import Classification, Labelled, Score
from docemb_lib.evaluation.uncertainty import OVERALL, by_length, differences, holm, score_intervals
from docemb_lib.experiments import final as module
from docemb_lib.experiments.final import REFERENCES, example_lengths, final_evaluation, scores_by_length
from docemb_lib.experiments.models import SBERT_CHUNKS, SBERT_TRUNCATED, UNTRAINED
from docemb_lib.experiments.report import report
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.scores import Model
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace

SKILL = {"student": 0.8, UNTRAINED: 0.4, SBERT_TRUNCATED: 0.6, SBERT_CHUNKS: 0.79, "TF-IDF": 0.3}
MODELS = [Model(name, name, lambda: pytest.fail("nothing is embedded")) for name in SKILL]


def made(metric, *rows):
    answers = np.stack(rows).astype(np.float32)
    return Score(metric, tuple(answers.mean(axis=1).tolist()), per_example={metric: answers})


def some_rounds(names=("all",)):
    rng = np.random.default_rng(0)
    hard, precision = rng.random(300), rng.random(80)
    rounds = {}
    for place, name in enumerate(names[::-1]):
        rounds[name] = {
            model: {
                "sort": made("accuracy", *(hard + 0.2 * rng.normal(size=300) < skill - 0.1 * place for _ in range(3))),
                "find": made("map", precision ** (1 / skill)),
            }
            for model, skill in SKILL.items()
        }
    return {name: rounds[name] for name in names}


@pytest.fixture
def rounds(monkeypatch):
    """Scores that are there already, in as many rounds as asked for."""
    found = {}
    monkeypatch.setattr(module, "scores_by_round", lambda stages, models, *, final: {
        name: {model.label: scores[model.fingerprint] for model in models} for name, scores in found.items()
    })  # fmt: skip

    def use(*names):
        found.update(some_rounds(names))
        return found

    return use


def test_the_student_is_compared_with_all_references_and_the_others_with_the_first(rounds):
    found = rounds("all")["all"]
    final = final_evaluation(None, MODELS, student="student")
    pairs = {(row.model, row.reference) for row in final.comparison.itertuples()}
    assert pairs == {(model, SBERT_CHUNKS) for model in SKILL if model != SBERT_CHUNKS} | {
        ("student", SBERT_TRUNCATED), ("student", UNTRAINED),
    }  # fmt: skip
    assert len(final.comparison) == 6 * 3  # two tasks and their mean
    np.testing.assert_allclose(final.comparison["p_holm"], holm(final.comparison["p"].to_numpy()))
    own = final.comparison.query("reference == @UNTRAINED").reset_index(drop=True)
    alone = differences({model: found[model] for model in (UNTRAINED, "student")}, UNTRAINED)
    pd.testing.assert_frame_equal(own[alone.columns], alone)
    verdict = final.comparison.set_index(["model", "reference", "task"])["verdict"]
    assert verdict["student", UNTRAINED, OVERALL] == "better"
    assert verdict["student", SBERT_CHUNKS, "sort"] == "no difference shown"
    assert verdict["TF-IDF", SBERT_CHUNKS, "find"] == "worse"
    pd.testing.assert_frame_equal(final.intervals, score_intervals(found))


def test_the_board_has_intervals_and_the_deviation_over_head_seeds(rounds):
    found = rounds("all")["all"]
    board = final_evaluation(None, MODELS, student="student").board
    assert list(board.columns) == ["sort", "find", OVERALL, "± head seeds"]
    assert board.index[0] in {"student", SBERT_CHUNKS}
    assert board.index[-1] == "TF-IDF"
    values = np.array(found["student"]["sort"].values)
    mean = (values + found["student"]["find"].mean) / 2
    assert board.loc["student", "± head seeds"] == f"{mean.std(ddof=1):.3f}"
    assert board.loc["student", "sort"].startswith(f"{values.mean():.3f}".lstrip("0") + " [")


def test_rounds_stand_in_the_table_and_the_last_one_is_compared(rounds):
    found = rounds("1k", "all")
    final = final_evaluation(None, MODELS, student="student")
    assert list(dict.fromkeys(final.board.index.get_level_values("round"))) == ["1k", "all"]
    assert len(final.board) == 10
    assert not final.board.isna().to_numpy().any()
    of_first = final.intervals.query("round == '1k'").drop(columns="round").reset_index(drop=True)
    pd.testing.assert_frame_equal(of_first, score_intervals(found["1k"]))
    row = final.comparison.query("model == 'student' and reference == @UNTRAINED and task == 'sort'")
    expected = found["all"]["student"]["sort"].mean - found["all"][UNTRAINED]["sort"].mean
    assert row["difference"].item() == pytest.approx(expected)


def test_without_references_there_is_nothing_to_compare(rounds):
    rounds("all")
    final = final_evaluation(None, [MODELS[0]], student="student")
    assert final.comparison.empty
    assert list(final.board.index) == ["student"]


@pytest.mark.parametrize("notebook", ["06_evaluation", "07_simde"])
def test_a_report_quotes_what_the_run_recorded(rounds, workspace_root, notebook):
    rounds("1k", "all")
    run = Run(notebook, Profile.load("small").for_notebook(notebook), Workspace(workspace_root), {})
    models = [MODELS[0]._replace(label=run.label), *MODELS[1:]]
    final = final_evaluation(None, models, student=run.label)
    run.finish({}, scores=final.scores, tables=final.tables)
    outcome = report([SimpleNamespace(notebook=run.notebook, fingerprint=run.fingerprint)], run.workspace)
    assert outcome.standing.startswith(f"In the mean over 2 tasks, {run.label} (.")
    assert f"it is better than {SBERT_TRUNCATED} and {UNTRAINED} (." in outcome.standing
    assert outcome.standing.endswith(f"), not shown to differ from {SBERT_CHUNKS}.")
    assert set(outcome.board.index) == {model.label for model in models}
    last = final.scores.query("round == 'all' and task == 'sort' and metric == 'accuracy' and model == 'TF-IDF'")
    assert outcome.board.loc["TF-IDF", "sort"] == pytest.approx(last["value"].mean())


def test_a_report_has_no_models_of_another_profile_on_its_board(rounds, workspace_root):
    rounds("all")
    workspace, runs = Workspace(workspace_root), []
    for profile in (Profile.load("small").with_tasks(["halves"], source="test"), Profile.load("small")):
        run = Run("06_evaluation", profile.for_notebook("06_evaluation", seed=len(runs)), workspace, {})
        final = final_evaluation(None, [MODELS[0]._replace(label=run.label), *MODELS[1:]], student=run.label)
        only_its_own = final.scores if runs else final.scores[final.scores["task"] == "find"].assign(value=0.123)
        run.finish({}, scores=only_its_own, tables=final.tables)
        runs.append(run)
    board = report(
        [SimpleNamespace(notebook=run.notebook, fingerprint=run.fingerprint) for run in runs], workspace
    ).board
    assert set(board.index) == {runs[1].label, *SKILL} - {"student"}
    assert 0.123 not in board["find"].to_numpy()


def test_scores_by_length_are_those_of_each_task_with_its_lengths(rounds, monkeypatch):
    found = rounds("1k", "all")["all"]
    lengths = {"sort": np.arange(300) * 10, "find": np.arange(80) * 5}
    monkeypatch.setattr(module, "example_lengths", lambda stages, task: lengths[task])
    stages = SimpleNamespace(profile=SimpleNamespace(evaluation=SimpleNamespace(tasks=["sort", "find"])))
    frame = scores_by_length(stages, MODELS)
    assert len(frame) == 5 * 2 * 7
    own = frame.query("model == 'student' and task == 'find'").reset_index(drop=True)
    expected = by_length(found["student"]["find"].per_example["map"], lengths["find"])
    pd.testing.assert_frame_equal(own[expected.columns], expected)
    assert own["metric"].unique().tolist() == ["map"]


def test_lengths_are_counted_once_in_the_structural_teachers_tokens(workspace_root):
    counted = []

    def count_tokens(texts):
        counted.append(list(texts))
        return [len(text.split()) for text in texts]

    task = Classification("sort", {"train": Labelled(["a", "b b"], [0, 1]), "test": Labelled(["d d d", "a"], [0, 1])})
    stages = SimpleNamespace(
        profile=Profile.load("small"), workspace=Workspace(workspace_root), tasks={"package": task},
        structural_teacher=SimpleNamespace(count_tokens=count_tokens), corpus=SimpleNamespace(fingerprint="c"),
    )  # fmt: skip
    for _ in range(2):
        assert example_lengths(stages, "package").tolist() == [3, 1]
    assert counted == [task.texts("test")]


def test_the_first_reference_is_what_a_user_does_today():
    assert REFERENCES == (SBERT_CHUNKS, SBERT_TRUNCATED, UNTRAINED)
