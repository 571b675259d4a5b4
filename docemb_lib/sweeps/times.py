"""How long runs took before."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from docemb_lib.runs import records
from docemb_lib.sweeps.execution import Planned
from docemb_lib.workspace import Workspace


class RunTimes:
    """The times of runs by notebook and profile, from the records and from `add`."""

    def __init__(self, workspace: Workspace) -> None:
        self._seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        for record in records.all_records(workspace=workspace):
            if record.status == "done":
                self._seconds[record.notebook, record.profile].append(record.seconds)

    def add(self, run: Planned, seconds: float) -> None:
        """Count a run that has ended just now."""
        self._seconds[run.notebook, run.profile.name].append(seconds)

    def total(self, runs: Iterable[Planned]) -> float | None:
        """The seconds that these runs take one after the other.

        Each counts with the median of the known runs of its notebook and profile. Returns None if
        there is none for one of the runs.
        """
        total = 0.0
        for run in runs:
            known = self._seconds.get((run.notebook, run.profile.name))
            if not known:
                return None
            total += median(known)
        return total
