"""The embedded corpus: the documentation that the installed scientific packages carry.

One document per public module, class (with its methods) or function; the files are parsed, never
imported. See Also sections become links; they and the names of the packages are cut from the texts,
because they would give away the answers of the embedded tasks.
"""

import ast
import importlib.util
import inspect
import re
import tokenize
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from docemb_lib.base.progress import progress
from docemb_lib.corpus.document import Document, not_installed

PACKAGES = (
    "numpy",
    "scipy",
    "sklearn",
    "pandas",
    "matplotlib",
    "seaborn",
    "torch",
    "nltk",
    "gensim",
    "networkx",
    "sympy",
)
SKIPPED = {
    "tests",
    "test",
    "_testing",
    "_internal",
    "conftest.py",
    "setup.py",  # not documentation
    "externals",
    "external",
    "extern",
    "_vendor",
    "array_api_compat",
    "array_api_extra",
    "pyprima",
    "cobyqa",  # copies
    "_numpy",  # torch's copy of NumPy
    "_inductor",
    "_dynamo",
    "_functorch",  # torch's compiler: notes to its developers
}

# Names inside other words count too: `to_numpy` and `NetworkXError` give away the package as
# `numpy` does.
NAMES = (
    r"scikit[\W_]{0,9}learn|natural language toolkit|pytorch|torch|numpy|scipy|sklearn|pandas|matplotlib|seaborn|nltk|"
    r"gensim|networkx|sympy"
)
ALIASES = r"np|sp|pd|mpl|plt|sns|nx"  # customary in examples; only as whole identifiers
NAME = re.compile(rf"(?:{NAMES}|\b(?:{ALIASES})\b)(?:\.(?=\w))?", re.IGNORECASE)
IMPORT = re.compile(
    rf"(?im)^[ \t]*(?:>>> |\.\.\. )?import[ \t]+(?:{NAMES})(?:\.\w+)*(?:[ \t]+as[ \t]+\w+)?[ \t]*(?:#.*)?$"
)
FROM = re.compile(rf"\bfrom[ \t]+(?:{NAMES})[ \t]+(?=import\b)", re.IGNORECASE)

HEADING = re.compile(r"see[ -]?also\s*:?\s*|\.\. seealso::(?P<inline>.*)", re.IGNORECASE)
RULE = re.compile(r"([-=~^*])\1{2,}\s*")
# In running text: a whole parenthesis, or up to the end of the sentence or paragraph.
SENTENCE = re.compile(
    r"(?is)\(\s*see[ -]?also\b(?:[^()]|\([^()]*\))*\)|"
    r":?\bsee[ -]?also\b(?:(?!\n[ \t]*\n).)*?(?:\.(?=\s|$)|(?=\n[ \t]*\n)|\Z)"
)
LEAD = re.compile(r"\W*see[ -]?also\s*(?::(?=\s))?\s*", re.IGNORECASE)
# `a.b`, ``a.b``, :func:`~a.b`, :func:`title <a.b>`
QUOTED = re.compile(r"(?::[\w:+-]+:)?`+(?:[^`<]*<)?[~!.]*([\w.]+)(?:\(\))?>?`+_?")
PATH = re.compile(
    r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|\b\w+_\w+\b|\b\w+(?=\(\))"
)  # a.b, a_b or a(): no word of prose
LIST = re.compile(
    r"\.?[A-Za-z_][\w.]*(?:\(\))?(?:(?:\s*,\s*|\s+and\s+)\.?[A-Za-z_][\w.]*(?:\(\))?)*\s*[.,]?"
)

ATTACHING = {
    "add_newdoc",
    "add_docstr",
    "_add_docstr",
    "add_docstr_all",
}  # document compiled objects
TEXT_METHODS = {
    "format",
    "replace",
    "strip",
    "lstrip",
    "rstrip",
}  # their effect is too small to be evaluated
WORDS = (
    80,
    6000,
)  # of a page; one with more, a class of hundreds of methods, takes as long as twenty others or more
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass
class Page:  # the documentation of one public module, class or function
    module: str  # dotted path of the module that defines it, private parts included
    name: str  # "" for the page of the module itself
    doc: str = ""  # dedented; "" where only members are documented
    members: dict[str, str] = field(
        default_factory=dict
    )  # docs of the public methods of a class, in source order


class _Clean(NamedTuple):
    path: str  # private parts included
    members: tuple[str, ...]  # names of the documented methods
    text: str
    cited: tuple[str, ...]  # names, to be resolved


