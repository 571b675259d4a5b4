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
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from operator import eq
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
# Files and folders of a package that are left out.
SKIPPED = {
    # They are not documentation.
    "tests",
    "test",
    "_testing",
    "_internal",
    "conftest.py",
    "setup.py",
    # They are copies of other packages; `_numpy` is torch's copy of NumPy.
    "externals",
    "external",
    "extern",
    "_vendor",
    "array_api_compat",
    "array_api_extra",
    "pyprima",
    "cobyqa",
    "_numpy",
    # They hold notes to the developers of torch's compiler.
    "_inductor",
    "_dynamo",
    "_functorch",
}
# Fewest and most words of a page. A page with more, which is a class of hundreds of methods, takes
# as long as twenty others or more.
WORDS = (80, 6000)

# Names inside other words count too: `to_numpy` and `NetworkXError` give away the package as
# `numpy` does.
NAMES = "|".join([r"scikit[\W_]{0,9}learn", "natural language toolkit", "pytorch", *PACKAGES])
ALIASES = r"np|sp|pd|mpl|plt|sns|nx"  # customary in examples; only as whole identifiers
FIRST = "".join(sorted({name[0] for name in f"{NAMES}|{ALIASES}".split("|")}))
# The letters that a name begins with are tried first: that takes a third of the time.
NAME = re.compile(rf"(?=[{FIRST}])(?:{NAMES}|\b(?:{ALIASES})\b)(?:\.(?=\w))?", re.IGNORECASE)
IMPORT = re.compile(
    rf"(?im)^[ \t]*(?:>>> |\.\.\. )?import[ \t]+(?:{NAMES})(?:\.\w+)*"
    r"(?:[ \t]+as[ \t]+\w+)?[ \t]*(?:#.*)?$"
)
FROM = re.compile(rf"\bfrom[ \t]+(?:{NAMES})[ \t]+(?=import\b)", re.IGNORECASE)

# A section is underlined; it ends at the next underlined heading, or with text that is indented
# less. Any other block ends with the lines that are indented deeper than its heading.
RULE = r"[ ]*(?:-{3,}|={3,}|~{3,}|\^{3,}|\*{3,})[ ]*$"
BLOCK = re.compile(
    rf"""
    ^(?P<indent>[ ]*) (?: see[ -]?also [ ]* :? [ ]* | [.][.][ ]seealso::(?P<inline>.*) ) (?:\n|\Z)
    (?: {RULE} \n? (?: (?! [ ]*\S.*\n{RULE} ) (?: (?P=indent) | [ ]*$ ) .*\n? )*
    | (?: (?: (?P=indent)[ ] | [ ]*$ ) .*\n? )* )
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
# In running text: a whole parenthesis, or up to the end of the sentence or paragraph.
SENTENCE = re.compile(
    r"(?is)\(\s*see[ -]?also\b(?:[^()]|\([^()]*\))*\)|"
    r":?\bsee[ -]?also\b(?:(?!\n[ \t]*\n).)*?(?:\.(?=\s|$)|(?=\n[ \t]*\n)|\Z)"
)
LEAD = re.compile(r"\W*see[ -]?also\s*(?::(?=\s))?\s*", re.IGNORECASE)
# `a.b`, ``a.b``, :func:`~a.b`, :func:`title <a.b>`
QUOTED = re.compile(r"(?::[\w:+-]+:)?`+(?:[^`<]*<)?[~!.]*([\w.]+)(?:\(\))?>?`+_?")
# a.b, a_b or a(), none of which is a word of prose
PATH = re.compile(r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|\b\w+_\w+\b|\b\w+(?=\(\))")
# names with commas or `and` between them
LIST = re.compile(
    r"\.?[A-Za-z_][\w.]*(?:\(\))?(?:(?:\s*,\s*|\s+and\s+)\.?[A-Za-z_][\w.]*(?:\(\))?)*\s*[.,]?"
)

# Functions that attach documentation to compiled objects.
ATTACHING = {"add_newdoc", "add_docstr", "_add_docstr", "add_docstr_all"}
Definition = ast.FunctionDef | ast.ClassDef
# By the dotted path of a module, class or function, private parts included: its dedented docstring
# by the name "", and those of its public methods by their names
Pages = dict[str, dict[str, str]]
Known = dict[str, list[tuple[list[str], str]]]  # last part of a path -> full paths and their ids


class Page(NamedTuple):
    """The documentation of one public module, class or function, without what it may not say."""

    package: str
    paths: list[str]  # its own, private parts included, and those of its documented methods
    text: str
    cited: dict[str, None]  # names, to be resolved


def installed_docs(
    packages: Sequence[str] = PACKAGES, *, words: tuple[int, int] = WORDS
) -> list[Document]:
    """Return the documentation pages of `packages`, sorted by id, no two with the same text.

    The id is the dotted path without its private parts, where that is unique; `source` is the
    package; `see_also` holds ids of pages of the same package.

    Args:
        packages: import names. Raises InputError for one that is not installed.
        words: fewest and most words of a page; shorter and longer pages are left out.
    """
    fewest, most = words
    files = [file for package in packages for file in _source_files(package)]
    pages = {}
    for file, module in progress(files, desc="reading docs", unit="files"):
        for path, docs in read_pages(file, module).items():
            page = _clean(path, docs)
            if page.package in packages and fewest <= len(page.text.split()) <= most:
                pages[path] = page

    uses = Counter(map(_public, pages))
    by_id = {}
    for path, page in pages.items():
        public = _public(path)
        by_id[public if uses[public] == 1 else path] = page
    distinct: dict[str, str] = {}  # of texts that are equal but for case and spacing, the first id
    for id in sorted(by_id):
        distinct.setdefault(" ".join(by_id[id].text.lower().split()), id)
    known: Known = defaultdict(list)
    for id in distinct.values():
        for path in by_id[id].paths:
            known[path.rpartition(".")[2]].append((path.split("."), id))
    documents = []
    for id in distinct.values():
        page = by_id[id]
        targets = dict.fromkeys(_resolve(name, page.paths[0], known) for name in page.cited)
        see_also = tuple(target for target in targets if target not in {None, id})
        documents.append(Document(id, page.text, page.package, see_also))
    return documents


def _source_files(package: str) -> Iterator[tuple[Path, str]]:
    """Yield the source files of a package and their module names, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise not_installed(package)
    root = Path(spec.submodule_search_locations[0])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).parts
        if not SKIPPED.intersection(parts[1:]):
            yield path, ".".join(parts).removesuffix(".py").removesuffix(".__init__")


