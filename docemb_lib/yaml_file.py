"""Reading a YAML file that people write: what is wrong with it is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from docemb_lib.errors import InputError


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
