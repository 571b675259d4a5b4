"""The score stage: each (model, task) scored once by the right protocol; intervals, comparisons and
the report.
"""

from types import SimpleNamespace

import nbformat
import numpy as np
import pandas as pd
import pytest

from docemb_lib.base.errors import InputError
from docemb_lib.cli.report import report
from docemb_lib.evaluation import Classification, Labelled, Ranking, Retrieval, Score, protocols
from docemb_lib.evaluation.scoreboard import with_interval
from docemb_lib.evaluation.tasks import relevant_lengths
from docemb_lib.evaluation.uncertainty import (
    OVERALL,
    differences,
    holm,
    score_intervals,
)
from docemb_lib.runs import models as baselines
from docemb_lib.runs import records
from docemb_lib.runs import scores as module
from docemb_lib.runs.run import Run
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.models import Model
from docemb_lib.runs.run import Run
from docemb_lib.runs.scores import Final, Scorer, TaskLengths, by_found
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import Evaluation
from docemb_lib.workspace import Workspace

TEXTS = [f"text {i}" for i in range(8)]
TINY_HEAD = {"epochs": 2, "learning_rate": 1e-2, "hidden": 4}


class Hashed:
    """Every text has an embedding of its own, whoever asks, and what was asked for is noted."""

    def __init__(self):
        self.asked = []

    def embed(self, texts):
        self.asked.append(list(texts))
        return embedding_of(texts)


def embedding_of(texts):
    return np.stack(
        [np.random.default_rng(list(text.encode())).normal(size=6) for text in texts]
    ).astype(np.float32)


def labelled(split, n, classes=2):
    return Labelled([f"{split} {i}" for i in range(n)], [f"c{i % classes}" for i in range(n)])


OF_ALL_EXAMPLES = SimpleNamespace(evaluation=Evaluation())  # a profile whose only round is "all"


def a_world(root, tasks, **evaluation):
    names = {"tasks": list(tasks), "sweep_tasks": list(tasks)}
    settings = Evaluation(**{"head": TINY_HEAD, "seeds": 2, **evaluation}).model_copy(update=names)
    stage = Scorer(
        SimpleNamespace(evaluation=settings), Workspace(root), SimpleNamespace(fingerprint="corpus")
    )
    stage.task = tasks.__getitem__
    return stage


TASKS = {
    "sort": Classification(
        "sort", {s: labelled(s, n) for s, n in {"train": 40, "validation": 12, "test": 14}.items()}
    ),
    "folded": Classification(
        "folded", {"train": labelled("folded", 30), "test": labelled("unseen", 8)}
    ),
    "find": Retrieval(
        "find",
        {
            s: Ranking([f"{s} page {i}" for i in range(6)], [0, 1], [[2], [3, 4]])
            for s in ("validation", "test")
        },
    ),
}


def test_the_final_evaluation_scores_test_splits_in_every_round(tmp_path):
    stages = a_world(tmp_path, TASKS, rounds=[10, None], map_at=1)
    model = Hashed()
    rounds = stages.by_round([scored_model(Identity(Kind.STUDENT, name="m"), "1", model.embed)], final=True)
    assert list(rounds) == ["10", "all"]
    head = stages.profile.evaluation.head
    for name in ("sort", "folded"):
        vectors = embedding_of(TASKS[name].texts("test"))
        expected = protocols.final_scores(
            TASKS[name], vectors, rounds={"10": 10, "all": None}, head=head, seeds=2
        )
        for size, score in expected.items():
            assert rounds[size]["m"][name] == score
            np.testing.assert_array_equal(
                rounds[size]["m"][name].per_example["accuracy"], score.per_example["accuracy"]
            )
    expected = TASKS["find"].score(embedding_of(TASKS["find"].texts("test")), "test", top=1)
    assert rounds["10"]["m"]["find"] == rounds["all"]["m"]["find"] == expected
    np.testing.assert_array_equal(
        rounds["all"]["m"]["find"].per_example["mrr"], expected.per_example["mrr"]
    )
    (asked,) = model.asked
    assert sorted(asked) == sorted({text for task in TASKS.values() for text in task.texts("test")})


