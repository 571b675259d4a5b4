"""What README, docs/ and docstrings show works: examples run; links and files lead somewhere."""

import ast
import doctest
import re
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from conftest import REPOSITORY, make_workspace, write_files

from docemb_lib.cli.__main__ import app
from docemb_lib.student import Student
from docemb_lib.student.onnx import write_onnx

README = REPOSITORY / "README.md"
PAGES = [README, *sorted((REPOSITORY / "docs").glob("*.md"))]
WITH_EXAMPLES = (
    "evaluation.tasks evaluation.protocols losses.contextual losses.structural student.student "
    "teachers.paragraph_vector teachers.sbert"
)
P_VALUE = re.compile(r"\bp\s*[<=≤]?\s*\.?\d|\bp-value", flags=re.IGNORECASE)


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.slow
def test_the_examples_of_a_loss_a_teacher_and_a_task_run_one_after_the_other(
    tmp_path, monkeypatch, capsys
):
    root = make_workspace(tmp_path / "workspace")
    params = root / "params"
    shutil.copy(params / "small.yaml", params / "tiny.yaml")  # in seconds, not minutes
    monkeypatch.chdir(root)
    examples = python_blocks(REPOSITORY / "docs" / "extending.md")
    names: dict[str, object] = {"__name__": "extending"}
    for example in examples:
        shorter = example.replace("documents=60", "documents=12")
        exec(compile(shorter, "extending.md", "exec"), names)
    assert len(examples) == 3
    teachings = names["objective"].teachings
    losses = {teaching.name: type(teaching.loss).__name__ for teaching in teachings}
    assert losses == {"structural": "Huber"}
    assert (names["folder"] / "model.safetensors").is_file()
    mean = float(capsys.readouterr().out.split()[-1])
    assert mean == names["score"].mean
    assert 0 <= mean <= 1


def test_the_example_of_an_onnx_file_gives_the_embeddings_of_the_student(tmp_path, monkeypatch):
    for package in ("onnxruntime", "onnxscript"):
        pytest.importorskip(package, reason="the extra docemb[onnx] is not installed")
    student = Student.from_encoder("all-MiniLM-L6-v2", layers=[0], max_tokens=4096)
    student.save(tmp_path / "my_student")
    write_onnx(student, tmp_path / "my_student.onnx")
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(REPOSITORY / "docs" / "own-documents.md")
    (example,) = [block for block in blocks if "onnxruntime" in block]
    names: dict[str, object] = {}
    exec(compile(example, "own-documents.md", "exec"), names)
    texts = ["a document", "another, longer one"]
    assert f'encode_batch(["{texts[0]}", "{texts[1]}"])' in example
    expected = student.embed(texts, bf16=False)
    np.testing.assert_allclose(names["embeddings"], expected, rtol=0, atol=1e-5)


def test_the_quick_start_of_the_readme_is_ten_lines_and_finds_the_text(
    tmp_path, monkeypatch, capsys
):
    (example,) = python_blocks(README)
    assert len(example.splitlines()) == 10
    words = [f"word{number}" for number in range(40)]
    for number in range(24):
        text = f"Page {number}. {' '.join(words[number : number + 16])}"
        write_files(tmp_path / "my_texts", {f"{number}.txt": text})
    write_files(tmp_path / "my_texts", {"x.txt": "a question about a question: word3 word4?"})
    monkeypatch.chdir(tmp_path)
    # One layer and short texts take seconds.
    shorter = example.replace('pooling="lead"', 'pooling="lead", layers=[0], max_tokens=512')
    names: dict[str, object] = {}
    exec(compile(shorter, "README.md", "exec"), names)
    assert capsys.readouterr().out.startswith("a question about")
    np.testing.assert_allclose(np.linalg.norm(names["embeddings"], axis=1), 1, atol=1e-3)
    assert (tmp_path / "my_student" / "model.safetensors").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_on_a_page_is_python_and_its_imports_are_there(page):
    for example in python_blocks(page):
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("docemb_lib"):
                exec(compile(ast.Module([node], []), page.name, "exec"), {})


@pytest.mark.parametrize("name", WITH_EXAMPLES.split())
def test_the_examples_of_docstrings_run(name):
    found = doctest.testmod(import_module(f"docemb_lib.{name}"), extraglobs={"torch": torch})
    assert (found.attempted > 0, found.failed) == (True, 0)


def test_the_readme_is_short_and_has_no_p_value():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert not [line for line in lines if P_VALUE.search(line)]


def test_the_readme_names_every_command_and_no_other():
    text = README.read_text(encoding="utf-8")
    code = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
    code += re.findall(r"`([^`\n]+)`", text)
    named = re.findall(r"\bdocemb ([a-z][a-z-]*)", "\n".join(code))
    assert set(named) == set(typer.main.get_command(app).commands)
