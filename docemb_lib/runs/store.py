"""The store: what is expensive is built once, published whole, and named by a hash of its inputs.

`cached(kind, inputs, build)` gives the folder `outputs/artefacts/<kind>/<fingerprint>/`. It is
built in a sibling under a file lock and renamed when it is complete. Therefore no reader finds half
of it, two builders never collide, and a kill costs only what is being built. Its manifest holds the
checksums of its files, which are compared when a process first opens the folder.
"""

import logging
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from filelock import FileLock, Timeout

from docemb_lib.base.errors import InputError
from docemb_lib.base.files import (
    MANIFEST,
    Inputs,
    damaged,
    fault,
    fingerprint_of,
    room_in,
    sealed,
    warn_once,
    write_text,
)
from docemb_lib.base.progress import stopped
from docemb_lib.settings.files import find_root, working_folder

logger = logging.getLogger(__name__)

# Raise it when the same inputs would give another result, or files of another form.
VERSION = 16
PARTIAL = ".partial"  # the end of the name of a folder that is being built
# The packages that results depend on.
PACKAGES = (
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

Build = Callable[[Path], None]  # writes files into a folder
_opened: set[tuple[Path, int, int]] = set()  # manifests whose files this process has compared
_beside: ContextVar[Path | None] = ContextVar("_beside", default=None)  # set by `kept_beside`


def outputs() -> Path:
    """The folder `outputs` of the working folder. Raises InputError outside of one.

    There, it is the folder that `kept_beside` has named.
    """
    beside = None if working_folder() else _beside.get()
    folder = beside or find_root() / "outputs"
    if folder.is_file():
        raise InputError(f"{folder}: outputs are written there, but this is a file; move it away")
    return folder


@contextmanager
def kept_beside(model: Path) -> Iterator[None]:
    """Outside of a working folder, let `<model>.embeddings` be the outputs, as long as this lasts.

    Inside the folder of a student, people would upload them with it.
    """
    path = model.absolute()
    before = _beside.set(path.with_name(f"{path.name}.embeddings"))
    try:
        yield
    finally:
        _beside.reset(before)


def relative(path: Path) -> str:
    """A path for messages and records: relative to the working folder if it lies in it."""
    path = Path(os.path.abspath(path))
    root = find_root()
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def cached(
    kind: str,
    inputs: Inputs,
    build: Build,
    *,
    resumable: bool = False,
    wait: bool = True,
) -> Path:
    """Return the folder made from `inputs`, which `build(folder)` fills if it is not there.

    The name of the folder identifies its content in the inputs of others. A folder with a damaged
    file is built again, and a warning names the file. Raises InputError where the disk is full, and
    Stopped, which names the kind, after Ctrl-C.

    Args:
        resumable: start with the files of an interrupted build, and not with an empty folder.
        wait: for another process that builds the folder; if not, filelock.Timeout is raised.

    Example:
        >>> def build(folder):
        ...     (folder / "a.txt").write_text("Hello")
        >>> folder = cached("greeting", {"name": "you"}, build)
        >>> sorted(path.name for path in folder.iterdir())
        ['a.txt', 'artefact.json']
    """
    folder = folder_of(kind, inputs)
    if is_whole(folder):
        return folder
    with locked(folder, wait=wait):
        if not is_whole(folder):  # another process may have built it meanwhile
            _build(folder, kind, inputs, build, resumable=resumable)
    return folder


def folder_of(kind: str, inputs: Inputs) -> Path:
    """The folder that is made from `inputs`, whether or not it is there."""
    return shelf_of(kind) / fingerprint_of({"kind": kind, "version": VERSION, **inputs})


def shelf_of(kind: str) -> Path:
    """The folder of all artefacts of a kind."""
    return outputs() / "artefacts" / kind


def is_whole(folder: Path) -> bool:
    """Whether a folder is as it was published, and at its place.

    Its files are compared once per process. A warning names the first damaged one.
    """
    if not folder.is_dir():
        return False
    with suppress(OSError):  # the manifest is missing
        if _state(folder) in _opened:
            return True
    damage = damaged(folder, MANIFEST)
    if damage:
        warn_once("%s: it is not used; what needs it builds it again", fault(damage[0]))
        return False
    _opened.add(_state(folder))
    return True


def _state(folder: Path) -> tuple[Path, int, int]:
    """A folder and the state of its manifest, which is another one after a new build."""
    stat = (folder / MANIFEST).stat()
    return folder, stat.st_ino, stat.st_mtime_ns


def _build(folder: Path, kind: str, inputs: Inputs, build: Build, *, resumable: bool) -> None:
    """Build a folder beside itself and rename it. This process holds its lock."""
    partial = folder.with_name(folder.name + PARTIAL)
    if not resumable:
        shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(exist_ok=True)
    try:
        with room_in(folder.parent):  # measured before the files are removed
            build(partial)
            content = {"name": folder.name, "inputs": inputs, "versions": installed_versions()}
            write_text(partial / MANIFEST, sealed(partial, content, MANIFEST))
    except BaseException as error:
        if not resumable or not any(partial.iterdir()):
            shutil.rmtree(partial, ignore_errors=True)
        if type(error) is KeyboardInterrupt:  # not Stopped, which says more
            name = kind.partition("/")[0].replace("-", " ")
            raise stopped(f"stopped while building {name}") from None
        raise
    publish(partial, folder)
    _opened.add(_state(folder))


def publish(partial: Path, folder: Path) -> None:
    """Let a complete folder take the place of another in one rename."""
    if folder.exists():
        shutil.rmtree(folder)
    partial.rename(folder)


@contextmanager
def locked(target: Path, *, wait: bool = True) -> Iterator[None]:
    """Allow one process at a time to write `target`.

    The operating system frees the lock of a killed process. Without `wait`, filelock.Timeout is
    raised where another process holds it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_name(f".{target.name}.lock"))
    try:
        acquired = lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise
        logger.warning("waiting for another process that is building %s", target)
        acquired = lock.acquire()
    with acquired:
        yield


def link(shelf: str, name: str, target: Path) -> Path:
    """Let `outputs/<shelf>/<name>` lead to `target` in one step, and return this link.

    Raises InputError where something else than a link is in its place.
    """
    path = outputs() / shelf / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_symlink():
        raise InputError(f"{path} is in the way: it is no link of docemb's; move it aside")
    temporary = path.with_name(f".{name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    # A relative link stays right where the whole folder is moved.
    temporary.symlink_to(os.path.relpath(target, path.parent))
    os.replace(temporary, path)
    return path


@cache  # reading the metadata of packages takes tens of milliseconds
def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
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
