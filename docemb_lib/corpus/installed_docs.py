"""The embedded corpus: the documentation that the installed scientific packages carry.

Real text on every machine, without a download: one document per public module, class (with its methods) or function.
See Also sections become links between documents; they and the packages' names are taken out of the texts, so that no
task made from the pages has its answer standing in them.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from joblib import Parallel, delayed

from docemb_lib.corpus.docstrings import Page, cut_see_also, read_pages, remove_names
from docemb_lib.corpus.sources import Document
from docemb_lib.errors import InputError
from docemb_lib.progress import progress

logger = logging.getLogger(__name__)

PACKAGES = (
    "numpy", "scipy", "sklearn", "pandas", "matplotlib", "seaborn", "torch", "nltk", "gensim", "networkx", "sympy",
)  # fmt: skip
SKIPPED = {
    "tests", "test", "_testing", "_internal", "conftest.py", "setup.py",  # not documentation
    "externals", "external", "extern", "_vendor", "array_api_compat", "array_api_extra", "pyprima", "cobyqa",  # copies
    "_numpy",  # torch's copy of NumPy
    "_inductor", "_dynamo", "_functorch",  # torch's compiler: notes to its developers
}  # fmt: skip


class _Clean(NamedTuple):
    """A page ready to become a document, once the names it cites are resolved."""

    path: str  # where it is defined, private parts included
    members: tuple[str, ...]  # names of the methods documented on it
    text: str
    cited: tuple[str, ...]


def installed_docs(packages: Sequence[str] = PACKAGES, *, min_words: int = 80, jobs: int = 2) -> list[Document]:
    """The documentation pages of `packages`, of `min_words` words and more, sorted by id, no two with the same text.

    `packages` are import names; their files are read in `jobs` processes and never imported. An id is the dotted path
    without its private parts, where that is unique; `source` is the package. `see_also` holds ids of pages of the
    same package. Raises InputError for a package that is not installed.
    """
    files = [(path, module) for package in packages for path, module in _source_files(package)]
    read = Parallel(n_jobs=jobs, return_as="generator")(delayed(_clean_pages)(*file, min_words) for file in files)
    pages = {
        page.path: page
        for found in progress(read, desc="reading docs", total=len(files), unit="files")
        for page in found
    }
    named = _without_copies(_named(pages.values()))
    return [document for package in sorted(packages) for document in _link(named, package)]


def _source_files(package: str) -> list[tuple[Path, str]]:
    """The package's source files and their module names, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"package {package!r} is not installed; install it (pip install -e .) or leave it out")
    root = Path(spec.submodule_search_locations[0])
    files = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in SKIPPED)
        for name in sorted(names):
            if name.endswith(".py") and name not in SKIPPED:
                path = Path(folder, name)
                parts = path.relative_to(root.parent).with_suffix("").parts
                files.append((path, ".".join(parts).removesuffix(".__init__")))
    return files


def _clean_pages(path: Path, module: str, min_words: int) -> list[_Clean]:
    """The file's pages of `min_words` words, counted before cleaning, which only takes away, and after it."""
    pages = (_clean(page) for page in read_pages(path, module) if page.n_words >= min_words)
    return [page for page in pages if len(page.text.split()) >= min_words]


def _clean(page: Page) -> _Clean:
    own = cut_see_also(page.doc)
    members = [(name, cut_see_also(doc)) for name, doc in page.members]
    text = "\n\n".join([own.text, *(f"{name}\n{cut.text}" for name, cut in members)])
    cited = dict.fromkeys([*own.cited, *(name for _, cut in members for name in cut.cited)])
    return _Clean(page.path, tuple(name for name, _ in members), remove_names(text), tuple(cited))


def _named(pages: Collection[_Clean]) -> dict[str, _Clean]:
    """Pages by id: the public path, or where two pages share it the full one."""
    uses = Counter(_public(page.path) for page in pages)
    return {public if uses[public := _public(page.path)] == 1 else page.path: page for page in pages}


def _without_copies(pages: dict[str, _Clean]) -> dict[str, _Clean]:
    """In the order of ids, the first of those whose texts differ at most in case and spacing."""
    first: dict[str, str] = {}
    for id in sorted(pages):
        first.setdefault(" ".join(pages[id].text.lower().split()), id)
    return {id: pages[id] for id in first.values()}


def _public(path: str) -> str:
    return ".".join(part for part in path.split(".") if not part.startswith("_"))


def _link(named: dict[str, _Clean], package: str) -> list[Document]:
    """The package's documents; their `see_also` are the pages that the names they cite stand for, if they do."""
    pages = {id: page for id, page in named.items() if page.path.partition(".")[0] == package}
    known: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)  # last part -> full paths and their ids
    for id, page in pages.items():
        for path in [page.path, *(f"{page.path}.{member}" for member in page.members)]:
            parts = tuple(path.split("."))
            known[parts[-1]].append((parts, id))
    documents = []
    for id, page in pages.items():
        targets = (_resolve(name, page.path, known) for name in page.cited)
        see_also = tuple(dict.fromkeys(target for target in targets if target not in {None, id}))
        documents.append(Document(id, page.text, package, see_also))
    return documents


def _resolve(name: str, citing: str, known: dict[str, list[tuple[tuple[str, ...], str]]]) -> str | None:
    """The id that `name`, found on the page `citing`, stands for: the nearest page of that name, None if two are.

    Nearest is what shares most of the citing page's path; of those, what is least deep. A full name shares nothing
    but must be part of the path, what lies between left open: numpy.argsort is numpy._core.fromnumeric.argsort.
    """
    wanted = name.split(".")
    here = citing.split(".")
    qualified = wanted[0] == here[0]
    best: tuple[int, int] | None = None
    found: set[str] = set()
    for parts, id in known.get(wanted[-1], ()):
        if not _is_subsequence(wanted, parts):
            continue
        shared = 0 if qualified else _shared(here, parts)
        rank = (-shared, len(_public(".".join(parts)).split(".")))
        if best is None or rank < best:
            best, found = rank, set()
        if rank == best:
            found.add(id)
    return found.pop() if len(found) == 1 else None


def _shared(here: Sequence[str], there: Sequence[str]) -> int:
    """How many leading parts two paths have in common."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(here, there, strict=False)))


def _is_subsequence(wanted: Sequence[str], parts: Sequence[str]) -> bool:
    remaining = iter(parts)
    return all(part in remaining for part in wanted)
