"""Records: parameters, scores and traces of each run, found by fingerprint and shown as one pandas
frame.

A record is a folder `outputs/records/<notebook>/<fingerprint>/`, published whole like an artefact.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from docemb_lib.base.integrity import damaged, is_whole
from docemb_lib.settings.profile import FINAL, NOTEBOOKS
from docemb_lib.workspace import Workspace, installed_versions, is_locked, publish, write_text

if TYPE_CHECKING:
    from docemb_lib.runs.key import RunKey

logger = logging.getLogger(__name__)

RECORD = "record.json"
SCORES = "scores"  # the table that every record has; a table is a file NAME.json beside the record
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Record:
    notebook: str
    label: str  # short and readable, as in the thesis' figures
    fingerprint: str
    setting: (
        str  # covers all but the notebook and its parameters: runs of one setting are comparable
    )
    profile: str
    parameters: dict[str, Any]
    status: str = "done"  # or "failed"
    metrics: dict[str, float] = field(default_factory=dict)  # flat, e.g. "package/accuracy"
    seconds: float = 0.0
    figures: list[str] = field(default_factory=list)  # paths relative to the workspace
    student: str | None = None  # the folder of the run's student
    error: str | None = None  # of a failed run, one line
    traceback: str | None = None  # of a failed run
    versions: dict[str, str] = field(default_factory=installed_versions)
    threads: int | None = (
        None  # of torch, if it was loaded: weights and scores depend on it in the last digits
    )
    revision: str | None = None  # git commit, with "+" where the tree had changes
    # records are sorted by it, and several runs may end in one second
    finished: str = field(
        default_factory=lambda: datetime.now(UTC).isoformat(timespec="microseconds")
    )

    @classmethod
    def of(cls, key: RunKey, **result: Any) -> Self:
        """The record of the run of a key; `result` are the fields from `status` on."""
        return cls(
            key.notebook,
            key.label,
            key.fingerprint,
            key.setting,
            key.profile.name,
            key.parameters,
            **result,
        )


def save(
    workspace: Workspace,
    record: Record,
    scores: Rows = (),
    tables: Mapping[str, Rows] | None = None,
) -> Path:
    """Publish a record (scores: tidy rows; tables: rows of others by name), also over an earlier
    one.
    """

    def build(folder: Path) -> None:
        write_text(
            folder / RECORD, json.dumps(record.__dict__, indent=1, ensure_ascii=False) + "\n"
        )
        for name, rows in {**(tables or {}), SCORES: scores}.items():
            write_text(
                folder / f"{name}.json", json.dumps(list(rows), indent=1, ensure_ascii=False) + "\n"
            )

    folder = _folder(workspace, record.notebook, record.fingerprint)
    publish(
        folder,
        build,
        inputs={"notebook": record.notebook, "parameters": record.parameters},
        replace=True,
    )
    return folder


def find(workspace: Workspace, notebook: str, fingerprint: str) -> Record | None:
    folder = _folder(workspace, notebook, fingerprint)
    return _read(folder) if folder.is_dir() else None


def find_done(workspace: Workspace, notebook: str, fingerprint: str) -> Record | None:
    """The record of a run that has succeeded; None if it failed, or if there is none."""
    record = find(workspace, notebook, fingerprint)
    return record if record is not None and record.status == "done" else None


def frame(
    notebook: str | None = None, *, workspace: Workspace | None = None, failed: bool = False
) -> pd.DataFrame:
    """All finished runs (of one notebook), a row each, oldest first: label, profile, parameters,
    metrics, seconds.

    The mean over tasks is in the column `test` for notebooks that score test splits, and in
    `validation` for others. `failed=True` includes the runs that failed, with their `error`.

    Example:
        >>> from docemb_lib import records
        >>> records.frame("05_weighting")[["label", "lam", "validation"]]
    """
    return pd.DataFrame(
        {
            **{name: getattr(record, name) for name in ("notebook", "label", "profile", "status")},
            **record.parameters,
            "test" if record.notebook in FINAL else "validation": record.metrics.get("mean"),
            **{name: value for name, value in record.metrics.items() if name != "mean"},
            **{
                name: getattr(record, name)
                for name in ("seconds", "finished", "fingerprint", "student")
            },
            **({"error": record.error} if failed else {}),
        }
        for record in all_records(notebook, workspace=workspace)
        if failed or record.status == "done"
    )


def table_of(workspace: Workspace, record: Record, name: str = SCORES) -> pd.DataFrame:
    """A table that was saved with a record, by default its tidy scores; an empty frame if it has
    none of this name.
    """
    path = _folder(workspace, record.notebook, record.fingerprint) / f"{name}.json"
    return pd.DataFrame(json.loads(path.read_text(encoding="utf-8")) if path.is_file() else [])


def all_records(notebook: str | None = None, *, workspace: Workspace | None = None) -> list[Record]:
    """Every record (of one notebook), oldest first."""
    root = (workspace or Workspace()).outputs / "records"
    folders = [
        folder
        for name in ([notebook] if notebook else NOTEBOOKS)
        for folder in root.glob(f"{name}/*/")
    ]
    # A folder *.partial is a record that is being written.
    found = [
        record for folder in folders if folder.suffix != ".partial" and (record := _read(folder))
    ]
    return sorted(found, key=lambda record: (record.notebook, record.finished, record.fingerprint))


def comparable(key: RunKey, workspace: Workspace) -> list[Record]:
    """The finished runs of the key's notebook in its setting, newest first."""
    found = all_records(key.notebook, workspace=workspace)[::-1]
    return [record for record in found if record.status == "done" and record.setting == key.setting]


def _folder(workspace: Workspace, notebook: str, fingerprint: str) -> Path:
    return workspace.outputs / "records" / notebook / fingerprint


def _read(folder: Path) -> Record | None:
    """The record, or None for a damaged one or one of another version of docemb; its run counts as
    not done.
    """
    # While a record is replaced, under its lock, the folder has files of both.
    if damaged(folder) and not is_locked(folder) and not is_whole(folder):
        return None
    try:
        return Record(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError) as error:
        message = "%s is left out: it is not a record of this version (%s)"
        logger.warning(message, folder / RECORD, error)
        return None
