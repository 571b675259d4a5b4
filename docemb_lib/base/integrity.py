"""Checksums: the manifest of a published folder lists its files, and each opening compares them."""

import json
import logging
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from docemb_lib.base.files import digest_of, files_of

logger = logging.getLogger(__name__)

MANIFEST = "artefact.json"  # of a published folder
MARKER = "whole.json"  # the manifest of a checkpoint
CARD = "README.md"  # a model card, which may gain scores later

warn_once = cache(logger.warning)


def sealed(
    folder: Path,
    content: Mapping[str, object],
    manifest: str,
    files: Iterable[Path] | None = None,
) -> str:
    """The text of a folder's manifest: `content` and the checksums of all files, as JSON.

    Paths in `content` become strings. files: relative to the folder; None: all that are there.
    """
    listed = files_of(folder) if files is None else sorted(files)
    names = (name for name in listed if name.name not in (manifest, CARD))
    digests = {name.as_posix(): digest_of(folder / name) for name in names}
    sealed = {**content, "files": digests}
    return json.dumps(sealed, default=str, indent=1, ensure_ascii=False) + "\n"


def damaged(folder: Path, manifest: str) -> list[Path]:
    """The files of a published folder that are missing or differ from its manifest.

    A manifest that cannot be read is the one damaged file.
    """
    try:
        listed = json.loads((folder / manifest).read_text(encoding="utf-8"))
        digests = listed["files"].items()
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return [folder / manifest]
    files = ((folder / name, digest) for name, digest in digests)
    return [file for file, digest in files if not file.is_file() or digest_of(file) != digest]


def fault(file: Path) -> str:
    """What is wrong with a file that `damaged` names."""
    return f"{file} is {'damaged (its checksum differs)' if file.is_file() else 'missing'}"