def test_runs_are_scored_on_cut_validation_splits_or_by_cross_validation(tmp_path):
    stages = a_world(tmp_path, TASKS, limit=20, folds=3)
    model = Hashed()
    rounds = stages.by_round([scored_model(Identity(Kind.STUDENT, name="m"), "1", model.embed)], final=False)
    assert list(rounds) == ["all"]
    head = stages.profile.evaluation.head
    for name in ("sort", "folded"):
        cut = protocols.for_validation(TASKS[name], 20)
        vectors = embedding_of(list(protocols.validation_documents(cut).values()))
        assert rounds["all"]["m"][name] == protocols.validation_score(
            cut, vectors, head=head, seeds=2, folds=3
        )
    find = TASKS["find"].score(embedding_of(TASKS["find"].texts("validation")), "validation")
    assert rounds["all"]["m"]["find"] == find
    asked = {text for texts in model.asked for text in texts}
    assert not [
        text for text in asked if text.startswith(("test", "unseen"))
    ]  # no test split is looked at
    assert len([text for text in asked if text.startswith("folded")]) == 20


def test_what_is_scored_is_not_scored_again(tmp_path):
    models = [Hashed(), Hashed()]
    first = a_world(tmp_path, {"sort": TASKS["sort"]})
    model = scored_model(Identity(Kind.STUDENT, name="m"), "1", models[0].embed)
    once = first.by_round([model], final=True)
    both = a_world(tmp_path, {"sort": TASKS["sort"], "find": TASKS["find"]})
    assert first.is_scored(model)
    assert not first.is_scored(
        model._replace(ranks_only=True)
    )  # which the only task does not ask for
    assert not first.is_scored(model, final=False)  # the validation split is another score
    assert not both.is_scored(model)
    assert (
        both.by_round([scored_model(Identity(Kind.STUDENT, name="m"), "1", models[1].embed)], final=True)[
            "all"
        ]["m"]["sort"]
        == once["all"]["m"]["sort"]
    )
    assert models[1].asked == [TASKS["find"].texts("test")]
    for changed in ({"seeds": 3}, {"map_at": 1}, {"rounds": [10]}):
        assert not a_world(tmp_path, {"sort": TASKS["sort"]}, **changed).is_scored(model)
    assert a_world(tmp_path, {"sort": TASKS["sort"]}, limit=5, folds=2).is_scored(model)  # of runs


def test_heads_of_few_examples_are_trained_for_classification_alone(tmp_path):
    texts = {
        split: [f"{split} {label} {i}" for label in "ab" for i in range(4)]
        for split in ("train", "test")
    }
    splits = {split: Labelled(texts[split], ["a"] * 4 + ["b"] * 4) for split in texts}
    model = Model(
        Kind.STUDENT,
        Form.SAVED,
        "exact",
        "exact",
        lambda asked: np.array([[" a " in one, " b " in one] for one in asked], np.float32),
    )
    tasks = {"package": Classification("package", splits), "find": TASKS["find"]}
    scores = a_world(tmp_path, tasks, few_shot=[2, 4, 5]).few_shot([model])
    assert scores["value"].dtype == float
    assert set(scores["per_class"]) == {2, 4}  # a class has four
    assert (set(scores["task"]), len(scores)) == ({"package"}, 2 * 10 * 2)
    assert a_world(tmp_path, {"find": TASKS["find"]}).few_shot([model]).empty


def test_tidy_scores_tell_the_main_metrics_and_rounds_where_there_are_some(tmp_path):
    model = scored_model(Identity(Kind.STUDENT, name="m"), "1", Hashed().embed)
    frame = a_world(tmp_path, TASKS).evaluate([model], student=model, references=[]).scores
    columns = ["model", "kind", "form", "task", "metric", "seed", "value"]
    assert list(frame.columns) == columns
    assert frame.groupby("task")["metric"].unique().map(list).to_dict() == {
        "find": ["map", "mrr", "ndcg@10", "recall@100"],
        "folded": ["accuracy", "f1_macro"],
        "sort": ["accuracy", "f1_macro"],
    }
    rounds = (
        a_world(tmp_path, TASKS, rounds=[10, None])
        .evaluate([model], student=model, references=[])
        .scores
    )
    of_all = rounds[rounds["round"] == "all"].drop(columns="round").reset_index(drop=True)
    assert of_all.to_dict("records") == frame.to_dict("records")
    assert rounds.groupby("round").size().to_dict() == {"10": len(frame), "all": len(frame)}


