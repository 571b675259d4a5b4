"""A plan before it starts: its lines, what their runs need from outside, and what is missing."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pandas as pd
from rich.console import Console

from docemb_lib.base.errors import InputError
from docemb_lib.cli.terminal import print_table
from docemb_lib.corpus.sources import streamed
from docemb_lib.evaluation.benchmarks import BENCHMARKS
from docemb_lib.runs.plan import Step, runs_of
from docemb_lib.runs.progress import already_there
from docemb_lib.runs.run import Run


class Need(NamedTuple):
    """Something that a run reads from outside."""

    kind: str  # model, data set or files
    name: str


class Outlook(NamedTuple):
    """What a plan would do."""

    lines: pd.DataFrame  # a row for each line of the plan
    needs: dict[Need, list[int]]  # the numbers of the lines that need it
    missing: list[str]  # why `docemb run` would refuse now, a line each


def look_ahead(steps: Sequence[Step]) -> Outlook:
    """What the runs of a plan need that are not done. Builds nothing."""
    not_done = {run for run in runs_of(steps) if not run.is_done}
    rows = []
    needs: dict[Need, list[int]] = {}
    subjects: dict[str, list[str]] = {}  # by the reason for which `docemb run` would refuse them
    for number, step in enumerate(steps, 1):
        missing = [run for run in step.runs if run in not_done]
        checked = set()
        for run in missing:
            if run.checked_as in checked:
                continue
            checked.add(run.checked_as)
            for need in _needs_of(run):
                lines = needs.setdefault(need, [])
                if number not in lines:
                    lines.append(number)
            for check in run.checks():
                try:
                    check()
                except InputError as error:
                    subject, _, reason = str(error).partition(": ")
                    subjects.setdefault(reason, []).append(subject)
        first = step.runs[0]
        rows.append(
            {
                "line": str(number),
                "notebook": first.notebook,
                "runs": len(step.runs),
                "there": len(step.runs) - len(missing),
                "profile": first.profile.name,
                "grid, or single run": step.grid or first.label,
            }
        )
    why = [f"{', '.join(dict.fromkeys(names))}: {reason}" for reason, names in subjects.items()]
    return Outlook(pd.DataFrame(rows), needs, why)


def print_outlook(steps: Sequence[Step], console: Console) -> None:
    """Print the lines of a plan, what they need, and what is missing."""
    outlook = look_ahead(steps)
    print_table(outlook.lines, console)
    if outlook.needs:
        needs = [
            (need.kind, need.name, ", ".join(map(str, lines)))
            for need, lines in outlook.needs.items()
        ]
        print_table(pd.DataFrame(needs, columns=["needs", "which", "for lines"]), console)
    for line in outlook.missing:
        console.print(f"missing: {line}")
    console.print(
        already_there(int(outlook.lines["runs"].sum()), int(outlook.lines["there"].sum()))
    )


def _needs_of(run: Run) -> Iterator[Need]:
    """What a run reads from outside."""
    profile = run.profile
    for model in run.models_to_load:
        yield Need("model", model)
    for source in profile.text_sources:
        for name in streamed(source):
            yield Need("data set", name)
        paths = source.path if isinstance(source.path, list) else [source.path]
        for path in filter(None, paths):
            yield Need("files", str(path))
    folders = {str(name): folder for name, folder in profile.evaluation.benchmarks.items()}
    for task in profile.evaluation.tasks if run.is_final else profile.evaluation.sweep_tasks:
        benchmark = BENCHMARKS.get(task)
        if benchmark is not None:
            files = f" ({', '.join(benchmark.files)})" if benchmark.files else ""
            kind = "files" if task in folders else "data set"
            yield Need(kind, f"{folders.get(task, benchmark.hub)}{files}")
