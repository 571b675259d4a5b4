"""Scores: each model is scored once on each task by the right protocol; intervals, comparisons and
the report.
"""

from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
import pytest
from conftest import NotingEmbedder

from docemb_lib.base.errors import InputError
from docemb_lib.cli.report import print_report
from docemb_lib.evaluation import Classification, Labelled, Ranking, Retrieval, Score, protocols
from docemb_lib.evaluation.scoreboard import with_interval
from docemb_lib.evaluation.uncertainty import OVERALL, differences, holm, score_intervals
from docemb_lib.runs.embeddings import Embedder
from docemb_lib.runs.execution import NOTEBOOK, record_of
from docemb_lib.runs.kinds import Form, Identity, Kind
from docemb_lib.runs.models import Fitted, Model, scored_model
from docemb_lib.runs.run import Run
from docemb_lib.runs.scores import Final, Scorer
from docemb_lib.settings.sections import Evaluation

TEXTS = [f"text {i}" for i in range(8)]
TINY_HEAD = {"epochs": 2, "learning_rate": 1e-2, "hidden": 4}


def embedding_of(texts):
    """An embedding of its own for every text, whoever asks."""
    rows = [np.random.default_rng(list(text.encode())).normal(size=6) for text in texts]
    return np.stack(rows).astype(np.float32)


class Hashed(NotingEmbedder):
    """A model that notes what it is asked for."""

    def __init__(self):
        super().__init__()
        self.model = Model(Identity(Kind.STUDENT, name="m"), Embedder("m", "1", self.embed))

    def embed(self, texts):
        super().embed(texts)
        return embedding_of(texts)


def labelled(split, n):
    return Labelled([f"{split} {i}" for i in range(n)], [f"c{i % 2}" for i in range(n)])


def scorer_of(tasks, *, final=True, **evaluation):
    names = {"tasks": list(tasks), "sweep_tasks": list(tasks)}
    settings = Evaluation(**{"head": TINY_HEAD, "seeds": 2, **evaluation}).model_copy(update=names)
    corpus = SimpleNamespace(fingerprint="corpus")
    scorer = Scorer(SimpleNamespace(evaluation=settings), corpus, final=final)
    scorer.task = tasks.__getitem__
    return scorer


def ranking(split):
    return Ranking([f"{split} page {i}" for i in range(6)], [0, 1], [[2], [3, 4]])


SORT = {"train": labelled("train", 40), "validation": labelled("validation", 12)}
FOLDED = {"train": labelled("folded", 30), "test": labelled("unseen", 8)}
TASKS = {
    "sort": Classification("sort", {**SORT, "test": labelled("test", 14)}),
    "folded": Classification("folded", FOLDED),
    "find": Retrieval("find", {split: ranking(split) for split in ("validation", "test")}),
}


def test_the_final_evaluation_scores_test_splits_in_every_round(workspace_root):
    scorer = scorer_of(TASKS, rounds=[10, None], map_at=1)
    hashed = Hashed()
    rounds = scorer.by_round([hashed.model])
    assert list(rounds) == ["10", "all"]
    head = scorer.profile.evaluation.head
    for name in ("sort", "folded"):
        vectors = embedding_of(TASKS[name].texts("test"))
        for size, examples in {"10": 10, "all": None}.items():
            score = TASKS[name].score(vectors, head=head, seeds=2, examples=examples)
            assert rounds[size]["m"][name].by_seed == score.by_seed
            answers = rounds[size]["m"][name].per_example["accuracy"]
            np.testing.assert_array_equal(answers, score.per_example["accuracy"])
    expected = TASKS["find"].score(embedding_of(TASKS["find"].texts("test")), "test", top=1)
    for size in ("10", "all"):
        assert rounds[size]["m"]["find"].by_seed == expected.by_seed
    answers = rounds["all"]["m"]["find"].per_example["mrr"]
    np.testing.assert_array_equal(answers, expected.per_example["mrr"])
    (asked,) = hashed.asked
    assert sorted(asked) == sorted({text for task in TASKS.values() for text in task.texts("test")})


def test_runs_are_scored_on_cut_validation_splits_or_by_cross_validation(workspace_root):
    scorer = scorer_of(TASKS, final=False, limit=20, folds=3)
    hashed = Hashed()
    rounds = scorer.by_round([hashed.model])
    assert list(rounds) == ["all"]
    head = scorer.profile.evaluation.head
    for name in ("sort", "folded"):
        cut = protocols.for_validation(TASKS[name], 20)
        vectors = embedding_of(cut.texts(cut.validation_split))
        expected = cut.score(vectors, cut.validation_split, head=head, seeds=2, folds=3)
        assert rounds["all"]["m"][name].by_seed == expected.by_seed
    find = TASKS["find"].score(embedding_of(TASKS["find"].texts("validation")), "validation")
    assert rounds["all"]["m"]["find"].by_seed == find.by_seed
    asked = {text for texts in hashed.asked for text in texts}
    of_test = [text for text in asked if text.startswith(("test", "unseen"))]
    assert of_test == []  # no test split is looked at
    assert len([text for text in asked if text.startswith("folded")]) == 20