UNTRAINED = "student before distillation"
UNTRAINED_ADAPTED = "student before distillation ⊕ LSA"
SBERT_TRUNCATED = "SBERT truncated"
SBERT_CHUNKS = "SBERT over chunks"
SKILL = {"student": 0.8, UNTRAINED: 0.4, SBERT_TRUNCATED: 0.6, SBERT_CHUNKS: 0.79, "TF-IDF": 0.3}


def model_of(kind, scored, name="", form=Form.SAVED):
    """A model with the scores of another one, by the label of the other in `SKILL`."""
    return Model(kind, form, name, scored, lambda texts: pytest.fail("nothing is embedded"))


STUDENT = model_of(Kind.STUDENT, "student", "student")
MODELS = [
    STUDENT,
    model_of(Kind.UNTRAINED, UNTRAINED),
    model_of(Kind.SBERT_TRUNCATED, SBERT_TRUNCATED),
    model_of(Kind.SBERT_CHUNKS, SBERT_CHUNKS),
    model_of(Kind.TFIDF, "TF-IDF"),
]


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
                "sort": made(
                    "accuracy",
                    *(hard + 0.2 * rng.normal(size=300) < skill - 0.1 * place for _ in range(3)),
                ),
                "find": made("map", precision ** (1 / skill)),
            }
            for model, skill in SKILL.items()
        }
    return {name: rounds[name] for name in names}


@pytest.fixture
def rounds(monkeypatch):
    found = {}
    monkeypatch.setattr(
        Scorer,
        "by_round",
        lambda stage, models, *, final: {
            name: {model.label: scores[model.fingerprint] for model in models}
            for name, scores in found.items()
        },
    )

    def use(*names):
        found.update(some_rounds(names))
        return found

    return use


def evaluated(models, *, student=STUDENT):
    references = [model for model in models if model.label in SKILL and model != student]
    return Scorer(OF_ALL_EXAMPLES, None, None).evaluate(
        models, student=student, references=references
    )


def test_the_student_is_compared_with_all_references_and_others_with_sbert(rounds):
    found = rounds("all")["all"]
    final = evaluated(MODELS)
    pairs = list(dict.fromkeys((row.model, row.reference) for row in final.comparison.itertuples()))
    others = [model for model in SKILL if model != "student"]
    assert pairs == [("student", other) for other in others] + [
        (o, SBERT_CHUNKS) for o in others if o != SBERT_CHUNKS
    ]
    assert len(final.comparison) == 7 * 3  # two tasks and their mean
    families = [final.comparison["model"] == "student", final.comparison["task"] == OVERALL]
    for _, family in final.comparison.groupby(families):
        np.testing.assert_allclose(family["p_holm"], holm(family["p"].to_numpy()))
    own = final.comparison.query("reference == @UNTRAINED").reset_index(drop=True)
    alone = differences({model: found[model] for model in (UNTRAINED, "student")}, UNTRAINED)
    pd.testing.assert_frame_equal(own[alone.columns], alone)
    verdict = final.comparison.set_index(["model", "reference", "task"])["verdict"]
    assert verdict["student", UNTRAINED, OVERALL] == "better"
    assert verdict["student", SBERT_CHUNKS, "sort"] == "no difference shown"
    assert verdict["TF-IDF", SBERT_CHUNKS, "find"] == "worse"
    intervals = final.intervals.drop(columns=["kind", "form"])
    pd.testing.assert_frame_equal(intervals, score_intervals(found))


def test_a_model_that_only_ranks_stands_last_without_a_mean(rounds):
    found = rounds("all")["all"]
    del found["TF-IDF"]["sort"]
    final = evaluated(MODELS)
    assert final.board.index[-1] == "TF-IDF"
    row = final.intervals.query("model == 'TF-IDF' and task == 'find'").iloc[0]
    shown = with_interval(*row[["value", "low", "high"]]).replace(", ", ",\u00a0")
    assert final.board.loc["TF-IDF"].tolist() == ["", shown, "", "corpus"]
    assert set(final.comparison.query("reference == 'TF-IDF'")["task"]) == {"find"}
    complete = score_intervals(
        {model: scores for model, scores in found.items() if model != "TF-IDF"}
    )
    means = [
        rows.query("task == @OVERALL").reset_index(drop=True)
        for rows in (final.intervals.drop(columns=["kind", "form"]), complete)
    ]
    assert means[0].equals(means[1])
    assert "the best of 3 references, SBERT over chunks" in final.standing()


