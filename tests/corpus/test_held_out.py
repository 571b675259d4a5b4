from collections import Counter

import pytest

from docemb_lib.corpus.build import hold_out
from docemb_lib.corpus.sources import Document


def page(id, source="a", see_also=()):
    return Document(id, f"text of {id}", source, tuple(see_also))


def clusters(number, size=4):
    """`number` groups of `size` pages, each citing the others of its group."""
    groups = [[f"{group:03}-{member}" for member in range(size)] for group in range(number)]
    return [page(id, see_also=[other for other in group if other != id]) for group in groups for id in group]


def test_the_pool_has_its_size_and_shares():
    held = hold_out(clusters(60), size=100)
    assert Counter(held.values()) == {"train": 50, "validation": 20, "test": 30}


def test_a_page_and_its_targets_stay_in_one_partition():
    documents = [*clusters(100), *[page(f"b{n}", "b") for n in range(100)]]
    held = hold_out(documents, size=100)
    whole = Counter()
    for start in range(0, 400, 4):
        homes = {held.get(document.id) for document in documents[start : start + 4]}
        if len(homes) == 1 and None not in homes:
            whole[homes.pop()] += 4
    # 70% of 50, 20 and 30 places, in groups of four
    assert whole == {"train": 32, "validation": 12, "test": 20}


def test_a_linked_page_brings_no_more_than_six_targets():
    hub = page("hub", see_also=[f"leaf{n}" for n in range(9)])
    filler = [page(f"other{n}") for n in range(100)]
    held = hold_out([hub, *[page(f"leaf{n}") for n in range(9)], *filler], size=20)
    linked = [id for id, partition in held.items() if partition == held["hub"]][:7]
    assert linked == ["hub", *[f"leaf{n}" for n in range(6)]]


def test_a_target_stays_where_the_first_page_pulled_it():
    documents = [
        page("first", see_also=["x", "y"]),
        page("second", see_also=["x", "z"]),  # only z is free elsewhere: too few links unless it joins `first`
        *[page(f"other{n}") for n in range(40)],
        *[page(id) for id in "xyz"],
    ]
    held = hold_out(documents, size=30)
    assert held["first"] == held["x"] == held["y"]
    assert held["second"] == held["z"] == held["x"]


def test_the_rest_balances_the_sources():
    documents = [*clusters(20), *[page(f"b{n}", "b") for n in range(300)], *[page(f"c{n}", "c") for n in range(20)]]
    source_of = {document.id: document.source for document in documents}
    held = hold_out(documents, size=100)
    counts = Counter((partition, source_of[id]) for id, partition in held.items())
    # 32, 12 and 20 linked pages of `a`; the other 18, 8 and 10 places go to b and c by halves, c's twenty being enough
    assert counts == {
        ("train", "a"): 32, ("train", "b"): 9, ("train", "c"): 9,
        ("validation", "a"): 12, ("validation", "b"): 4, ("validation", "c"): 4,
        ("test", "a"): 20, ("test", "b"): 5, ("test", "c"): 5,
    }  # fmt: skip


def test_without_links_the_pool_is_the_first_documents_in_order():
    documents = [page(f"{n:02}", "ab"[n % 3 == 0]) for n in range(50)]
    assert list(hold_out(documents, size=10)) == [f"{n:02}" for n in range(10)]


@pytest.mark.parametrize("size", [0, 1, 2, 7])
def test_small_pools_are_filled_exactly(size):
    assert len(hold_out(clusters(5), size=size)) == size