def test_what_is_scored_is_not_scored_again(workspace_root):
    sort = {"sort": TASKS["sort"]}
    first = scorer_of(sort)
    model = Hashed().model
    once = first.by_round([model])
    assert first.is_scored(model)
    assert not first.is_scored(Model(Identity(Kind.BM25), model.embedder))  # which only ranks
    assert not scorer_of(sort, final=False).is_scored(model)  # another split, another score
    both = scorer_of({**sort, "find": TASKS["find"]})
    assert not both.is_scored(model)
    hashed = Hashed()
    again = both.by_round([hashed.model])
    assert again["all"]["m"]["sort"].by_seed == once["all"]["m"]["sort"].by_seed
    assert hashed.asked == [TASKS["find"].texts("test")]
    for changed in ({"seeds": 3}, {"map_at": 1}, {"rounds": [10]}):
        assert not scorer_of(sort, **changed).is_scored(model)
    assert scorer_of(sort, limit=5, folds=2).is_scored(model)  # those are of runs


def test_tidy_scores_tell_the_main_metrics_and_rounds_where_there_are_some(workspace_root):
    model = Hashed().model

    def scores(**evaluation):
        scorer = scorer_of(TASKS, **evaluation)
        return scorer.evaluate([model], student=model, references=[]).scores

    frame = scores()
    assert list(frame) == ["model", "kind", "form", "task", "metric", "seed", "value"]
    assert frame.groupby("task")["metric"].unique().map(list).to_dict() == {
        "find": ["map", "mrr", "ndcg@10", "recall@100"],
        "folded": ["accuracy", "f1_macro"],
        "sort": ["accuracy", "f1_macro"],
    }
    rounds = scores(rounds=[10, None])
    of_all = rounds[rounds["round"] == "all"].drop(columns="round").reset_index(drop=True)
    pd.testing.assert_frame_equal(of_all, frame)
    assert rounds.groupby("round").size().to_dict() == {"10": len(frame), "all": len(frame)}


UNTRAINED = "student before distillation"
UNTRAINED_ADAPTED = "student before distillation ⊕ LSA"
SBERT_TRUNCATED = "SBERT truncated"
SBERT_CHUNKS = "SBERT over chunks"
SKILL = {"student": 0.8, UNTRAINED: 0.4, SBERT_TRUNCATED: 0.6, SBERT_CHUNKS: 0.79, "TF-IDF": 0.3}
# Models with the scores of the one in `SKILL` that the fingerprint names.
STUDENT = scored_model(Identity(Kind.STUDENT, name="student"), "student")
BEFORE_ADAPTED = scored_model(Identity(Kind.UNTRAINED, Form.ADAPTED), UNTRAINED)
KINDS = (Kind.UNTRAINED, Kind.SBERT_TRUNCATED, Kind.SBERT_CHUNKS, Kind.TFIDF)
MODELS = [STUDENT, *(scored_model(Identity(kind), Identity(kind).label) for kind in KINDS)]


def score_of(metric, *rows):
    return Score({metric: np.stack(rows).astype(np.float32)})


def some_rounds(names):
    rng = np.random.default_rng(0)
    hard = rng.random(300)
    precision = rng.random(80)
    rounds = {}
    for place, name in enumerate(names[::-1]):
        rounds[name] = {}
        for model, skill in SKILL.items():
            noise = 0.2 * rng.normal(size=(3, 300))
            sort = score_of("accuracy", *(hard + noise < skill - 0.1 * place))
            find = score_of("map", precision ** (1 / skill))
            rounds[name][model] = {"sort": sort, "find": find}
    return {name: rounds[name] for name in names}


@pytest.fixture
def rounds(monkeypatch):
    """Gives all models their scores in rounds of these names, {round: {model: {task: score}}}."""
    given = {}

    def by_round(scorer, models):
        scores = {}
        for name, of_round in given.items():
            scores[name] = {model.label: of_round[model.fingerprint] for model in models}
        return scores

    def use(*names):
        given.update(some_rounds(names))
        return given

    monkeypatch.setattr(Scorer, "by_round", by_round)
    return use


