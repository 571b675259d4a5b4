"""Single files: written whole or not at all, their checksums, and JSON that may be damaged."""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from docemb_lib.base.errors import InputError

Inputs = Mapping[str, Any]  # JSON; paths become strings
_digests: dict[tuple[int, ...], str] = {}  # SHA-256 by file and its state
FULL = 2**20  # a disk with fewer free bytes counts as full
logger = logging.getLogger(__name__)
MANIFEST = "artefact.json"  # of a published folder
MARKER = "whole.json"  # the manifest of a checkpoint
CARD = "README.md"  # a model card, which may gain scores later
warn_once = cache(logger.warning)


def digest_of(file: Path) -> str:
    """SHA-256 of a file in hexadecimal, computed once per process while the file is unchanged."""
    stat = file.stat()
    state = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)  # a renamed file keeps them
    if state not in _digests:
        with file.open("rb") as opened:
            _digests[state] = hashlib.file_digest(opened, "sha256").hexdigest()
    return _digests[state]


def hash_of(content: str | bytes) -> str:
    """SHA-256 of bytes, or of a text in UTF-8, in hexadecimal."""
    if isinstance(content, str):
        content = content.encode(errors="surrogatepass")
    return hashlib.sha256(content).hexdigest()


def fingerprint_of(inputs: Inputs) -> str:
    """16 hexadecimal digits of a hash of `inputs`; the order of keys does not matter.

    Raises TypeError for what is neither JSON nor a path: an array, say, is cut where it is printed.
    """
    canonical = json.dumps(
        inputs, sort_keys=True, ensure_ascii=False, default=os.fspath, separators=(",", ":")
    )
    return hash_of(canonical)[:16]


def files_of(folder: Path) -> list[Path]:
    """The files in a folder and its subfolders, relative to it."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def read_json(file: Path, mend: str) -> Any:
    """The content of a JSON file.

    Raises InputError where the file cannot be read. mend: what to do, at the end of that error.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: the file is not valid JSON ({error}); {mend}") from error


def known_encoding(name: str) -> str:
    """The name of an encoding. Raises InputError for an unknown one."""
    try:
        "".encode(name)
    except (LookupError, ValueError) as error:
        raise InputError(f"encoding: {error}; give one of Python's, e.g. cp1252") from None
    return name


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Raise InputError in place of any error while the disk of a folder is full.

    Libraries share no error for it.
    """
    try:
        yield
    except Exception as error:
        if shutil.disk_usage(folder).free >= FULL:
            raise
        mend = "make room and give the same command again"
        raise InputError(f"{folder}: the disk is full; {mend}") from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing, through a temporary sibling and one rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file or nothing, in UTF-8."""
    write_bytes(path, text.encode())


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

    A manifest that cannot be read, or is that of a folder of another name, is the one damaged file.
    """
    try:
        listed = json.loads((folder / manifest).read_text(encoding="utf-8"))
        digests = listed["files"].items()
        if listed.get("name", folder.name) != folder.name:
            raise ValueError("it is that of another folder")
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return [folder / manifest]
    files = ((folder / name, digest) for name, digest in digests)
    return [file for file, digest in files if not file.is_file() or digest_of(file) != digest]


def fault(file: Path) -> str:
    """What is wrong with a file that `damaged` names."""
    return f"{file} is {'damaged (its checksum differs)' if file.is_file() else 'missing'}"