def _clean(path: str, docs: Mapping[str, str]) -> Page:
    """Return a page without See Also sections and names of packages."""
    cited: dict[str, None] = {}
    texts = []
    for name, doc in docs.items():
        text, names = cut_see_also(doc)
        texts.append(f"{name}\n{text}" if name else text)
        cited |= dict.fromkeys(names)
    paths = [f"{path}.{name}".strip(".") for name in docs]
    return Page(path.partition(".")[0], paths, remove_names("\n\n".join(texts)), cited)


def _public(path: str) -> str:
    return ".".join(part for part in path.split(".") if not part.startswith("_"))


def _resolve(name: str, citing: str, known: Known) -> str | None:
    """Return the id of the nearest page that `name` on a page stands for, None for a tie.

    The nearest page of the package shares most leading parts with the citing page, then has the
    shortest public path. A full name (one that begins with the package) may leave out inner parts:
    numpy.argsort is numpy._core.fromnumeric.argsort.
    """
    wanted = name.split(".")
    here = citing.split(".")
    ranked = defaultdict(set)
    for parts, id in known.get(wanted[-1], ()):
        remaining = iter(parts)
        # `wanted` is a subsequence of `parts`.
        if parts[0] == here[0] and all(part in remaining for part in wanted):
            shared = 0 if wanted[0] == here[0] else sum(takewhile(bool, map(eq, here, parts)))
            ranked[-shared, sum(not _is_private(part) for part in parts)].add(id)
    nearest = ranked[min(ranked)] if ranked else set()
    return nearest.pop() if len(nearest) == 1 else None


def read_pages(file: Path, module: str) -> Pages:
    """Return the documented public objects of a module's file; {} if it is no valid Python."""
    try:
        with tokenize.open(file) as opened, warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # invalid escapes in the packages
            tree = ast.parse(opened.read())
    except (SyntaxError, UnicodeDecodeError):
        return {}
    pages: Pages = defaultdict(partial(dict, {"": ""}))
    pages[module][""] = _docstring(tree)
    for statement in _statements(tree.body):
        match statement:
            case ast.FunctionDef() | ast.ClassDef():
                _add_definition(pages[f"{module}.{statement.name}"], statement)
            case ast.Assign([ast.Attribute(ast.Name(name), "__doc__"), *_], value):
                pages[f"{module}.{name}"][""] = _constant_doc(value)
            case ast.Assign([ast.Name("__doc__"), *_], value):
                pages[module][""] = _constant_doc(value) or pages[module][""]
            case ast.Assign([ast.Name(name), *_], ast.Call() as call):
                _add_compiled(pages, call, module, f"{module}.{name}")
            case ast.Expr(ast.Call() as call):
                _add_compiled(pages, call, module)
    return {
        path: docs
        for path, docs in pages.items()
        if any(docs.values()) and not _is_private(path.rpartition(".")[2])
    }


def _is_private(name: str) -> bool:
    return name.startswith("_")


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield top-level statements, and those under `if`, `try`, `with` and `for`."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
            yield from _statements(statement.body)
            yield from _statements(getattr(statement, "orelse", []))


