"""How long runs took before."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from docemb_lib.runs import records
from docemb_lib.sweeps.execution import Planned
from docemb_lib.workspace import Workspace


class RunTimes:
    """How long runs of a notebook and profile took in this working folder, by its records and by
    `add`.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        for record in records.all_records(workspace=workspace):
            if record.status == "done":
                self._seconds[record.notebook, record.profile].append(record.seconds)

    def add(self, run: Planned, seconds: float) -> None:
        """Count a run that has ended just now."""
        self._seconds[run.notebook, run.profile.name].append(seconds)

    def total(self, runs: Iterable[Planned]) -> float | None:
        """Seconds of all these runs, one after the other: each takes the median of those of its
        notebook and profile.

        Returns None where no run of one of these notebooks and profiles is recorded.
        """
        total = 0.0
        for run in runs:
            known = self._seconds.get((run.notebook, run.profile.name))
            if not known:
                return None
            total += median(known)
        return total
