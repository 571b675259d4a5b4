"""Profiles as YAML files: keys of a mapping replace those of the file named by its key `base`.

Errors name the file that holds the wrong value, in one line.
"""

from __future__ import annotations

import re
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from docemb_lib.errors import InputError

BASE = "base"
Place = tuple[str | int, ...]  # the keys and positions that lead to a value
# Fields that are always paths. Other fields are paths only where the value begins with a dot, or where there is such a
# file; otherwise they name something on a hub.
_PATHS = re.compile(r"(contextual_teachers\.)?corpus\.path|evaluation\.own_tasks\.(path|relevance)(\.\w+)?")
_PERHAPS_PATHS = re.compile(
    r"(contextual_teachers\.)?corpus\.datasets\.dataset|evaluation\.benchmarks\.[\w-]+"
    r"|(student|structural_teacher|further_teachers)\.model"
)
_PERHAPS_YAML = re.compile(r"plan\.(grid|profile)")  # otherwise names in `params/`


class ProfileFile(NamedTuple):
    """A profile merged with its bases."""

    content: dict[str, Any]
    origins: dict[Place, Path]  # the file that a value comes from; holds for everything below it that is not listed

    def origin(self, place: Place) -> Path:
        """The file that holds, or should hold, the value at `place`."""
        return next(self.origins[place[:n]] for n in range(len(place), -1, -1) if place[:n] in self.origins)


def read_profile_file(path: Path) -> ProfileFile:
    """Read a profile and its bases. Raises InputError, naming the file, where one cannot be read."""
    origins: dict[Place, Path] = {}
    merged = ProfileFile(_read(path, (), (), origins), origins)
    return merged._replace(content=_absolute(merged.content, (), merged))


def read_yaml(path: Path) -> Any:
    """The content of a YAML file. Raises InputError where it is not YAML, or where a mapping has a key twice."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path}: not readable as YAML ({' '.join(str(error).split())})") from None


class _Loader(yaml.SafeLoader):
    """YAML forbids equal keys; PyYAML takes the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                problem = f"the key {key.value!r} is there twice; keep one of them"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)


def _read(path: Path, place: Place, readers: tuple[Path, ...], origins: dict[Place, Path]) -> dict[str, Any]:
    """The mapping that a file gives for `place`; fills in `origins`.

    readers: the files whose chain of bases leads here, the profile first.
    """
    if path in readers:
        circle = " → ".join(file.name for file in (*readers[readers.index(path) :], path))
        raise InputError(f"{readers[-1]}: base: {circle} leads in a circle; take one of them out")
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        raise InputError(f"{path}: empty; a profile is a mapping, see params/own.yaml")

    def merge(base: dict[str, Any], raw: dict[str, Any], place: Place) -> dict[str, Any]:
        """The mapping `raw` over its own base, or without one over the mapping `base` of an outer base."""
        if BASE in raw:
            base = _read(_base_file(raw[BASE], path, place), place, (*readers, path), origins)
        origins[place] = path
        content = dict(base)
        for key, value in raw.items():
            if isinstance(value, dict):
                earlier = content.get(key)
                content[key] = merge(earlier if isinstance(earlier, dict) else {}, value, (*place, key))
            elif key != BASE:
                content[key] = value
                origins[(*place, key)] = path
        return content

    return merge({}, raw, place)


def _base_file(value: Any, path: Path, place: Place) -> Path:
    field = ".".join(map(str, (*place, BASE)))
    if not isinstance(value, str):
        raise InputError(f"{path}: {field}: write the path of one .yaml file, got {value!r}")
    file = (path.parent / value).resolve()
    if not file.is_file():
        raise InputError(f"{path}: {field}: {file} does not exist; name a .yaml file, from the folder of this one")
    return file


def _absolute(value: Any, place: Place, merged: ProfileFile) -> Any:
    """`value` with absolute paths, because notebooks run in another folder."""
    if isinstance(value, dict):
        return {key: _absolute(one, (*place, key), merged) for key, one in value.items()}
    if isinstance(value, list):
        return [_absolute(one, (*place, number), merged) for number, one in enumerate(value)]
    if not isinstance(value, str):
        return value
    field = ".".join(part for part in place if isinstance(part, str))
    path = merged.origin(place).parent / value
    is_path = (
        _PATHS.fullmatch(field)
        or (_PERHAPS_PATHS.fullmatch(field) and (value.startswith(".") or glob(str(path))))
        or (_PERHAPS_YAML.fullmatch(field) and path.suffix in {".yaml", ".yml"})
    )
    return str(path.resolve()) if is_path else value
