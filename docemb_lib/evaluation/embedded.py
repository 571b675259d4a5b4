"""Four tasks from pages that were kept out of the distillation corpus; they need no download.

| task               | question                                   | stands in for   |
|--------------------|--------------------------------------------|-----------------|
| package            | which package is this page from?           | ARXIV           |
| see-also-pairs     | does page A list page B in its See Also?   | AAN, OC, S2ORC  |
| halves             | are these two halves of one page?          | PAN             |
| see-also-retrieval | page -> the pages that it lists            | WINES, GAMES    |

The pages come as rows with the columns id, text, source (the package), split and see_also (ids in the same split).
`halves` needs no labels: it works on any corpus.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.evaluation.tasks import SPLITS, Classification, Labelled, LabelledPairs, Pairs, Ranking, Retrieval, Task

LIMIT = 400  # pages that scoring one split of one task may need embedded, at most
TRAIN_SHARE = 0.6  # of them for training a head, the rest for the split that is scored
LINKS_PER_PAGE = 2  # of a page's See-Also list in the pairs task: no page weighs more than a few others
LEAST_PAIRS = 4  # two of each kind
MEND = "raise the number of task pages in the profile, or leave the task out"


class Page(NamedTuple):
    id: str
    text: str
    source: str
    see_also: tuple[str, ...]


def embedded_tasks(
    rows: Iterable[Mapping[str, Any]], names: Sequence[str], *, seed: int, limit: int = LIMIT
) -> list[Task]:
    """The named tasks. rows: the pages; seed: which pages are taken and paired; limit: see LIMIT."""
    if unknown := [name for name in names if name not in BUILDERS]:
        raise InputError(f"tasks: {unknown[0]!r} is not one of {', '.join(BUILDERS)}")
    pages = list(rows)
    return [BUILDERS[name](pages, seed=seed, limit=limit) for name in names]


def package_task(rows: Iterable[Mapping[str, Any]], *, seed: int, limit: int = LIMIT) -> Classification:
    """Which package is this page from? As many pages of each as there are, up to an equal share of `limit`."""
    splits = {}
    for split, pages in read_pages(rows, "package").items():
        taken = spread_over_sources(shuffled(pages, seed, split), budget(split, limit))
        splits[split] = Labelled([page.text for page in taken], [page.source for page in taken])
    return Classification("package", splits)


def see_also_pairs_task(rows: Iterable[Mapping[str, Any]], *, seed: int, limit: int = LIMIT) -> Pairs:
    """Does page A list page B? As many pairs that are linked as pairs that are not.

    The pages cited by the positive pairs are dealt out again within their package to make the negative ones. So each
    page stands in equally many pairs of both kinds, on either side, and neither it nor the package tells the answer.
    """
    splits = {}
    for split, pages in read_pages(rows, "see-also-pairs").items():
        rng, by_id = shuffler(seed, split), {page.id: page for page in pages}
        taken: set[str] = set()
        links: list[tuple[Page, Page]] = []
        for page in shuffled(pages, seed, split):
            # some of the list, not its head: many lists begin with the same page, and its links leave few strangers
            for target in [by_id[other] for other in rng.permutation(page.see_also)[:LINKS_PER_PAGE]]:
                if len(taken | {page.id, target.id}) <= budget(split, limit) and (target, page) not in links:
                    taken |= {page.id, target.id}
                    links.append((page, target))
        where = f"task 'see-also-pairs', split {split!r}: {len(pages)} pages"
        splits[split] = paired(links, linked, rng, where=where)
    return Pairs("see-also-pairs", splits)


def halves_task(rows: Iterable[Mapping[str, Any]], *, seed: int, limit: int = LIMIT) -> Pairs:
    """Are these two halves of one page? Each first half comes with its own second half and with another page's."""
    splits = {}
    for split, pages in read_pages(rows, "halves").items():
        halves: list[tuple[Page, Page]] = []
        for page in shuffled(pages, seed, split):
            first, second = cut_in_half(page.text)
            if first and second and len(halves) < budget(split, limit):
                halves.append((page._replace(text=first), page._replace(text=second)))
        pages_of = Counter(first.source for first, _ in halves)
        splits[split] = paired(
            # a page that is alone in its source finds its stranger among others that are
            [pair if pages_of[pair[0].source] > 1 else without_source(pair) for pair in halves],
            lambda first, second: first.id == second.id,
            shuffler(seed, split),
            where=f"task 'halves', split {split!r}: {len(pages)} pages",
        )
    return Pairs("halves", splits)


