"""The command line: bad input is one line and exit code 2 before anything is built; the right exit
codes.
"""

import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from unittest.mock import Mock

import pandas as pd
import pytest
import torch
import typer
from conftest import DOCEMB, Done, docemb, succeed, wait_until, write_files, write_rows, write_texts
from sklearn.preprocessing import normalize

from docemb_lib import Profile, Run
from docemb_lib.base.errors import Stopped
from docemb_lib.cli.__main__ import app
from docemb_lib.cli.commands import parse_parameters
from docemb_lib.runs import records
from docemb_lib.settings.files import find_root
from docemb_lib.student import Student

STOPPED = "Interrupted: docemb run is stopped; give the same command again to go on."


def refused(done, *said):
    assert done.returncode == 2, (done.stdout, done.stderr)
    (line,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert all(words in line for words in said), line


def test_doctor_says_versions_precision_threads_and_where_outputs_lie(workspace_root, monkeypatch):
    monkeypatch.setenv("DOCEMB_PRECISION", "bf16")
    monkeypatch.chdir(workspace_root / "params")
    lines = docemb("doctor").stdout.splitlines()
    facts = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert facts["torch"] == metadata.version("torch")
    assert re.fullmatch(r"bf16 on (cpu|cuda:0), DOCEMB_PRECISION=bf16", facts["precision"])
    assert facts["threads"] == str(torch.get_num_threads())
    assert facts["outputs"] == str(workspace_root / "outputs")


@pytest.mark.parametrize("name", typer.main.get_command(app).commands)
def test_the_help_of_a_command_ends_with_an_example_that_parses(name):
    shown = " ".join(docemb(name, "--help").stdout.split())
    command = typer.main.get_command(app).commands[name]
    assert shown.endswith(command.epilog)
    _, program, called, *example = shlex.split(command.epilog)
    assert (program, called) == ("docemb", name)
    command.make_context(name, example)


def test_a_terminal_shows_at_once_that_a_command_has_begun(workspace_root):
    """In a pipe there is the outcome alone. What takes long to import is loaded after that line:
    see `test_layers`.
    """
    command = [*DOCEMB, "run", "--profile", "nowhere"]
    mine, its = pty.openpty()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=its) as process:
        os.close(its)
        shown = os.read(mine, 1000).decode()
    os.close(mine)
    assert (process.returncode, re.sub(r"\x1b\[\d*m", "", shown)) == (2, "docemb run: loading\r\n")
    piped = subprocess.run(command, capture_output=True, text=True, timeout=300)
    refused(
        Done(piped.returncode, piped.stdout, piped.stderr), "Error: profile 'nowhere' is unknown"
    )


def corpus_profile(folder):
    """A profile that builds the corpus of a folder."""
    model = "{model: all-MiniLM-L6-v2, max_tokens: 64}"
    sections = {
        "corpus": f"{{source: local, path: {folder}, validation: 4, tasks: 20}}",
        "student": model,
    }
    sections |= {"structural_teacher": model, "plan": "[{notebook: 01_corpus}]"}
    text = "".join(f"{name}: {content}\n" for name, content in sections.items())
    (folder.parent / "params" / "mine.yaml").write_text(text, encoding="utf-8")
    return "mine"


def test_a_notebook_that_refuses_its_input_ends_the_command_with_its_line(
    workspace_root, write_notebook
):
    # Without figures, which take seconds.
    builds = "begin('01_corpus', globals()).corpus.folder"
    begun = f"from docemb_lib.runs.run import begin\n{builds}"
    write_notebook("01_corpus", "profile = 'tiny'\nseed = 0", begun)
    profile = corpus_profile(write_texts(workspace_root / "t", 40))
    write_files(workspace_root / "t", {"bad.txt": b"caf\0"})
    refused(docemb("run", "--profile", profile), "bad.txt", "NUL bytes", "UTF-16")


@pytest.mark.parametrize("given", [[], ["texts"]], ids=["alone", "with documents"])
def test_an_empty_folder_becomes_a_working_folder_and_what_is_there_stays(
    tmp_path, monkeypatch, given
):
    write_texts(tmp_path / "texts", 60)
    monkeypatch.chdir(tmp_path)
    assert docemb("init", *given).returncode == 0
    assert find_root() == tmp_path
    assert len(docemb("run", "--dry-run").stdout.split("01_corpus")) == 2
    assert [
        *(tmp_path / "outputs").iterdir()
    ] == []  # papermill does not make the folder of its output
    edited = tmp_path / "notebooks" / "05_weighting.ipynb"
    edited.write_text("mine")
    shutil.rmtree(tmp_path / "params" / "grids")
    monkeypatch.chdir(tmp_path / "notebooks")
    assert f"{tmp_path}: notebooks and params are there already" in docemb("init").stdout
    assert edited.read_text() == "mine"
    assert not (tmp_path / "params" / "grids").exists()


