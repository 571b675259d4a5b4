"""Read the docstrings of a Python package from its source files, without importing it.

Importing would run the package, depend on what is imported already, and miss optional parts. The syntax tree has it
all, compiled functions included: their documentation is attached by calls that stand in Python source
(`add_newdoc` in NumPy and SciPy, `add_docstr` in torch).
"""

from __future__ import annotations

import ast
import inspect
import logging
import re
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger(__name__)

ATTACHING = {"add_newdoc", "add_docstr", "_add_docstr", "add_docstr_all"}
TEXT_METHODS = {"format", "replace", "strip", "lstrip", "rstrip"}  # what they change is not worth evaluating
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Page(NamedTuple):
    """The documentation of one public object: module, class or function."""

    module: str  # dotted path of the module that defines it, private parts included
    name: str  # "" where the page is the module's own
    doc: str  # dedented; "" where only members are documented
    members: tuple[tuple[str, str], ...]  # (name, doc) of a class's public methods, in source order

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module

    @property
    def n_words(self) -> int:
        return len(self.doc.split()) + sum(1 + len(doc.split()) for _, doc in self.members)


@dataclass
class _Entry:
    doc: str = ""
    members: dict[str, str] = field(default_factory=dict)


def read_pages(path: Path, module: str) -> list[Page]:
    """All documented public objects of the file `path`, which is the module `module`; [] if it is no valid Python."""
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # other people's invalid escapes
            tree = ast.parse(file.read())
    except (SyntaxError, UnicodeDecodeError) as error:
        logger.debug("%s is not read: %s", path, error)
        return []
    entries: dict[tuple[str, str], _Entry] = {(module, ""): _Entry(_own_doc(tree))}
    for statement in _statements(tree.body):
        if isinstance(statement, Definition):
            _add_definition(entries, module, statement)
        elif isinstance(statement, ast.Assign):
            _add_assignment(entries, module, statement)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            _add_attached(entries, module, statement.value, assigned=None)
    return [
        Page(place, name, entry.doc, tuple(entry.members.items()))
        for (place, name), entry in entries.items()
        if (entry.doc or entry.members) and not (name or place).rpartition(".")[2].startswith("_")
    ]


def text_of(node: ast.expr) -> str:
    """The constant text of a string expression; what only a running program knows is left out.

    Placeholders of `str.format` and `%` are dropped: the pages read on without the shared paragraphs they stand for.
    """
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(text_of(value) for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return text_of(left).replace("%%", "%")
        case ast.Call(func=ast.Attribute(value=inner, attr="format")):
            text = re.sub(
                r"\{seealso\.(\w+)\}", r"\1", text_of(inner)
            )  # seaborn's placeholders name what they stand for
            text = re.sub(r"(?<!\{)\{[\w.]+\}(?!\})", "", text)
            return text.replace("{{", "{").replace("}}", "}")
        case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in TEXT_METHODS:
            return text_of(inner)
        case ast.Call(func=ast.Name(id="dedent") | ast.Attribute(attr="dedent"), args=[inner]):
            return text_of(inner)
    return ""


def _tidy(text: str) -> str:
    """Dedent, and drop the placeholders a decorator would fill: `%(name)s`, and `{name}` alone on its line."""
    text = re.sub(r"%\([\w:.]+\)s", "", text)
    text = re.sub(r"(?m)^[ \t]*\{\w+\}[ \t]*$", "", text)
    return inspect.cleandoc(text).rstrip()


def _own_doc(node: ast.Module | Definition) -> str:
    return _tidy(ast.get_docstring(node, clean=False) or "")


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, those under `if`, `try`, `with` and `for` included."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
            yield from _statements(statement.body)
            yield from _statements(getattr(statement, "orelse", []))


def _add_definition(entries: dict[tuple[str, str], _Entry], module: str, node: Definition) -> None:
    entry = entries.setdefault((module, node.name), _Entry())
    entry.doc = entry.doc or _own_doc(node)
    if not isinstance(node, ast.ClassDef):
        return
    for member in _statements(node.body):
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and (doc := _own_doc(member)):
            if member.name == "__init__":  # many classes document their parameters here
                entry.doc = f"{entry.doc}\n\n{doc}".strip()
            elif not member.name.startswith("_"):
                entry.members.setdefault(member.name, doc)


def _add_assignment(entries: dict[tuple[str, str], _Entry], module: str, node: ast.Assign) -> None:
    """`f.__doc__ = text`, `__doc__ = text` and `f = _add_docstr(builtin, text)`."""
    match node.targets[0], node.value:
        case ast.Attribute(value=ast.Name(id=name), attr="__doc__"), value:
            entries.setdefault((module, name), _Entry()).doc = _tidy(text_of(value))
        case ast.Name(id="__doc__"), value:
            entries[module, ""].doc = _tidy(text_of(value)) or entries[module, ""].doc
        case ast.Name(id=name), ast.Call() as call:
            _add_attached(entries, module, call, assigned=name)


def _add_attached(entries: dict[tuple[str, str], _Entry], module: str, call: ast.Call, *, assigned: str | None) -> None:
    """A call that attaches documentation to a compiled object."""
    match call.func:
        case ast.Name(id=function) | ast.Attribute(attr=function) if function in ATTACHING:
            pass
        case _:
            return
    match call.args:
        case [ast.Constant(value=str(name)), doc] if function == "add_docstr_all":  # torch: methods of Tensor
            entries.setdefault(("torch.Tensor", name), _Entry()).doc = _tidy(text_of(doc))
        case [ast.Constant(value=str(name)), doc]:  # scipy.special
            entries.setdefault((module, name), _Entry()).doc = _tidy(text_of(doc))
        case [ast.Constant(value=str(place)), ast.Constant(value=str(name)), ast.Tuple(elts=[member, doc])]:
            if not (method := text_of(member)).startswith("_"):
                entries.setdefault((place, name), _Entry()).members[method] = _tidy(text_of(doc))
        case [ast.Constant(value=str(place)), ast.Constant(value=str(name)), doc, *_]:
            entries.setdefault((place, name), _Entry()).doc = _tidy(text_of(doc))
        case [ast.Attribute() as compiled, doc]:
            place, _, name = ast.unparse(compiled).rpartition(".")
            key = (module, assigned) if assigned else (place, name)
            entries.setdefault(key, _Entry()).doc = _tidy(text_of(doc))
