"""Leave out documents that are nearly another one's copy, by MinHash signatures of word runs (datasketch).

MinHash: Broder 1997; banding: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, chapter 3.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from glob import glob
from heapq import nsmallest
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from docemb_lib.corpus.rows import file_format
from docemb_lib.corpus.sources import (
    CountTokens,
    Document,
    hub_documents,
    kth_smallest,
    local_paths,
    read_local,
    text_files,
)
from docemb_lib.errors import InputError
from docemb_lib.progress import progress
from docemb_lib.settings import TextSource
from docemb_lib.workspace import VERSIONS, fingerprint_of

# ---- leave out documents


logger = logging.getLogger(__name__)

RUN = 5  # words of a shingle: long enough that unrelated texts share hardly any
PERMUTATIONS = 128  # length of a signature; the estimated similarity errs by about 1 / sqrt(PERMUTATIONS)


def drop_near_duplicates(documents: Iterable[Document], *, similarity: float) -> Iterator[Document]:
    """The documents, in order, without those that share `similarity` or more with an earlier one that is kept.

    similarity: Jaccard index of the sets of five consecutive words, case aside, as estimated by 128 permutations. Texts
    of fewer than five words are kept. Memory: the signatures and their index, a few kB a document. Logs how many were
    left out.
    Raises InputError where datasketch is not installed.
    """
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError:
        raise InputError('corpus.near_duplicates needs datasketch; install it: pip install "docemb[dedup]"') from None

    index = MinHashLSH(threshold=similarity, num_perm=PERMUTATIONS)
    kept: dict[int, Any] = {}  # signatures by position
    dropped = 0
    for position, document in enumerate(progress(documents, desc="near-duplicates", unit="documents")):
        runs = word_runs(document.text)
        if not runs:
            yield document
            continue
        signature = MinHash(num_perm=PERMUTATIONS)
        signature.update_batch([run.encode() for run in runs])
        if any(signature.jaccard(kept[other]) >= similarity for other in index.query(signature)):
            dropped += 1
            continue
        index.insert(position, signature)
        kept[position] = signature
        yield document
    if dropped:
        logger.warning("%d documents are nearly copies of earlier ones and are left out", dropped)


def word_runs(text: str) -> set[str]:
    """Every five consecutive words of a text, in lower case."""
    words = text.lower().split()
    return {" ".join(words[start : start + RUN]) for start in range(len(words) - RUN + 1)}


# ---- from a profile's corpus section to documents


def read_documents(settings: TextSource, *, count_tokens: CountTokens | None = None) -> Iterable[Document]:
    """All documents of the corpus, at most `settings.documents` of them, without near-duplicates where that is set.

    They come one by one, as they are read, and in the same order each time.
    count_tokens: texts to their numbers of student tokens; a data set with `min_student_tokens` needs it.
    """
    if settings.source == "hub":
        return _without_near_duplicates(_drawn(settings, count_tokens), settings)
    if settings.source == "installed-docs":
        from docemb_lib.corpus.installed_docs import PACKAGES, installed_docs

        documents = installed_docs(settings.packages or PACKAGES)
        return _sampled(lambda: documents, settings)
    return _sampled(lambda: _local(settings), settings)


def _drawn(settings: TextSource, count_tokens: CountTokens | None) -> Iterator[Document]:
    """Equal shares of every data set, the first ones one document more where they do not divide evenly; or all of the
    first data set and as many of each other one."""
    share, rest = divmod(settings.documents, len(settings.datasets)) if settings.documents else (None, 0)
    for number, source in enumerate(settings.datasets):
        given = 0
        for document in hub_documents(
            source.dataset,
            config=source.config,
            split=source.split,
            text_field=source.text_field,
            min_words=source.min_words,
            min_tokens=source.min_student_tokens,
            count_tokens=count_tokens,
            limit=None if share is None else share + (number < rest),
            seed=settings.seed,
        ):
            given += 1
            yield document
        share = given if share is None else share


def _local(settings: TextSource) -> Iterator[Document]:
    assert settings.path is not None  # the profile's own check
    documents = read_local(settings.path, text_field=settings.text_field, id_field=settings.id_field)
    return iter(progress(documents, desc="reading documents", unit="documents"))


def _sampled(read: Callable[[], Iterable[Document]], settings: TextSource) -> Iterable[Document]:
    """What `read` gives, or so many of it, chosen by a hash of seed and id: a longer corpus keeps most of the choice.

    To choose it reads once for the ids alone and once more for those that were chosen: those of the lowest draws.
    """
    if settings.documents is None:
        return _without_near_duplicates(read(), settings)
    draw = partial(_draw, seed=settings.seed)
    if settings.near_duplicates is None:
        last = kth_smallest((draw(document.id) for document in read()), settings.documents)
        return (document for document in read() if last is None or draw(document.id) <= last)
    ids = (document.id for document in _without_near_duplicates(read(), settings))
    chosen = set(nsmallest(settings.documents, ids, key=draw))
    return (document for document in read() if document.id in chosen)


def _draw(id: str, *, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{id}".encode()).digest()


def _without_near_duplicates(documents: Iterable[Document], settings: TextSource) -> Iterable[Document]:
    if settings.near_duplicates is None:
        return documents
    return drop_near_duplicates(documents, similarity=settings.near_duplicates)


def source_fingerprint(settings: TextSource) -> str:
    """What identifies the texts: versions of packages, or names, sizes and times of the user's files.

    Raises InputError where they are not there.
    """
    inputs: dict[str, Any] = {"version": VERSIONS["source"], **settings.model_dump(mode="json", exclude={"path"})}
    if settings.source == "installed-docs":
        inputs["versions"] = _package_versions(settings.packages)
    elif settings.source == "local":
        assert settings.path is not None  # the profile's own check
        inputs["files"] = files_fingerprint(_text_sources(settings.path))
    else:
        places = [place for source in settings.datasets for place in _places(source.dataset)]
        inputs["files"] = files_fingerprint(file for place in places for file in _files_below(place))
    return fingerprint_of(inputs)


def _places(dataset: str) -> list[Path]:
    """The folder or the files that a data set is; none for one of a hub."""
    places = sorted(map(Path, glob(dataset)))
    if not places and file_format(Path(dataset)):
        raise InputError(f"corpus.datasets: {dataset} does not exist; name data files, a folder or a hub's data set")
    return places


def _text_sources(path: Path | Sequence[Path]) -> list[Path]:
    try:
        paths = local_paths(path)
    except InputError as error:
        raise InputError(f"corpus.path: {error}") from None
    return [file for one in paths for file in (text_files(one) if one.is_dir() else [one])]


def _files_below(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def _package_versions(packages: list[str] | None) -> dict[str, str]:
    from docemb_lib.corpus.installed_docs import PACKAGES

    names = packages or PACKAGES
    distributions = _distributions()
    try:
        return {name: version(distributions[name][0]) for name in names}
    except (KeyError, PackageNotFoundError):
        missing = next(name for name in names if name not in distributions)
        raise InputError(f"corpus.packages: {missing} is not installed; install it, or leave it out") from None


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Installed distributions by import name: a look through all of site-packages, taken once."""
    return packages_distributions()


def files_fingerprint(files: Iterable[Path]) -> str:
    """What identifies files without reading them: their names, sizes and times."""
    stats = ((file, file.stat()) for file in files)
    names = "".join(f"{file} {stat.st_size} {stat.st_mtime_ns}\n" for file, stat in stats)
    return hashlib.sha256(names.encode()).hexdigest()