def test_a_folder_that_cannot_become_a_working_folder_is_refused_and_stays_as_it_is(
    tmp_path, monkeypatch
):
    write_texts(tmp_path / "texts", 60)
    write_files(tmp_path, {"notebooks/mine.ipynb": ""})
    monkeypatch.chdir(tmp_path)
    for given in ([], ["texts"]):
        refused(
            docemb("init", *given),
            str(tmp_path / "notebooks"),
            "that is not docemb's has this name already",
            "in a new folder",
        )
        shutil.rmtree(tmp_path / "notebooks", ignore_errors=True)
        (tmp_path / "notebooks").touch()  # a plain file, the second time
    monkeypatch.chdir(tmp_path / "texts")
    refused(docemb("init", "."), f"{tmp_path / 'texts'} lies in it", "in a folder outside of it")
    assert not (tmp_path / "params").exists()
    assert {path.suffix for path in (tmp_path / "texts").iterdir()} == {".txt"}


@pytest.mark.parametrize("kind", ["folder.d", "rows", ".文書 📚"])
def test_a_profile_is_written_for_documents_and_sized_to_them(workspace_root, kind):
    """Of 90 documents of 5 words and 30 of 3,000."""
    short = "我的猫在哪里" if "文" in kind else "the cat of a king"
    texts = [short] * 90 + ["word " * 3000] * 30
    texts = [f"{text} {number}" for number, text in enumerate(texts)]
    texts += [texts[0].title()] * 9
    options = ()
    if kind == "rows":
        rows = [{"doc_id": n, "title": "a", "body": text} for n, text in enumerate(texts)]
        source = write_rows(workspace_root / "rows.jsonl", rows)
        options = ("--text-field", "body")
    else:
        source = write_files(workspace_root / kind, {f"{n}.txt": t for n, t in enumerate(texts)})
    done = succeed("init", source, *options)
    assert "120 different: 68 to train on, 40 to measure with, 12 to watch the" in done.stdout
    assert "6 in the median, 3001 at most" in done.stdout
    written = workspace_root / f"{kind.strip('.')}.yaml"
    profile = Profile.load(written)
    own = Profile.load("own")
    assert (profile.name, profile.corpus.path) == (kind.strip("."), source)
    assert profile.corpus.text_field == (["body"] if kind == "rows" else "text")
    assert (profile.corpus.tasks, profile.corpus.validation) == (40, 12)
    assert profile.parameters == own.parameters.model_copy(update={"documents": 68})
    sized = {"max_tokens": 4096, "words": 22}
    assert profile.student == own.student.model_copy(update=sized)
    assert profile.notebooks == {
        name: {**given, "documents": 60} for name, given in own.notebooks.items()
    }
    same = {"evaluation", "training", "simde", "plan", "contextual_teachers"}
    assert profile.model_dump(include=same) == own.model_dump(include=same)
    listed = docemb("run", "--profile", written, "--dry-run")
    assert (listed.returncode, "missing" in listed.stdout) == (0, False)
    refused(docemb("init", source), f"Error: -o {written.name}: this exists already; name a new")


def test_too_few_documents_make_no_profile(workspace_root):
    write_rows(workspace_root / "few.jsonl", [{"text": f"a {n}"} for n in range(59)])
    said = "few.jsonl: it holds 59 different documents, and a student needs 60 or more; add some"
    done = docemb("init", workspace_root / "few.jsonl", "-o", "mine.yaml")
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert not (workspace_root / "mine.yaml").exists()


def test_a_plan_is_listed_and_nothing_is_built(workspace_root):
    grid = "{notebook: 05_weighting, axes: {lam: [0.2, 0.5]}}"
    plan = "base: small.yaml\nplan: [{notebook: 01_corpus}, {grid: lams, documents: 12}]"
    write_files(workspace_root / "params", {"grids/lams.yaml": grid, "mine.yaml": plan})
    done = succeed("run", "--profile", "mine", "--dry-run")
    assert done.stdout.splitlines() == [
        "01_corpus  corpus  (mine): 1 run, not there yet",
        "05_weighting  lams  (mine): 2 runs, 0 of them already there",
        "3 runs, 0 of them already there",
    ]
    assert not (workspace_root / "outputs").exists()
    said = "profile mine: --from 06 leaves no run; the plan's notebooks are 01_corpus, 05_weighting"
    refused(docemb("run", "--profile", "mine", "--dry-run", "--from", "06"), said)