def test_an_adapted_student_is_compared_with_its_adapted_start(rounds):
    rounds("all")
    references = [
        model_of(Kind.UNTRAINED, "TF-IDF"),
        model_of(Kind.UNTRAINED, UNTRAINED, form=Form.ADAPTED),
        model_of(Kind.SBERT_CHUNKS, SBERT_CHUNKS),
    ]
    adapted = model_of(Kind.STUDENT, "student", "student", Form.ADAPTED)
    stage = Scorer(OF_ALL_EXAMPLES, None, None)
    final = stage.evaluate([adapted, *references], student=adapted, references=references)
    assert f"; it is better than {UNTRAINED_ADAPTED} (." in final.standing()
    models = [adapted, *references, STUDENT]
    final = stage.evaluate(models, student=STUDENT, references=references)
    assert f"; it is better than {UNTRAINED} (." in final.standing()
    assert final.adapted == "student, adapted"


def test_a_reference_is_fitted_on_the_texts_of_each_task_it_can_be_scored_on(workspace_root):
    both = Labelled(TEXTS, [0, 1] * 4)
    tasks = {
        "sort": Classification("sort", {"train": both, "test": both}),
        "find": Retrieval("find", {"test": Ranking(TEXTS[:5], [0, 1], [[2], [3, 4]], "edcba")}),
    }
    asked = []

    def rank(texts, fitted):
        asked.append(texts)
        return lambda rows: np.eye(len(texts), len(texts), 2)[rows]

    model = scored_model(Identity(Kind.STUDENT, name="ranks"), "r", fit=rank, ranks_only=True)
    world = a_world(workspace_root, tasks)
    for _ in range(2):
        (found,) = world.by_round([model], final=True).values()
    assert (asked, list(found["ranks"])) == ([TEXTS[:5]], ["find"])
    assert found["ranks"]["find"].mean == pytest.approx(
        (1 + (1 / 1 + 2 / 4) / 2) / 2
    )  # ties in the order of ids, the last first
    assert world.is_scored(model)

    def unfit(texts, fitted):
        raise InputError("no word occurs in 2 of the 5 texts")

    left_out = model._replace(name="unfit", fingerprint="u", fit=unfit)
    assert "unfit" not in world.by_round([model, left_out], final=True)["all"]


def test_rounds_stand_in_the_table_and_the_last_one_is_compared(rounds):
    found = rounds("1k", "all")
    final = evaluated(MODELS)
    assert (list(dict.fromkeys(final.board.index.get_level_values("round"))), len(final.board)) == (
        ["1k", "all"],
        10,
    )
    assert not final.board.isna().to_numpy().any()
    of_first = final.intervals.query("round == '1k'").drop(columns=["round", "kind", "form"])
    of_first = of_first.reset_index(drop=True)
    pd.testing.assert_frame_equal(of_first, score_intervals(found["1k"]))
    row = final.comparison.query(
        "model == 'student' and reference == @UNTRAINED and task == 'sort'"
    )
    expected = found["all"]["student"]["sort"].mean - found["all"][UNTRAINED]["sort"].mean
    assert row["difference"].item() == pytest.approx(expected)


EMBED = "; `docemb embed outputs/students/S INPUT -o embeddings.parquet` embeds documents with it."
MAKE = (
    "; `docemb adapt all-MiniLM-L6-v2 CORPUS -o OUT` makes it for your documents, without training."
)
THIS = (
    "Take this student, adapted: every simpler model is shown to be worse, "
    "and no model is shown to be better"
)


def planned_of(run, profile):
    """What the report asks of a planned run."""
    return SimpleNamespace(
        notebook=run.notebook,
        fingerprint=run.key,
        key=run,
        profile=profile,
        record=lambda workspace: records.find_done(workspace, run.notebook, run.key),
    )


