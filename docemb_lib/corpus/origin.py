"""From a profile's corpus section to documents, and what identifies them without reading them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from docemb_lib.corpus.sources import Document, hub_documents, local_documents, text_files
from docemb_lib.errors import InputError
from docemb_lib.settings import Corpus
from docemb_lib.workspace import fingerprint_of

RECIPE = 1  # raised whenever the same sources would be read or cleaned into other documents


def read_documents(settings: Corpus) -> list[Document]:
    """All documents of the corpus, at most `settings.documents` of each local or installed source."""
    if settings.source == "hub":
        assert settings.documents is not None  # the profile's own check
        share = settings.documents // len(settings.datasets)
        return [
            document
            for number, source in enumerate(settings.datasets)
            for document in hub_documents(
                source.dataset,
                config=source.config,
                split=source.split,
                text_field=source.text_field,
                min_words=source.min_words,
                limit=share + (number < settings.documents % len(settings.datasets)),
                seed=settings.seed,
            )
        ]
    if settings.source == "local":
        assert settings.path is not None  # the profile's own check
        documents = local_documents(settings.path, text_field=settings.text_field, id_field=settings.id_field)
    else:
        from docemb_lib.corpus.installed_docs import PACKAGES, installed_docs

        documents = installed_docs(settings.packages or PACKAGES)
    return _sample(documents, settings.documents, settings.seed)


def source_fingerprint(settings: Corpus) -> str:
    """What identifies the texts: versions of packages, or names, sizes and times of the user's files.

    Raises InputError where they are not there.
    """
    inputs: dict[str, Any] = {"recipe": RECIPE, **settings.model_dump(mode="json", exclude={"path"})}
    if settings.source == "installed-docs":
        inputs["versions"] = _package_versions(settings.packages)
    elif settings.source == "local":
        assert settings.path is not None  # the profile's own check
        if not settings.path.exists():
            raise InputError(f"corpus.path: {settings.path} does not exist; name a folder of .txt/.md or a .jsonl file")
        path = settings.path
        files = text_files(path) if path.is_dir() else [path]
        inputs["files"] = hashlib.sha256("".join(map(_identity, files)).encode()).hexdigest()
    return fingerprint_of(inputs)


def _sample(documents: list[Document], n: int | None, seed: int) -> list[Document]:
    """`n` of the documents, chosen by a hash of seed and id, so that a longer corpus keeps most of the choice."""
    if n is None or n >= len(documents):
        return documents
    chosen = sorted(documents, key=lambda d: hashlib.sha256(f"{seed}\0{d.id}".encode()).digest())[:n]
    return sorted(chosen)


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


def _identity(file: Path) -> str:
    stat = file.stat()
    return f"{file} {stat.st_size} {stat.st_mtime_ns}\n"
