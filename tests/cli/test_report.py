"""What `docemb run` says at its end about the runs of a plan."""

from conftest import write_files

from docemb_lib.cli.report import collapsed_runs
from docemb_lib.runs.execution import NOTEBOOK
from docemb_lib.runs.records import COLLAPSE_MEND
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile


def test_the_runs_whose_students_have_collapsed_are_named_with_what_to_change(workspace_root):
    planned = []
    for lam, spread, collapsed in ((0.2, 0.003, 1), (0.8, 0.4, 0)):
        run = Run.of("05_weighting", Profile.load("small"), lam=lam)
        run.finish({"spread": spread, "spread_before": 0.2, "collapsed": collapsed})
        write_files(run.folder, {NOTEBOOK: ""})
        planned.append(run)
    (line,) = collapsed_runs(planned)
    assert line.startswith("05_weighting")
    assert "λ=0.2" in line
    assert line.endswith(COLLAPSE_MEND)
