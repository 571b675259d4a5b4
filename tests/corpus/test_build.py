"""A corpus is made of documents: parts on disk, copies, documents held out for tasks, splits."""

import hashlib
import itertools
import logging
import random
import shutil
from collections import Counter

import pytest
from datasets import Dataset, load_from_disk

from docemb_lib.base.errors import InputError
from docemb_lib.corpus import build as module
from docemb_lib.corpus.build import build_corpus, distinct_rows, hold_out
from docemb_lib.corpus.document import Document


def letters(texts):
    return list(map(len, texts))


def words(texts):
    return [len(text.split()) for text in texts]


COUNTERS = {"n_student_tokens": letters, "n_structural_tokens": words}


def documents(number=120, linked=True):
    """Documents of two sources, each citing the next three of its own."""
    cited = [
        tuple(f"{n + step:03}" for step in (2, 4, 6) if linked and n + step < number)
        for n in range(number)
    ]
    return [
        Document(f"{n:03}", f"text {n} " * (n + 1), "ab"[n % 2], cited[n]) for n in range(number)
    ]


@pytest.fixture
def build(tmp_path):
    """Builds a corpus, in a folder of its own unless `folder` is given."""
    numbers = itertools.count()

    def build(rows, **options):
        defaults = {"counters": COUNTERS, "validation": 10, "tasks": 40, "seed": 0}
        return build_corpus(
            rows, **{**defaults, "folder": tmp_path / f"build-{next(numbers)}", **options}
        )

    return build


@pytest.fixture
def kept(build):
    """The ids that are left of some documents."""
    return lambda rows, **options: sorted(
        build(rows, tasks=0, validation=0, **options)["train"]["id"]
    )


def rows_of(corpus):
    return {name: split.to_list() for name, split in corpus.items()}


def test_every_document_is_in_exactly_one_split_with_its_counts(build):
    corpus = build(documents())
    assert {name: len(split) for name, split in corpus.items()} == {
        "train": 70,
        "validation": 10,
        "tasks": 40,
    }
    columns = ["id", "text", "source", "n_words", "n_student_tokens", "n_structural_tokens"]
    assert corpus["train"].column_names == columns
    originals = {document.id: document for document in documents()}
    rows = [row for split in corpus.values() for row in split]
    assert sorted(row["id"] for row in rows) == sorted(originals)
    for row in rows:
        original = originals[row["id"]]
        assert (row["text"], row["source"]) == (original.text, original.source)
        assert row["n_words"] == row["n_structural_tokens"] == 2 * (int(row["id"]) + 1)
        assert row["n_student_tokens"] == len(original.text)


def test_task_rows_keep_the_links_to_other_task_rows(build):
    originals = {document.id: document for document in documents()}
    tasks = build(documents())["tasks"].to_pandas().set_index("id")
    assert dict(Counter(tasks["split"])) == {"train": 20, "validation": 8, "test": 12}
    for id, row in tasks.iterrows():
        cited = originals[id].see_also
        assert list(row.see_also) == [i for i in cited if i in tasks.index]
    assert tasks.see_also.map(len).sum() > 20


def test_the_order_depends_on_seed_and_ids_alone(build):
    corpus = build(documents())
    assert rows_of(build(reversed(documents()))) == rows_of(corpus)
    assert build(documents(), seed=1)["train"]["id"][:] != corpus["train"]["id"][:]


def test_a_corpus_may_have_no_tasks_and_no_links(build):
    assert set(build(documents(), tasks=0)) == {"train", "validation"}
    tasks = build(documents(linked=False))["tasks"]
    assert (tasks["see_also"][:], tasks.features["see_also"].feature.dtype) == ([[]] * 40, "string")


def test_validation_and_the_first_training_documents_have_each_source_in_its_share(build):
    """Of a small source many documents are held out, so that the tasks have as many of each."""
    links = [(f"a{(n + 1) % 900}", f"a{(n + 2) % 900}") for n in range(900)]
    rows = [Document(f"a{n}", f"text {n}", "a", links[n]) for n in range(900)]
    rows += [Document(f"c{n}", f"another text {n}", "c", ()) for n in range(150)]
    corpus = build(rows, tasks=150, validation=200)
    train, validation = (corpus[split]["source"][:] for split in ("train", "validation"))
    share = (train.count("c") + validation.count("c")) / (len(train) + len(validation))
    assert share > 0.05
    for sample in (validation, train[:200]):
        assert abs(sample.count("c") - 200 * share) < 3 * (200 * share) ** 0.5


def test_a_document_that_begins_as_an_earlier_one_is_left_out_and_counted(kept, caplog):
    start = " ".join(f"w{n}" for n in range(60))
    texts = {
        "b": start.upper() + "\n other end",
        "a": start + " one end",
        "d": "short",
        "e": "short one",
    }
    texts["c"] = start.replace("w59", "v59") + " one end"
    rows = [Document(id, text, "x") for id, text in texts.items()]
    with caplog.at_level(logging.INFO, logger="docemb_lib.corpus.build"):
        assert kept(rows, copy_words=60) == ["a", "c", "d", "e"]
    assert "1 of 5 documents" in caplog.text
    assert kept([*rows, Document("f", rows[1].text.upper() + "\n", "x")]) == [
        "a",
        "b",
        "c",
        "d",
        "e",
    ]  # all words
    assert kept([*rows, rows[1]]) == ["a", "b", "c", "d", "e"]  # of two splits of a hub's data set


