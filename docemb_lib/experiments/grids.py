"""Grids: the runs of a table as data, the thesis' eight in `params/grids/`, or a file of one's own.

A grid says which `notebook` it is for, and lists its runs one by one (`runs`), as the product of some lists (`axes`:
one mapping, or several of them), or both, each over what all share (`base`):

    notebook: 05_weighting
    base: {contextual_teacher: PV}
    axes: {structural_loss: [cosine, mse], lam: [0.2, 0.5]}
    runs: [{structural_loss: cosine, lam: null}]

The thesis' grids are written in the thesis' widths and scaled to those of the profile at hand; a file is taken as it
is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from docemb_lib.errors import InputError
from docemb_lib.experiments.stages import Stages
from docemb_lib.profile import Profile, find_root, width
from docemb_lib.settings import label_of_paragraph_vector, members_of

FIELDS = ("notebook", "base", "axes", "runs")
THESIS = Profile(name="thesis")  # whose settings are the defaults
THESIS_WIDTH = 768  # of its student


class Grid(NamedTuple):
    """Sets of notebook parameters, not validated yet."""

    name: str  # as errors call it
    notebook: str | None  # which its file says it is for
    runs: list[dict[str, Any]]


def grid(name: str, profile: str | Path | Profile = "thesis") -> list[dict[str, Any]]:
    """The runs of one of the thesis' grids as notebook parameters, at the widths of `profile`.

    The last width of both projections becomes that of the profile's student or contextual teacher, whichever it was;
    hidden widths and vector sizes shrink in proportion to their side's; the mask becomes the structural teacher's
    context. With the thesis' widths nothing changes.
    """
    return _thesis_grid(name, profile if isinstance(profile, Profile) else Profile.load(profile)).runs


def load_grid(name: str | Path, profile: Profile) -> Grid:
    """One of the thesis' grids by name, or the path of a .yaml file. InputError names the file and its field."""
    path = Path(name)
    if path.suffix not in {".yaml", ".yml"}:
        return _thesis_grid(str(name), profile)
    if not path.is_file():
        raise InputError(f"grid {name}: no such file")
    return _read(path)


def _thesis_grid(name: str, profile: Profile) -> Grid:
    source = Path(__file__).resolve().parents[2]
    folders = [root / "params" / "grids" for root in (find_root(), source)]
    path = next((folder / f"{name}.yaml" for folder in folders if (folder / f"{name}.yaml").is_file()), None)
    if path is None:
        known = sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})
        raise InputError(f"grid {name!r} is unknown; known are {', '.join(known)}, or give the path of a .yaml file")
    written = _read(path)
    scale = _Scale(profile)
    return Grid(name, written.notebook, [scale(run) for run in written.runs])


def _read(path: Path) -> Grid:
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path}: not readable as YAML ({' '.join(str(error).split())})") from None
    if not isinstance(raw, dict):
        raise InputError(f"{path}: a grid is a mapping with `axes` or `runs`, see params/grids/")
    for key in raw:
        if key not in FIELDS:
            close = difflib.get_close_matches(str(key), FIELDS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InputError(f"{path}: unknown key {key!r}{hint} (allowed: {', '.join(FIELDS)})")
    notebook = raw.get("notebook")
    runs = list(_runs(raw, path))
    if not runs:
        raise InputError(f"{path}: no runs; list some under `runs`, or values under `axes`")
    return Grid(str(path), None if notebook is None else str(notebook), runs)


def _runs(raw: Mapping[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    base = _mapping(raw.get("base") or {}, f"{path}: base")
    axes = raw.get("axes") or []
    for number, lists in enumerate(axes if isinstance(axes, list) else [axes], 1):
        where = f"{path}: axes, product {number}" if isinstance(axes, list) else f"{path}: axes"
        for name, values in _mapping(lists, where).items():
            if not isinstance(values, list) or not values:
                raise InputError(f"{where}: {name}: write a list of values, got {values!r}")
        for chosen in product(*lists.values()):
            yield {**base, **dict(zip(lists, chosen, strict=True))}
    runs = raw.get("runs") or []
    if not isinstance(runs, list):
        raise InputError(f"{path}: runs: write a list of mappings, got {runs!r}")
    for number, run in enumerate(runs, 1):
        yield {**base, **_mapping(run, f"{path}: runs, line {number}")}


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise InputError(f"{where}: write a mapping from parameters to values, got {value!r}")
    return value


class _Scale:
    """From the thesis' widths to a profile's."""

    def __init__(self, profile: Profile) -> None:
        self.stages, self.thesis = Stages(profile), Stages(THESIS)
        self.student = width(profile.student.model) or self.stages.student_width
        self.by_student = self.student / THESIS_WIDTH

    def __call__(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        scaled = dict(parameters)
        if (teacher := scaled.get("contextual_teacher")) is not None:
            before, after = self.thesis.contextual_width(teacher), self.stages.contextual_width(teacher)
            ends = {THESIS_WIDTH: self.student, before: after}
            for name, factor in (("student_projection", self.by_student), ("contextual_projection", after / before)):
                scaled[name] = _scaled_projection(scaled[name], factor, ends)
        if scaled.get("max_structural_len") is not None:
            settings = self.stages.profile.structural_teacher
            scaled["max_structural_len"] = settings.max_tokens or self.stages.sbert("truncate").max_tokens
        if "vector_size" in scaled:
            scaled["vector_size"] = _times(scaled["vector_size"], self.by_student)
        if "compound" in scaled:
            scaled["compound"] = "+".join(map(self._scaled_member, members_of(scaled["compound"])))
        return scaled

    def _scaled_member(self, member: Mapping[str, Any]) -> str:
        return label_of_paragraph_vector(**{**member, "vector_size": _times(member["vector_size"], self.by_student)})


def _scaled_projection(spec: str, factor: float, ends: Mapping[int, int]) -> str:
    """The same layers: `ends` for the width of the last, `factor` for those before it."""
    if spec == "-":
        return spec
    hidden, last = re.split(r"(?=\d+$)", spec, maxsplit=1)  # none of the thesis' ends in an activation
    return re.sub(r"\d+", lambda size: str(_times(int(size[0]), factor)), hidden) + str(ends[int(last)])


def _times(size: int, factor: float) -> int:
    return max(2, round(size * factor))
