"""Choose the documents that are held out for the evaluation tasks, and share them out among the tasks' partitions."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from typing import Literal

from docemb_lib.corpus.sources import Document

Partition = Literal["train", "validation", "test"]
PARTITIONS: tuple[Partition, ...] = ("train", "validation", "test")
VALIDATION, TEST = 0.2, 0.3  # shares of the pool; train has the rest
LINKED = 0.7  # share of each partition for pages with their links; the rest balances the sources
MIN_LINKS, MAX_LINKS = 2, 6  # a linked page brings its first MAX_LINKS targets and needs MIN_LINKS of them


def hold_out(documents: Sequence[Document], *, size: int) -> dict[str, Partition]:
    """Partition of each held-out document, by id; `size` of `documents`, taken in the order given.

    Citation tasks need both ends of a link in one partition, so a page goes where its targets go: first pages with
    links fill part of each partition, a target staying where the first page pulled it; then the source that a
    partition has least of gives the next document, until the partition is full. Documents without any links are
    taken as they come.
    """
    validation, test = round(VALIDATION * size), round(TEST * size)
    room: dict[Partition, int] = {"train": size - validation - test, "validation": validation, "test": test}
    held = _hold_linked(documents, {name: int(LINKED * places) for name, places in room.items()})
    waiting: dict[str, deque[Document]] = defaultdict(deque)
    for document in documents:
        if document.id not in held:
            waiting[document.source if held else ""].append(document)
    source_of = {document.id: document.source for document in documents}
    for name in PARTITIONS:
        count = Counter(source_of[id] for id, partition in held.items() if partition == name)
        for _ in range(room[name] - count.total()):
            source = min(
                (source for source, queue in waiting.items() if queue), key=lambda source: (count[source], source)
            )
            held[waiting[source].popleft().id] = name
            count[source] += 1
    return held


def _hold_linked(documents: Sequence[Document], room: dict[Partition, int]) -> dict[str, Partition]:
    """Pages with at least MIN_LINKS targets beside them, while there is room for a page and all that it brings."""
    known = {document.id for document in documents}
    held: dict[str, Partition] = {}
    used: Counter[Partition] = Counter()
    for page in documents:
        targets = [target for target in page.see_also if target in known][:MAX_LINKS]
        new = [id for id in (page.id, *targets) if id not in held]
        homes = (
            [held[page.id]] if page.id in held else sorted(PARTITIONS, key=lambda name: used[name] / max(room[name], 1))
        )
        for home in homes:
            beside = sum(held.get(target, home) == home for target in targets)
            if beside >= MIN_LINKS and used[home] + len(new) <= room[home]:
                held.update(dict.fromkeys(new, home))
                used[home] += len(new)
                break
    return held
