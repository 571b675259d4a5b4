"""Which checkpoints a run may go on from: whole ones, of the same configuration, of as many processes.

The Trainer writes checkpoints in place. Ours get a marker, written after everything else, that says what belongs to
them; a folder whose marker is missing or whose files are short counts as torn, and the one before it is taken.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from docemb_lib.errors import InputError

logger = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
MARKER = "whole.json"
LOG = "log.jsonl"  # beside the checkpoints, see `callbacks.Log`


class Identity(NamedTuple):
    """What a checkpoint must share with the run that goes on from it."""

    configuration: str  # fingerprint of settings, objective and documents
    processes: int


class Last(NamedTuple):
    path: Path
    batch_tokens: int  # the budget it was computed with: another would round differently


def mark_whole(checkpoint: Path, identity: Identity, *, batch_tokens: int) -> None:
    """Declare a checkpoint finished."""
    files = {path.name: path.stat().st_size for path in sorted(checkpoint.iterdir()) if path.name != MARKER}
    content = {**identity._asdict(), "batch_tokens": batch_tokens, "files": files}
    temporary = checkpoint / f".{MARKER}"
    temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
    temporary.replace(checkpoint / MARKER)


def last_whole(folder: Path, identity: Identity) -> Last | None:
    """The newest whole checkpoint in `folder`, None where there is none; torn ones are skipped with a warning.

    Raises InputError for a checkpoint of another configuration or number of processes.
    """
    found = [path for path in folder.glob("checkpoint-*") if path.name.removeprefix("checkpoint-").isdigit()]
    for checkpoint in sorted(found, key=lambda path: int(path.name.split("-")[1]), reverse=True):
        marker = _read_marker(checkpoint)
        if marker is None:
            logger.warning("%s is torn (its writing was interrupted): going on from the one before it", checkpoint)
            continue
        if marker["configuration"] != identity.configuration:
            raise InputError(
                f"{checkpoint}: from a run with other settings, documents or versions; remove {folder} to start anew"
            )
        if marker["processes"] != identity.processes:
            raise InputError(
                f"{checkpoint}: from a run of {marker['processes']} processes, this one has {identity.processes}; "
                f"start as many, or remove {folder} to start anew"
            )
        return Last(checkpoint, marker["batch_tokens"])
    return None


def remove_torn(folder: Path) -> None:
    """Remove torn checkpoints: the Trainer would count them among those it keeps, and drop a whole one for them."""
    for path in folder.glob("checkpoint-*"):
        if path.is_dir() and _read_marker(path) is None:
            shutil.rmtree(path)


def remove_checkpoints(folder: Path) -> None:
    """Remove what `train_objective` left in `folder`, once its result is saved; what trackers wrote stays."""
    for path in (folder / CHECKPOINTS).glob("checkpoint-*"):
        shutil.rmtree(path, ignore_errors=True)
    (folder / CHECKPOINTS / LOG).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty, or not there
        (folder / CHECKPOINTS).rmdir()


def _read_marker(checkpoint: Path) -> dict[str, Any] | None:
    try:
        marker: dict[str, Any] = json.loads((checkpoint / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    for name, size in marker["files"].items():
        file = checkpoint / name
        if not file.is_file() or file.stat().st_size != size:
            return None
    return marker
