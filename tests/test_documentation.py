"""What README and docs/ show works: the examples run, and links and files that they name are there."""

import ast
import re
import shutil
from pathlib import Path

import pytest
from conftest import REPOSITORY, make_workspace

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.slow
def test_the_examples_of_a_loss_a_teacher_and_a_task_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    root = make_workspace(tmp_path / "workspace")
    shutil.copy(root / "params" / "small.yaml", root / "params" / "tiny.yaml")  # in seconds, not minutes
    monkeypatch.chdir(root)
    examples = python_blocks(REPOSITORY / "docs" / "extending.md")
    names: dict[str, object] = {"__name__": "extending"}
    for example in examples:
        exec(compile(example.replace("documents=60", "documents=12"), "extending.md", "exec"), names)
    assert len(examples) == 3
    parts = {teaching.name: type(teaching.loss).__name__ for teaching in names["objective"].teachings}
    assert parts == {"structural": "Huber"}
    assert (names["folder"] / "model.safetensors").is_file()
    mean, deviation = map(float, capsys.readouterr().out.split()[-2:])
    assert mean == names["score"].mean
    assert 0 <= mean <= 1
    assert 0 <= deviation <= 0.5


def test_every_example_is_at_most_twenty_lines():
    for example in python_blocks(REPOSITORY / "docs" / "extending.md"):
        assert len([line for line in example.splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_on_a_page_is_python_its_imports_are_there_and_links_lead_somewhere(page):
    for example in python_blocks(page):
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("docemb_lib"):
                exec(compile(ast.Module([node], []), page.name, "exec"), {})
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
