"""Take out of a documentation page what would answer a task: its See Also references and its package's name."""

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

# ---- take out of a documentation page what would answer a task


# Whatever stands around them, so that `to_numpy` and `NetworkXError` answer the package task no more than `numpy` does.
NAMES = (
    r"scikit[\W_]{0,9}learn|natural language toolkit|pytorch|torch|numpy|scipy|sklearn|pandas|matplotlib|seaborn|nltk|"
    r"gensim|networkx|sympy"
)
ALIASES = r"np|sp|pd|mpl|plt|sns|nx"  # customary in examples; only as whole identifiers
NAME = re.compile(rf"(?:{NAMES}|\b(?:{ALIASES})\b)(?:\.(?=\w))?", re.IGNORECASE)
IMPORT = re.compile(
    rf"^[ \t]*(?:>>> |\.\.\. )?import[ \t]+(?:{NAMES})(?:\.\w+)*(?:[ \t]+as[ \t]+\w+)?[ \t]*(?:#.*)?$",
    re.IGNORECASE | re.MULTILINE,
)
FROM = re.compile(rf"\bfrom[ \t]+(?:{NAMES})[ \t]+(?=import\b)", re.IGNORECASE)

HEADING = re.compile(r"see[ -]?also\s*:?\s*|\.\. seealso::(?P<inline>.*)", re.IGNORECASE)
RULE = re.compile(r"([-=~^*])\1{2,}\s*")
# In running text: a whole parenthesis, else up to the end of the sentence or paragraph.
SENTENCE = re.compile(
    r"\(\s*see[ -]?also\b(?:[^()]|\([^()]*\))*\)|"
    r":?\bsee[ -]?also\b(?:(?!\n[ \t]*\n).)*?(?:\.(?=\s|$)|(?=\n[ \t]*\n)|\Z)",
    re.IGNORECASE | re.DOTALL,
)
LEAD = re.compile(r"\W*see[ -]?also\s*(?::(?=\s))?\s*", re.IGNORECASE)
# `a.b`, ``a.b``, :func:`~a.b`, :func:`title <a.b>`
QUOTED = re.compile(r"(?::[\w:+-]+:)?`+(?:[^`<]*<)?[~!.]*([\w.]+)(?:\(\))?>?`+_?")
PATH = re.compile(r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|\b\w+_\w+\b|\b\w+(?=\(\))")  # a.b, a_b or a(): no word of prose
LIST = re.compile(r"\.?[A-Za-z_][\w.]*(?:\(\))?(?:(?:\s*,\s*|\s+and\s+)\.?[A-Za-z_][\w.]*(?:\(\))?)*\s*[.,]?")


class Cut(NamedTuple):
    """A text without its See Also references, and the names they cite, in order, each once."""

    text: str
    cited: tuple[str, ...]


def cut_see_also(text: str) -> Cut:
    """Remove See Also sections (numpydoc), `.. seealso::` blocks (Sphinx) and "See also ..." sentences from `text`."""
    kept: list[str] = []
    cited: list[str] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        heading = HEADING.fullmatch(lines[at].strip())
        if heading is None:
            kept.append(lines[at])
            at += 1
            continue
        inline = heading["inline"] or ""
        end = _block_end(lines, at, inline=bool(inline.strip()))
        block = [line for line in lines[at + 1 : end] if line.strip() and not RULE.fullmatch(line.strip())]
        entries = [line for line in block if _indent(line) == _indent(block[0])]  # not what describes them below
        for entry in [inline, *entries]:
            cited += _names(entry)
        at = end
    text = "\n".join(kept)
    for sentence in SENTENCE.findall(text):
        cited += _names(LEAD.sub("", sentence.strip("()")))
    return Cut(_tidy(SENTENCE.sub("", text)), tuple(dict.fromkeys(cited)))


def remove_names(text: str) -> str:
    """`text` without the eleven packages' names and aliases; `numpy.argsort` becomes `argsort`."""
    text = IMPORT.sub("", text)
    text = FROM.sub("", text)
    return _tidy(NAME.sub("", text))


def _block_end(lines: list[str], heading: int, *, inline: bool) -> int:
    """Index of the first line after the block that `lines[heading]` opens.

    Under an underlined heading that is the next underlined heading. Without the underline it is the end of what is
    indented deeper, or, where nothing is and none of it stands `inline` after the heading, the end of the next
    paragraph. Text indented less always ends it.
    """
    indent = _indent(lines[heading])
    at = heading + 1
    if at < len(lines) and RULE.fullmatch(lines[at].strip()):
        at += 1
        while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) >= indent):
            if lines[at].strip() and at + 1 < len(lines) and RULE.fullmatch(lines[at + 1].strip()):
                break
            at += 1
        return at
    while at < len(lines) and not lines[at].strip():
        at += 1
    if at < len(lines) and _indent(lines[at]) > indent:
        while at < len(lines) and (not lines[at].strip() or _indent(lines[at]) > indent):
            at += 1
    elif not inline:
        while at < len(lines) and lines[at].strip() and _indent(lines[at]) >= indent:
            at += 1
    return at


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _names(text: str) -> list[str]:
    """The names cited in one entry (`a, b : what they do`) or in a sentence of prose."""
    plain = QUOTED.sub(r"\1", text)
    head = re.split(r"\s:|:\s|:$", plain.strip().removeprefix("- ").removeprefix("* "))[0].strip()
    if LIST.fullmatch(head):
        found = re.split(r"\s*,\s*|\s+and\s+", head)
    else:
        found = QUOTED.findall(text) + PATH.findall(QUOTED.sub(" ", text))
    return [name for name in (item.replace("()", "").strip(" .,") for item in found) if name]


def _tidy(text: str) -> str:
    """No trailing spaces, no runs of blank lines."""
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


# ---- read the docstrings of a Python package from its source files


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


def _tidy_docstring(text: str) -> str:
    """Dedent, and drop the placeholders a decorator would fill: `%(name)s`, and `{name}` alone on its line."""
    text = re.sub(r"%\([\w:.]+\)s", "", text)
    text = re.sub(r"(?m)^[ \t]*\{\w+\}[ \t]*$", "", text)
    return inspect.cleandoc(text).rstrip()


def _own_doc(node: ast.Module | Definition) -> str:
    return _tidy_docstring(ast.get_docstring(node, clean=False) or "")


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
            entries.setdefault((module, name), _Entry()).doc = _tidy_docstring(text_of(value))
        case ast.Name(id="__doc__"), value:
            entries[module, ""].doc = _tidy_docstring(text_of(value)) or entries[module, ""].doc
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
            entries.setdefault(("torch.Tensor", name), _Entry()).doc = _tidy_docstring(text_of(doc))
        case [ast.Constant(value=str(name)), doc]:  # scipy.special
            entries.setdefault((module, name), _Entry()).doc = _tidy_docstring(text_of(doc))
        case [ast.Constant(value=str(place)), ast.Constant(value=str(name)), ast.Tuple(elts=[member, doc])]:
            if not (method := text_of(member)).startswith("_"):
                entries.setdefault((place, name), _Entry()).members[method] = _tidy_docstring(text_of(doc))
        case [ast.Constant(value=str(place)), ast.Constant(value=str(name)), doc, *_]:
            entries.setdefault((place, name), _Entry()).doc = _tidy_docstring(text_of(doc))
        case [ast.Attribute() as compiled, doc]:
            place, _, name = ast.unparse(compiled).rpartition(".")
            key = (module, assigned) if assigned else (place, name)
            entries.setdefault(key, _Entry()).doc = _tidy_docstring(text_of(doc))
