"""The way from a task's name to the task: own tasks, benchmarks, and four embedded tasks.

Embedded tasks need no download: they are made from pages that were kept out of the distillation
corpus, rows with the columns id, text, source (the package), split and see_also (ids of others of
these pages).

| task               | question                                      | replaces        |
|--------------------|-----------------------------------------------|-----------------|
| package            | which package is this page from?              | ARXIV           |
| see-also-pairs     | does page A list page B in its See Also?      | AAN, OC, S2ORC  |
| halves             | are these two halves of one page? (any text)  | PAN             |
| see-also-retrieval | page -> the pages that it lists               | WINES, GAMES    |
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.document import Document
from docemb_lib.corpus.reader import visible_files
from docemb_lib.corpus.sources import files_fingerprint
from docemb_lib.evaluation.benchmarks import BENCHMARKS, benchmark_task
from docemb_lib.evaluation.judged import judged_task
from docemb_lib.evaluation.probes import cut
from docemb_lib.evaluation.protocols import for_validation
from docemb_lib.evaluation.readers import files_by_split, labelled_task
from docemb_lib.evaluation.tasks import (
    SPLITS,
    Classification,
    HeadTask,
    Labelled,
    LabelledPairs,
    Pairs,
    Ranking,
    Retrieval,
    Task,
    warn_of_problems,
)
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import Evaluation, OwnTask

Row = Mapping[str, Any]  # a page, see above
Build = Callable[[Sequence[Document], int, np.random.Generator], Any]
Link = tuple[Document, Document]

TRAIN_SHARE = 0.6  # of the texts of an embedded task in train, the rest in the split that is scored
LINKS_PER_PAGE = 2  # of a See-Also list in the pairs task, so that pages weigh alike
FILES = ("path", "queries", "relevance")  # fields of an own task
LEAST_PAIRS = 4  # two of each class
# The partitions of the held-out pages that each split of a profile's task is made of; by default
# that of its own name. Runs are compared on the pages of `train`: heads by cross-validation there,
# rankings among all of them. So a student embeds each page once for both tasks. Related pages are
# tested on all other pages, because not every page is a query.
PARTITIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "package": {"train": ["train"], "test": ["test"]},
    "see-also-retrieval": {"validation": ["train"], "test": ["validation", "test"]},
}
EACH_ITS_OWN = {split: [split] for split in SPLITS}


def profile_task(profile: Profile, name: str, pages: Callable[[], Iterable[Row]]) -> Task:
    """Return a task by name, made of `pages` if it is embedded; log the problems of its data."""
    evaluation = profile.evaluation
    if name in BUILDERS:
        task = embedded_task(
            pages(),
            name,
            seed=profile.corpus.seed,
            limit=evaluation.texts,
            partitions=PARTITIONS.get(name, EACH_ITS_OWN),
        )
    else:
        task = load_task(name, evaluation)
    warn_of_problems(task)
    return task


def load_task(name: str, settings: Evaluation) -> Task:
    """Return the own task or benchmark task of a name.

    Raises InputError for an embedded task, which needs a corpus.
    """
    task = _own_settings(name, settings)
    if task is None:
        return benchmark_task(name, _place(name, settings))
    read = labelled_task if task.kind in ("classification", "pairs") else judged_task
    return read(task)


def task_inputs(profile: Profile, name: str, corpus: Callable[[], str]) -> dict[str, Any]:
    """Return what determines a task, without building it.

    corpus: returns the fingerprint of the corpus; it is called for embedded tasks only.
    """
    files = task_fingerprint(name, profile.evaluation)
    if files:
        return {"task": name, "files": files}
    return {"task": name, "corpus": corpus(), "texts": profile.evaluation.texts}


def task_fingerprint(name: str, settings: Evaluation) -> str | None:
    """Return the settings of a task and the contents of its files; None for an embedded task.

    Raises InputError where a file of an own task is missing.
    """
    task = _own_settings(name, settings)
    if task:
        contents = {}
        for field in FILES:
            for split, place in files_by_split(getattr(task, field) or {}).items():
                if not place.exists():
                    problem = f"{place} is no file; name the one that holds the data"
                    raise InputError(f"evaluation.own_tasks: {name}: {problem}")
                contents[f"{field} {split}"] = _contents(place)
        return f"{task.model_dump_json(exclude={*FILES})} {contents}"
    if name not in BENCHMARKS:
        return None
    source = _place(name, settings) or BENCHMARKS[name].hub or ""
    place = Path(source)
    return f"{name} {_contents(place) if place.exists() else source}"


def _contents(place: Path) -> str:
    """Return a hash of a file, or of the visible files of a folder."""
    return files_fingerprint(visible_files(place) if place.is_dir() else [place])


def splits_to_score(name: str, evaluation: Evaluation) -> list[str]:
    """The splits that an own task, or one in files of a benchmark, can be scored on.

    Reads the files. Raises InputError for wrong ones.
    """
    task = load_task(name, evaluation)
    splits = list(task.splits)
    if isinstance(task, HeadTask):  # cross-validation may replace a validation split
        labels = for_validation(task, evaluation.limit).splits["train"].labels
        if min(Counter(labels).values()) >= evaluation.folds:
            splits.append("validation")
    return splits


def is_in_files(name: str, evaluation: Evaluation) -> bool:
    """Whether a task is read from files at hand, and not from a hub or the corpus."""
    place = _place(name, evaluation)
    has_files = bool(place and Path(place).exists())
    return has_files or _own_settings(name, evaluation) is not None


def _own_settings(name: str, settings: Evaluation) -> OwnTask | None:
    return next((task for task in settings.own_tasks if task.name == name), None)


def _place(name: str, settings: Evaluation) -> str | None:
    """Return the folder, file or hub id that a profile names for a benchmark task."""
    return {str(benchmark): place for benchmark, place in settings.benchmarks.items()}.get(name)


def embedded_task(
    rows: Iterable[Row],
    name: str,
    *,
    seed: int,
    limit: int,
    partitions: Mapping[str, Sequence[str]] = EACH_ITS_OWN,
) -> Task:
    """Return an embedded task of `rows`, the pages.

    seed: determines the choice of pages and pairs; limit: most texts that scoring needs;
    partitions: the values of `split` of the pages that each split of the task is made of. Raises
    InputError where the pages give too few examples.
    """
    pages = sorted(rows, key=lambda row: row["id"])  # any order of rows gives the same task
    kind, build = BUILDERS[name]
    train = round(limit * TRAIN_SHARE)
    size_of = {"train": train, "validation": limit - train, "test": limit - train}
    least = LEAST_PAIRS if kind is Pairs else 1

    splits = {}
    for split, values in partitions.items():
        number = SPLITS.index(values[-1])
        candidates = _pages_of(pages, values)
        order = np.random.default_rng([seed, number]).permutation(len(candidates))
        size = limit if kind is Retrieval else size_of[split]
        shuffled = [candidates[i] for i in order]
        data = build(shuffled, size, np.random.default_rng([seed, number]))
        examples = len(data.queries if kind is Retrieval else data.labels)
        if examples < least:
            raise InputError(
                f"task {name!r}, split {split!r}: {len(candidates)} pages give {examples} "
                "examples, which are too few; raise corpus.tasks or evaluation.texts, or leave "
                "the task out"
            )
        splits[split] = data
    return kind(name, splits)


def _pages_of(rows: Sequence[Row], values: Sequence[str]) -> list[Document]:
    """Return the pages with one of these values of `split`, with their links to each other."""
    chosen = [row for row in rows if row["split"] in values]
    known = {row["id"] for row in chosen}
    pages = []
    for row in chosen:
        see_also = tuple(id for id in row["see_also"] if id in known)
        pages.append(Document(row["id"], row["text"], row["source"], see_also))
    return pages


def _packages(pages: Sequence[Document], limit: int, rng: np.random.Generator) -> Labelled:
    """Take at most `limit` pages: the first of every package, then the second of each, ..."""
    sources = pd.Series([page.source for page in pages])
    order = np.argsort(sources.groupby(sources).cumcount(), kind="stable")[:limit]
    chosen = [pages[i] for i in order]
    texts = [page.text for page in chosen]
    labels = [page.source for page in chosen]
    ids = [page.id for page in chosen]
    return Labelled(texts, labels, ids)


def _see_also_pairs(
    pages: Sequence[Document], limit: int, rng: np.random.Generator
) -> LabelledPairs:
    """Draw as many linked pairs as unlinked ones, which permute cited pages within each package.

    So every page is in equally many pairs of both classes, on either side; page and package do not
    predict the class.
    """
    by_id = {page.id: page for page in pages}
    taken: set[str] = set()
    links = []
    for page in pages:
        # A random part of the list: many lists begin with the same page, whose links leave few
        # unlinked pairs.
        for other in rng.permutation(page.see_also)[:LINKS_PER_PAGE]:
            target = by_id[other]
            if len(taken | {page.id, target.id}) <= limit and (target, page) not in links:
                taken |= {page.id, target.id}
                links.append((page, target))

    return _balanced_pairs(links, rng)


def _halves(pages: Sequence[Document], limit: int, rng: np.random.Generator) -> LabelledPairs:
    """Pair each first half with the second half of its page, and with that of another page.

    limit: counts halves.
    """
    halves = []
    for page in pages:
        pieces = cut(page.text, 2)
        if len(pieces) == 2:
            start, end = map(str.strip, pieces)
            second = page._replace(id=f"{page.id}, second half", text=end, see_also=())
            first = page._replace(id=f"{page.id}, first half", text=start, see_also=(second.id,))
            halves.append((first, second))
    halves = halves[: limit // 2]
    size = Counter(first.source for first, _ in halves)
    for i, (first, second) in enumerate(halves):
        if size[first.source] == 1:  # a page that is alone in its source is paired with others such
            halves[i] = (first._replace(source=""), second._replace(source=""))
    return _balanced_pairs(halves, rng)


def _see_also_ranking(pages: Sequence[Document], limit: int, rng: np.random.Generator) -> Ranking:
    """Return the listed pages among all pages of the split.

    Of more than `limit` pages, pages without a link are dropped first.
    """
    cited = {other for page in pages for other in page.see_also}
    pool = sorted(pages, key=lambda page: not page.see_also and page.id not in cited)[:limit]
    row = {page.id: i for i, page in enumerate(pool)}
    queries = []
    relevant = []
    for query, page in enumerate(pool):
        targets = [row[other] for other in page.see_also if other in row]
        if targets:
            queries.append(query)
            relevant.append(targets)
    return Ranking([page.text for page in pool], queries, relevant, list(row))


BUILDERS: Mapping[str, tuple[type[Task], Build]] = {
    "package": (Classification, _packages),
    "see-also-pairs": (Pairs, _see_also_pairs),
    "halves": (Pairs, _halves),
    "see-also-retrieval": (Retrieval, _see_also_ranking),
}


def _balanced_pairs(positives: Sequence[Link], rng: np.random.Generator) -> LabelledPairs:
    """Return each positive pair (1), then its first page with an unrelated second page (0).

    Unrelated pages are drawn from the second pages of the same source by a matching, so that every
    second page is used once, if possible, and being used does not predict the class. A pair for
    which there is no unrelated page is left out.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    def may_pair(i: int, j: int) -> bool:
        first, second = positives[i]
        other = positives[j][1]
        related = first.id == other.id or other.id in first.see_also or first.id in other.see_also
        return second.text != other.text and not related

    by_source = defaultdict(list)
    for i, (page, _) in enumerate(positives):
        by_source[page.source].append(i)
    unrelated = {}
    for members in by_source.values():
        rows = rng.permutation(members)
        columns = rng.permutation(members)
        cells = [may_pair(i, j) for i, j in product(rows, columns)]
        allowed = np.reshape(cells, (len(rows), len(columns)))
        matched = maximum_bipartite_matching(csr_array(allowed), perm_type="column")
        for i, options, choice in zip(rows, allowed, matched, strict=True):
            if choice < 0 and options.any():
                choice = rng.choice(np.flatnonzero(options))
            if choice >= 0:
                unrelated[i] = positives[columns[choice]][1]

    pairs = []
    for i, other in sorted(unrelated.items()):
        pairs += [positives[i], (positives[i][0], other)]
    first_texts = [first.text for first, _ in pairs]
    second_texts = [second.text for _, second in pairs]
    first_ids = [first.id for first, _ in pairs]
    second_ids = [second.id for _, second in pairs]
    labels = [1, 0] * len(unrelated)
    return LabelledPairs(first_texts, second_texts, labels, first_ids, second_ids)
