"""The four embedded tasks: balance, no short cut to the answer, nothing in two splits."""

from collections import Counter

import numpy as np
import pytest

from docemb_lib.evaluation import Classification, Pairs, Retrieval, evaluate
from docemb_lib.evaluation.catalogue import (
    BUILDERS,
    embedded_task,
    profile_task,
)
from docemb_lib.evaluation.protocols import for_validation
from docemb_lib.evaluation.tasks import SPLITS, documents_of
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import Evaluation
from docemb_lib.teachers import LSA

KINDS = {
    "package": Classification,
    "see-also-pairs": Pairs,
    "halves": Pairs,
    "see-also-retrieval": Retrieval,
}
NAMES = [*BUILDERS]
SOURCES = ["scipy", "torch", "sympy"]
WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("ando", "eli", "irus", "opal", "um")]


def page_text(seed):
    """Sixty words of a page's own small vocabulary."""
    rng = np.random.default_rng(seed)
    return " ".join(rng.choice(rng.choice(WORDS, 12, replace=False), 60))


def pool(sizes=(90, 60, 60), sources=SOURCES):
    """Pages of three packages; page i of a split lists the next two of its package, so that all are
    cited alike.
    """
    rows = []
    for number, (split, size) in enumerate(zip(SPLITS, sizes, strict=True)):
        for i in range(size):
            id = f"{split}.{i}"
            next_ones = [f"{split}.{(i + step * len(sources)) % size}" for step in (1, 2)]
            links = [other for other in next_ones if other != id]
            row = {"id": id, "text": page_text(1000 * number + i), "split": split}
            rows.append({**row, "source": sources[i % len(sources)], "see_also": links})
    return rows


def built(name, rows=None, **options):
    rows = pool() if rows is None else rows
    return embedded_task(rows, name, **{"seed": 0, "limit": 400, **options})


def of_class(pairs, label):
    """The pairs of texts with this label."""
    rows = zip(pairs.first, pairs.second, pairs.labels, strict=True)
    return [(first, second) for first, second, of in rows if of == label]


@pytest.mark.parametrize("name", NAMES)
def test_splits_share_no_page_and_depend_on_the_seed_and_not_on_the_order_of_rows(name):
    rows = pool()
    task = built(name, rows)
    assert isinstance(task, KINDS[name])
    for split, data in task.splits.items():
        for text in documents_of(name, data).values():
            assert [row["split"] for row in rows if text in row["text"]] == [split]
    assert task == built(name, rows[::-1])
    assert built(name, rows, limit=60) != built(name, rows, limit=60, seed=1)


def test_halves_have_the_ids_of_their_pages_and_say_which_half():
    rows = pool()
    documents = built("halves", rows).documents("test")
    text_of = {row["id"]: row["text"] for row in rows}
    for id, text in documents.items():
        page, half = id.split(", ")
        whole = text_of[page]
        assert whole.startswith(text) if half == "first half" else whole.endswith(text)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("limit", [40, 100])
def test_scoring_a_split_needs_no_more_texts_than_the_limit(name, limit):
    task = built(name, limit=limit)
    assert all(0.6 * limit <= len(task.texts(split)) <= limit for split in ("validation", "test"))


def test_the_package_task_takes_packages_in_turn_and_all_of_a_small_one():
    rows = pool()
    source_of = {row["text"]: row["source"] for row in rows}
    splits = built("package", rows, limit=50).splits
    for data in splits.values():
        assert [source_of[text] for text in data.texts] == data.labels
    assert Counter(splits["train"].labels) == dict.fromkeys(SOURCES, 10)
    assert len(splits["test"].labels) == 20
    rows = [row for row in rows if row["source"] != "sympy" or row["id"].endswith(("2", "5"))]
    labels = built("package", rows, limit=1000).splits["train"].labels
    assert Counter(labels) == Counter(row["source"] for row in rows if row["split"] == "train")
    few = Counter(built("package", rows, limit=40).splits["train"].labels)
    assert few["scipy"] - few["torch"] in (-1, 0, 1)


def test_see_also_pairs_are_links_and_as_many_unlinked_pairs_of_the_same_package():
    rows = pool()
    page = {row["text"]: row for row in rows}
    for split, pairs in built("see-also-pairs", rows).splits.items():
        assert sum(pairs.labels) * 2 == len(pairs.labels) > 100
        for first, second, label in zip(pairs.first, pairs.second, pairs.labels, strict=True):
            a, b = page[first], page[second]
            assert a["source"] == b["source"]
            assert a["split"] == b["split"] == split
            assert (b["id"] in a["see_also"]) == label
            assert label or (a["id"] != b["id"] and a["id"] not in b["see_also"])


@pytest.mark.parametrize("name", ["see-also-pairs", "halves"])
def test_no_text_is_more_often_in_one_kind_of_pair_than_in_the_other(name):
    for pairs in built(name).splits.values():
        related, unrelated = (zip(*of_class(pairs, label), strict=True) for label in (1, 0))
        assert list(map(Counter, related)) == list(map(Counter, unrelated))


def test_a_page_brings_at_most_two_links():
    rows = pool((60, 60, 60))
    for row in rows:
        split, i = row["id"].split(".")
        row["see_also"] = [f"{split}.{(int(i) + 3 * step) % 60}" for step in range(1, 6)]
    citing = Counter(
        first for first, _ in of_class(built("see-also-pairs", rows).splits["train"], 1)
    )
    assert max(citing.values()) == 2
    assert len(citing) > 50


