"""Checksums: a folder that is published lists its files in a manifest, with which every opening compares them."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from docemb_lib.errors import InputError

logger = logging.getLogger(__name__)

MANIFEST, MARKER = "artefact.json", "whole.json"  # of a published folder, and of a checkpoint
CARD = "README.md"  # a model card, which may gain scores later
MEND = "remove {} and give the same command again"

_digests: dict[tuple[int, ...], str] = {}  # SHA-256 by file and its state


def digest_of(file: Path) -> str:
    """SHA-256 of a file in hexadecimal, computed once per process and again after the file has changed."""
    stat = file.stat()
    state = stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns  # a renamed file keeps them
    if state not in _digests:
        with file.open("rb") as opened:
            _digests[state] = hashlib.file_digest(opened, "sha256").hexdigest()
    return _digests[state]


def files_of(folder: Path) -> list[Path]:
    """The files in a folder and its subfolders, relative to it."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def sealed(folder: Path, content: Mapping[str, Any], manifest: str = MANIFEST) -> str:
    """The text of a folder's manifest: `content` (JSON; paths become strings), checksums and sizes of the files."""
    names = [name for name in files_of(folder) if name.name not in (manifest, CARD)]
    files = {name.as_posix(): digest_of(folder / name) for name in names}
    sizes = {name.as_posix(): (folder / name).stat().st_size for name in names}
    listed = json.loads(json.dumps({**content, "files": files, "sizes": sizes}, default=str))
    return json.dumps({**listed, "checksum": _checksum(listed)}, indent=1, ensure_ascii=False) + "\n"


def damaged(folder: Path, manifest: str = MANIFEST) -> list[Path]:
    """The files of a published folder that are missing or differ from the manifest, or the manifest itself.

    A manifest of an earlier version, without sizes and its own checksum, is compared as far as it goes.
    """
    try:
        listed = json.loads((folder / manifest).read_text(encoding="utf-8"))
        if listed.pop("checksum", None) not in (None, _checksum(listed)):
            return [folder / manifest]
    except (OSError, ValueError, AttributeError, TypeError):
        return [folder / manifest]
    files, sizes = listed.get("files", {}), listed.get("sizes", {})
    return [folder / name for name in files if not _is_as_listed(folder / name, sizes.get(name), files[name])]


def is_whole(folder: Path) -> bool:
    """Whether a folder is there as it was published; a warning names its first damaged file, once per process."""
    if not folder.is_dir():
        return False
    if damage := damaged(folder):
        _warn(fault(damage[0]))
    return not damage


def check_whole(folder: Path) -> None:
    """Raise InputError for a published folder with a damaged file, where nothing is known of how to build it."""
    if damage := damaged(folder):
        raise InputError(f"{fault(damage[0])}; {MEND.format(folder)}")


def fault(file: Path) -> str:
    return f"{file} is {'damaged (its checksum differs)' if file.is_file() else 'missing'}"


@contextmanager
def readable(file: Path, mend: str = "") -> Iterator[None]:
    """Raise any error of reading a file as InputError of one line. mend: by default to remove its folder."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{file} cannot be read ({type(error).__name__}); {mend or MEND.format(file.parent)}"
        ) from error


def _checksum(listed: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()


def _is_as_listed(file: Path, size: int | None, digest: str) -> bool:
    return file.is_file() and size in (None, file.stat().st_size) and digest_of(file) == digest


@cache
def _warn(what: str) -> None:
    logger.warning("%s: it is not used, but built again where all that it is made from is here", what)
