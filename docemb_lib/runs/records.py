"""Records: the parameters, scores and traces of each run, read from the folders of runs.

The record of a run is the file `run.json` of its folder, see `execution`; its tables lie beside it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from docemb_lib.base.files import digest_of, fingerprint_of, write_text
from docemb_lib.runs.identity import RunIdentity
from docemb_lib.runs.store import PARTIAL, VERSION, outputs
from docemb_lib.settings.files import find_root
from docemb_lib.settings.notebooks import REGISTRY, notebook_named

logger = logging.getLogger(__name__)

RECORD = "run.json"
SCORES = "scores"  # the table that every record has; a table is a file NAME.json beside the record
# The variable that tells a kernel which folder its run fills.
EXECUTED = "DOCEMB_EXECUTED_RUN"
FAILED = ".failed"  # the end of the name of a failed run's folder
COLLAPSE_MEND = (
    "train with a structural loss beside the contextual one, or take the contextual loss infonce."
)


@dataclass(frozen=True)
class Record:
    """What one run leaves: its parameters, its numbers, and how they were made."""

    notebook: str
    label: str  # short and readable, as in the thesis' figures
    key: str  # a hash of all that the results depend on
    setting: str  # covers all but notebook and parameters: runs of one setting are comparable
    profile: str
    parameters: dict[str, Any]
    status: str = "done"  # or "failed"
    metrics: dict[str, float] = field(default_factory=dict)  # flat, e.g. "package/accuracy"
    seconds: float = 0.0  # of the CPU, by its own process: without pauses and other runs
    student: str | None = None  # the folder of the run's student
    shown: list[str] = field(default_factory=list)  # the keys of the runs that it stands beside
    error: str | None = None  # of a failed run, one line
    traceback: str | None = None  # of a failed run
    # Files of code of one's own, with their SHA-256.
    sources: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)  # what `setting` is a hash of
    versions: dict[str, str] = field(default_factory=dict)  # of Python and of packages
    revision: str | None = None  # git commit, with "+" where the tree had changes
    # Records are sorted by the time of their end. Several runs may end in one second.
    finished: str = field(
        default_factory=lambda: datetime.now(UTC).isoformat(timespec="microseconds")
    )
    folder: Path = Path()  # where it was read; not in the file

    @property
    def student_folder(self) -> Path | None:
        """The student of the run; None where there was none or it is gone."""
        folder = find_root() / self.student if self.student else None
        return folder if folder is not None and folder.is_dir() else None

    def write(self, folder: Path, tables: Mapping[str, pd.DataFrame]) -> None:
        """Write the tables and then the record into the folder of a run."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            write_text(folder / f"{name}.json", table.to_json(orient="records") + "\n")
        fields = {"version": VERSION, **asdict(self)}
        del fields["folder"]
        fields["tables"] = {name: digest_of(folder / f"{name}.json") for name in tables}
        fields["checksum"] = fingerprint_of(fields)
        write_text(folder / RECORD, json.dumps(fields, indent=1, ensure_ascii=False) + "\n")

    def table(self, name: str = SCORES) -> pd.DataFrame:
        """A table that was saved with the record, by default its tidy scores.

        The frame is empty if the record has no table of this name.
        """
        path = self.folder / f"{name}.json"
        return pd.DataFrame(json.loads(path.read_text(encoding="utf-8")) if path.is_file() else [])


def read(folder: Path) -> Record | None:
    """The record in the folder of a run.

    None: there is none, or it is damaged or of another version of docemb; then the run is not done.
    """
    file = folder / RECORD
    if not file.is_file():
        return None
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        checksum = fields.pop("checksum")
        if fields["version"] != VERSION:
            raise ValueError(f"its version is not {VERSION}")
        digests = {name: digest_of(folder / f"{name}.json") for name in fields["tables"]}
        if fingerprint_of(fields | {"tables": digests}) != checksum:
            raise ValueError("it or a table beside it has been changed")
        del fields["version"], fields["tables"]
        if fields["notebook"] != folder.parent.name:
            raise ValueError("it is of another notebook")
        return Record(**fields, folder=folder)
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        logger.warning("%s is left out: it is not a record of this version (%s)", file, error)
        return None


def all_records(notebook: str | None = None) -> list[Record]:
    """Every record, or those of one notebook; the oldest comes first.

    In the kernel that executes a run, its record is there before the run is published.
    """
    filled = filled_here()
    records = []
    for name in [notebook] if notebook else REGISTRY:
        for file in (outputs() / "runs").glob(f"{name}/*/{RECORD}"):
            folder = file.parent
            is_replaced = folder.with_name(folder.name + PARTIAL) == filled
            if is_replaced or (folder.suffix == PARTIAL and folder != filled):
                continue
            record = read(folder)
            if record is not None:
                records.append(record)
    return sorted(records, key=lambda record: (record.notebook, record.finished, record.key))


def filled_here() -> Path | None:
    """The folder that this process fills, if it is the kernel of an executed run."""
    told = os.environ.get(EXECUTED)
    return None if told is None else Path(told)


def frame(notebook: str | None = None, *, failed: bool = False) -> pd.DataFrame:
    """All finished runs, or those of one notebook, a row each; the oldest comes first.

    The columns are label, profile, parameters, metrics and seconds. The mean over tasks is in the
    column `test` for notebooks that score test splits, and in `validation` for others.
    `failed=True` includes the runs that failed, with their `error`.

    notebook: its name or number. Raises InputError for an unknown one.

    Example:
        >>> from docemb_lib import records
        >>> records.frame("05_weighting")[["label", "lam", "validation"]]
    """
    rows = []
    for record in all_records(None if notebook is None else notebook_named(notebook)):
        if failed or record.status == "done":
            rows.append(row_of(record, with_error=failed))
    return pd.DataFrame(rows)


def row_of(record: Record, *, with_error: bool) -> dict[str, object]:
    """A record as a row of `frame`."""
    row = {name: getattr(record, name) for name in ("notebook", "label", "profile", "status")}
    row |= record.parameters
    metrics = dict(record.metrics)
    row["test" if REGISTRY[record.notebook].final else "validation"] = metrics.pop("mean", None)
    row |= metrics
    row |= {name: getattr(record, name) for name in ("seconds", "finished", "key", "student")}
    if with_error:
        row["error"] = record.error
    return row


def comparable(run: RunIdentity) -> list[Record]:
    """The finished runs of the run's notebook in its setting; the newest comes first."""
    newest_first = reversed(all_records(run.notebook))
    return [r for r in newest_first if r.status == "done" and r.setting == run.setting]


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
