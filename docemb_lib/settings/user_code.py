"""Code of one's own that a run uses: found, hashed with all that it imports, and loaded anew.

A class is named by its import path, `module:Class`. Its module is looked for in the folder
`notebooks` of the working folder, then where Python looks. One's own modules are those that lie
neither in the standard library nor in an installed package.
"""

import ast
import inspect
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import cache_from_source, resolve_name
from pathlib import Path
from sysconfig import get_path

from docemb_lib.base.errors import InputError, did_you_mean
from docemb_lib.base.integrity import hash_of
from docemb_lib.settings.files import PACKAGE, working_folder

INSTALLED = {"site-packages", "dist-packages"}
Sources = dict[str, str]  # the SHA-256 of each file, or the version of an installed package


def sources_of(name: str) -> Sources:
    """What identifies the code of a class, `module:Class`.

    It is the SHA-256 of the module's file and of the files of one's own modules that it imports, at
    any depth, by their paths from the folder that Python imports from. A class of an installed
    package is identified by the version of the package. Modules whose names are computed, and data
    files, are not seen. Raises InputError for a module that is nowhere.
    """
    module = name.partition(":")[0]
    files = _user_files(module)
    if files:
        return {place: hash_of(file.read_bytes()) for place, file in files.items()}
    if _spec(module) is None:
        raise InputError(
            f"{name}: there is no module {module}; "
            "put its file into notebooks/, or its folder on PYTHONPATH"
        )
    package = module.partition(".")[0]
    return {package: package_version(package) or platform.python_version()}


@cache
def package_version(package: str) -> str | None:
    """The version of an installed package, by its import name; None where there is none."""
    with suppress(PackageNotFoundError):  # most are installed under their import name
        return version("scikit-learn" if package == "sklearn" else package)
    names = _distributions().get(package)
    return version(names[0]) if names else None


_distributions = cache(packages_distributions)  # reads all of site-packages


def sources_of_object(value: object) -> Sources:
    """What identifies the code of the class of an object; nothing for a class of docemb's.

    A class that is defined in a notebook or a script is identified by its own text.
    """
    kind = type(value)
    if kind.__module__.partition(".")[0] in (PACKAGE.name, "builtins"):
        return {}
    with suppress(InputError, OSError, TypeError):  # a class may have no text
        if kind.__module__ == "__main__":
            return {kind.__qualname__: hash_of(inspect.getsource(kind))}
        return sources_of(kind.__module__)
    return {}


def load_class(name: str) -> type:
    """Load a class, `module:Class`, from the present text of its own modules.

    What Python has loaded or compiled before is not used: it may be of an earlier text. Raises
    InputError for a module without this class, and whatever the import raises.
    """
    module, _, attribute = name.partition(":")
    for place, file in _user_files(module).items():
        sys.modules.pop(_module_at(place), None)
        with suppress(OSError):  # of a folder that cannot be written to
            Path(cache_from_source(str(file))).unlink()
    invalidate_caches()
    before = list(sys.path)
    sys.path[:] = _search_path()
    try:
        imported = import_module(module)
    finally:
        sys.path[:] = before
    if hasattr(imported, attribute):
        return getattr(imported, attribute)
    classes = [
        each.__name__
        for _, each in inspect.getmembers(imported, inspect.isclass)
        if each.__module__ == imported.__name__
    ]
    has = f"{module} has {', '.join(classes) or 'no class'}"
    question = did_you_mean(attribute, classes)
    raise InputError(f"{name}: there is no class {attribute}; {has}{question}")


def _user_files(module: str) -> dict[str, Path]:
    """The files of one's own that the import of a module reads, by their places."""
    files = {}
    waiting = [module]
    seen = set()
    while waiting:
        parts = waiting.pop().split(".")
        for end in range(1, len(parts) + 1):  # an import of a.b also executes a
            name = ".".join(parts[:end])
            if name in seen:
                continue
            seen.add(name)
            spec = _spec(name)
            if spec is None or spec.origin is None or not _is_user_file(Path(spec.origin)):
                continue
            is_package = spec.submodule_search_locations is not None
            place = name.replace(".", "/") + ("/__init__.py" if is_package else ".py")
            files[place] = Path(spec.origin)
            package = name if is_package else name.rpartition(".")[0]
            waiting += _imports(files[place].read_bytes(), package)
    return dict(sorted(files.items()))


@cache
def _imports(source: bytes, package: str) -> tuple[str, ...]:
    """The modules that a text in `package` may import, wherever in it."""
    with suppress(SyntaxError, ValueError):
        return tuple(_imported(ast.parse(source), package))
    return ()  # the import will say what is wrong


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = node.module or ""
            if node.level:
                name = resolve_name("." * node.level + name, package)
            yield name
            yield from (f"{name}.{alias.name}" for alias in node.names)  # perhaps a submodule


def _spec(module: str) -> ModuleSpec | None:
    """Where a module lies, found without importing it; None: nowhere."""
    first, *further = module.split(".")
    spec = PathFinder.find_spec(first, _search_path())
    for finder in sys.meta_path:  # of built-in modules, and of packages installed for editing
        spec = spec or finder.find_spec(first, None)
    name = first
    for part in further:
        if spec is None or spec.submodule_search_locations is None:
            return None
        name += f".{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec


def _search_path() -> list[str]:
    root = working_folder()
    return [*([] if root is None else [str(root / "notebooks")]), *sys.path]


def _is_user_file(file: Path) -> bool:
    installed = INSTALLED & set(file.parts) or file.is_relative_to(get_path("stdlib"))
    return file.suffix == ".py" and not installed and not file.is_relative_to(PACKAGE)


def _module_at(place: str) -> str:
    return place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