@pytest.mark.parametrize(
    ("notebook", "source", "equal", "says", "how"),
    [
        ("06_evaluation", "local", [], THIS, EMBED),
        (
            "06_evaluation",
            "local",
            [UNTRAINED],
            f"Take {UNTRAINED_ADAPTED}: it is the simplest model that is not shown",
            MAKE,
        ),
        (
            "07_simde",
            "local",
            [],
            "Take this student: every simpler model is shown to be worse",
            " to be better.",
        ),
    ],
)
def test_a_report_says_what_was_found_and_what_to_take(
    rounds, workspace_root, notebook, source, equal, says, how
):
    """equal: references that are not shown to be worse; the start of an adapted student is adapted,
    too.
    """
    rounds("1k", "all")
    run = Run(Run(notebook, Profile.load("small")), Workspace(workspace_root))
    saved = STUDENT._replace(name=run.label)
    models = [saved, *MODELS[1:]]
    student = saved
    if notebook == "06_evaluation":
        student = saved._replace(form=Form.ADAPTED)
        start = model_of(Kind.UNTRAINED, UNTRAINED, form=Form.ADAPTED)
        references = [MODELS[2], MODELS[3], MODELS[4], start]
        models = [saved, student, *references]
        stage = Scorer(OF_ALL_EXAMPLES, None, None)
        final = stage.evaluate(models, student=student, references=references)
    else:
        final = evaluated(models, student=saved)
    equal = [UNTRAINED_ADAPTED if name == UNTRAINED else name for name in equal]
    verdict = [
        "no difference shown" if name in equal else "better"
        for name in final.comparison["reference"]
    ]
    final = final._replace(comparison=final.comparison.assign(verdict=verdict))
    run.finish({}, scores=final.scores, student="own", tables=final.tables)
    settings = SimpleNamespace(
        corpus=SimpleNamespace(source=source), student=SimpleNamespace(model="all-MiniLM-L6-v2")
    )
    planned = planned_of(run, settings)
    planned.executed = workspace_root / "S.ipynb"
    (workspace_root / "own").mkdir()
    run.workspace.link(
        "students", "S", workspace_root / "other"
    )  # by a later run of another setting
    board, standing, (*_, named) = report([planned], run.workspace)
    assert (named, (workspace_root / named[1]).resolve()) == (
        ("student", "outputs/students/S"),
        workspace_root / "own",
    )
    which, found, taken = standing.splitlines()
    assert which.startswith("This student: ")
    assert found.startswith(
        f"In the mean over 2 tasks, {student._replace(name='this student').label} (."
    )
    assert f" is better than the best of 4 references, {SBERT_CHUNKS} (." in found
    assert (taken[: len(says)], taken[-len(how) :]) == (says, how)
    shown = final.called({run.label: "this student"}).board.xs("all")
    assert [*board.index] == [*shown.index]
    assert (board["mean"] == shown["mean over tasks"].str.replace("\xa0", " ")).all()
    last = final.scores.query(
        "round == 'all' and task == 'sort' and metric == 'accuracy' and model == 'TF-IDF'"
    )
    assert board.loc["TF-IDF", "sort"] == pytest.approx(last["value"].mean())


def test_a_report_says_what_its_notebook_does_of_the_contextual_teacher(rounds, workspace_root):
    rounds("all")
    run = Run(Run.of("06_evaluation", Profile.load("small")), Workspace(workspace_root))
    student = STUDENT._replace(name=run.label)
    final = evaluated([student, *MODELS[1:]], student=student)
    run.finish({}, scores=final.scores, tables=final.tables)
    said = "Beside the same student without the contextual teacher (alone) it is better on sort."
    lines = said.replace("(alone) ", "(alone)\n")
    printed = nbformat.v4.new_output("stream", text=f"It is good.\n{lines}\n")
    cell = nbformat.v4.new_code_cell("1", metadata={"tags": ["conclusion"]}, outputs=[printed])
    planned = planned_of(run, run.profile)
    planned.executed = workspace_root / "any.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), planned.executed)
    assert said in report([planned], run.workspace).summary.splitlines()


def test_a_report_has_no_models_of_another_profile_on_its_board(rounds, workspace_root):
    rounds("all")
    workspace, runs = Workspace(workspace_root), []
    for profile in (
        Profile.load("small").with_tasks(["halves"], source="test"),
        Profile.load("small"),
    ):
        run = Run.of("06_evaluation", profile, seed=len(runs))
        student = STUDENT._replace(name=run.label)
        final = evaluated([student, *MODELS[1:]], student=student)
        own = (
            final
            if runs
            else final._replace(
                intervals=final.intervals.query("task == 'find'").assign(value=0.123)
            )
        )
        run.finish({}, scores=own.scores, tables=own.tables)
        runs.append(run)
    given = [planned_of(run, run.profile) for run in runs]
    for planned in given:
        planned.executed = workspace_root / "any.ipynb"
    board, *_ = report(given, workspace)
    assert set(board.index) == {"this student", *SKILL} - {"student"}
    assert 0.123 not in board["find"].to_numpy()


