"""Workspace: artefacts, each built once, published whole, and named by a hash of its inputs.

An artefact is a folder `outputs/artefacts/<kind>/<fingerprint>/`. It is built in a sibling folder
under a file lock and renamed when it is complete. Therefore no reader finds half of it, two
builders never collide, and a kill costs only the artefact that is being built. Links such as
`outputs/students/<label>` name artefacts for people.
"""

import json
import logging
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from docemb_lib.base.errors import InputError
from docemb_lib.base.integrity import MANIFEST, damaged, hash_of, is_whole, sealed
from docemb_lib.base.progress import stopped
from docemb_lib.settings.files import find_root, folder_above

logger = logging.getLogger(__name__)

FULL = 2**20  # a disk with fewer free bytes counts as full
# Raise it when the same inputs would give another result, or files of another form.
VERSION = 11
# The packages that results depend on.
RECORDED_VERSIONS = (
    "docemb",
    "torch",
    "transformers",
    "sentence-transformers",
    "gensim",
    "nltk",
    "scikit-learn",
    "bm25s",
    "numpy",
)

Inputs = Mapping[str, Any]  # JSON; paths become strings
Build = Callable[[Path], None]  # writes the files of an artefact into a folder


@dataclass(frozen=True)
class Artefact:
    """A finished folder. `fingerprint` identifies its content in the inputs of other artefacts."""

    fingerprint: str
    path: Path

    @property
    def manifest(self) -> dict[str, Any]:
        """Inputs, versions, seconds taken and checksums, as written at publishing."""
        return json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))


class Workspace:
    """The `outputs` folder of a docemb checkout.

    root: the folder that holds `params/`; None: as `find_root` finds it.

    Example:
        >>> from docemb_lib import Workspace
        >>> def build(folder):
        ...     (folder / "a.txt").write_text("Hello")
        >>> artefact = Workspace().artefact("greeting", {"name": "you"}, build)
        >>> sorted(path.name for path in artefact.path.iterdir())
        ['a.txt', 'artefact.json']
    """

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root).resolve() if root is not None else find_root()
        self.outputs = self.root / "outputs"

    def artefact(
        self, kind: str, inputs: Inputs, build: Build, *, resumable: bool = False
    ) -> Artefact:
        """The artefact made from `inputs`, which `build(folder)` makes if it is missing.

        A `resumable` build starts with the files of an interrupted one, any other with an empty
        folder. An artefact with a damaged file is built again, and a warning names the file.
        """
        artefact = self._named(kind, inputs)
        if not is_whole(artefact.path):
            publish(artefact.path, build, inputs=inputs, name=kind, resumable=resumable)
        return artefact

    def is_built(self, kind: str, inputs: Inputs) -> bool:
        """Whether the artefact made from `inputs` is there."""
        return is_whole(self._named(kind, inputs).path)

    def unfinished(self, kind: str, inputs: Inputs) -> Path | None:
        """The folder in which another process builds an artefact; None: the artefact is there."""
        path = self._named(kind, inputs).path
        return None if is_whole(path) else path.with_name(f"{path.name}.partial")

    def alike(self, kind: str, inputs: Inputs, *, but: str) -> Iterator[Artefact]:
        """The finished artefacts of a kind whose inputs differ in one of these at most, `but`."""
        for file in sorted((self.outputs / "artefacts" / kind).glob(f"*/{MANIFEST}")):
            artefact = Artefact(file.parent.name, file.parent)
            with suppress(OSError, ValueError, LookupError):  # a damaged manifest
                theirs = {**inputs, but: artefact.manifest["inputs"][but]}
                if self._named(kind, theirs) == artefact and is_whole(artefact.path):
                    yield artefact

    def _named(self, kind: str, inputs: Inputs) -> Artefact:
        fingerprint = fingerprint_of({"kind": kind, "version": VERSION, **inputs})
        return Artefact(fingerprint, self.outputs / "artefacts" / kind / fingerprint)

    def link(self, shelf: str, name: str, target: Path) -> Path:
        """Link `outputs/<shelf>/<name>` to `target`, and return the link.

        An older link is replaced in one step. Raises InputError where something else is in its
        place.
        """
        link = self.outputs / shelf / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.exists() and not link.is_symlink():
            raise InputError(f"{link} is in the way: it is no link of docemb's; move it aside")
        temporary = link.with_name(f".{name}.{os.getpid()}")
        temporary.unlink(missing_ok=True)
        # A relative link stays right where the whole folder is moved.
        temporary.symlink_to(os.path.relpath(target, link.parent))
        os.replace(temporary, link)
        return link

    def relative(self, path: Path) -> str:
        """A path for messages, relative to the root if it lies under it."""
        path = Path(os.path.abspath(path))
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)


