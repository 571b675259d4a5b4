"""What commands show of runs: a plan before it begins, recorded runs, and what a plan has found."""

from collections.abc import Mapping, Sequence

import nbformat
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.cli.terminal import console, print_lines, print_table
from docemb_lib.evaluation.scoreboard import METRIC_NAMES, listed, main_rows
from docemb_lib.evaluation.uncertainty import OVERALL
from docemb_lib.runs import records
from docemb_lib.runs.execution import NOTEBOOK
from docemb_lib.runs.kernels import printed, tagged
from docemb_lib.runs.models import models_of_table
from docemb_lib.runs.plan import Step, runs_of
from docemb_lib.runs.run import Run
from docemb_lib.runs.scores import Final
from docemb_lib.runs.store import link, relative
from docemb_lib.runs.sweep import already_there
from docemb_lib.settings.labels import typeset
from docemb_lib.settings.notebooks import EVALUATION, SIMDE
from docemb_lib.thesis.comparison import short_labels

TERMS = (  # of the table of scores
    "fitted on: where the words and directions of a model are from (task: its texts, without "
    "labels); centred: minus the mean embedding of these texts; plain sum: of both losses, "
    "without λ."
)
RUN_COLUMNS = (
    *("notebook", "label", "profile", "seed", "status"),
    *("validation", "test", "collapsed", "seconds"),
)


def print_plan(steps: Sequence[Step]) -> None:
    """Print the lines of a plan, what is done of each, and what the other runs lack.

    Builds nothing.
    """
    missing: list[Run] = []
    for step in steps:
        first = step.runs[0]
        not_done = [run for run in step.runs if not run.is_done]
        missing += not_done
        runs = already_there(len(step.runs), len(step.runs) - len(not_done))
        name = step.grid or first.label
        console.print(f"{first.notebook}  {name}  ({first.profile.name}): {runs}")
    for problem in _problems(missing):
        console.print(f"missing: {problem}")
    count = len(runs_of(steps))
    console.print(already_there(count, count - len(missing)))


def _problems(runs: Sequence[Run]) -> list[str]:
    """Why `docemb run` would refuse these runs now, each reason once."""
    alike = {run.checked_as: run for run in runs}  # runs with the same checks
    problems = []
    for check in (check for run in alike.values() for check in run.checks()):
        try:
            check()
        except InputError as error:
            problems.append(str(error))
    return [*dict.fromkeys(problems)]


def print_runs(frame: pd.DataFrame) -> None:
    """Print recorded runs, a row each; `docemb results --csv` has every column.

    frame: see `records.frame`.
    """
    if frame.empty:
        console.print("No recorded runs yet; `docemb run` makes some.")
        return
    frame = frame.assign(seconds=frame["seconds"].round())
    print_table(frame[[name for name in RUN_COLUMNS if name in frame and frame[name].any()]])


def print_report(planned: Sequence[Run], *, whole_plan: bool) -> None:
    """Print what was found, the models that decide it in one table, and where everything is.

    Without final evaluations those of SimDE are shown.

    whole_plan: what the last of them has found; otherwise what every run has.
    """
    done = _done(planned)
    final: dict[Run, records.Record] = {}
    for notebook in (EVALUATION, SIMDE):
        final = final or {run: done[run] for run in done if run.notebook == notebook.name}
    if whole_plan:
        for run, record in done.items():
            note = records.collapse_note(record.metrics)
            if note:
                console.print(f"{run.notebook}  {run.label}: {note}")
    for run in [*(final or done)][-1:] if whole_plan else done:
        executed = nbformat.read(run.folder / NOTEBOOK, as_version=4)
        console.print(f"\n{run.notebook}  {run.label}")
        found = printed(tagged(executed, "found"))
        if found:
            console.print(f"{found}\n")
        if run in [*final][-1:]:
            _print_deciding(run, final)
        console.print(printed(tagged(executed, "conclusion")))
        paths = {"runs": "outputs/runs"} if whole_plan else {"run": relative(run.folder)}
        paths["executed notebook"] = relative(run.folder / NOTEBOOK)
        student = done[run].student_folder
        if student is not None:  # the link may lead to another student of this name
            paths["student"] = relative(link("students", run.slug, student))
        print_lines(paths)


def print_evaluation(final: Final) -> None:
    """Print a table of models and tasks, whose title names the metrics that decide on the tasks."""
    of_tasks = final.intervals[final.intervals["task"] != OVERALL]
    metrics = [METRIC_NAMES.get(name, name) for name in main_rows(of_tasks)["metric"].unique()]
    title = f"Test scores ({listed(metrics)}) with 95% intervals"
    board = final.board.reset_index()
    print_table(board.assign(model=board["model"].map(typeset)), title)
    console.print(TERMS)


def _print_deciding(run: Run, final: Mapping[Run, records.Record]) -> None:
    """Print the models that decide in one table, and where the scores of all models are."""
    together = _together(final)
    deciding = together.deciding(run.profile.parameters.contextual_teacher)
    shown = {}
    for name in ("intervals", "models"):
        rows = getattr(together, name)
        shown[name] = rows[rows["model"].isin(deciding)]
    print_evaluation(together._replace(**shown))
    everything = relative(run.folder.parent / "*" / "intervals.json")
    console.print(f"All {len(together.models)} models: {everything}\n")


def _done(planned: Sequence[Run]) -> dict[Run, records.Record]:
    """The runs that are done, with their records."""
    recorded = {run: run.record for run in planned if run.is_done}
    return {run: record for run, record in recorded.items() if record is not None}


def _together(runs: Mapping[Run, records.Record]) -> Final:
    """The evaluations of the runs as one, which has each model once, by its short name.

    Lines of a plan may have other profiles; those of the setting of the last run are comparable.
    """
    from docemb_lib.figures.names import short_names  # with matplotlib

    last = [*runs][-1]
    comparable = {run: r for run, r in runs.items() if r.setting == runs[last].setting}
    students = short_labels({run.label: run for run in comparable})
    finals = []
    for run, record in comparable.items():
        final = Final.of_record(record, run.label)
        final = final._replace(student=final.adapted or run.label)
        names = short_names(run, models_of_table(final.models))
        names[run.label] = students.get(run.label, run.label)
        finals.append(final.called(names))
    intervals = pd.concat([final.last for final in finals])
    models = pd.concat([final.models for final in finals])
    return finals[-1]._replace(
        intervals=intervals.drop_duplicates(["model", "task", "metric"]),
        models=models.drop_duplicates("model"),
    )
