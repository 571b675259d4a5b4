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
from itertools import chain, starmap, takewhile
from operator import eq
from pathlib import Path
from typing import NamedTuple

from joblib import cpu_count

from docemb_lib.base.progress import progress
from docemb_lib.base.tokenizing import batched
from docemb_lib.base.worker_pool import WorkerPool
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

FILES = 64  # that a process reads at a time
WORTH = 512  # files for a process at least, because its start takes as long as reading so many

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
# a.b, a_b or a(), none of which is a word of prose
PATH = re.compile(r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|\b\w+_\w+\b|\b\w+(?=\(\))")
# names with commas or `and` between them
LIST = re.compile(
    r"\.?[A-Za-z_][\w.]*(?:\(\))?(?:(?:\s*,\s*|\s+and\s+)\.?[A-Za-z_][\w.]*(?:\(\))?)*\s*[.,]?"
)

# Functions that attach documentation to compiled objects.
ATTACHING = {"add_newdoc", "add_docstr", "_add_docstr", "add_docstr_all"}
# Methods of strings that change too little of a text to be evaluated.
TEXT_METHODS = {"replace", "strip", "lstrip", "rstrip"}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Known = dict[str, list[tuple[list[str], str]]]  # last part of a path -> full paths and their ids


@dataclass
class Page:
    """The documentation of one public module, class or function."""

    module: str  # dotted path of the module that defines it, private parts included
    name: str  # "" for the page of the module itself
    doc: str = ""  # dedented; "" where only members are documented
    # docs of the public methods of a class, in source order
    members: dict[str, str] = field(default_factory=dict)


class _Clean(NamedTuple):
    path: str  # private parts included
    members: list[str]  # names of the documented methods
    text: str
    cited: dict[str, None]  # names, to be resolved


def installed_docs(
    packages: Sequence[str] = PACKAGES, *, words: tuple[int, int] = WORDS
) -> list[Document]:
    """The documentation pages of `packages`, sorted by id, no two with the same text.

    The id is the dotted path without its private parts, where that is unique; `source` is the
    package; `see_also` holds ids of pages of the same package.

    Args:
        packages: import names. Raises InputError for one that is not installed.
        words: fewest and most words of a page; shorter and longer pages are left out.
    """
    fewest, most = words
    files = [file for package in packages for file in _source_files(package)]
    pages = {}
    pool = WorkerPool()
    parts = [(part,) for part in batched(files, FILES)]
    jobs = min(cpu_count(), len(files) // WORTH)
    results = pool.map(_read, parts, jobs=jobs) if jobs > 1 else starmap(_read, parts)
    for cleaned in progress(results, total=len(parts), desc="reading docs", unit="blocks"):
        for page in cleaned:
            if fewest <= len(page.text.split()) <= most:
                pages[page.path] = page
    pool.stop()

    uses = Counter(map(_public, pages))
    by_id = {}
    for path, page in pages.items():
        public = _public(path)
        by_id[public if uses[public] == 1 else path] = page
    first: dict[str, str] = {}  # of texts that are equal except for case and spacing, the first id
    for id in sorted(by_id):
        first.setdefault(" ".join(by_id[id].text.lower().split()), id)
    documents: list[Document] = []
    for package in sorted(packages):
        ids = (id for id in first.values() if by_id[id].path.partition(".")[0] == package)
        documents += _linked({id: by_id[id] for id in ids}, package)
    return documents


def _read(files: Sequence[tuple[Path, str]]) -> list[_Clean]:
    """The pages of source files, each with its module's name."""
    pages = chain.from_iterable(starmap(read_pages, files))
    return [_clean(page) for page in pages]


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


def _clean(page: Page) -> _Clean:
    """A page without See Also sections and names of packages."""
    cited: dict[str, None] = {}
    texts = []
    for name, doc in {"": page.doc, **page.members}.items():
        text, names = cut_see_also(doc)
        texts.append(f"{name}\n{text}" if name else text)
        cited |= dict.fromkeys(names)
    path = f"{page.module}.{page.name}" if page.name else page.module
    return _Clean(path, [*page.members], remove_names("\n\n".join(texts)), cited)


def _public(path: str) -> str:
    return ".".join(part for part in path.split(".") if not part.startswith("_"))


def _linked(pages: dict[str, _Clean], package: str) -> Iterator[Document]:
    """The documents of a package; `see_also` are the pages that the cited names stand for."""
    known: Known = {}
    for id, page in pages.items():
        for path in [page.path, *(f"{page.path}.{member}" for member in page.members)]:
            parts = path.split(".")
            known.setdefault(parts[-1], []).append((parts, id))
    for id, page in pages.items():
        targets = dict.fromkeys(_resolve(name, page.path, known) for name in page.cited)
        see_also = tuple(target for target in targets if target not in {None, id})
        yield Document(id, page.text, package, see_also)


def _resolve(name: str, citing: str, known: Known) -> str | None:
    """The id of the nearest page that `name` on the page `citing` stands for, None for a tie.

    The nearest page shares most leading parts with the citing page, then has the shortest public
    path. A full name (one that begins with the package) may leave out inner parts: numpy.argsort is
    numpy._core.fromnumeric.argsort.
    """
    wanted = name.split(".")
    here = citing.split(".")
    ranked = defaultdict(set)
    for parts, id in known.get(wanted[-1], ()):
        remaining = iter(parts)
        if all(part in remaining for part in wanted):  # `wanted` is a subsequence of `parts`
            is_full = wanted[0] == here[0]
            shared = 0 if is_full else sum(takewhile(bool, map(eq, here, parts)))
            ranked[-shared, sum(not part.startswith("_") for part in parts)].add(id)
    nearest = ranked[min(ranked)] if ranked else set()
    return nearest.pop() if len(nearest) == 1 else None


def read_pages(path: Path, module: str) -> list[Page]:
    """The documented public objects of a file, the module `module`; [] if it is no valid Python."""
    try:
        with tokenize.open(path) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # invalid escapes in the packages
            tree = ast.parse(file.read())
    except (SyntaxError, UnicodeDecodeError):
        return []
    pages: dict[tuple[str, str], Page] = {}

    def page(place: str, name: str) -> Page:
        return pages.setdefault((place, name), Page(place, name))

    page(module, "").doc = _docstring(tree)
    for statement in _statements(tree.body):
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                _document(page(module, statement.name), statement)
            case ast.Assign(
                targets=[ast.Attribute(value=ast.Name(id=name), attr="__doc__"), *_], value=value
            ):
                page(module, name).doc = _constant_doc(value)
            case ast.Assign(targets=[ast.Name(id="__doc__"), *_], value=value):
                page(module, "").doc = _constant_doc(value) or page(module, "").doc
            case ast.Assign(targets=[ast.Name(id=name), *_], value=ast.Call() as call):
                _document_compiled(page, module, call, assigned=name)
            case ast.Expr(value=ast.Call() as call):
                _document_compiled(page, module, call)
    documented = [page for page in pages.values() if page.doc or page.members]
    return [page for page in documented if not _is_private(page.name or page.module)]


def _is_private(path: str) -> bool:
    return path.rpartition(".")[2].startswith("_")


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Top-level statements, and those under `if`, `try`, `with` and `for`."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
            yield from _statements(statement.body)
            yield from _statements(getattr(statement, "orelse", []))


def _document(page: Page, definition: Definition) -> None:
    page.doc = page.doc or _docstring(definition)
    if not isinstance(definition, ast.ClassDef):
        return
    for member in _statements(definition.body):
        if not isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        doc = _docstring(member)
        if doc and member.name == "__init__":  # many classes document their parameters here
            page.doc = f"{page.doc}\n\n{doc}".strip()
        elif doc and not _is_private(member.name):
            page.members.setdefault(member.name, doc)


def _document_compiled(
    page: Callable[[str, str], Page], module: str, call: ast.Call, *, assigned: str = ""
) -> None:
    """Add the documentation that a call attaches to a compiled object."""
    function = getattr(call.func, "id", getattr(call.func, "attr", ""))
    if function not in ATTACHING:
        return
    match call.args:
        case [ast.Constant(value=str(name)), doc]:
            # A method of torch's tensors, or a function of scipy.special.
            place = "torch.Tensor" if function == "add_docstr_all" else module
        case [
            ast.Constant(value=str(place)),
            ast.Constant(value=str(name)),
            ast.Tuple(elts=[member, doc]),
        ]:
            method = constant_text(member)
            if not _is_private(method):
                page(place, name).members[method] = _constant_doc(doc)
            return
        case [ast.Constant(value=str(place)), ast.Constant(value=str(name)), doc, *_]:
            pass
        case [ast.Attribute() as compiled, doc]:
            place, _, name = ast.unparse(compiled).rpartition(".")
            if assigned:
                place = module
                name = assigned
        case _:
            return
    page(place, name).doc = _constant_doc(doc)


def constant_text(node: ast.expr) -> str:
    """The constant text of a string expression, without what is computed at run time."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(constant_text, values))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return constant_text(left) + constant_text(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return constant_text(left).replace("%%", "%")
        case ast.Call(func=ast.Attribute(value=inner, attr="format")):
            # In seaborn's placeholders, the attributes of `seealso` are names of functions.
            text = re.sub(r"\{seealso\.(\w+)\}", r"\1", constant_text(inner))
            text = re.sub(r"(?<!\{)\{[\w.]+\}(?!\})", "", text)
            return text.replace("{{", "{").replace("}}", "}")
        case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in TEXT_METHODS:
            return constant_text(inner)
        case ast.Call(func=ast.Name(id="dedent") | ast.Attribute(attr="dedent"), args=[inner]):
            return constant_text(inner)
    return ""


def _constant_doc(node: ast.expr) -> str:
    return _tidy_docstring(constant_text(node))


def _docstring(node: ast.Module | Definition) -> str:
    return _tidy_docstring(ast.get_docstring(node, clean=False) or "")


def _tidy_docstring(text: str) -> str:
    """The text dedented, without the placeholders that a decorator fills.

    These are `%(name)s`, and `{name}` alone on a line.
    """
    text = re.sub(r"%\([\w:.]+\)s", "", text)
    text = re.sub(r"(?m)^[ \t]*\{\w+\}[ \t]*$", "", text)
    return inspect.cleandoc(text).rstrip()


def cut_see_also(text: str) -> tuple[str, tuple[str, ...]]:
    """The text without its references to other pages, and the names that they cite.

    A reference is a See Also section, a block of `.. seealso::`, or a sentence "See also ...".
    """
    kept = []
    cited = []
    lines = text.split("\n")
    start = 0
    while start < len(lines):
        heading = HEADING.fullmatch(lines[start].strip())
        end = _block_end(lines, start) if heading else start + 1
        if heading:
            cited += _cited_names(heading["inline"] or "")
            block = [line for line in lines[start + 1 : end] if line.strip() and not _is_rule(line)]
            for line in block:
                if _indent(line) == _indent(block[0]):  # descriptions are indented deeper
                    cited += _cited_names(line)
        else:
            kept.append(lines[start])
        start = end
    text = "\n".join(kept)
    for sentence in SENTENCE.findall(text):
        cited += _cited_names(LEAD.sub("", sentence.strip("()")))
    return _tidy(SENTENCE.sub("", text)), tuple(dict.fromkeys(cited))


def remove_names(text: str) -> str:
    """`text` without the names and aliases of the packages; `numpy.argsort` becomes `argsort`."""
    return _tidy(NAME.sub("", FROM.sub("", IMPORT.sub("", text))))


def _block_end(lines: list[str], heading: int) -> int:
    """Index of the first line after the block that `lines[heading]` opens.

    A block with an underlined heading ends at the next underlined heading or with text that is
    indented less. Any other ends with the lines that are indented deeper.
    """
    indent = _indent(lines[heading])
    following = [*lines[1:], ""]
    underlined = _is_rule(following[heading])
    for at in range(heading + 1 + underlined, len(lines)):
        deeper = _indent(lines[at]) - indent
        ends = (deeper < 0 or _is_rule(following[at])) if underlined else deeper <= 0
        if ends and lines[at].strip():
            return at
    return len(lines)


def _is_rule(line: str) -> bool:
    return RULE.fullmatch(line.strip()) is not None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _cited_names(text: str) -> list[str]:
    """The names cited in one entry (`a, b : what they do`) or in a sentence of prose."""
    plain = QUOTED.sub(r"\1", text)
    entry = re.split(r"\s:|:\s|:$", plain.strip().removeprefix("- ").removeprefix("* "))[0].strip()
    if LIST.fullmatch(entry):
        names = re.split(r"\s*,\s*|\s+and\s+", entry)
    else:
        names = QUOTED.findall(text) + PATH.findall(QUOTED.sub(" ", text))
    return list(filter(None, (name.replace("()", "").strip(" .,") for name in names)))


def _tidy(text: str) -> str:
    """The text without trailing spaces and runs of blank lines."""
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")
