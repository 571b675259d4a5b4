"""YAML files and classes of a user: where they lie, and how they are read."""

import inspect
import os
import re
import sys
from collections.abc import Hashable, Mapping
from contextlib import suppress
from functools import cache
from glob import glob
from importlib import import_module
from os.path import expanduser
from pathlib import Path
from typing import Any

import yaml

from docemb_lib.base.errors import InputError, did_you_mean, nearest, repeated
from docemb_lib.base.files import hash_of, warn_once

PACKAGE = Path(__file__).resolve().parents[1]
# The folder of the notebooks and params that come with docemb: in a wheel the package, in a
# checkout the one around it.
SHIPPED = PACKAGE if (PACKAGE / "params").is_dir() else PACKAGE.parent
# Fields that hold paths, from the folder of their file. Those behind the group may also hold names,
# of a hub or in `params/`: their value is a path if it begins with a dot or `~`, or if there is
# such a file.
_PLACES = re.compile(
    r"(?P<path>(contextual_teachers\.)?corpus\.path"
    r"|evaluation\.own_tasks\.(path|queries|relevance)(\.\w+)?"
    r"|evaluation\.benchmarks\.(aan|oc|s2orc|pan|wines|games))"  # no hub has them
    r"|(contextual_teachers\.)?corpus\.datasets\.dataset"
    r"|evaluation\.benchmarks\.[\w-]+"
    r"|(student|structural_teacher)\.model"
    r"|plan\.(grid|profile)"
)
WORKSPACE = "DOCEMB_WORKSPACE"  # the variable that names the working folder
Settings = dict[str, Any]  # a mapping in a YAML file
Sources = dict[str, str]  # the SHA-256 of a file, by the name of the file


def find_root() -> Path:
    """The working folder, see `working_folder`; a warning names one that is not above this folder.

    Raises InputError where there is none.
    """
    root = working_folder()
    if root is None or not any((root / "params").glob("*.yaml")):
        raise InputError(
            f"{root or Path.cwd()}: this is no working folder (one with params/ and notebooks/); "
            f"make it one with `docemb init`, or name one by {WORKSPACE}=FOLDER in the environment"
        )
    if not Path.cwd().is_relative_to(root):
        warn_once("the working folder is %s", root)
    return root


def working_folder() -> Path | None:
    """The folder that the environment names (`DOCEMB_WORKSPACE`).

    Without one, the nearest folder from the working directory upwards that holds `params/*.yaml`,
    if any.
    """
    named = os.environ.get(WORKSPACE)
    if named:
        return Path(named).resolve()
    here = Path.cwd()
    above = (folder for folder in (here, *here.parents) if any((folder / "params").glob("*.yaml")))
    return next(above, None)


def yaml_file(kind: str, name: str | Path, known: Mapping[str, Path]) -> Path:
    """The `known` file of this name, or the given .yaml file.

    Raises InputError where there is no such file; `kind` says there what the file holds.
    """
    name = str(name)
    if name in known:
        return known[name]
    for candidate in (Path(name), find_root() / name):
        if candidate.suffix in {".yaml", ".yml"} and os.path.isfile(candidate):
            return candidate.resolve()
    mend = f"{nearest(name, sorted(known))}; give one of these, or the path of a .yaml file"
    raise InputError(f"{kind} {name!r} is unknown{mend}")


def read_yaml(path: Path) -> Any:
    """The content of a YAML file.

    Raises InputError where it is not YAML, or where a mapping has a key twice.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise InputError(
            f"{path}: the file is not readable as YAML ({error}); correct it"
        ) from None


def parse_yaml(text: str) -> Any:
    """The value that a text in YAML stands for. Raises yaml.YAMLError where the text is no YAML."""
    try:
        return yaml.load(text, _Loader)
    except Exception as error:  # PyYAML raises many kinds, such as ValueError for a wrong date
        raise yaml.YAMLError(str(error)) from None


class _Loader(yaml.SafeLoader):
    """YAML without repeated keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        key = repeated([key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)])
        if key is not None:
            raise yaml.YAMLError(
                f"the key {key!r} is there twice; keep one of them{node.start_mark}"
            )
        return super().construct_mapping(node, deep=deep)