def test_lengths_are_counted_once_in_the_structural_teachers_tokens(workspace_root, monkeypatch):
    counted = []

    def count_tokens(texts):
        counted.append(list(texts))
        return [len(text.split()) for text in texts]

    task = Classification(
        "sort", {"train": Labelled(["a", "b b"], [0, 1]), "test": Labelled(["d d d", "a"], [0, 1])}
    )
    monkeypatch.setattr(
        module, "sbert_of", lambda settings, long: SimpleNamespace(count_tokens=count_tokens)
    )
    stage = Scorer(
        Profile.load("small"), Workspace(workspace_root), SimpleNamespace(fingerprint="c")
    )
    stage.task = {"package": task}.__getitem__
    for _ in range(2):
        assert stage.lengths("package").examples.tolist() == [3, 1]
        assert stage.lengths("package").relevant.shape == (2, 0)
    assert counted == [task.texts("test")]


def test_retrieval_by_length_of_documents_has_the_mean_precision_of_each_query(tmp_path):
    """Queries 0 to 19 have a short and a long document to find, 20 to 29 two long ones."""
    relevant = [[100 + n, 200 + n] for n in range(20)] + [[210 + n, 220 + n] for n in range(20, 30)]
    texts = [f"text {n}" for n in range(260)]
    task = Retrieval("find", {"test": Ranking(texts, list(range(30)), relevant)})
    X = np.random.default_rng(0).normal(size=(260, 4)).astype(np.float32)
    model = scored_model(Identity(Kind.STUDENT, name="m"), "1", lambda texts: X)
    stage = a_world(tmp_path, {"find": task})
    tokens = [100] * 200 + [1000] * 60
    lengths = TaskLengths(np.full(30, 5), relevant_lengths(task, tokens))
    stage.lengths = lambda name: lengths
    frame = stage.by_length([model])
    frame = frame[frame["task"] == by_found("find")].set_index("bucket")
    assert frame["examples"].to_dict() == {"1-256": 20, "> 256": 30}

    cosines = X @ X.T / np.linalg.norm(X, axis=1) / np.linalg.norm(X, axis=1)[:, None]
    short, long = [], []
    for query, wanted in enumerate(relevant):
        order = [row for row in np.argsort(-cosines[query]) if row != query]
        precision = {}
        for number, row in enumerate(sorted(wanted, key=order.index), start=1):
            precision[row] = number / (order.index(row) + 1)
        if query < 20:
            short.append(precision[wanted[0]])
            long.append(precision[wanted[1]])
        else:
            long.append((precision[wanted[0]] + precision[wanted[1]]) / 2)
    expected = {"1-256": np.mean(short), "> 256": np.mean(long)}
    assert frame["value"].to_dict() == pytest.approx(expected, abs=1e-6)


def test_chunks_are_averaged_with_the_first_that_the_truncated_model_has_embedded(
    workspace,
) -> None:
    asked: list[str] = []

    class Teacher:
        def __init__(self, long: str) -> None:
            self.fingerprint = long

        def embed(self, texts: list[str], first: np.ndarray | None = None) -> np.ndarray:
            asked.extend(texts if first is None else [])
            return embedding_of(texts) if first is None else -first

    for texts in (TEXTS[:3], TEXTS):
        models = baselines.sbert_models(SimpleNamespace(sbert=Teacher, workspace=workspace))
        truncated, chunks = (embed_once(workspace, model, texts) for model in models)
        np.testing.assert_array_equal(truncated, embedding_of(texts))
        np.testing.assert_array_equal(chunks, -embedding_of(texts))
    assert asked == TEXTS


@pytest.mark.parametrize(("tasks", "said"), [(["halves"], True), (["halves", "links"], False)])
def test_a_choice_by_halves_alone_is_not_to_be_trusted(tasks, said):
    frame = pd.DataFrame({"task": tasks})
    final = Final(scores=frame, intervals=frame, comparison=frame, models=frame, student="student")
    assert final.without_labels.startswith("Without labels no measure chooses reliably") is said
