"""One run is a folder: recognised, executed once, published whole, failed and tried again."""

import json
import os
import re

import jupytext
import pytest

from docemb_lib.base.errors import InputError
from docemb_lib.runs import execution, identity, records, store
from docemb_lib.runs.execution import NOTEBOOK, RunError, execute, record_failure
from docemb_lib.runs.records import RECORD
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile

SUCCEEDS = """
from docemb_lib import begin, records
run = begin("05_weighting", globals())
run.finish({"mean": lam})
print(records.frame()["lam"].tolist(), "half-way")
"""
FAILS = "raise RuntimeError('no luck')"
REFUSES = "from docemb_lib.base.errors import InputError\nraise InputError('lam: too much of it')"
EDITS_ITSELF = """
from pathlib import Path
notebook = Path("05_weighting.ipynb")
notebook.write_text(notebook.read_text().replace("half-way", "half way"))
"""
NAME = "05_weighting (S+PV masked, 64 tokens, λ .5, S:16(ReLU)x16, C:16, 24 docs)"


@pytest.fixture
def fresh(workspace_root, write_notebook):
    """The run of λ 0.5 as a new process sees it; `text` replaces the notebook's cells."""

    def run(text="", **parameters):
        if text:
            write_notebook("05_weighting", "profile = 'tiny'\nseed = 0\nlam = 0.1", text)
        return Run.of("05_weighting", Profile.load("small"), **{"lam": 0.5, **parameters})

    return run


def names_in(folder):
    """The names in a folder but for locks."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_a_run_is_executed_once_and_its_folder_is_published_whole(fresh, workspace_root):
    run = fresh(SUCCEEDS)
    run.partial.mkdir(parents=True)
    (run.partial / "of-a-killed-process.png").touch()
    run.folder.with_name(f".{run.slug}.lock").touch()
    assert execute(run)
    assert names_in(run.folder) == [NOTEBOOK, RECORD, "scores.json"]
    assert names_in(run.folder.parent) == [run.slug]
    assert records.frame()["validation"].tolist() == [0.5]
    assert "[0.5] half-way" in (run.folder / NOTEBOOK).read_text()  # a kernel sees its own record
    written = (run.folder / RECORD).stat().st_mtime_ns
    assert not execute(fresh())
    assert (run.folder / RECORD).stat().st_mtime_ns == written


def test_a_run_is_not_done_where_anything_that_counts_has_changed(
    fresh, workspace_root, monkeypatch
):
    run = fresh(SUCCEEDS)
    execute(run)
    profile = workspace_root / "params" / "small.yaml"
    assert not fresh(lam=0.6).is_done
    changes = [
        (profile, "_tokens: 64}\n", "_tokens: 32}\n"),
        (profile, "packages: [numpy, seaborn]", "packages: [numpy]"),
        (run.source, "half-way", "half way"),
        (run.source, "seed = 0", "sed = 0"),
        (run.folder / RECORD, "{", ""),
        (run.folder / RECORD, run.key, "0" * 16),
        (run.folder / RECORD, '"mean": 0.5', '"mean": 0.9'),
        (run.folder / "scores.json", "[", "[ "),
    ]
    for file, old, new in changes:
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))
        assert not fresh().is_done
        file.write_text(text)
        assert fresh().is_done
    versions = {**store.installed_versions(), "numpy": "99.0"}
    newer = {"installed_versions": lambda: versions, "VERSION": store.VERSION + 1}
    for name, value in newer.items():
        with monkeypatch.context() as patch:
            patch.setattr(identity, name, value)
            assert not fresh().is_done
    (run.folder / NOTEBOOK).unlink()
    assert not fresh().is_done


def test_prose_and_values_in_the_first_cell_make_no_other_run(fresh):
    run = fresh(SUCCEEDS)
    execute(run)
    notebook = json.loads(run.source.read_text())
    assert notebook["cells"][0]["source"][2] == "lam = 0.1"
    notebook["cells"][0]["source"][2] = "lam = [0.7, 1]  # of λ"
    prose = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["*New* prose."]}
    notebook["cells"].insert(1, prose)
    run.source.write_text(json.dumps(notebook))
    assert fresh().is_done
    assert fresh(gamma=0.9).is_done
    missing = run.source.rename(run.source.with_suffix(".moved"))
    assert not fresh().is_done  # its check names the notebook
    missing.rename(run.source)


def test_a_pair_whose_code_differs_is_named_once(fresh, caplog):
    notebook = fresh(f"{SUCCEEDS}\n%matplotlib inline\n!true").source
    pair = notebook.with_suffix(".py")
    jupytext.write(jupytext.read(notebook), pair, fmt="py:percent")
    text = pair.read_text()
    for same in (text, text.replace("# %%\n", "# %% [markdown]\n# New prose.\n\n# %%\n", 1)):
        pair.write_text(same)
        execution.compare_pair(notebook)
        execution.compare_pair.cache_clear()
    assert not caplog.messages
    pair.write_text(text.replace("half-way", "half way"))
    for run in (fresh(), fresh(lam=0.6)):
        execution.compare_pair(run.source)
    (said,) = caplog.messages
    assert said.startswith(f"{notebook} is executed, and its code is not that of")
    assert "`jupytext --sync 05_weighting.py`" in said


def test_a_notebook_that_is_edited_while_it_is_executed_is_another_run_afterwards(fresh):
    run = fresh(f"{SUCCEEDS}\n{EDITS_ITSELF}")
    assert execute(run)
    assert run.is_done
    assert not fresh().is_done


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (FAILS, RunError, "RuntimeError: no luck"),
        ("pass", RunError, "it ended without its record"),
        ("import os; os._exit(9)", RunError, "its kernel died"),
        (REFUSES, InputError, "lam: too much of it"),
    ],
)
def test_a_failure_leaves_its_traceback_and_notebook_and_is_tried_again(fresh, text, error, said):
    run = fresh(text)
    with pytest.raises(
        error, match=rf"^{re.escape(NAME)}: {said}.* \(see .*\.failed/{NOTEBOOK}\)$"
    ):
        execute(run)
    (row,) = records.frame(failed=True).to_dict("records")
    assert row["status"] == "failed"
    assert row["error"].startswith(f"{NAME}: {said}")
    assert said.split()[-1] in records.read(run.failed).traceback
    assert records.frame().empty
    assert text.splitlines()[-1] in (run.failed / NOTEBOOK).read_text()
    assert names_in(run.folder.parent) == [run.failed.name]
    assert execute(fresh(SUCCEEDS))
    assert names_in(run.folder.parent) == [run.slug]


def test_what_a_dead_kernel_has_left_stays_with_the_failure(fresh):
    run = fresh(SUCCEEDS)
    run.partial.mkdir(parents=True)
    (run.partial / NOTEBOOK).write_text("as far as it came")
    line = record_failure(run, "its  worker\ndied")
    assert line.startswith(f"{NAME}: its worker died (see outputs/runs/")
    assert (run.failed / NOTEBOOK).read_text() == "as far as it came"
    assert not run.partial.exists()


def test_an_interrupt_is_no_failure_and_leaves_nothing(fresh, monkeypatch):
    def interrupted(source, copy, parameters, report):
        copy.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("docemb_lib.runs.kernels.execute_notebook", interrupted)
    run = fresh(SUCCEEDS)
    with pytest.raises(KeyboardInterrupt):
        execute(run)
    assert names_in(run.folder.parent) == []
    assert records.EXECUTED not in os.environ
