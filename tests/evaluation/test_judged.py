"""Retrieval tasks from files: of links between documents, and of queries beside documents."""

import numpy as np
import pytest
from conftest import write_files, write_rows

from docemb_lib.base.prompts import Query
from docemb_lib.evaluation.judged import judged_task
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


def beir(folder, qrels=QRELS, **further):
    files = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": qrels}
    return write_files(folder, files | further)


def linked(path, relevance, **fields):
    settings = OwnTask(name="t", kind="retrieval", path=path, relevance=relevance, **fields)
    return judged_task(settings)


def folder_task(folder):
    return judged_task(OwnTask(name="t", kind="retrieval", path=folder))


def test_a_folder_of_beir_gives_its_documents_queries_and_grades_by_split(tmp_path):
    copies = {f"qrels/{name}.tsv": "2\tc3\t1\n" for name in ("a-test", "test (1)", "test-old")}
    splits = folder_task(beir(tmp_path, **copies, **{"qrels/dev.tsv": "2\tc1\t1\n"})).splits
    data = splits["test"]
    assert data.texts[:2] == ["Wind\n\ngusts and breezes of the sea", "rain and hail in the hills"]
    assert data.texts[4:] == ["hills", "sea"]
    assert data.pool == ["c1", "c2", "c3", "c4"]
    assert (data.queries, data.relevant, data.grades) == ([4, 5], [[1, 2], [3]], [[2, 1], [1]])
    assert splits["validation"].relevant == [[0]]
    assert [isinstance(text, Query) for text in data.texts] == [False] * 4 + [True] * 2


def test_missing_documents_count_and_queries_without_any_are_left_out(tmp_path, caplog):
    qrels = QRELS + "1\tnone\t3\n2\tgone\t1\n8\tc1\t1\nc4\tc1\t0\n"
    data = folder_task(beir(tmp_path, qrels)).splits["test"]
    assert data.missing == [[3], [1]]
    assert caplog.messages == [
        "task t, split test: 3 ids of links are in no text ('none', 'gone', '8'; the documents' "
        "ids look like 'c1', 'c2', 'c3'): such documents count as not found; 2 of 4 queries have "
        "no text or no relevant document and are left out",
    ]


@pytest.mark.parametrize("text", ["light over the sea", "Sun\n\nlight over the sea"])
def test_a_query_that_is_a_document_is_not_among_its_own_hits(tmp_path, text):
    queries = [{"_id": "c4", "text": text}]
    folder = beir(tmp_path, "c4\tc4\t2\nc4\tc1\t1\n", **{"queries.jsonl": queries})
    data = folder_task(folder).splits["test"]
    assert (len(data.texts), data.queries, data.relevant) == (4, [3], [[0]])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"qrels/test.tsv": QRELS}, "corpus.jsonl does not exist; name"),
        ({"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES}, "there is no qrels/test.tsv in it"),
        (
            {
                "corpus.jsonl": b'{"_id": "c0", "text": "a"}\n{"_id": "c1", "title": "b"}',
                "queries.jsonl": QUERIES,
                "qrels/test.tsv": QRELS,
            },
            "corpus.jsonl, row 1: the field 'title' must hold a text .*, but it is missing",
        ),
        (
            {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": "1\t2\n"},
            r"split test: no query has a rel.*; 1 ids of links are in no text \('2'; .* like 'c1'",
        ),
    ],
)
def test_folders_that_are_no_task_are_refused(tmp_path, files, message, refused):
    refused(message, folder_task, write_files(tmp_path, files))


def test_a_profile_names_files_of_documents_queries_and_relevance(tmp_path):
    folder = beir(tmp_path / "data", "".join(f"{n}\tc1\n" for n in range(10)))
    write_files(folder, {"my.jsonl": [{"id": n, "text": f"query {n}"} for n in range(10)]})
    own = (
        "{name: find, kind: retrieval, path: data/corpus.jsonl, queries: data/my.jsonl, "
        "relevance: data/qrels/test.tsv, share: 0.3}"
    )
    tasks = f"tasks: [find], sweep_tasks: [find], own_tasks: [{own}]"
    (tmp_path / "mine.yaml").write_text(f"evaluation: {{{tasks}}}")
    (settings,) = Profile.load(tmp_path / "mine.yaml").evaluation.own_tasks
    splits = judged_task(settings).splits
    sizes = {split: len(data.queries) for split, data in splits.items()}
    assert sizes == {"validation": 3, "test": 7}


def test_a_folder_is_a_profile_of_one_task(tmp_path, refused):
    folder = beir(tmp_path / "data")
    (task,) = Profile.of_links(folder, None).evaluation.own_tasks
    assert [*judged_task(task).splits] == ["test"]
    refused(
        "--texts: .*let path .*/none be a folder of BEIR's",
        Profile.of_links,
        tmp_path / "none",
        None,
    )


@pytest.mark.parametrize("rank", ["tfidf", "bm25"])
def test_queries_beside_documents_change_no_ranking_by_words(rank):
    documents = [f"{row['title']} {row['text']}" for row in CORPUS]
    queries = ["hills in the sea", "snow and rain"]
    fit = {"tfidf": lambda *given: by_cosine(tfidf(*given)), "bm25": bm25}[rank]
    alone = [fit([*documents, query], 4)([4])[0, :4] for query in queries]
    beside = fit([*documents, *queries], 4)([4, 5])
    np.testing.assert_allclose(beside[:, :4], alone, rtol=1e-6)
    among = fit(documents, 4)([0, 1])
    np.testing.assert_allclose(fit([*documents, *queries], 4)([0, 1])[:, :4], among, rtol=1e-6)


def test_fused_rankings_of_a_query_beside_documents_count_documents_alone():
    table = np.random.default_rng(0).random((6, 6))
    found = fused(table.__getitem__, fitted=4)([1, 5])
    for row, query in enumerate((1, 5)):
        others = [n for n in range(4) if n != query]
        ranked = sorted(others, key=lambda n, near=table[query]: -near[n])
        expected = [1 / (60 + ranked.index(n) + 1) for n in others]
        np.testing.assert_allclose(found[row, others], expected)
    assert not found[:, 4:].any()


# ---- Links between documents
@pytest.fixture
def pool(tmp_path):
    """Documents d0 to d19; d0 and d1, d2 and d3, … are about the same."""
    records = [
        {"id": f"d{n}", "text": f"topic{n // 2} " * 5 + f"and number {n}"} for n in range(20)
    ]
    return write_rows(tmp_path / "corpus.jsonl", records)


def test_links_of_one_file_are_divided_and_those_of_a_split_are_not(tmp_path, pool):
    links = [(f"d{n}", f"d{n ^ 1}") for n in range(20)]
    file = tmp_path / "relevance.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in [*links, links[0]]))
    drawn = linked(pool, file)
    sizes = {split: len(data.queries) for split, data in drawn.splits.items()}
    assert sizes == {"validation": 4, "test": 16}
    queries = []
    for data in drawn.splits.values():
        queries += data.queries
        assert data.relevant == [[query ^ 1] for query in data.queries]
        assert len(data.texts) == 20
    assert sorted(queries) == list(range(20))
    assert drawn.score(tfidf(drawn.texts())).mean == pytest.approx(1)
    assert linked(pool, file, seed=1) != drawn
    assert linked(pool, {"test": file}).splits["test"].queries == list(range(20))