def test_a_page_needs_an_unrelated_page_for_each_link():
    # The three scipy pages of a split all list each other: only torch pages can be told apart.
    rows = pool((30, 30, 30), ["scipy", "torch"])
    rows = [row for row in rows if row["source"] == "torch" or int(row["id"].split(".")[1]) < 6]
    for row in rows:
        if row["source"] == "scipy":
            others = {f"{row['split']}.{i}" for i in (0, 2, 4)} - {row["id"]}
            row["see_also"] = sorted(others)
    source_of = {row["text"]: row["source"] for row in rows}
    pairs = built("see-also-pairs", rows).splits["test"]
    assert {source_of[text] for text in (*pairs.first, *pairs.second)} == {"torch"}
    assert sum(pairs.labels) * 2 == len(pairs.labels)


def test_halves_are_of_one_page_or_of_two_and_need_neither_links_nor_packages():
    rows = pool()
    for split, pairs in built("halves", rows).splits.items():
        pages = [row for row in rows if row["split"] == split]
        assert len(pairs.labels) == 2 * sum(pairs.labels) == 2 * len(pages)
        for first, second, label in zip(pairs.first, pairs.second, pairs.labels, strict=True):
            (a,) = [page for page in pages if page["text"].startswith(first)]
            (b,) = [page for page in pages if page["text"].endswith(second)]
            assert ((a is b), a["source"]) == (bool(label), b["source"])
            assert not label or f"{first} {second}" == a["text"]
    rows = [{**row, "see_also": [], "source": row["id"]} for row in pool((20, 10, 10))]
    assert built("halves", rows).splits["train"].labels == [1, 0] * 20


def test_a_half_that_two_pages_share_is_not_called_a_stranger():
    rows = pool((12, 12, 12))
    for row in rows:
        shared = int(row["id"].split(".")[1]) % 6 == 0
        row["text"] = f"{row['id']} opens in its own way" + " the same ending" * 2 * shared
    for pairs in built("halves", rows).splits.values():
        own = dict(of_class(pairs, 1))
        assert all(own[first] != second for first, second in of_class(pairs, 0))


def test_retrieval_asks_for_the_listed_pages_among_all_of_the_split():
    rows = pool()
    for row in rows:
        if row["source"] == "torch":
            row["see_also"] = []
    for split, ranking in built("see-also-retrieval", rows).splits.items():
        pages = {row["id"]: row for row in rows if row["split"] == split}
        assert {*ranking.ids} == {*pages}
        assert ranking.texts == [pages[id]["text"] for id in ranking.ids]
        asked = [ranking.ids[query] for query in ranking.queries]
        assert {*asked} == {id for id, page in pages.items() if page["see_also"]}
        for id, relevant in zip(asked, ranking.relevant, strict=True):
            assert [ranking.ids[row] for row in relevant] == pages[id]["see_also"]


def test_word_counts_join_halves_and_tell_nothing_of_links_between_unrelated_texts():
    """Each page has its vocabulary: halves can be joined, and random links cannot be guessed."""
    rows = pool((120, 10, 120))
    model = LSA(50).fit([row["text"] for row in rows])
    pairs = built("halves", rows).splits["test"]
    first, second = model.embed(pairs.first), model.embed(pairs.second)
    joined = (first * second).sum(axis=1)
    assert joined[::2].min() > np.median(joined[1::2])
    linked = evaluate(model, built("see-also-pairs", rows), seeds=3)
    assert linked.mean == pytest.approx(0.5, abs=0.08)
    assert evaluate(model, built("see-also-retrieval", rows)).mean < 0.15


def test_too_few_pages_are_refused(refused):
    said = "task 'package', split 'test': 0 pages give 0 examples, .* raise corpus.tasks or"
    refused(said, built, "package", pool((6, 6, 0)))
    alone = [{**row, "see_also": []} for row in pool((6, 6, 6))]
    said = "task 'see-also-pairs', split 'train': 6 pages give 0 examples"
    refused(said, built, "see-also-pairs", alone)


@pytest.fixture
def of_profile():
    profile = Profile(name="small", evaluation=Evaluation(texts=400))
    return lambda name: profile_task(profile, name, pool)


def test_runs_are_scored_on_the_package_task_by_cross_validation(of_profile):
    task = of_profile("package")
    assert [*task.splits] == ["train", "test"]
    # A task without a validation split is cross-validated on its train split: all pages of it.
    (train,) = for_validation(task, 10_000).splits.values()
    assert len(train.texts) == 90


def test_related_pages_are_tested_on_all_pages_that_no_head_learns_from(of_profile):
    learnt_from = set(of_profile("package").splits["train"].texts)
    others = {row["text"] for row in pool()} - learnt_from
    assert set(of_profile("see-also-retrieval").texts("test")) == others


def test_links_between_the_partitions_of_a_split_count_and_others_do_not():
    rows = pool((0, 3, 3), sources=["scipy"])
    rows[0]["see_also"] = ["test.1", "gone", "train.0"]
    partitions = {"test": ["validation", "test"]}
    ranking = built("see-also-retrieval", rows, partitions=partitions).splits["test"]
    at = ranking.queries.index(ranking.ids.index("validation.0"))
    assert [ranking.ids[row] for row in ranking.relevant[at]] == ["test.1"]
