"""YAML files: where they lie, how they are read, and how a profile builds on its bases."""

import os
import re
from collections.abc import Hashable, Mapping
from glob import glob
from os.path import expanduser
from pathlib import Path
from typing import Any

import yaml

from docemb_lib.base.errors import InputError, did_you_mean, repeated
from docemb_lib.base.integrity import warn_once

PACKAGE = Path(__file__).resolve().parents[1]
# The folder of the notebooks and params that come with docemb: in a wheel the package, in a
# checkout the one around it.
SHIPPED = PACKAGE if (PACKAGE / "params").is_dir() else PACKAGE.parent
# Fields that hold paths, from the folder of their file, where the value begins with a dot or there
# is such a file. Other values are names, of a hub or in `params/`.
_PATHS = re.compile(
    r"(contextual_teachers\.)?corpus\.(path|datasets\.dataset)"
    r"|evaluation\.own_tasks\.(path|queries|relevance)(\.\w+)?"
    r"|evaluation\.benchmarks\.[\w-]+"
    r"|(student|structural_teacher)\.model"
    r"|plan\.(grid|profile)"
)
# Fields that always hold a path.
_ALWAYS_PATHS = re.compile(
    r"(contextual_teachers\.)?corpus\.path"
    r"|evaluation\.own_tasks\.(path|queries|relevance)(\.\w+)?"
    r"|evaluation\.benchmarks\.(aan|oc|s2orc|pan|wines|games)"  # no hub has them
)
WORKSPACE = "DOCEMB_WORKSPACE"  # the variable that names the working folder
Settings = dict[str, Any]  # a mapping in a YAML file


def find_root() -> Path:
    """The working folder, see `working_folder`; a warning names one that is not above this folder.

    Raises InputError where there is none.
    """
    root = working_folder()
    if root is None:
        raise InputError(
            f"{Path.cwd()} lies in no working folder (one with params/ and notebooks/); "
            f"make it one with `docemb init`, or name one by {WORKSPACE}=FOLDER in the environment"
        )
    if not Path.cwd().is_relative_to(root):
        warn_once("the working folder is %s", root)
    return root


def working_folder() -> Path | None:
    """The folder that the environment names (`DOCEMB_WORKSPACE`), or else `folder_above`.

    Raises InputError where the named one is no working folder.
    """
    named = os.environ.get(WORKSPACE)
    if not named:
        return folder_above()
    root = Path(named).resolve()
    if not any((root / "params").glob("*.yaml")):
        raise InputError(
            f"{WORKSPACE}={named}: this is no working folder (one with params/ and notebooks/); "
            "make it one with `docemb init`"
        )
    return root


def folder_above() -> Path | None:
    """The nearest folder from the working directory upwards that holds `params/*.yaml`, if any."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if any((folder / "params").glob("*.yaml")):
            return folder
    return None


def yaml_file(kind: str, name: str | Path, known: Mapping[str, Path]) -> Path:
    """The `known` file of this name, or the given .yaml file.

    Raises InputError where there is no such file; `kind` says there what the file holds.
    """
    if str(name) in known:
        return known[str(name)]
    names = ", ".join(sorted(known))
    if Path(name).suffix not in {".yaml", ".yml"}:
        known_names = f"known are {names}, or give the path of a .yaml file"
        question = did_you_mean(str(name), known)
        raise InputError(f"{kind} {str(name)!r} is unknown{question}; {known_names}")
    for candidate in (Path(name), find_root() / name):
        if candidate.is_file():
            return candidate.resolve()
    raise InputError(
        f"{kind} {name}: there is no such file; give the path of one, or one of {names}"
    )


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


def read_profile_file(path: Path) -> tuple[Settings, list[Path]]:
    """A profile merged with its bases, and the files that were read, the profile first.

    Raises InputError for a file that is missing, not readable or its own base.
    """
    files: list[Path] = []
    return _read([path], "", files), files


def _read(chain: list[Path], place: str, files: list[Path]) -> Settings:
    """The settings that a file gives for a section. The file and its bases are added to `files`.

    chain: the profile, its base, the base of that and so on; the last one is the file to read.
    place: the keys that lead to the section, each with a dot behind it; "" for the whole profile.
    """
    path = chain[-1]
    if path in chain[:-1]:
        circle = " → ".join(file.name for file in chain[chain.index(path) :])
        raise InputError(f"{chain[-2]}: base: {circle} leads in a circle; take one of them out")
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        raise InputError(
            f"{path}: the file holds no settings; write `name: value` lines, as in params/own.yaml"
        )
    files.append(path)
    return _merged({}, _absolute(raw, place, path.parent), chain, place, files)


def _merged(
    earlier: object, raw: Settings, chain: list[Path], place: str, files: list[Path]
) -> Settings:
    """The section `raw` over its own base, or without one over `earlier`, that of an outer base."""
    content = dict(earlier) if isinstance(earlier, dict) else {}
    if "base" in raw:
        content = _read([*chain, _base_file(raw["base"], chain[-1], place)], place, files)
        if not place:
            content.pop("name", None)  # of another profile
    for key, value in raw.items():
        if isinstance(value, dict):
            content[key] = _merged(content.get(key), value, chain, f"{place}{key}.", files)
        elif key != "base":
            content[key] = value
    return content


def _base_file(base: object, path: Path, place: str) -> Path:
    """The file that the key `base` in the file `path` names. Raises InputError without one."""
    file = path.parent / str(base)
    if not isinstance(base, str) or not file.is_file():
        raise InputError(
            f"{path}: {place}base: there is no file {base!r}; "
            "name a .yaml file, relative to the folder of this one"
        )
    return file.resolve()


def _absolute(value: Any, place: str, folder: Path) -> Any:
    """`value` with absolute paths, because notebooks run in another folder.

    place: as in `_read`. folder: the folder of the file that holds the value.
    """
    if isinstance(value, dict):
        return {key: _absolute(item, f"{place}{key}.", folder) for key, item in value.items()}
    if isinstance(value, list):
        return [_absolute(item, place, folder) for item in value]
    if not isinstance(value, str):
        return value
    field = place.removesuffix(".")
    path = folder / expanduser(value)
    is_path = _ALWAYS_PATHS.fullmatch(field) or (
        _PATHS.fullmatch(field) and (value.startswith((".", "~")) or glob(str(path)))
    )
    return str(path.resolve()) if is_path else value
