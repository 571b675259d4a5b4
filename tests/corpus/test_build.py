import logging
import shutil
from collections import Counter

import pytest
from datasets import load_from_disk

from docemb_lib.corpus import Document, build_corpus, parts
from docemb_lib.errors import InputError


def letters(texts):
    return [len(text) for text in texts]


def words(texts):
    return [len(text.split()) for text in texts]


COUNTERS = {"n_student_tokens": letters, "n_structural_tokens": words}


def documents(number=120, linked=True):
    """Documents of two sources, each citing the next three of its own."""
    return [
        Document(
            f"{n:03}",
            f"text {n} " * (n + 1),
            "ab"[n % 2],
            tuple(f"{n + step:03}" for step in (2, 4, 6) if linked and n + step < number),
        )
        for n in range(number)
    ]


def build(rows, **options):
    return build_corpus(rows, **{"counters": COUNTERS, "validation": 10, "tasks": 40, "seed": 0, **options})


def test_every_document_is_in_exactly_one_split():
    corpus = build(documents())
    sizes = {name: len(split) for name, split in corpus.items()}
    assert sizes == {"train": 70, "validation": 10, "tasks": 40}
    assert sorted(id for split in corpus.values() for id in split["id"]) == [f"{n:03}" for n in range(120)]


def test_columns_carry_the_text_its_source_and_its_lengths():
    corpus = build(documents())
    originals = {document.id: document for document in documents()}
    assert corpus["train"].column_names == [
        "id",
        "text",
        "source",
        "n_words",
        "n_student_tokens",
        "n_structural_tokens",
    ]
    for split in corpus.values():
        for row in split:
            original = originals[row["id"]]
            assert (row["text"], row["source"]) == (original.text, original.source)
            assert row["n_words"] == row["n_structural_tokens"] == 2 * (int(row["id"]) + 1)
            assert row["n_student_tokens"] == len(original.text)


def test_links_of_task_rows_stay_in_their_partition_and_none_is_lost():
    tasks = build(documents())["tasks"].to_pandas().set_index("id")
    originals = {document.id: document.see_also for document in documents()}
    assert dict(Counter(tasks["split"])) == {"train": 20, "validation": 8, "test": 12}
    for id, row in tasks.iterrows():
        expected = [target for target in originals[id] if target in tasks.index and tasks.split[target] == row.split]
        assert list(row.see_also) == expected
    assert tasks.see_also.map(len).sum() > 20


def test_without_tasks_there_is_no_such_split_and_without_links_the_lists_are_empty():
    assert set(build(documents(), tasks=0)) == {"train", "validation"}
    tasks = build(documents(linked=False))["tasks"]
    assert tasks["see_also"][:] == [[]] * 40
    assert tasks.features["see_also"].feature.dtype == "string"


def test_the_same_documents_give_the_same_corpus_in_whatever_order_they_come():
    one, other = build(documents()), build(reversed(documents()))
    assert all(one[name].to_list() == other[name].to_list() for name in one)
    assert build(documents(), seed=1)["train"]["id"][:] != one["train"]["id"][:]


def test_one_more_document_changes_no_others_place():
    before = build(documents(), tasks=0, validation=0)["train"]["id"][:]
    after = build([*documents(), Document("new", "fresh words", "a")], tasks=0, validation=0)["train"]["id"][:]
    assert [id for id in after if id != "new"] == before
    assert before != sorted(before)


def kept(rows, **options):
    corpus = build(rows, tasks=0, validation=0, **options)
    return sorted(corpus["train"]["id"])


def test_a_document_that_begins_as_an_earlier_one_is_left_out_and_counted(caplog):
    start = " ".join(f"w{n}" for n in range(60))
    rows = [
        Document("b", start.upper() + "\n other end", "x"),
        Document("a", start + " one end", "x"),
        Document("c", start.replace("w59", "v59") + " one end", "x"),
        Document("d", "short", "x"),
        Document("e", "short one", "x"),
    ]
    with caplog.at_level(logging.INFO, logger="docemb_lib.corpus.build"):
        assert kept(rows, copy_words=60) == ["a", "c", "d", "e"]
    assert "1 of 5 documents" in caplog.text