def test_the_first_id_of_every_digest_stays_in_the_order_of_a_hash_of_seed_and_id():
    rng = random.Random(0)
    ids = [f"é{n:04}" for n in range(200)]
    rng.shuffle(ids)
    digests = [
        (n % 133).to_bytes(12, "big") + bytes(4) for n in range(200)
    ]  # every third text occurs twice
    first = {}
    for row in sorted(range(200), key=ids.__getitem__):
        first.setdefault(digests[row], row)
    expected = sorted(
        first.values(), key=lambda row: hashlib.sha256(f"7:{ids[row]}".encode()).digest()
    )
    assert (
        distinct_rows(Dataset.from_dict({"id": ids, "digest": digests}), seed=7).tolist()
        == expected
    )


def test_documents_that_make_no_corpus_are_refused(build, kept, refused):
    with pytest.raises(
        InputError, match="two documents have the id 'b'; rename one"
    ):  # the first one in order
        kept([Document(id, f"text {n}", "x") for n, id in enumerate("bzazb")])
    refused("0 distinct documents", kept, [])
    refused(
        r"50 distinct documents, but corpus.validation \(10\) and corpus.tasks \(40\) "
        ".* 51 or more; lower",
        build,
        documents(50),
    )
    assert len(build(documents(51))["train"]) == 1


# Parts on disk
def test_a_corpus_is_mapped_from_its_parts_and_the_same_whatever_their_size(
    build, tmp_path, monkeypatch
):
    expected = rows_of(build(documents()))
    monkeypatch.setattr(module, "PART", 25)
    folder = tmp_path / "parts"
    corpus = build(iter(documents()), folder=folder)
    files = {
        file["filename"] for name in ("train", "validation") for file in corpus[name].cache_files
    }
    assert files == {str(folder / f"0000{part}.arrow") for part in range(5)}  # mapped, not read
    corpus.save_to_disk(str(tmp_path / "corpus"))
    shutil.rmtree(folder)
    assert rows_of(load_from_disk(str(tmp_path / "corpus"))) == expected


@pytest.mark.parametrize("last", [0, 24, 25, 26, 74, 119])
def test_a_build_that_was_stopped_goes_on_after_its_last_whole_part(
    build, tmp_path, monkeypatch, last
):
    """`last`: the document whose reading fails."""
    monkeypatch.setattr(module, "PART", 25)
    counted, folder = [], tmp_path / "parts"

    def reading(fail):
        for number, document in enumerate(documents()):
            if fail and number == last:
                raise KeyboardInterrupt
            yield document

    counters = {
        "n_student_tokens": lambda texts: counted.extend(texts) or letters(texts),
        "n_structural_tokens": words,
    }
    with pytest.raises(KeyboardInterrupt):
        build(reading(fail=True), counters=counters, folder=folder)
    whole = last // 25
    assert len(list(folder.iterdir())) == whole
    (folder / f"{whole:05}.arrow.partial").write_bytes(b"torn by a kill while it was written")
    counted.clear()
    corpus = build(reading(fail=False), counters=counters, folder=folder)
    assert counted == [document.text for document in documents()[25 * whole :]]
    assert rows_of(corpus) == rows_of(build(documents()))


# Documents held out for the tasks
def page(id, source="a", see_also=()):
    return Document(id, f"text of {id}", source, tuple(see_also))


def clusters(number, size=4):
    """`number` groups of `size` pages, each citing the others of its group."""
    groups = [[f"{group:03}-{member}" for member in range(size)] for group in range(number)]
    return [
        page(id, see_also=[other for other in group if other != id])
        for group in groups
        for id in group
    ]


def test_linked_pages_fill_seven_tenths_of_each_partition():
    pages = [*clusters(100), *[page(f"b{n}", "b") for n in range(100)]]
    held = hold_out(pages, size=100)
    assert Counter(held.values()) == {"train": 50, "validation": 20, "test": 30}
    whole = Counter()
    for start in range(0, 400, 4):
        homes = {held.get(document.id) for document in pages[start : start + 4]}
        if len(homes) == 1 and None not in homes:
            whole[homes.pop()] += 4
    # 70% of 50, 20 and 30 places, in groups of four
    assert whole == {"train": 32, "validation": 12, "test": 20}


def test_pages_with_a_common_target_are_in_one_partition():
    pages = [page("first", see_also=["x", "y"]), page("second", see_also=["x", "z"])]
    held = hold_out(
        [*pages, *[page(f"other{n}") for n in range(40)], *[page(id) for id in "xyz"]], size=30
    )
    assert len({held[id] for id in ("first", "second", "x", "y", "z")}) == 1


def test_the_rest_balances_the_sources_where_there_are_links():
    pages = [
        *clusters(20),
        *[page(f"b{n}", "b") for n in range(300)],
        *[page(f"c{n}", "c") for n in range(20)],
    ]
    source_of = {document.id: document.source for document in pages}
    held = hold_out(pages, size=100)
    counts = Counter((partition, source_of[id]) for id, partition in held.items())
    # 32, 12 and 20 linked pages of `a`; the other 18, 8 and 10 places go to b and c by halves, c's
    # twenty being enough
    shares = {"train": (32, 9, 9), "validation": (12, 4, 4), "test": (20, 5, 5)}
    assert counts == {
        (partition, "abc"[i]): share[i] for partition, share in shares.items() for i in range(3)
    }


def test_without_links_the_first_documents_are_held_out_in_order():
    pages = [page(f"{n:02}", "ab"[n % 3 == 0]) for n in range(50)]
    assert list(hold_out(pages, size=10)) == [f"{n:02}" for n in range(10)]