def evaluated(models, student=STUDENT):
    """An evaluation whose only round is "all"."""
    references = [model for model in models if model.kind != Kind.STUDENT]
    scorer = Scorer(SimpleNamespace(evaluation=Evaluation()), None, final=True)
    return scorer.evaluate(models, student=student, references=references)


def test_the_student_is_compared_with_all_references_and_others_with_sbert(rounds):
    scores = rounds("all")["all"]
    final = evaluated(MODELS)
    comparison = final.comparison
    others = [model for model in SKILL if model != "student"]
    pairs = [("student", other) for other in others]
    pairs += [(other, SBERT_CHUNKS) for other in others if other != SBERT_CHUNKS]
    compared = comparison[["model", "reference"]].drop_duplicates().itertuples(index=False)
    assert [*map(tuple, compared)] == pairs
    assert len(comparison) == 7 * 3  # two tasks and their mean
    families = [comparison["model"] == "student", comparison["task"] == OVERALL]
    for _, family in comparison.groupby(families):
        np.testing.assert_allclose(family["p_holm"], holm(family["p"].to_numpy()))
    alone = differences({model: scores[model] for model in (UNTRAINED, "student")}, UNTRAINED)
    rows = comparison.query("reference == @UNTRAINED").reset_index(drop=True)
    pd.testing.assert_frame_equal(rows[alone.columns], alone)
    verdict = comparison.set_index(["model", "reference", "task"])["verdict"]
    assert verdict["student", UNTRAINED, OVERALL] == "better"
    assert verdict["student", SBERT_CHUNKS, "sort"] == "no difference shown"
    assert verdict["TF-IDF", SBERT_CHUNKS, "find"] == "worse"
    intervals = final.intervals.drop(columns=["kind", "form"])
    pd.testing.assert_frame_equal(intervals, score_intervals(scores))


def test_a_model_that_only_ranks_stands_last_without_a_mean(rounds):
    scores = rounds("all")["all"]
    del scores["TF-IDF"]["sort"]
    final = evaluated(MODELS)
    assert final.board.index[-1] == "TF-IDF"
    row = final.intervals.query("model == 'TF-IDF' and task == 'find'").iloc[0]
    text = with_interval(*row[["value", "low", "high"]]).replace(", ", ",\u00a0")
    assert final.board.loc["TF-IDF"].tolist() == ["", text, "", "task"]
    assert set(final.comparison.query("reference == 'TF-IDF'")["task"]) == {"find"}
    means = final.intervals.query("task == @OVERALL").drop(columns=["kind", "form"])
    complete = {model: scores[model] for model in SKILL if model != "TF-IDF"}
    expected = score_intervals(complete).query("task == @OVERALL")
    assert means.to_dict("records") == expected.to_dict("records")
    assert "the best of 3 references, SBERT over chunks" in final.standing()


def test_an_adapted_student_is_compared_with_its_adapted_start(rounds):
    rounds("all")
    adapted = scored_model(Identity(Kind.STUDENT, Form.ADAPTED, "student"), "student")
    before = scored_model(Identity(Kind.UNTRAINED), "TF-IDF")
    models = [adapted, before, BEFORE_ADAPTED, MODELS[3]]
    assert f"; it is better than {UNTRAINED_ADAPTED} (." in evaluated(models, adapted).standing()
    final = evaluated([*models, STUDENT])
    assert f"; it is better than {UNTRAINED} (." in final.standing()
    assert final.adapted == "student, adapted"


@pytest.mark.parametrize(
    ("contextual", "best", "expected"),
    [
        ("DM", Kind.TFIDF, {"student", "DM", UNTRAINED, SBERT_TRUNCATED, SBERT_CHUNKS, "TF-IDF"}),
        (None, Kind.SBERT_CHUNKS, {"student", UNTRAINED, SBERT_TRUNCATED, SBERT_CHUNKS}),
    ],
)
def test_students_their_start_their_teachers_the_practice_and_the_best_model_decide(
    rounds, contextual, best, expected
):
    rounds("all")
    of_documents = [
        scored_model(Identity(Kind.DM, name="DM"), UNTRAINED),
        scored_model(Identity(Kind.DBOW, name="DBOW"), UNTRAINED),
        scored_model(Identity(Kind.STUDENT, Form.CENTRED, "student"), UNTRAINED),
    ]
    final = evaluated([*MODELS, *of_documents])
    is_best = final.intervals["kind"] == best
    raised = final.intervals["value"].mask(is_best, 1.0)
    final = final._replace(intervals=final.intervals.assign(value=raised))
    assert {*final.deciding(contextual)} == expected


