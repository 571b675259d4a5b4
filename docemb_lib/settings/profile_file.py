"""Reading a YAML file that people write: what is wrong with it is one line."""

from __future__ import annotations

import re
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from docemb_lib.errors import InputError

# ---- reading a YAML file


def read_yaml(path: Path) -> Any:
    """What the file holds. Raises InputError where it is not YAML, or where a mapping has a key twice."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path}: not readable as YAML ({' '.join(str(error).split())})") from None


class _Loader(yaml.SafeLoader):
    """PyYAML takes the last of two equal keys without a word; YAML forbids them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                problem = f"the key {key.value!r} is there twice; keep one of them"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add((key.tag, key.value))
        return super().construct_mapping(node, deep=deep)


# ---- a profile as people write it


BASE = "base"
Place = tuple[str | int, ...]  # the keys and positions that lead to a value
# Values, by the keys that lead to them, that are always paths. Others are paths only where they begin with a dot, or
# where there is such a file: anything else names something on a hub.
_PATHS = re.compile(r"(contextual_teachers\.)?corpus\.path|evaluation\.own_tasks\.(path|relevance)(\.\w+)?")
_PERHAPS_PATHS = re.compile(
    r"(contextual_teachers\.)?corpus\.datasets\.dataset|evaluation\.benchmarks\.[\w-]+"
    r"|(student|structural_teacher|further_teachers)\.model"
)
_PERHAPS_YAML = re.compile(r"plan\.(grid|profile)")  # else names in `params/`


class ProfileFile(NamedTuple):
    """What a profile and its bases say together."""

    content: dict[str, Any]
    origins: dict[Place, Path]  # the file that a value comes from, and all below it that is not listed itself

    def origin(self, place: Place) -> Path:
        """The file to look into for what stands, or should stand, at `place`."""
        return next(self.origins[place[:n]] for n in range(len(place), -1, -1) if place[:n] in self.origins)


def read_profile_file(path: Path) -> ProfileFile:
    """Read a profile with all that it builds on. Raises InputError, naming the file, where one cannot be read."""
    origins: dict[Place, Path] = {}
    merged = ProfileFile(_read(path, (), (), origins), origins)
    return merged._replace(content=_located(merged.content, (), merged))


def _read(path: Path, place: Place, readers: tuple[Path, ...], origins: dict[Place, Path]) -> dict[str, Any]:
    """What a file says of `place`, filling in `origins`. readers: the files that build on it, the profile first."""
    if path in readers:
        circle = " → ".join(file.name for file in (*readers[readers.index(path) :], path))
        raise InputError(f"{readers[-1]}: base: {circle} leads in a circle; take one of them out")
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        raise InputError(f"{path}: empty; a profile is a mapping, see params/own.yaml")
    return _laid_over({}, raw, path, place, (*readers, path), origins)


def _laid_over(
    base: dict[str, Any],
    raw: dict[str, Any],
    path: Path,
    place: Place,
    readers: tuple[Path, ...],
    origins: dict[Place, Path],
) -> dict[str, Any]:
    """A mapping that `path` has at `place`, over its own base, or else over what an outer base has there."""
    if BASE in raw:
        base = _read(_base_file(raw[BASE], path, place), place, readers, origins)
    origins[place] = path
    content = dict(base)
    for key, value in raw.items():
        below = (*place, key)
        if isinstance(value, dict):
            earlier = content.get(key)
            earlier = earlier if isinstance(earlier, dict) else {}
            content[key] = _laid_over(earlier, value, path, below, readers, origins)
        elif key != BASE:
            content[key] = value
            origins[below] = path
    return content


def _base_file(value: Any, path: Path, place: Place) -> Path:
    field = ".".join(map(str, (*place, BASE)))
    if not isinstance(value, str):
        raise InputError(f"{path}: {field}: write the path of one .yaml file, got {value!r}")
    file = (path.parent / value).resolve()
    if not file.is_file():
        raise InputError(f"{path}: {field}: {file} does not exist; name a .yaml file, from the folder of this one")
    return file


def _located(value: Any, place: Place, merged: ProfileFile) -> Any:
    """The same with absolute paths: notebooks run in another folder."""
    if isinstance(value, dict):
        return {key: _located(one, (*place, key), merged) for key, one in value.items()}
    if isinstance(value, list):
        return [_located(one, (*place, number), merged) for number, one in enumerate(value)]
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