def installed_docs(
    packages: Sequence[str] = PACKAGES, *, words: tuple[int, int] = WORDS
) -> list[Document]:
    """The documentation pages of `packages` (import names), sorted by id, no two with the same
    text.

    The id is the dotted path without its private parts, where that is unique; `source` is the
    package; `see_also` holds ids of pages of the same package. words: fewest and most of a page;
    shorter and longer ones are left out.
    """
    files = [file for package in packages for file in _source_files(package)]
    found = (
        page
        for file in progress(files, desc="reading docs", unit="files")
        for page in _clean_pages(*file)
    )
    pages = {
        page.path: page for page in found if words[0] <= len(page.text.split()) <= words[1]
    }.values()

    uses = Counter(_public(page.path) for page in pages)
    by_id = {
        public if uses[public := _public(page.path)] == 1 else page.path: page for page in pages
    }
    first: dict[str, str] = {}  # of texts that are equal except for case and spacing, the first id
    for id in sorted(by_id):
        first.setdefault(" ".join(by_id[id].text.lower().split()), id)
    documents: list[Document] = []
    for package in sorted(packages):
        own = {
            id: by_id[id] for id in first.values() if by_id[id].path.partition(".")[0] == package
        }
        documents += _linked(own, package)
    return documents


def _source_files(package: str) -> Iterator[tuple[Path, str]]:
    """The source files of a package and their module names, found without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise not_installed(package)
    root = Path(spec.submodule_search_locations[0])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).parts
        if not SKIPPED.intersection(parts[1:]):
            yield path, ".".join(parts).removesuffix(".py").removesuffix(".__init__")


def _clean_pages(file: Path, module: str) -> Iterator[_Clean]:
    for page in read_pages(file, module):
        path = f"{page.module}.{page.name}" if page.name else page.module
        cuts = {name: cut_see_also(doc) for name, doc in (("", page.doc), *page.members.items())}
        text = "\n\n".join(f"{name}\n{left}" if name else left for name, (left, _) in cuts.items())
        cited = dict.fromkeys(name for _, names in cuts.values() for name in names)
        yield _Clean(path, tuple(page.members), remove_names(text), tuple(cited))


def _public(path: str) -> str:
    return ".".join(part for part in path.split(".") if not part.startswith("_"))


def _linked(pages: dict[str, _Clean], package: str) -> Iterator[Document]:
    """The documents of a package; `see_also` are the pages that the cited names stand for."""
    known: dict[str, list[tuple[list[str], str]]] = defaultdict(
        list
    )  # last part -> full paths and their ids
    for id, page in pages.items():
        for path in [page.path, *(f"{page.path}.{member}" for member in page.members)]:
            parts = path.split(".")
            known[parts[-1]].append((parts, id))
    for id, page in pages.items():
        targets = dict.fromkeys(_resolve(name, page.path, known) for name in page.cited)
        yield Document(
            id, page.text, package, tuple(target for target in targets if target not in {None, id})
        )


def _resolve(name: str, citing: str, known: dict[str, list[tuple[list[str], str]]]) -> str | None:
    """The id that `name`, found on the page `citing`, stands for: the nearest page of that name,
    None for a tie.

    The nearest page shares most leading parts with the citing page, then has the shortest public
    path. A full name (one that begins with the package) may leave out inner parts: numpy.argsort is
    numpy._core.fromnumeric.argsort.
    """
    wanted, here = name.split("."), citing.split(".")
    ranked: dict[tuple[int, int], set[str]] = defaultdict(set)
    for parts, id in known.get(wanted[-1], ()):
        remaining = iter(parts)
        if all(part in remaining for part in wanted):  # `wanted` is a subsequence of `parts`
            alike = takewhile(lambda pair: pair[0] == pair[1], zip(here, parts, strict=False))
            shared = 0 if wanted[0] == here[0] else len(list(alike))
            ranked[-shared, len(_public(".".join(parts)).split("."))].add(id)
    nearest = ranked[min(ranked)] if ranked else set()
    return nearest.pop() if len(nearest) == 1 else None


def read_pages(path: Path, module: str) -> list[Page]:
    """All documented public objects of the file `path`, which is the module `module`; [] if it is
    no valid Python.
    """
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # invalid escapes in the packages
            tree = ast.parse(file.read())
    except (SyntaxError, UnicodeDecodeError):
        return []
    pages: dict[tuple[str, str], Page] = {}

    def page(place: str, name: str) -> Page:
        return pages.setdefault((place, name), Page(place, name))

    page(module, "").doc = _own_doc(tree)
    for statement in _statements(tree.body):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                _document(page(module, statement.name), statement)
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id=name), attr="__doc__"), *_], value=value
            ):
                page(module, name).doc = _tidy_docstring(text_of(value))
            case ast.Assign(targets=[ast.Name(id="__doc__"), *_], value=value):
                page(module, "").doc = _tidy_docstring(text_of(value)) or page(module, "").doc
            case ast.Assign(targets=[ast.Name(id=name), *_], value=ast.Call() as call):
                _document_compiled(page, module, call, assigned=name)
            case ast.Expr(value=ast.Call() as call):
                _document_compiled(page, module, call, assigned=None)
    found = (one for one in pages.values() if one.doc or one.members)
    return [one for one in found if not (one.name or one.module).rpartition(".")[2].startswith("_")]


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, and those under `if`, `try`, `with` and `for`."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
            yield from _statements(statement.body)
            yield from _statements(getattr(statement, "orelse", []))


def _document(page: Page, node: Definition) -> None:
    page.doc = page.doc or _own_doc(node)
    for member in _statements(node.body) if isinstance(node, ast.ClassDef) else ():
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and (doc := _own_doc(member)):
            if member.name == "__init__":  # many classes document their parameters here
                page.doc = f"{page.doc}\n\n{doc}".strip()
            elif not member.name.startswith("_"):
                page.members.setdefault(member.name, doc)


def _document_compiled(
    page: Callable[[str, str], Page], module: str, call: ast.Call, *, assigned: str | None
) -> None:
    """Add the documentation that a call attaches to a compiled object."""
    function = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if function not in ATTACHING:
        return
    match call.args:
        case [ast.Constant(value=str(name)), doc]:
            place = (
                "torch.Tensor" if function == "add_docstr_all" else module
            )  # torch's methods, scipy.special
        case [
            ast.Constant(value=str(place)),
            ast.Constant(value=str(name)),
            ast.Tuple(elts=[member, doc]),
        ]:
            if not (method := text_of(member)).startswith("_"):
                page(place, name).members[method] = _tidy_docstring(text_of(doc))
            return
        case [ast.Constant(value=str(place)), ast.Constant(value=str(name)), doc, *_]:
            pass
        case [ast.Attribute() as compiled, doc]:
            place, _, name = ast.unparse(compiled).rpartition(".")
            place, name = (module, assigned) if assigned else (place, name)
        case _:
            return
    page(place, name).doc = _tidy_docstring(text_of(doc))


def text_of(node: ast.expr) -> str:
    """The constant text of a string expression, without placeholders and values that are computed
    at run time.
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
            )  # seaborn's placeholders for function names
            text = re.sub(r"(?<!\{)\{[\w.]+\}(?!\})", "", text)
            return text.replace("{{", "{").replace("}}", "}")
        case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in TEXT_METHODS:
            return text_of(inner)
        case ast.Call(func=ast.Name(id="dedent") | ast.Attribute(attr="dedent"), args=[inner]):
            return text_of(inner)
    return ""