def workspace_around() -> Workspace | None:
    """The workspace of the working folder around the working directory, if there is one."""
    root = folder_above()
    return None if root is None else Workspace(root)


def fingerprint_of(inputs: Inputs) -> str:
    """16 hexadecimal digits of a hash of `inputs`; the order of keys does not matter."""
    canonical = json.dumps(
        inputs, sort_keys=True, ensure_ascii=False, default=str, separators=(",", ":")
    )
    return hash_of(canonical)[:16]


def publish(
    folder: Path,
    build: Build,
    *,
    inputs: Inputs,
    name: str = "files",
    resumable: bool = False,
    replace: bool = False,
) -> None:
    """Build `folder` in a sibling and rename it, under a lock.

    A folder that is there and whole stays, unless `replace` is set. A `resumable` build starts with
    the files of an interrupted one. Raises InputError where the disk is full, and Stopped, which
    gives the `name` of the artefact, after Ctrl-C.
    """
    with locked(folder):
        if not replace and not damaged(folder):
            return  # another process has built it meanwhile
        partial = folder.with_name(f"{folder.name}.partial")
        if not resumable:
            shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(exist_ok=True)
        start = time.perf_counter()
        try:
            build(partial)
            seconds = round(time.perf_counter() - start, 3)
            content = {"inputs": inputs, "versions": installed_versions(), "seconds": seconds}
            write_text(partial / MANIFEST, sealed(partial, content))
        except BaseException as error:
            # The room is measured before the files are removed. Libraries share no error for it.
            is_full = isinstance(error, Exception) and shutil.disk_usage(partial).free < FULL
            if not resumable or not any(partial.iterdir()):
                shutil.rmtree(partial, ignore_errors=True)
            if is_full:
                raise InputError(
                    f"{folder.parent}: the disk is full; make room and give the same command again"
                ) from error
            if type(error) is KeyboardInterrupt:  # not Stopped, which says more
                raise stopped(f"stopped while building {name.replace('-', ' ')}") from None
            raise
        if folder.exists():
            shutil.rmtree(folder)
        partial.rename(folder)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing, through a temporary sibling and one rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    os.replace(temporary, path)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file or nothing, in UTF-8."""
    write_bytes(path, text.encode())


@contextmanager
def locked(target: Path, *, wait: bool = True) -> Iterator[None]:
    """Allow one builder of `target` at a time.

    The operating system frees the lock of a killed process. Without `wait`, filelock.Timeout is
    raised where another process builds `target`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        acquired = lock.acquire(timeout=0.1)  # `is_locked` holds a lock for a moment
    except Timeout:
        if not wait:
            raise
        logger.warning("waiting for another process that is building %s", target)
        acquired = lock.acquire()
    with acquired:
        yield


def is_locked(target: Path) -> bool:
    """Whether a process builds `target` at this moment, see `locked`."""
    if not target.with_name(f".{target.name}.lock").is_file():
        return False
    try:
        with locked(target, wait=False):
            return False
    except Timeout:
        return True


@cache  # reading the metadata of packages takes tens of milliseconds
def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    versions = {"python": platform.python_version()}
    for name in RECORDED_VERSIONS:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def revision(root: Path) -> str | None:
    """The git commit of the checkout at `root`, or None outside git.

    A "+" at its end says that tracked files differ from the commit.
    """
    command = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        output = subprocess.check_output(
            command, stderr=subprocess.DEVNULL, text=True, timeout=10
        ).strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return output or None