def started(*arguments):
    """The command in a process of its own, which Ctrl-C interrupts also where a shell started the
    tests with `&`.
    """
    return subprocess.Popen(
        [*DOCEMB, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_an_interrupted_run_says_so_and_exits_with_130(workspace_root):
    running = started("run", "--profile", corpus_profile(write_texts(workspace_root / "t", 40)))
    assert running.stdout.readline() == "1 run, not there yet\n"
    assert "begins" in running.stdout.readline()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors.splitlines()[-1]) == (130, STOPPED)
    assert not list((workspace_root / "outputs" / "runs").rglob("[!.]*seed0*"))


@pytest.mark.slow
def test_a_student_is_trained_by_two_processes_and_found_again_by_one(workspace_root):
    profile = workspace_root / "params" / "small.yaml"
    options = "{log_every: 1, save_every: 2, accumulation: 2}"
    profile.write_text(profile.read_text().replace("{log_every: 1}", options))
    arguments = shlex.split("train --profile small -p documents=26 -p contextual_teacher=LSA")
    torchrun = "-m torch.distributed.run --standalone --nproc-per-node 2 -m docemb_lib.cli"
    command = [sys.executable, *torchrun.split(), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()  # one of the processes speaks
    folder, _, losses = line.partition(": mean validation loss ")
    assert (workspace_root / folder / "model.safetensors").is_file()
    (artefact,) = (workspace_root / "outputs" / "artefacts" / "student").glob("[!.]*")
    assert not (artefact / "checkpoints").exists()
    again = docemb(*arguments)
    assert again.stdout == done.stdout
    assert "training the student" not in again.stderr
    assert len(losses.split(" → ")) == 2


@pytest.mark.slow
def test_one_notebook_is_executed_with_parameters_once_and_shows_what_it_concludes(
    workspace_root, write_notebook
):
    text = """from docemb_lib.runs.run import begin
run = begin('05_weighting', globals())
print(f'with λ = {lam} all is well.')
run.finish({'mean': lam})"""
    write_notebook("05_weighting", "profile = 'tiny'\nseed = 0\nlam = 'profile'", text)
    command = ["run", "05", "-p", "lam=0.7", "--profile", "small"]
    first = docemb(*command)
    again = docemb(*command)
    assert (first.returncode, again.returncode) == (0, 0), first.stderr
    assert first.stdout.startswith(
        "1 run, not there yet\nbegins  05_weighting  S+PV masked, λ .7\n"
    )
    assert again.stdout.startswith("1 run, already there\n")
    (folder,) = Path("outputs/runs/05_weighting").glob("[!.]*")
    lines = [
        "",
        "05_weighting  S+PV masked, λ .7, 64 tokens, S:16(ReLU)x16, C:16, 24 docs",
        "with λ = 0.7 all is well.",
    ]
    lines.append(f"run:                {folder}")
    lines.append(f"executed notebook:  {folder}/notebook.ipynb")
    for done in (first, again):
        assert done.stdout.splitlines()[-5:] == lines
    frame = records.frame("05_weighting")
    assert (frame["lam"].tolist(), frame["validation"].tolist()) == ([0.7], [0.7])


@pytest.mark.slow
def test_a_run_that_is_told_to_stop_leaves_a_checkpoint(workspace_root, write_notebook):
    """SIGTERM to `docemb run`, as a cluster sends it, while the notebook's kernel trains."""
    trains = "begin('03_structural', globals()).student"
    training = f"from docemb_lib.runs.run import begin\n{trains}"
    write_notebook("03_structural", "profile = 'tiny'\nseed = 0", training)
    profile = workspace_root / "params" / "small.yaml"
    profile.write_text(profile.read_text().replace("{log_every: 1}", "{log_every: 1, epochs: 99}"))
    running = started("run", "03", "--profile", "small")
    students = workspace_root / "outputs" / "artefacts" / "student"
    wait_until(lambda: list(students.glob("*.partial/checkpoints")), running)  # it trains
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate(timeout=200)
    assert (running.returncode, errors.splitlines()[-1]) == (130, STOPPED)
    assert len(list(students.glob("*.partial/checkpoints/*/whole.json"))) == 1


def test_what_is_stopped_says_how_far_it_came(workspace_root, monkeypatch):
    said = "stopped after 3 of 9 updates; give the same command again to go on"
    monkeypatch.setattr(Run, "check", Mock(side_effect=Stopped(said)))
    done = docemb("train", "--profile", "small")
    assert (done.returncode, done.stderr) == (130, f"Interrupted: {said}.\n")


def test_a_parameter_is_read_as_papermill_reads_it():
    given = {
        "lam=0.5": 0.5,
        "lam_by_length=None": None,
        "documents=030": 30,
        "seed=1:30": "1:30",
        "student_projection=-": "-",
        "dm=true": True,
        "contextual_projection=16": 16,
    }
    assert parse_parameters([*given]) == {
        text.split("=")[0]: value for text, value in given.items()
    }


@pytest.mark.parametrize("given", ["-p lam 0.1 -p beta=0.2", "-p beta 0.2 -p lam 0.1"])
def test_a_parameter_may_be_written_as_papermill_takes_it(given):
    command = typer.main.get_command(app).commands["run"]
    context = command.make_context("run", ["05", *given.split(), "--dry-run"])
    assert context.params["notebook"] == "05"
    assert sorted(context.params["parameter"]) == ["beta=0.2", "lam=0.1"]


@pytest.fixture
def titled(workspace_root):
    """Seventy documents with a title and a body, of which two cannot be read."""
    rows = [
        {"Key": n, "title": f"On {n}", "body": f"{'the cat of a king ' * 9} {n}"} for n in range(70)
    ]
    rows[5]["body"] = 7
    rows[6]["Key"] = True
    return write_rows(workspace_root / "titled.jsonl", rows)


FIELDS = ("--text-field", "title", "--text-field", "body", "--id-field", "key")


@pytest.mark.parametrize(
    "command",
    [("init",), ("embed", "m", "-o", "o.npy"), ("adapt", "all-MiniLM-L6-v2", "-o", "o")],
)
def test_bad_rows_are_the_same_error_of_every_command(titled, command):
    name, *further = command
    given = [*further, titled] if name == "init" else [further[0], titled, *further[1:]]
    done = docemb(name, *given, *FIELDS)
    said = (
        "titled.jsonl, row 6: the field 'body' must hold a text (--text-field), but it is 7; mend"
    )
    assert (done.returncode, done.stderr.count("Error")) == (2, 1)
    assert said in done.stderr


def test_a_profile_holds_the_fields_that_were_named_and_what_is_done_with_bad_rows(titled, caplog):
    done = succeed("init", titled, *FIELDS, "--skip-bad")
    assert "left out: 2 × bad row or file; " in caplog.text
    assert "68 different:" in done.stdout
    corpus = Profile.load(titled.with_suffix(".yaml")).corpus
    assert (corpus.text_field, corpus.id_field, corpus.skip_bad) == (["title", "body"], "key", True)


def test_titles_and_bodies_are_embedded_together_by_their_ids(titled, tmp_path, monkeypatch):
    student = Student.from_encoder("all-MiniLM-L6-v2", layers=[0], max_tokens=64)
    student.save(tmp_path / "student")
    succeed("embed", tmp_path / "student", titled, "-o", "o.parquet", *FIELDS, "--skip-bad")
    table = pd.read_parquet("o.parquet")
    assert table["id"].tolist() == [str(n) for n in range(70) if n not in (5, 6)]
    text = f"On 69\n\n{'the cat of a king ' * 9} 69"
    # A batch and a text alone may round differently, so directions are compared.
    others = [text, text.partition("\n\n")[2], text.partition("\n\n")[0]]
    cosines = normalize(student.embed(others)) @ normalize([table["embedding"].iloc[-1]])[0]
    assert cosines[0] > 0.999
    assert cosines.argmax() == 0


@pytest.fixture(scope="module")
def student_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("student") / "mine"
    encoder = Student.from_encoder("all-MiniLM-L6-v2", layers=[0], max_tokens=64, pooling="lead")
    encoder.save(folder)
    return folder


def test_an_export_to_another_ending_is_refused(student_folder, tmp_path):
    out = tmp_path / "out"
    refused(docemb("export", student_folder, "-o", out), "the name of the file must end in .onnx")


def test_an_onnx_file_is_written_whole(student_folder, tmp_path, monkeypatch):
    """`tests/student/test_onnx.py` runs what is written, which takes long to make."""
    writer = "docemb_lib.student.onnx.write_onnx"
    monkeypatch.setattr(writer, lambda student, file: file.write_text("whole"))
    out = tmp_path / "made" / "student.onnx"
    done = docemb("export", student_folder, "-o", out)
    assert done.stdout == f"{out}: the half of meaning, 384 dimensions\n", done.stderr
    assert out.read_text() == "whole"
    assert [*out.parent.iterdir()] == [out]
