"""Queries beside documents: BEIR's, LongEmbed's and TREC's layouts, and what these lack."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytrec_eval
from conftest import write_files

from docemb_lib.evaluation import Retrieval
from docemb_lib.evaluation.judged import judged_task, read_judgements
from docemb_lib.evaluation.retrieval import bm25, by_cosine, fused, tfidf
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import OwnTask

CORPUS = [
    {"_id": "c1", "title": "Wind", "text": "gusts and breezes of the sea"},
    {"_id": "c2", "title": "", "text": "rain and hail in the hills"},
    {"_id": "c3", "title": "Snow", "text": "drifts of snow in the hills"},
    {"_id": "c4", "title": "Sun", "text": "light over the sea"},
]
QUERIES = [{"_id": "1", "text": "hills"}, {"_id": "2", "text": "sea"}, {"_id": "c4", "text": "hi"}]
QRELS = "query-id\tcorpus-id\tscore\n1\tc2\t2\n1\tc3\t1\n1\tc4\t0\n2\tc4\t1\n"


def beir(folder: Path, qrels: str = QRELS, **further: Any) -> Path:
    files = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": qrels}
    return write_files(folder, files | further)


def folder_task(folder: Path) -> Retrieval:
    return judged_task(OwnTask(name="t", kind="retrieval", path=folder))


def test_a_folder_of_beir_gives_its_documents_queries_and_grades(tmp_path: Path) -> None:
    data = folder_task(beir(tmp_path)).splits["test"]
    assert data.texts[:2] == ["Wind\n\ngusts and breezes of the sea", "rain and hail in the hills"]
    assert data.texts[4:] == ["hills", "sea"]
    assert data.pool == ["c1", "c2", "c3", "c4"]
    assert (data.queries, data.relevant, data.grades) == ([4, 5], [[1, 2], [3]], [[2, 1], [1]])


def test_files_of_a_folder_name_their_splits(tmp_path: Path) -> None:
    task = folder_task(beir(tmp_path, **{"qrels/dev.tsv": "2\tc1\t1\n"}))
    assert {split: data.relevant for split, data in task.splits.items()} == {
        "validation": [[0]],
        "test": [[1, 2], [3]],
    }


@pytest.mark.parametrize("name", ["test.tsv~", ".test.tsv"])
def test_copies_that_programs_leave_behind_are_no_relevance_files(tmp_path: Path, name) -> None:
    task = folder_task(beir(tmp_path, **{f"qrels/{name}": "2\tc1\t1\n"}))
    assert task.splits["test"].relevant == [[1, 2], [3]]


def test_two_relevance_files_of_one_split_are_refused(tmp_path: Path, refused) -> None:
    further = {"qrels/dev.tsv": "2\tc1\t1\n", "qrels/validation.tsv": "2\tc2\t1\n"}
    message = "qrels: dev.tsv and validation.tsv are both of the split validation; leave one"
    refused(message, folder_task, beir(tmp_path, **further))


def test_a_folder_of_longembed_has_other_names_of_fields(tmp_path: Path) -> None:
    files = {
        "corpus.jsonl": [{"doc_id": f"d{n}", "text": f"story {n}"} for n in range(3)],
        "queries.jsonl": [{"qid": 7, "text": "which story?"}],
        "qrels.jsonl": [{"qid": 7, "doc_id": "d2"}],
    }
    data = folder_task(write_files(tmp_path, files)).splits["test"]
    assert (data.pool, data.queries, data.relevant) == (["d0", "d1", "d2"], [3], [[2]])


def test_scores_of_a_folder_are_trec_evals(tmp_path: Path) -> None:
    task = folder_task(beir(tmp_path, QRELS + "2\tgone\t2\n"))
    X = np.random.default_rng(0).normal(size=(6, 3))
    similarities = by_cosine(X)([4, 5])[:, :4]
    runs = {}
    for query, row in zip("12", similarities, strict=True):
        runs[query] = {f"c{n}": float(value) for n, value in enumerate(row, start=1)}
    judged: dict[str, dict[str, int]] = {}
    for line in [*QRELS.splitlines()[1:], "2\tgone\t2"]:
        query, document, grade = line.split("\t")
        judged.setdefault(query, {})[document] = int(grade)
    measures = {"map", "recip_rank", "ndcg_cut_10", "recall_100"}
    by_query = pytrec_eval.RelevanceEvaluator(judged, measures).evaluate(runs)
    expected = {name: (by_query["1"][name] + by_query["2"][name]) / 2 for name in measures}
    score = task.score(X)
    found = [score.mean, score.extra["mrr"], score.extra["ndcg@10"], score.extra["recall@100"]]
    names = ["map", "recip_rank", "ndcg_cut_10", "recall_100"]
    assert found == pytest.approx([expected[name] for name in names], abs=1e-9)


def test_a_query_may_have_the_id_of_the_document_to_find(tmp_path: Path, refused) -> None:
    file = tmp_path / "qrels.txt"
    file.write_text("7 0 7 2\n7 0 8 0\n")
    assert read_judgements(file, {}, {}) == {"7": {"7": 2, "8": 0}}
    file.write_text("7 0 7 high\n")
    refused("row 1: the grade is 'high'; write an integer", read_judgements, file, {}, {})


def test_missing_documents_count_and_queries_without_any_are_left_out(tmp_path, caplog) -> None:
    qrels = QRELS + "1\tnone\t3\n2\tgone\t1\n8\tc1\t1\nc4\tc1\t0\n"
    data = folder_task(beir(tmp_path, qrels)).splits["test"]
    assert data.missing == [[3], [1]]
    assert caplog.messages == [
        "task t, split test: 2 of 5 relevant documents are missing ('none', 'gone'; the "
        "documents' ids look like 'c1', 'c2', 'c3') and count as not found",
        "task t, split test: 2 of 4 queries have no text or no relevant document and are left out",
    ]


@pytest.mark.parametrize("text", ["light over the sea", "Sun\n\nlight over the sea"])
def test_a_query_that_is_a_document_is_not_among_its_own_hits(tmp_path: Path, text: str) -> None:
    queries = [{"_id": "c4", "text": text}]
    folder = beir(tmp_path, "c4\tc4\t2\nc4\tc1\t1\n", **{"queries.jsonl": queries})
    data = folder_task(folder).splits["test"]
    assert (len(data.texts), data.queries, data.relevant) == (4, [3], [[0]])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"queries.jsonl": QUERIES}, "there is no corpus.jsonl in it; it must hold corpus.jsonl"),
        ({"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES}, "there is no qrels.jsonl in it"),
        (
            {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels.tsv": "1\t2\n"},
            r"split test: no query with a text .*\(1 ids are in no document: '2'; .* like 'c1'",
        ),
    ],
)
def test_folders_that_are_no_task_are_refused(tmp_path, files, message, refused) -> None:
    refused(message, folder_task, write_files(tmp_path, files))


def test_a_profile_names_files_of_documents_queries_and_relevance(tmp_path: Path) -> None:
    beir(tmp_path / "data", "".join(f"{n}\tc1\n" for n in range(10)))
    queries = [{"id": n, "text": f"query {n}"} for n in range(10)]
    write_files(tmp_path, {"data/my.jsonl": queries})
    own = (
        "{name: find, kind: retrieval, path: data/corpus.jsonl, queries: data/my.jsonl, "
        "relevance: data/qrels/test.tsv, share: 0.3}"
    )
    names = "tasks: [find], sweep_tasks: [find]"
    text = f"evaluation: {{{names}, own_tasks: [{own}]}}"
    (tmp_path / "mine.yaml").write_text(text)
    (settings,) = Profile.load(tmp_path / "mine.yaml").evaluation.own_tasks
    splits = judged_task(settings).splits
    assert {split: len(data.queries) for split, data in splits.items()} == {
        "validation": 3,
        "test": 7,
    }


def test_a_task_with_a_folder_joins_those_of_a_profile(tmp_path: Path, refused) -> None:
    folder = beir(tmp_path / "data")
    profile = Profile.load("tiny").with_tasks([f"beir={folder}", "halves"], source="--task")
    assert profile.evaluation.tasks == ["beir", "halves"]
    assert profile.evaluation.own_tasks[-1].path == folder
    refused(
        "--task beir=none: there is no folder 'none'; name one with corpus.jsonl",
        profile.with_tasks,
        ["beir=none"],
        source="--task",
    )


@pytest.mark.parametrize("rank", ["tfidf", "bm25"])
def test_queries_beside_documents_change_no_ranking_by_words(rank: str) -> None:
    documents = [f"{row['title']} {row['text']}" for row in CORPUS]
    queries = ["hills in the sea", "snow and rain"]
    fit = {"tfidf": lambda *given: by_cosine(tfidf(*given)), "bm25": bm25}[rank]
    alone = [fit([*documents, query], 4)([4])[0, :4] for query in queries]
    beside = fit([*documents, *queries], 4)([4, 5])
    np.testing.assert_allclose(beside[:, :4], alone, rtol=1e-6)
    among = fit(documents, 4)([0, 1])
    np.testing.assert_allclose(fit([*documents, *queries], 4)([0, 1])[:, :4], among, rtol=1e-6)


def test_fused_rankings_of_a_query_beside_documents_count_documents_alone() -> None:
    table = np.random.default_rng(0).random((6, 6))
    found = fused(table.__getitem__, fitted=4)([1, 5])
    for row, query in enumerate((1, 5)):
        others = [n for n in range(4) if n != query]
        ranked = sorted(others, key=lambda n, near=table[query]: -near[n])
        expected = [1 / (60 + ranked.index(n) + 1) for n in others]
        np.testing.assert_allclose(found[row, others], expected)
    assert not found[:, 4:].any()