# 010 is ten, and 1:30 no number, as people mean them; in YAML 1.1 they are 8 and 90.
_Loader.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value))


def read_profile_file(path: Path, above: tuple[Path, ...] = ()) -> tuple[Settings, list[Path]]:
    """A profile merged with its bases, and the files that were read, the profile first.

    Mappings are merged, key by key. Raises InputError for a file that is missing, not readable or
    its own base.

    above: the profiles whose base this file is.
    """
    if path in above:
        circle = " → ".join(file.name for file in (*above, path))
        raise InputError(f"{above[-1]}: base: {circle} leads in a circle; take one of them out")
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        mend = "write `name: value` lines, as in params/own.yaml"
        raise InputError(f"{path}: the file holds no settings; {mend}")
    content = _absolute(raw, "", path.parent)
    if "base" not in content:
        return content, [path]
    base = content.pop("base")
    file = path.parent / str(base)
    if not file.is_file():
        mend = "name a .yaml file, relative to the folder of this one"
        raise InputError(f"{path}: base: there is no file {base!r}; {mend}")
    below, files = read_profile_file(file.resolve(), (*above, path))
    below.pop("name", None)  # of another profile
    return _merged(below, content), [path, *files]


def _merged(below: Settings, content: Settings) -> Settings:
    """The settings of a file over those of its base."""
    merged = {**below, **content}
    for key, value in content.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            merged[key] = _merged(below[key], value)
    return merged


def _absolute(value: Any, place: str, folder: Path) -> Any:
    """`value` with absolute paths, because notebooks run in another folder.

    place: the keys that lead to the value, each with a dot behind it. folder: that of the file.
    """
    if isinstance(value, dict):
        return {key: _absolute(item, f"{place}{key}.", folder) for key, item in value.items()}
    if isinstance(value, list):
        return [_absolute(item, place, folder) for item in value]
    if not isinstance(value, str):
        return value
    field = place.removesuffix(".")
    path = folder / expanduser(value)
    match = _PLACES.fullmatch(field)
    if match and match["path"] and not value.strip():
        raise InputError(f"{field}: the path is empty; name a file or a folder")
    if match and (match["path"] or value.startswith((".", "~")) or glob(str(path))):
        return str(path.resolve())
    return value


def load_class(name: str) -> type:
    """Import a class, `module:Class`, from `notebooks/` of the working folder or PYTHONPATH.

    Raises InputError where the import fails, or the module has no such class.
    """
    root = working_folder()
    if root is not None and str(root / "notebooks") not in sys.path:
        sys.path.insert(0, str(root / "notebooks"))
    module, _, attribute = name.partition(":")
    try:
        names = vars(import_module(module))
    except Exception as error:  # the code may raise any kind
        raise InputError(
            f"{name} cannot be imported ({type(error).__name__}: {error}); "
            "put its file into notebooks/, or its folder on PYTHONPATH"
        ) from error
    kind = names.get(attribute)
    if not isinstance(kind, type):
        question = did_you_mean(attribute, names)
        raise InputError(f"{name}: {module} has no class {attribute}{question}")
    sources_of(kind)  # hashes the file as it was imported
    return kind


@cache  # a class stays as it was imported while the process lives
def sources_of(kind: type) -> Sources:
    """Hash the file that defines a class of one's own.

    Nothing is hashed for docemb's classes, and for those that no file defines, such as a class in a
    cell of a notebook.
    """
    with suppress(OSError, TypeError):
        file = Path(inspect.getfile(kind)).resolve()
        if not file.is_relative_to(PACKAGE):
            return {file.name: hash_of(file.read_bytes())}
    return {}