def test_documents_that_share_only_their_beginning_are_kept_unless_asked():
    header = "the same licence stands at the head of every file " * 10
    rows = [Document(str(n), f"{header} text {n}", "x") for n in range(3)]
    assert kept([*rows, Document("copy", rows[0].text.upper() + "\n", "x")]) == ["0", "1", "2"]


def test_two_documents_of_one_id_are_refused():
    with pytest.raises(InputError, match="two documents have the id 'k'; rename one"):
        kept([Document("k", "one", "x"), Document("k", "two", "x")])


def test_too_few_documents_are_refused_with_the_numbers_and_the_mend():
    with pytest.raises(InputError, match=r"50 distinct documents, but validation=10 and tasks=40 .* from 51; lower"):
        build(documents(50))
    assert len(build(documents(51))["train"]) == 1


def rows_of(corpus):
    return {name: split.to_list() for name, split in corpus.items()}


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "SIZE", 25)


def test_a_corpus_on_disk_is_the_same_as_in_memory_whatever_the_size_of_its_parts(tmp_path, small_parts):
    corpus = build(iter(documents()), folder=tmp_path / "parts")
    assert len(list((tmp_path / "parts").glob("*.arrow"))) == 5
    files = {file["filename"] for name in ("train", "validation") for file in corpus[name].cache_files}
    expected = [*(tmp_path / "parts").glob("*.arrow"), tmp_path / "parts" / "train.indices"]
    assert files == set(map(str, expected))  # mapped, not read
    corpus.save_to_disk(str(tmp_path / "corpus"))
    shutil.rmtree(tmp_path / "parts")
    assert rows_of(load_from_disk(str(tmp_path / "corpus"))) == rows_of(build(documents()))
    assert build(documents())["train"].features == load_from_disk(str(tmp_path / "corpus"))["train"].features


@pytest.mark.parametrize("last", [0, 24, 25, 26, 74, 119])
def test_a_build_that_was_stopped_goes_on_after_its_last_whole_part(tmp_path, small_parts, last):
    """`last`: the document whose reading or counting fails."""
    read, counted = [], []

    def reading(fail):
        for number, document in enumerate(documents()):
            read.append(number)
            if fail and number == last:
                raise KeyboardInterrupt
            yield document

    def counting(texts):
        counted.extend(texts)
        return letters(texts)

    counters = {"n_student_tokens": counting, "n_structural_tokens": words}
    with pytest.raises(KeyboardInterrupt):
        build(reading(fail=True), counters=counters, folder=tmp_path / "parts")
    whole = last // 25
    assert len(list((tmp_path / "parts").iterdir())) == whole
    (tmp_path / "parts" / f"{whole:05}.arrow.partial").write_bytes(b"torn by a kill while it was written")
    counted.clear()
    corpus = build(reading(fail=False), counters=counters, folder=tmp_path / "parts")
    assert sorted(counted) == sorted(["", *(document.text for document in documents()[25 * whole :])])  # "": loading
    assert rows_of(corpus) == rows_of(build(documents()))
    read.clear()
    assert rows_of(build(reading(fail=True), counters=counters, folder=tmp_path / "parts")) == rows_of(corpus)
    assert read == []  # complete: the sources are not asked again


def test_documents_that_make_no_corpus_leave_nothing_behind(tmp_path):
    with pytest.raises(InputError, match="lower"):
        build(documents(50), folder=tmp_path / "parts")
    assert list(tmp_path.iterdir()) == []


def test_a_connection_that_is_lost_leaves_the_whole_parts_to_go_on_from(tmp_path, small_parts):
    def lost():
        yield from documents()[:60]
        raise ConnectionError("dataset 'd', split 'train', after row 60: gone")

    with pytest.raises(ConnectionError, match="after row 60"):
        build(lost(), folder=tmp_path / "parts")
    assert len(list((tmp_path / "parts").iterdir())) == 2
    assert rows_of(build(iter(documents()), folder=tmp_path / "parts")) == rows_of(build(documents()))