def _add_definition(docs: dict[str, str], definition: Definition) -> None:
    docs[""] = docs[""] or _docstring(definition)
    for member in _statements(definition.body) if isinstance(definition, ast.ClassDef) else ():
        if isinstance(member, ast.FunctionDef):
            doc = _docstring(member)
            if doc and member.name == "__init__":  # many classes document their parameters here
                docs[""] = f"{docs['']}\n\n{doc}".strip()
            elif doc and not _is_private(member.name):
                docs.setdefault(member.name, doc)


def _add_compiled(pages: Pages, call: ast.Call, module: str, assigned: str = "") -> None:
    """Add the documentation that a call attaches to a compiled object, or to a method of it."""
    function = getattr(call.func, "id", getattr(call.func, "attr", ""))
    match call.args if function in ATTACHING else []:
        case [ast.Constant(str(place)), ast.Constant(str(name)), doc, *_]:
            path = f"{place}.{name}"
        case [ast.Constant(str(name)), doc]:
            # A method of torch's tensors, or a function of scipy.special.
            path = f"{'torch.Tensor' if function == 'add_docstr_all' else module}.{name}"
        case [ast.Attribute() as compiled, doc]:
            path = assigned or ast.unparse(compiled)
        case _:
            return
    method = ""
    if isinstance(doc, ast.Tuple):
        method = constant_text(doc.elts[0])
        doc = doc.elts[1]
    if not _is_private(method):
        pages[path][method] = _constant_doc(doc)


def constant_text(node: ast.expr) -> str:
    """Return the constant text of a string expression, without what is computed at run time."""
    match node:
        case ast.Constant(str(text)):
            return text
        case ast.JoinedStr(values):
            return "".join(map(constant_text, values))
        case ast.BinOp(left, ast.Add(), right):
            return constant_text(left) + constant_text(right)
        case ast.Call(ast.Attribute(inner, "format")):
            # In seaborn's placeholders, the attributes of `seealso` are names of functions.
            text = re.sub(r"\{seealso\.(\w+)\}", r"\1", constant_text(inner))
            text = re.sub(r"(?<!\{)\{[\w.]+\}(?!\})", "", text)
            return text.replace("{{", "{").replace("}}", "}")
        case ast.Call(ast.Name("dedent") | ast.Attribute(_, "dedent"), [inner]):
            return constant_text(inner)
    return ""


def _constant_doc(node: ast.expr) -> str:
    return _tidy_docstring(constant_text(node))


def _docstring(node: ast.Module | Definition) -> str:
    return _tidy_docstring(ast.get_docstring(node, clean=False) or "")


def _tidy_docstring(text: str) -> str:
    """Return the text dedented, without the placeholders that a decorator fills.

    These are `%(name)s`, and `{name}` alone on a line.
    """
    text = re.sub(r"%\([\w:.]+\)s|(?m:^[ \t]*\{\w+\}[ \t]*$)", "", text)
    return inspect.cleandoc(text).rstrip()


def cut_see_also(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text without its references to other pages, and the names that they cite.

    A reference is a See Also section, a block of `.. seealso::`, or a sentence "See also ...".
    """
    cited = []
    for block in BLOCK.finditer(text):
        cited += _cited_names(block["inline"] or "")
        below = block[0].split("\n")[1:]
        lines = [line for line in below if line.strip() and not re.match(RULE, line)]
        for line in lines:
            if _indent(line) == _indent(lines[0]):  # descriptions are indented deeper
                cited += _cited_names(line)
    text = BLOCK.sub("", text)
    for sentence in SENTENCE.findall(text):
        cited += _cited_names(LEAD.sub("", sentence.strip("()")))
    return _tidy(SENTENCE.sub("", text)), tuple(dict.fromkeys(cited))


def remove_names(text: str) -> str:
    """Return the text without names of packages; `numpy.argsort` becomes `argsort`."""
    return _tidy(NAME.sub("", FROM.sub("", IMPORT.sub("", text))))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _cited_names(text: str) -> list[str]:
    """Return the names cited in one entry (`a, b : what they do`) or in a sentence of prose."""
    plain = QUOTED.sub(r"\1", text)
    entry = re.split(r"\s:|:\s|:$", plain.strip().removeprefix("- ").removeprefix("* "))[0].strip()
    if LIST.fullmatch(entry):
        names = re.split(r"\s*,\s*|\s+and\s+", entry)
    else:
        names = QUOTED.findall(text) + PATH.findall(QUOTED.sub(" ", text))
    return list(filter(None, (name.replace("()", "").strip(" .,") for name in names)))


def _tidy(text: str) -> str:
    """Return the text without trailing spaces and runs of blank lines."""
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")