def test_a_reference_is_fitted_on_the_texts_of_each_task_it_can_be_scored_on(workspace_root):
    both = Labelled(TEXTS, [0, 1] * 4)
    find = Ranking(TEXTS[:5], [0, 1], [[2], [3, 4]], "edcba")
    tasks = {
        "sort": Classification("sort", {"train": both, "test": both}),
        "find": Retrieval("find", {"test": find}),
    }
    asked = []

    def rank(texts, fitted):
        asked.append(texts)
        return lambda rows: np.eye(len(texts), len(texts), 2)[rows]

    def unfit(texts, fitted):
        raise InputError("no word occurs in 2 of the 5 texts")

    model = Model(Identity(Kind.BM25), Fitted("r", rank))
    scorer = scorer_of(tasks)
    for _ in range(2):
        scores = scorer.by_round([model])["all"]["BM25"]
    assert (asked, list(scores)) == ([TEXTS[:5]], ["find"])
    # Ties stand in the order of ids, the last first.
    assert scores["find"].mean == pytest.approx((1 + (1 / 1 + 2 / 4) / 2) / 2)
    assert scorer.is_scored(model)
    left_out = Model(Identity(Kind.FUSION), Fitted("u", unfit))
    assert [*scorer.by_round([model, left_out])["all"]] == ["BM25"]


def test_rounds_stand_in_the_table_and_the_last_one_is_compared(rounds):
    scores = rounds("1k", "all")
    final = evaluated(MODELS)
    assert list(final.board.index.get_level_values("round")) == ["1k"] * 5 + ["all"] * 5
    assert not final.board.isna().to_numpy().any()
    of_first = final.intervals.query("round == '1k'").drop(columns=["round", "kind", "form"])
    expected = score_intervals(scores["1k"])
    pd.testing.assert_frame_equal(of_first.reset_index(drop=True), expected)
    rows = final.comparison.query("reference == @UNTRAINED and task == 'sort'")
    sort = {model: of_tasks["sort"].mean for model, of_tasks in scores["all"].items()}
    expected = sort["student"] - sort[UNTRAINED]
    assert rows.query("model == 'student'")["difference"].item() == pytest.approx(expected)


def publish(run, final, conclusion=""):
    """Leave a run as its execution would."""
    record = record_of(run, student="trained")
    record.write(run.folder, {**final.tables, "scores": final.scores})
    cells = []
    for tag, text in (("found", "It is found."), ("conclusion", conclusion)):
        printed = nbformat.v4.new_output("stream", text=text)
        cells.append(nbformat.v4.new_code_cell(metadata={"tags": [tag]}, outputs=[printed]))
    nbformat.write(nbformat.v4.new_notebook(cells=cells), run.folder / NOTEBOOK)


def test_a_plan_ends_with_one_table_and_what_its_last_evaluation_concludes(
    rounds, workspace_root, small, capsys
):
    rounds("1k", "all")
    run = Run("06_evaluation", small)
    student = STUDENT.called(run.label)
    final = evaluated([student, *MODELS[1:]], student)
    (workspace_root / "trained").mkdir()
    publish(run, final, "It is good.")
    other = Run.of("06_evaluation", small, seed=1)
    publish(other, final.called({run.label: other.label}), "Others are good.")
    elsewhere = Run.of("06_evaluation", small.with_tasks(["halves"], source="test"), seed=2)
    publish(elsewhere, final._replace(intervals=final.intervals.assign(value=0.123)))
    run.profile = small.model_copy(update={"corpus": small.corpus})  # the key is that of the other
    print_report([elsewhere, other, run], whole_plan=True)
    shown = capsys.readouterr().out
    board = final._replace(intervals=final.last).board
    scores = board.loc[run.label, "mean over tasks"].split("\xa0")[0]
    own = "S+PV masked, 24 docs"
    for model in ("start", "SBERT-64", "SBERT-chunks", own, f"{own}, seed 1"):
        assert f"│ {model} " in shown
    assert "TF-IDF" not in shown
    assert "\nAll 6 models: outputs/runs/06_evaluation/*/intervals.json\n" in shown
    assert shown.count(scores) == 2  # of this student and of the other
    assert "0.123" not in shown
    assert "Others" not in shown
    assert shown.index("It is found.") < shown.index("Test scores")
    *_, said, _, _, link = shown.splitlines()
    assert said == "It is good."
    assert link == f"student:            outputs/students/{run.slug}"
    assert (workspace_root / "outputs/students" / run.slug).resolve() == workspace_root / "trained"


@pytest.mark.parametrize(("tasks", "said"), [(["halves"], True), (["halves", "links"], False)])
def test_a_choice_by_halves_alone_is_not_to_be_trusted(tasks, said):
    final = Final(*[pd.DataFrame({"task": tasks})] * 4, student="student")
    assert final.without_labels.startswith("Without labels no measure chooses reliably") is said
