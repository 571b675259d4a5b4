"""The one place from a task's name to the task: own tasks, benchmarks, and four embedded tasks.

Embedded tasks need no download: they are made from pages that were kept out of the distillation
corpus, rows with the columns id, text, source (the package), split and see_also (ids in the same
split).

| task               | question                                      | replaces        |
|--------------------|-----------------------------------------------|-----------------|
| package            | which package is this page from?              | ARXIV           |
| see-also-pairs     | does page A list page B in its See Also?      | AAN, OC, S2ORC  |
| halves             | are these two halves of one page? (any text)  | PAN             |
| see-also-retrieval | page -> the pages that it lists               | WINES, GAMES    |
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.document import Document
from docemb_lib.corpus.sources import files_fingerprint
from docemb_lib.evaluation import tasks
from docemb_lib.evaluation.benchmarks import BENCHMARKS, benchmark_task
from docemb_lib.evaluation.protocols import for_validation
from docemb_lib.evaluation.readers import own_task, task_files
from docemb_lib.evaluation.tasks import (
    SPLITS,
    Classification,
    Labelled,
    LabelledPairs,
    Pairs,
    Ranking,
    Retrieval,
    Task,
)
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import Evaluation, OwnTask
from docemb_lib.workspace import VERSIONS, Workspace, write_text

TRAIN_SHARE = 0.6  # of the texts of an embedded task in train, the rest in the split that is scored
LINKS_PER_PAGE = 2  # of a See-Also list in the pairs task, so that pages weigh alike
LEAST_PAIRS = 4  # two of each class


def profile_task(
    profile: Profile, name: str, pages: Callable[[], Iterable[Mapping[str, Any]]]
) -> Task:
    """The task of that name, made of `pages` if it is embedded; logs what is odd about it."""
    if name in BUILDERS:
        task = embedded_task(
            pages(), name, seed=profile.corpus.seed, limit=profile.evaluation.texts
        )
    else:
        task = load_task(name, profile.evaluation)
    tasks.warn_of_problems(task)
    return task


def load_task(name: str, settings: Evaluation) -> Task:
    """The own task or benchmark task of that name.

    Raises InputError for an embedded task, which needs a corpus.
    """
    own = _own(name, settings)
    return own_task(own) if own else benchmark_task(name, _place(name, settings))


def task_inputs(profile: Profile, name: str, corpus: Callable[[], str]) -> dict[str, Any]:
    """What determines a task, without building it. corpus: returns the corpus' fingerprint, for
    embedded tasks only.
    """
    if outside := task_fingerprint(name, profile.evaluation):
        return {"task": name, "files": outside}
    return {
        "task": name,
        "version": VERSIONS["task"],
        "corpus": corpus(),
        "texts": profile.evaluation.texts,
    }


def task_fingerprint(name: str, settings: Evaluation) -> str | None:
    """What identifies a task: its settings and the contents of its files; None for an embedded
    task.
    """
    if own := _own(name, settings):
        files = task_files(own)
        if missing := [file for _, found in files.values() for file in found if not file.is_file()]:
            raise InputError(
                f"evaluation.own_tasks: {name}: {missing[0]} is no file; name the one that holds the data"
            )
        contents = {field: files_fingerprint([placed]) for field, placed in files.items()}
        return f"{VERSIONS['task']} {own.model_dump_json(exclude={'path', 'relevance'})} {contents}"
    if name not in BENCHMARKS:
        return None
    place, found = _place(name, settings), files_of(name, settings)
    texts = (
        files_fingerprint([(Path(place), found)])
        if place and found
        else place or BENCHMARKS[name].hub
    )
    return f"{VERSIONS['task']} {name} {texts}"


def files_of(name: str, settings: Evaluation) -> list[Path]:
    """The files of an own task or of a local benchmark task; none for an embedded one, or one of a
    hub.
    """
    if own := _own(name, settings):
        return [file for _, files in task_files(own).values() for file in files]
    place = _place(name, settings)
    return (
        sorted(file for file in (Path(place), *Path(place).rglob("*")) if file.is_file())
        if place
        else []
    )


def check_task(profile: Profile, workspace: Workspace, name: str, split: str) -> None:
    """Check that an own task, or files of a benchmark, can be read and scored on `split`.

    The files are read once until they change. A data set of a hub is not fetched for this.
    """
    evaluation, place = profile.evaluation, _place(name, profile.evaluation)
    if not _own(name, evaluation) and not (place and Path(place).exists()):
        return

    def build(folder: Path) -> None:
        task = load_task(name, evaluation)
        splits = [*task.splits]
        if isinstance(task, tasks.HeadTask):  # cross-validation may replace a validation split
            labels = for_validation(task, evaluation.limit).splits["train"].labels
            splits += ["validation"] * (min(Counter(labels).values()) >= evaluation.folds)
        write_text(folder / "splits.json", json.dumps(splits))

    inputs = {
        "outline": task_fingerprint(name, evaluation),
        "limit": evaluation.limit,
        "folds": evaluation.folds,
    }
    artefact = workspace.artefact("task", {"task": name, **inputs}, build)
    if split not in json.loads((artefact.path / "splits.json").read_text(encoding="utf-8")):
        more = (
            ""
            if split == "test"
            else f", and cannot be cross-validated (evaluation.folds {evaluation.folds})"
        )
        mend = "add this split, or leave the task out"
        raise InputError(f"task {name}: it has no split {split}{more}; {mend}")


def _own(name: str, settings: Evaluation) -> OwnTask | None:
    return next((own for own in settings.own_tasks if own.name == name), None)


def _place(name: str, settings: Evaluation) -> str | None:
    return {str(benchmark): place for benchmark, place in settings.benchmarks.items()}.get(name)


def embedded_task(rows: Iterable[Mapping[str, Any]], name: str, *, seed: int, limit: int) -> Task:
    """An embedded task of `rows`, the pages. seed: of choices and pairs; limit: most texts that
    scoring needs.
    """
    pages: dict[str, list[Document]] = {split: [] for split in SPLITS}
    for row in sorted(
        rows, key=lambda row: row["id"]
    ):  # so that the order of the rows does not matter
        pages[row["split"]].append(
            Document(row["id"], row["text"], row["source"], tuple(row["see_also"]))
        )
    kind, build = BUILDERS[name]
    train = round(limit * TRAIN_SHARE)
    splits = {}
    for number, (split, own) in enumerate(pages.items()):
        order, rng = (np.random.default_rng([seed, number]) for _ in range(2))
        size = limit if kind is Retrieval else train if split == "train" else limit - train
        data = build([own[i] for i in order.permutation(len(own))], size, rng)
        examples = len(data.queries if kind is Retrieval else data.labels)
        if examples < (LEAST_PAIRS if kind is Pairs else 1):
            few = f"{len(own)} pages give {examples} examples, which are too few"
            mend = "raise corpus.tasks or evaluation.texts, or leave the task out"
            raise InputError(f"task {name!r}, split {split!r}: {few}; {mend}")
        splits[split] = data
    return kind(name, splits)


def _packages(pages: Sequence[Document], limit: int, rng: np.random.Generator) -> Labelled:
    """At most `limit` pages: the first of every package, then the second of every package, and so
    on.
    """
    sources = pd.Series([page.source for page in pages])
    taken = [
        pages[i] for i in np.argsort(sources.groupby(sources).cumcount(), kind="stable")[:limit]
    ]
    return Labelled([page.text for page in taken], [page.source for page in taken])


def _see_also_pairs(
    pages: Sequence[Document], limit: int, rng: np.random.Generator
) -> LabelledPairs:
    """As many linked pairs as unlinked ones, which permute the cited pages of the linked ones
    within each package.

    So every page is in equally many pairs of both classes, on either side; page and package do not
    predict the class.
    """
    by_id = {page.id: page for page in pages}
    taken: set[str] = set()
    links: list[tuple[Document, Document]] = []
    for page in pages:
        # a random part of the list: many lists begin with the same page, whose links leave few
        # unlinked pairs
        for target in [by_id[other] for other in rng.permutation(page.see_also)[:LINKS_PER_PAGE]]:
            if len(taken | {page.id, target.id}) <= limit and (target, page) not in links:
                taken |= {page.id, target.id}
                links.append((page, target))
    return _balanced_pairs(
        links, lambda a, b: a.id == b.id or b.id in a.see_also or a.id in b.see_also, rng
    )


def _halves(pages: Sequence[Document], limit: int, rng: np.random.Generator) -> LabelledPairs:
    """Each first half with the second half of the same page, and with that of another page; `limit`
    counts halves.
    """
    cut = [(page, *cut_in_half(page.text)) for page in pages]
    halves = [(page._replace(text=a), page._replace(text=b)) for page, a, b in cut if a and b][
        : limit // 2
    ]
    size = Counter(first.source for first, _ in halves)
    # a page that is alone in its source is paired with other such pages
    halves = [
        (a, b) if size[a.source] > 1 else (a._replace(source=""), b._replace(source=""))
        for a, b in halves
    ]
    return _balanced_pairs(halves, lambda a, b: a.id == b.id, rng)


def _see_also_ranking(pages: Sequence[Document], limit: int, rng: np.random.Generator) -> Ranking:
    """The listed pages among all pages of the split; of more than `limit` pages, unlinked ones are
    dropped first.
    """
    cited = {other for page in pages for other in page.see_also}
    pool = sorted(pages, key=lambda page: not page.see_also and page.id not in cited)[:limit]
    row = {page.id: i for i, page in enumerate(pool)}
    relevant = {
        row[page.id]: [row[other] for other in page.see_also if other in row] for page in pool
    }
    queries = [query for query, wanted in relevant.items() if wanted]
    return Ranking([page.text for page in pool], queries, [relevant[query] for query in queries])


BUILDERS: Mapping[
    str, tuple[Any, Callable[[Sequence[Document], int, np.random.Generator], Any]]
] = {
    "package": (Classification, _packages),
    "see-also-pairs": (Pairs, _see_also_pairs),
    "halves": (Pairs, _halves),
    "see-also-retrieval": (Retrieval, _see_also_ranking),
}


def cut_in_half(text: str) -> tuple[str, str]:
    """Two halves, cut at the white space, or after the Chinese or Japanese punctuation, nearest to
    the middle.

    Without either the second half is empty.
    """
    text = text.strip()
    middle = len(text) // 2
    gaps = [
        i
        for i, character in enumerate(text)
        if character.isspace() or (i and text[i - 1] in "。、，！？；")
    ]
    cut = min(gaps, key=lambda gap: abs(gap - middle), default=len(text))
    return text[:cut].rstrip(), text[cut:].lstrip()


def _balanced_pairs(
    positives: Sequence[tuple[Document, Document]],
    related: Callable[[Document, Document], bool],
    rng: np.random.Generator,
) -> LabelledPairs:
    """Each positive pair (label 1), then its first page with an unrelated second page of its source
    (label 0).

    The latter are drawn by a matching, so that every second page is used once, if possible, and
    being used does not predict the class. A pair for which there is no unrelated page is left out.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    first, second = [a for a, _ in positives], [b for _, b in positives]
    unrelated: dict[int, Document] = {}
    by_source = defaultdict(list)
    for i, page in enumerate(first):
        by_source[page.source].append(i)
    for members in by_source.values():
        rows, columns = rng.permutation(members), rng.permutation(members)
        other = [
            [second[i].text != second[j].text and not related(first[i], second[j]) for j in columns]
            for i in rows
        ]
        allowed = np.array(other)
        matched = maximum_bipartite_matching(csr_array(allowed), perm_type="column")
        for i, options, choice in zip(rows, allowed, matched, strict=True):
            if choice < 0 and options.any():
                choice = rng.choice(np.flatnonzero(options))
            if choice >= 0:
                unrelated[i] = second[columns[choice]]
    kept = sorted(unrelated)
    seconds = [page.text for i in kept for page in (second[i], unrelated[i])]
    return LabelledPairs(
        [first[i].text for i in kept for _ in range(2)], seconds, [1, 0] * len(kept)
    )