def _own_doc(node: ast.Module | Definition) -> str:
    return _tidy_docstring(ast.get_docstring(node, clean=False) or "")


def _tidy_docstring(text: str) -> str:
    """Dedent, and drop the placeholders that a decorator fills: `%(name)s`, and `{name}` alone on
    its line.
    """
    text = re.sub(r"%\([\w:.]+\)s", "", text)
    text = re.sub(r"(?m)^[ \t]*\{\w+\}[ \t]*$", "", text)
    return inspect.cleandoc(text).rstrip()


def cut_see_also(text: str) -> tuple[str, tuple[str, ...]]:
    """A text without See Also sections, `..

    seealso::` blocks and "See also ..." sentences, and the names they cite.
    """
    kept: list[str] = []
    cited: list[str] = []
    lines = text.split("\n")
    at = 0
    while (start := at) < len(lines):
        at += 1
        if heading := HEADING.fullmatch(lines[start].strip()):
            at = _block_end(lines, start)
            block = [
                line
                for line in lines[start + 1 : at]
                if line.strip() and not RULE.fullmatch(line.strip())
            ]
            entries = [
                line for line in block if _indent(line) == _indent(block[0])
            ]  # without indented descriptions
            cited += [
                name for entry in (heading["inline"] or "", *entries) for name in _names(entry)
            ]
        else:
            kept.append(lines[start])
    text = "\n".join(kept)
    for sentence in SENTENCE.findall(text):
        cited += _names(LEAD.sub("", sentence.strip("()")))
    return _tidy(SENTENCE.sub("", text)), tuple(dict.fromkeys(cited))


def remove_names(text: str) -> str:
    """`text` without the names and aliases of the packages; `numpy.argsort` becomes `argsort`."""
    return _tidy(NAME.sub("", FROM.sub("", IMPORT.sub("", text))))


def _block_end(lines: list[str], heading: int) -> int:
    """Index of the first line after the block that `lines[heading]` opens.

    A block with an underlined heading ends at the next underlined heading or with text that is
    indented less. Any other ends with the lines that are indented deeper.
    """
    indent, rules = (
        _indent(lines[heading]),
        [RULE.fullmatch(line.strip()) is not None for line in lines] + [False],
    )
    underlined = rules[heading + 1]
    for at in range(heading + 1 + underlined, len(lines)):
        own = _indent(lines[at])
        if lines[at].strip() and ((own < indent or rules[at + 1]) if underlined else own <= indent):
            return at
    return len(lines)


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
