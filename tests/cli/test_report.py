"""What commands show of the runs of a plan, before and after."""

import re
import shutil

import nbformat
import pytest
from conftest import REPOSITORY, docemb, succeed
from huggingface_hub import constants

from docemb_lib.cli.report import print_report
from docemb_lib.runs.execution import NOTEBOOK
from docemb_lib.runs.records import COLLAPSE_MEND
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile


def test_the_runs_whose_students_have_collapsed_are_named_with_what_to_change(
    workspace_root, small, capsys
):
    planned = []
    for lam, spread, collapsed in ((0.2, 0.003, 1), (0.8, 0.4, 0)):
        run = Run.of("05_weighting", small, lam=lam)
        run.finish({"spread": spread, "spread_before": 0.2, "collapsed": collapsed})
        nbformat.write(nbformat.v4.new_notebook(), run.folder / NOTEBOOK)
        planned.append(run)
    print_report(planned, whole_plan=True)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "collapsed" in line]
    assert line.startswith("05_weighting")
    assert "λ .2" in line
    assert line.endswith(COLLAPSE_MEND)


@pytest.mark.parametrize(
    ("name", "runs", "last"),
    [
        ("thesis", "1 45 11 16 12 14 9 9 1 3", "thesis-final"),
        ("simde", "1 1 1 1", "simde-long"),
    ],
)
def test_a_published_plan_is_listed_without_data_or_hub_and_what_is_missing_is_said(
    workspace_root, tmp_path, monkeypatch, name, runs, last
):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    shutil.rmtree(workspace_root / "params")
    shutil.copytree(REPOSITORY / "params", workspace_root / "params")
    done = succeed("run", "--profile", name, "--dry-run")
    missing = [line for line in done.stdout.splitlines() if line.startswith("missing: ")]
    profile = Profile.load(name)
    for model in (*profile.models, *profile.evaluation.beside):
        assert any(line.startswith(f"missing: {model}: there is no such") for line in missing)
    assert any("aan needs train_cite.csv" in line for line in missing)
    profiles, numbers = zip(*re.findall(r"\((\S+)\): (\d+) runs?, ", done.stdout), strict=True)
    assert (" ".join(numbers), profiles[-1]) == (runs, last)
    assert not (workspace_root / "outputs").exists()


def test_a_missing_file_is_named(workspace_root):
    done = docemb("run", "--profile", "own", "--dry-run")
    path = workspace_root / "params" / "CHANGE-ME"
    assert f"missing: corpus.path: {path} does not exist" in done.stdout
