"""Four tasks from pages that were kept out of the distillation corpus; they need no download.

| task               | question                                      | replaces        |
|--------------------|-----------------------------------------------|-----------------|
| package            | which package is this page from?              | ARXIV           |
| see-also-pairs     | does page A list page B in its See Also?      | AAN, OC, S2ORC  |
| halves             | are these two halves of one page?             | PAN             |
| see-also-retrieval | page -> the pages that it lists               | WINES, GAMES    |

The pages are rows with the columns id, text, source (the package), split and see_also (ids in the same split).
`halves` needs no labels and works on any corpus.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.evaluation.tasks import SPLITS, Classification, Labelled, LabelledPairs, Pairs, Ranking, Retrieval, Task

LIMIT = 400  # pages embedded at most to score one split of one task
TRAIN_SHARE = 0.6  # of them in train, the rest in the split that is scored
LINKS_PER_PAGE = 2  # of a See-Also list in the pairs task, so that pages weigh alike
LEAST_PAIRS = 4  # two of each class
MEND = "raise the number of task pages in the profile, or leave the task out"


class Page(NamedTuple):
    id: str
    text: str
    source: str
    see_also: tuple[str, ...]


def embedded_tasks(
    rows: Iterable[Mapping[str, Any]], names: Sequence[str], *, seed: int, limit: int = LIMIT
) -> list[Task]:
    """The named tasks. rows: the pages; seed: for choosing and pairing pages; limit: see LIMIT."""
    pages = list(rows)
    return [_build(name, read_pages(pages, name), seed, limit) for name in names]


def _build(name: str, pages: Mapping[str, Sequence[Page]], seed: int, limit: int) -> Task:
    kind, build = BUILDERS[name]
    train = round(limit * TRAIN_SHARE)
    splits = {}
    for split, own in pages.items():
        by_id = sorted(own, key=lambda page: page.id)  # so that the order of the rows does not matter
        order = np.random.default_rng([seed, SPLITS.index(split)]).permutation(len(by_id))
        shuffled, rng = [by_id[i] for i in order], np.random.default_rng([seed, SPLITS.index(split)])
        size = limit if kind is Retrieval else train if split == "train" else limit - train
        splits[split] = build(shuffled, size, rng, f"task {name!r}, split {split!r}: {len(own)} pages")
    return kind(name, splits)


def _packages(pages: Sequence[Page], limit: int, rng: np.random.Generator, where: str) -> Labelled:
    """As many pages of each package as there are, up to an equal share of `limit`."""
    taken = spread_over_sources(pages, limit)
    return Labelled([page.text for page in taken], [page.source for page in taken])


def _see_also_pairs(pages: Sequence[Page], limit: int, rng: np.random.Generator, where: str) -> LabelledPairs:
    """As many linked pairs as unlinked ones.

    The unlinked pairs permute the cited pages of the linked pairs within each package. Every page therefore stands in
    equally many pairs of both classes, on either side, and neither page nor package predicts the class.
    """
    by_id = {page.id: page for page in pages}
    taken: set[str] = set()
    links: list[tuple[Page, Page]] = []
    for page in pages:
        # a random part of the list: many lists begin with the same page, whose links leave few unlinked pairs
        for target in [by_id[other] for other in rng.permutation(page.see_also)[:LINKS_PER_PAGE]]:
            if len(taken | {page.id, target.id}) <= limit and (target, page) not in links:
                taken |= {page.id, target.id}
                links.append((page, target))
    return _balanced_pairs(
        links, lambda a, b: a.id == b.id or b.id in a.see_also or a.id in b.see_also, rng, where=where
    )


def _halves(pages: Sequence[Page], limit: int, rng: np.random.Generator, where: str) -> LabelledPairs:
    """Each first half with the second half of the same page, and with that of another page."""
    cut = [(page, *cut_in_half(page.text)) for page in pages]
    halves = [(page._replace(text=a), page._replace(text=b)) for page, a, b in cut if a and b][:limit]
    size = Counter(first.source for first, _ in halves)
    # a page that is alone in its source is paired with other such pages
    halves = [(a, b) if size[a.source] > 1 else (a._replace(source=""), b._replace(source="")) for a, b in halves]
    return _balanced_pairs(halves, lambda a, b: a.id == b.id, rng, where=where)


def _see_also_ranking(pages: Sequence[Page], limit: int, rng: np.random.Generator, where: str) -> Ranking:
    """The listed pages among all pages of the split; of more than `limit` pages, unlinked ones are dropped first."""
    cited = {other for page in pages for other in page.see_also}
    pool = sorted(pages, key=lambda page: not page.see_also and page.id not in cited)[:limit]
    row = {page.id: i for i, page in enumerate(pool)}
    relevant = {row[page.id]: [row[other] for other in page.see_also if other in row] for page in pool}
    queries = [query for query, wanted in relevant.items() if wanted]
    if not queries:
        raise InputError(f"{where}, none of which lists another; {MEND}")
    return Ranking([page.text for page in pool], queries, [relevant[query] for query in queries])


BUILDERS: Mapping[str, tuple[Any, Callable[[Sequence[Page], int, np.random.Generator, str], Any]]] = {
    "package": (Classification, _packages),
    "see-also-pairs": (Pairs, _see_also_pairs),
    "halves": (Pairs, _halves),
    "see-also-retrieval": (Retrieval, _see_also_ranking),
}


def read_pages(rows: Iterable[Mapping[str, Any]], task: str) -> dict[str, list[Page]]:
    """The pages of each split. Raises InputError for an empty split and for an id or text in two of them."""
    splits: dict[str, list[Page]] = {split: [] for split in SPLITS}
    seen: dict[str, str] = {}
    for row in rows:
        page, split = Page(row["id"], row["text"], row["source"], tuple(row["see_also"])), row["split"]
        if split not in splits:
            raise InputError(f"task {task!r}: page {page.id!r} has the split {split!r}, not one of {', '.join(SPLITS)}")
        for key in (f"id {page.id}", f"text {page.text}"):
            if key in seen:
                raise InputError(f"task {task!r}: {key[:60]!r} is in {seen[key]!r} and again in {split!r}; keep one")
            seen[key] = split
        splits[split].append(page)
    for split, pages in splits.items():
        if not pages:
            counts = ", ".join(f"{len(pages)} {split}" for split, pages in splits.items())
            raise InputError(f"task {task!r}, split {split!r}: no pages ({counts}); {MEND}")
        ids = {page.id for page in pages}
        for page in pages:
            if outside := set(page.see_also) - (ids - {page.id}):
                message = f"lists {min(outside)!r}, which is itself or not in {split!r}"
                raise InputError(f"task {task!r}: page {page.id!r} {message}")
    return splits


def spread_over_sources(pages: Sequence[Page], count: int) -> list[Page]:
    """At most `count` pages: the first of every source, then the second of every source, and so on."""
    earlier: Counter[str] = Counter()
    turn = []
    for page in pages:
        turn.append(earlier[page.source])
        earlier[page.source] += 1
    return [pages[i] for i in np.argsort(turn, kind="stable")[:count]]


def cut_in_half(text: str) -> tuple[str, str]:
    """Two halves, cut at the white space nearest to the middle; without white space the second is empty."""
    text = text.strip()
    middle = len(text) // 2
    gaps = [i for i, character in enumerate(text) if character.isspace()]
    cut = min(gaps, key=lambda gap: abs(gap - middle), default=len(text))
    return text[:cut].rstrip(), text[cut:].lstrip()


def _balanced_pairs(
    positives: Sequence[tuple[Page, Page]],
    related: Callable[[Page, Page], bool],
    rng: np.random.Generator,
    *,
    where: str,
) -> LabelledPairs:
    """Each positive pair (label 1), followed by its first page with an unrelated one (label 0).

    A positive pair without an unrelated page is dropped, so that the classes are balanced.
    """
    unrelated = _draw_unrelated([a for a, _ in positives], [b for _, b in positives], related, rng)
    kept = [(a, b, other) for (a, b), other in zip(positives, unrelated, strict=True) if other is not None]
    if 2 * len(kept) < LEAST_PAIRS:
        raise InputError(f"{where} give {2 * len(kept)} pairs, at least {LEAST_PAIRS} are needed; {MEND}")
    return LabelledPairs(
        first=[a.text for a, _, _ in kept for _ in range(2)],
        second=[page.text for _, b, other in kept for page in (b, other)],
        labels=[label for _ in kept for label in (1, 0)],
    )


def _draw_unrelated(
    first: Sequence[Page], second: Sequence[Page], related: Callable[[Page, Page], bool], rng: np.random.Generator
) -> list[Page | None]:
    """For each page of `first` an unrelated page of `second` from the same source.

    A matching, so that every page of `second` is used once and being used does not predict the class. Where there is no
    perfect matching, a page is used twice; where the whole source has no unrelated page, the result is None.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    drawn: list[Page | None] = [None] * len(first)
    by_source = defaultdict(list)
    for i, page in enumerate(first):
        by_source[page.source].append(i)
    for members in by_source.values():
        rows, columns = rng.permutation(members), rng.permutation(members)
        allowed = np.array(
            [[not related(first[i], second[j]) and second[i].text != second[j].text for j in columns] for i in rows]
        )
        matched = maximum_bipartite_matching(csr_array(allowed), perm_type="column")
        for i, options, choice in zip(rows, allowed, matched, strict=True):
            if choice < 0 and options.any():
                choice = rng.choice(np.flatnonzero(options))
            drawn[i] = second[columns[choice]] if choice >= 0 else None
    return drawn
