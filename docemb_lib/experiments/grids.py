"""Grids: the runs of a table as data, the thesis' eight in `params/grids/`, or a file of one's own.

A grid says which `notebook` it is for, and lists its runs one by one (`runs`), as the product of some lists (`axes`:
one mapping, or several of them), or both, each over what all share (`base`):

    notebook: 05_weighting
    base: {contextual_teacher: PV}
    axes: {structural_loss: [cosine, mse], lam: [0.2, 0.5]}
    runs: [{structural_loss: cosine, lam: null}]

A grid that says `scale: thesis`, as the thesis' eight do, is written in the thesis' widths and scaled to those of the
profile at hand; any other is taken as it is.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from docemb_lib import pretrained
from docemb_lib.errors import InputError
from docemb_lib.experiments.stages import sbert_of
from docemb_lib.settings import label_of_paragraph_vector, members_of
from docemb_lib.settings.profile import Profile, find_root, width
from docemb_lib.settings.profile_file import read_yaml

FIELDS = ("notebook", "scale", "base", "axes", "runs")
THESIS = Profile(name="thesis")  # whose settings are the defaults
THESIS_WIDTH = 768  # of its student


class Grid(NamedTuple):
    """Sets of notebook parameters, not validated yet."""

    name: str  # as errors call it
    notebook: str | None  # which its file says it is for
    runs: list[dict[str, Any]]


def grid(name: str, profile: str | Path | Profile = "thesis") -> list[dict[str, Any]]:
    """The runs of a grid in `params/grids/` as notebook parameters.

    Where it is scaled, the last width of both projections becomes that of the profile's student or contextual teacher,
    whichever it was; hidden widths and vector sizes shrink in proportion to their side's; the mask becomes the
    structural teacher's context. With the thesis' widths nothing changes.
    """
    return load_grid(name, profile if isinstance(profile, Profile) else Profile.load(profile)).runs


def load_grid(given: str | Path | Sequence[Mapping[str, Any]], profile: Profile) -> Grid:
    """A grid in `params/grids/` by name, the path of a .yaml file, or the parameters of the runs themselves.

    Raises InputError naming the file and its field.
    """
    if not isinstance(given, str | Path):
        if not isinstance(given, Sequence) or not given:
            raise InputError(f"grid: write a list of mappings from parameters to values, got {given!r}")
        return Grid("given", None, [_mapping(run, f"grid: run {number}") for number, run in enumerate(given, 1)])
    path = Path(given)
    if path.suffix not in {".yaml", ".yml"}:
        return _read(_path_of(str(given)), str(given), profile)
    if not path.is_file():
        raise InputError(f"grid {given}: no such file")
    return _read(path, str(path), profile)


def _path_of(name: str) -> Path:
    source = Path(__file__).resolve().parents[2]
    folders = [root / "params" / "grids" for root in (find_root(), source)]
    path = next((folder / f"{name}.yaml" for folder in folders if (folder / f"{name}.yaml").is_file()), None)
    if path is None:
        known = sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})
        raise InputError(f"grid {name!r} is unknown; known are {', '.join(known)}, or give the path of a .yaml file")
    return path


def _read(path: Path, name: str, profile: Profile) -> Grid:
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        raise InputError(f"{path}: a grid is a mapping with `axes` or `runs`, see params/grids/")
    for key in raw:
        if key not in FIELDS:
            close = difflib.get_close_matches(str(key), FIELDS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise InputError(f"{path}: unknown key {key!r}{hint} (allowed: {', '.join(FIELDS)})")
    notebook = raw.get("notebook")
    if isinstance(notebook, int) and not isinstance(notebook, bool):  # YAML reads 05 as a number
        notebook = f"{notebook:02d}"
    runs = list(_runs(raw, path))
    if not runs:
        raise InputError(f"{path}: no runs; list some under `runs`, or values under `axes`")
    if "scale" in raw:
        if raw["scale"] != THESIS.name:
            raise InputError(f"{path}: scale: write thesis, or leave it out, got {raw['scale']!r}")
        scale = _Scale(profile)
        runs = [scale(run, f"{path}: run {number}") for number, run in enumerate(runs, 1)]
    return Grid(name, None if notebook is None else str(notebook), runs)


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
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InputError(f"{where}: write a mapping from parameters to values, got {value!r}")
    return dict(value)


class _Scale:
    """From the thesis' widths to a profile's, for which nothing is built."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile

    def __call__(self, parameters: Mapping[str, Any], where: str) -> dict[str, Any]:
        THESIS.with_parameters(source=where, **parameters)  # what follows relies on valid values
        scaled = dict(parameters)
        if (teacher := scaled.get("contextual_teacher")) is not None:
            before, after = (one.contextual_teachers.width(teacher) for one in (THESIS, self.profile))
            ends = {THESIS_WIDTH: self.student, before: after}
            for name, factor in (("student_projection", self.by_student), ("contextual_projection", after / before)):
                if name in scaled:
                    scaled[name] = _scaled_projection(str(scaled[name]), factor, ends, f"{where}: {name}")
        if scaled.get("max_structural_len") is not None:
            scaled["max_structural_len"] = self.context
        if "vector_size" in scaled:
            scaled["vector_size"] = _times(scaled["vector_size"], self.by_student)
        if scaled.get("compound") is not None:
            scaled["compound"] = "+".join(map(self._scaled_member, members_of(scaled["compound"])))
        return scaled

    @cached_property
    def student(self) -> int:
        """The width of the profile's student."""
        model = self.profile.student.model
        if (known := width(model)) is not None:
            return known
        from docemb_lib.student.loading import load_config

        return int(load_config(pretrained.resolve(model)).hidden_size)

    @property
    def by_student(self) -> float:
        return self.student / THESIS_WIDTH

    @property
    def context(self) -> int:
        """The structural teacher's, in tokens."""
        return (
            self.profile.structural_teacher.max_tokens
            or sbert_of(self.profile.structural_teacher, "truncate").max_tokens
        )

    def _scaled_member(self, member: Mapping[str, Any]) -> str:
        return label_of_paragraph_vector(**{**member, "vector_size": _times(member["vector_size"], self.by_student)})


def _scaled_projection(spec: str, factor: float, ends: Mapping[int, int], where: str) -> str:
    """The same layers: `ends` for the width of the last, `factor` for those before it."""
    if spec == "-":
        return spec
    match = re.fullmatch(r"(.*?)(\d+)", spec)
    if match is None or int(match[2]) not in ends:
        raise InputError(f"{where}: {spec} cannot be scaled, it does not end in {' or '.join(map(str, ends))}")
    return re.sub(r"\d+", lambda size: str(_times(int(size[0]), factor)), match[1]) + str(ends[int(match[2])])


def _times(size: int, factor: float) -> int:
    return max(2, round(size * factor))