def see_also_retrieval_task(rows: Iterable[Mapping[str, Any]], *, seed: int, limit: int = LIMIT) -> Retrieval:
    """Page -> the pages it lists, among all pages of the split; a pool beyond `limit` is cut, linked pages last."""
    splits = {}
    for split, pages in read_pages(rows, "see-also-retrieval").items():
        cited = {other for page in pages for other in page.see_also}
        pool = sorted(shuffled(pages, seed, split), key=lambda page: not page.see_also and page.id not in cited)[:limit]
        row = {page.id: i for i, page in enumerate(pool)}
        relevant = {row[page.id]: [row[other] for other in page.see_also if other in row] for page in pool}
        queries = [query for query, rows_to_find in relevant.items() if rows_to_find]
        if not queries:
            raise InputError(
                f"task 'see-also-retrieval', split {split!r}: none of {len(pages)} pages lists another of them; {MEND}"
            )
        splits[split] = Ranking([page.text for page in pool], queries, [relevant[query] for query in queries])
    return Retrieval("see-also-retrieval", splits)


BUILDERS: dict[str, Callable[..., Task]] = {
    "package": package_task,
    "see-also-pairs": see_also_pairs_task,
    "halves": halves_task,
    "see-also-retrieval": see_also_retrieval_task,
}


def read_pages(rows: Iterable[Mapping[str, Any]], task: str) -> dict[str, list[Page]]:
    """The pages of each split. All three splits have some, and no text or id is in two of them."""
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
            if outside := set(page.see_also) - ids | ({page.id} & set(page.see_also)):
                raise InputError(
                    f"task {task!r}: page {page.id!r} lists {min(outside)!r}, which is itself or not in {split!r}"
                )
    return splits


def budget(split: str, limit: int) -> int:
    """Pages of a split that a task with a head may use."""
    train = round(limit * TRAIN_SHARE)
    return train if split == "train" else limit - train


def shuffler(seed: int, split: str) -> np.random.Generator:
    return np.random.default_rng([seed, SPLITS.index(split)])


def shuffled(pages: Sequence[Page], seed: int, split: str) -> list[Page]:
    """In an order that depends on the seed, not on the order of the rows."""
    by_id = sorted(pages, key=lambda page: page.id)
    return [by_id[i] for i in shuffler(seed, split).permutation(len(by_id))]


def spread_over_sources(pages: Sequence[Page], count: int) -> list[Page]:
    """At most `count` pages, the first of every source, then the second of every source, and so on."""
    earlier: Counter[str] = Counter()
    turn = []
    for page in pages:
        turn.append(earlier[page.source])
        earlier[page.source] += 1
    return [pages[i] for i in np.argsort(turn, kind="stable")[:count]]


def linked(a: Page, b: Page) -> bool:
    """Whether either page lists the other, or they are one."""
    return a.id == b.id or b.id in a.see_also or a.id in b.see_also


def without_source(pair: tuple[Page, Page]) -> tuple[Page, Page]:
    first, second = pair
    return first._replace(source=""), second._replace(source="")


def cut_in_half(text: str) -> tuple[str, str]:
    """Two halves, cut at the white space nearest to the middle; the second is empty where there is none to cut at."""
    text = text.strip()
    middle = len(text) // 2
    gaps = [i for i, character in enumerate(text) if character.isspace()]
    cut = min(gaps, key=lambda gap: abs(gap - middle), default=len(text))
    return text[:cut].rstrip(), text[cut:].lstrip()


def paired(
    positives: Sequence[tuple[Page, Page]],
    related: Callable[[Page, Page], bool],
    rng: np.random.Generator,
    *,
    where: str,
) -> LabelledPairs:
    """Each positive pair (label 1) and, behind it, its first page with a stranger (label 0).

    A positive for which no stranger is left is dropped, so the labels are balanced.
    """
    strangers = draw_strangers([a for a, _ in positives], [b for _, b in positives], related, rng)
    kept = [(a, b, other) for (a, b), other in zip(positives, strangers, strict=True) if other is not None]
    if 2 * len(kept) < LEAST_PAIRS:
        raise InputError(f"{where} give {2 * len(kept)} pairs, at least {LEAST_PAIRS} are needed; {MEND}")
    return LabelledPairs(
        first=[a.text for a, _, _ in kept for _ in range(2)],
        second=[page.text for _, b, other in kept for page in (b, other)],
        labels=[label for _ in kept for label in (1, 0)],
    )


def draw_strangers(
    first: Sequence[Page], second: Sequence[Page], related: Callable[[Page, Page], bool], rng: np.random.Generator
) -> list[Page | None]:
    """For each page of `first` one of `second` of the same source that it is not related to, each used once.

    A matching, so that being among the strangers says nothing of a page. Where it is impossible, a page is used twice;
    where the whole source has no stranger, None.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    strangers: list[Page | None] = [None] * len(first)
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
            strangers[i] = second[columns[choice]] if choice >= 0 else None
    return strangers
