"""Records: the parameters, scores and traces of each run, as one folder or one pandas frame.

A record is found by the fingerprint of its run. It is a folder
`outputs/records/<notebook>/<fingerprint>/`, published whole like an artefact.
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

from docemb_lib.base.integrity import is_whole
from docemb_lib.settings.notebooks import REGISTRY
from docemb_lib.workspace import (
    VERSION,
    Workspace,
    publish,
    write_text,
)

if TYPE_CHECKING:
    from docemb_lib.runs.key import RunKey

logger = logging.getLogger(__name__)

RECORD = "record.json"
SCORES = "scores"  # the table that every record has; a table is a file NAME.json beside the record
COLLAPSE_MEND = (
    "train with a structural loss beside the contextual one, or take the contextual loss infonce."
)
Rows = Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class Record:
    """What one run leaves: its parameters, its numbers, and how they were made."""

    notebook: str
    label: str  # short and readable, as in the thesis' figures
    fingerprint: str
    setting: str  # covers all but notebook and parameters: runs of one setting are comparable
    profile: str
    parameters: dict[str, Any]
    status: str = "done"  # or "failed"
    metrics: dict[str, float] = field(default_factory=dict)  # flat, e.g. "package/accuracy"
    seconds: float = 0.0
    figures: list[str] = field(default_factory=list)  # paths relative to the workspace
    student: str | None = None  # the folder of the run's student
    error: str | None = None  # of a failed run, one line
    traceback: str | None = None  # of a failed run
    # Files of code of one's own, with their SHA-256.
    sources: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)  # what `setting` is a hash of
    revision: str | None = None  # git commit, with "+" where the tree had changes
    # Records are sorted by the time of their end. Several runs may end in one second.
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
            sources=key.sources,
            inputs=key.inputs,
            **result,
        )

    def changes(self, key: RunKey) -> list[str]:
        """What this run depends on and what is another in the run of a key, a line each."""
        before = {**self.inputs, "code": self.sources, "parameters": self.parameters}
        after = {**key.inputs, "code": key.sources, "parameters": key.parameters}
        return [f"{name} changed" for name in after if before.get(name) != after[name]]


def save(
    workspace: Workspace,
    record: Record,
    scores: Rows = (),
    tables: Mapping[str, Rows] | None = None,
) -> Path:
    """Publish a record and return its folder. An earlier record of the same run is replaced.

    scores: the tidy rows of the table `scores`; tables: the rows of further tables, by name.
    """
    contents: dict[str, object] = {RECORD: {"version": VERSION, **record.__dict__}}
    for name, rows in {**(tables or {}), SCORES: scores}.items():
        contents[f"{name}.json"] = list(rows)

    def build(folder: Path) -> None:
        for name, content in contents.items():
            write_text(folder / name, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    folder = _folder(workspace, record.notebook, record.fingerprint)
    inputs = {"notebook": record.notebook, "parameters": record.parameters}
    publish(folder, build, inputs=inputs, name="record", replace=True)
    return folder


def find(workspace: Workspace, notebook: str, fingerprint: str) -> Record | None:
    """The record of a run, whether it succeeded or failed; None if there is none."""
    folder = _folder(workspace, notebook, fingerprint)
    return _read(folder) if folder.is_dir() else None


def find_done(workspace: Workspace, notebook: str, fingerprint: str) -> Record | None:
    """The record of a run that has succeeded; None if it failed, or if there is none."""
    record = find(workspace, notebook, fingerprint)
    return record if record is not None and record.status == "done" else None


def frame(
    notebook: str | None = None, *, workspace: Workspace | None = None, failed: bool = False
) -> pd.DataFrame:
    """All finished runs, or those of one notebook, a row each; the oldest comes first.

    The columns are label, profile, parameters, metrics and seconds. The mean over tasks is in the
    column `test` for notebooks that score test splits, and in `validation` for others.
    `failed=True` includes the runs that failed, with their `error`.

    Example:
        >>> from docemb_lib import records
        >>> records.frame("05_weighting")[["label", "lam", "validation"]]
    """
    rows = []
    for record in all_records(notebook, workspace=workspace):
        if failed or record.status == "done":
            rows.append(row_of(record, with_error=failed))
    return pd.DataFrame(rows)


def row_of(record: Record, *, with_error: bool) -> dict[str, object]:
    """A record as a row of `frame`."""
    fields = record.__dict__
    row = {name: fields[name] for name in ("notebook", "label", "profile", "status")}
    row |= record.parameters
    metrics = dict(record.metrics)
    row["test" if REGISTRY[record.notebook].final else "validation"] = metrics.pop("mean", None)
    row |= metrics
    row |= {name: fields[name] for name in ("seconds", "finished", "fingerprint", "student")}
    if with_error:
        row["error"] = record.error
    return row


def table_of(workspace: Workspace, record: Record, name: str = SCORES) -> pd.DataFrame:
    """A table that was saved with a record, by default its tidy scores.

    The frame is empty if the record has no table of this name.
    """
    path = _folder(workspace, record.notebook, record.fingerprint) / f"{name}.json"
    return pd.DataFrame(json.loads(path.read_text(encoding="utf-8")) if path.is_file() else [])


def all_records(notebook: str | None = None, *, workspace: Workspace | None = None) -> list[Record]:
    """Every record, or those of one notebook; the oldest comes first."""
    root = (workspace or Workspace()).outputs / "records"
    records = []
    for name in [notebook] if notebook else REGISTRY:
        for folder in root.glob(f"{name}/*/"):
            if folder.suffix == ".partial":  # this record is being written
                continue
            record = _read(folder)
            if record is not None:
                records.append(record)
    return sorted(records, key=lambda r: (r.notebook, r.finished, r.fingerprint))


def comparable(key: RunKey, workspace: Workspace) -> list[Record]:
    """The finished runs of the key's notebook in its setting; the newest comes first."""
    newest_first = reversed(all_records(key.notebook, workspace=workspace))
    return [r for r in newest_first if r.status == "done" and r.setting == key.setting]


def collapse_note(metrics: Mapping[str, float]) -> str:
    """What to change where the student of a run has collapsed; "" where it has not.

    metrics: of the run's record, see `Run.metrics`.
    """
    if not metrics.get("collapsed"):
        return ""
    spread = metrics["spread"]
    before = metrics["spread_before"]
    return (
        f"The student has collapsed: the mean cosine distance between its embeddings of two "
        f"documents is {spread:.1g}, and was {before:.1g} before training; {COLLAPSE_MEND}"
    )


def _folder(workspace: Workspace, notebook: str, fingerprint: str) -> Path:
    return workspace.outputs / "records" / notebook / fingerprint


def _read(folder: Path) -> Record | None:
    """The record in a folder; None for a damaged one or one of another version of docemb.

    The run of such a record counts as not done.
    """
    if not is_whole(folder):
        return None
    try:
        fields = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        if fields.pop("version") != VERSION:
            raise ValueError(f"its version is not {VERSION}")
        return Record(**fields)
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        message = "%s is left out: it is not a record of this version (%s)"
        logger.warning(message, folder / RECORD, error)
        return None
