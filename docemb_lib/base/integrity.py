"""Checksums: the manifest of a published folder lists its files, and each opening compares them."""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from docemb_lib.base.errors import InputError

logger = logging.getLogger(__name__)

MANIFEST = "artefact.json"  # of a published folder
MARKER = "whole.json"  # the manifest of a checkpoint
STUDENT = "docemb.json"  # the manifest of a saved student, beside what docemb alone knows of it
# Of a sentence-transformers folder; the second has the prompt, and versions of libraries.
MODULES = "modules.json"
GENERAL = "config_sentence_transformers.json"
CARD = "README.md"  # a model card, which may gain scores later

warn_once = cache(logger.warning)
_digests: dict[tuple[int, ...], str] = {}  # SHA-256 by file and its state


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


def files_of(folder: Path) -> list[Path]:
    """The files in a folder and its subfolders, relative to it."""
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def sealed(
    folder: Path,
    content: Mapping[str, object],
    manifest: str = MANIFEST,
    files: Iterable[Path] | None = None,
) -> str:
    """The text of a folder's manifest: `content` and the checksums of all files, as JSON.

    Paths in `content` become strings. files: relative to the folder; None: all that are there.
    """
    listed = files_of(folder) if files is None else sorted(files)
    names = (name for name in listed if name.name not in (manifest, CARD))
    digests = {name.as_posix(): digest_of(folder / name) for name in names}
    sealed = json.loads(json.dumps({**content, "files": digests}, default=str))
    sealed["checksum"] = _checksum(sealed)
    return json.dumps(sealed, indent=1, ensure_ascii=False) + "\n"


def damaged(folder: Path, manifest: str = MANIFEST) -> list[Path]:
    """The files of a published folder that are missing or differ from its manifest.

    A manifest that cannot be read, or differs from its own checksum, is the one damaged file.
    """
    try:
        listed = json.loads((folder / manifest).read_text(encoding="utf-8"))
        if listed.pop("checksum") != _checksum(listed):
            return [folder / manifest]
        digests = listed["files"].items()
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return [folder / manifest]
    files = ((folder / name, digest) for name, digest in digests)
    return [file for file, digest in files if not file.is_file() or digest_of(file) != digest]


def is_whole(folder: Path) -> bool:
    """Whether a folder is as it was published.

    A warning names the first damaged file, once per process.
    """
    if not folder.is_dir():
        return False
    damage = damaged(folder)
    if damage:
        warn_once("%s: it is not used; what needs it builds it again", fault(damage[0]))
    return not damage


def check_student(folder: Path) -> None:
    """Check that a saved student is as docemb has saved it.

    A folder without a manifest, or whose list of modules no longer names the manifest, is that of
    another program: sentence-transformers writes the list anew when it saves a model there. Raises
    InputError.
    """
    if not (folder / STUDENT).is_file() or _saved_by_others(folder / MODULES):
        return
    damage = damaged(folder, STUDENT)
    if damage:
        raise InputError(
            f"{fault(damage[0])}; "
            f"restore it, or remove {folder / STUDENT} if it was changed on purpose"
        )


def _saved_by_others(modules: Path) -> bool:
    """Whether a list of modules is there that does not name the manifest of a student."""
    return modules.is_file() and STUDENT.encode() not in modules.read_bytes()


def fault(file: Path) -> str:
    """What is wrong with a file that `damaged` names."""
    return f"{file} is {'damaged (its checksum differs)' if file.is_file() else 'missing'}"


def read_json(file: Path, mend: str) -> Any:
    """The content of a JSON file.

    Raises InputError where the file cannot be read. mend: what to do, at the end of that error.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: the file is not valid JSON ({error}); {mend}") from error


def _checksum(listed: object) -> str:
    return hash_of(json.dumps(listed, sort_keys=True))
