"""Tasks from one's own data files, as a profile describes them (`settings.OwnTask`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from docemb_lib.corpus.rows import Row, file_format, read_csv, read_rows, text_of
from docemb_lib.errors import InputError
from docemb_lib.evaluation.class_folders import NO_SPLIT, VALIDATION, read_class_folders, text_files
from docemb_lib.evaluation.examples import Example, labelled, labelled_pairs, read_example, refuse_blank
from docemb_lib.evaluation.splits import SPLITS, Ranking
from docemb_lib.evaluation.tasks import Classification, Pairs, Retrieval, Task
from docemb_lib.settings import OwnTask

LINK = ("source", "target")  # columns of a relevance file


def own_task(settings: OwnTask) -> Task:
    """The task. Raises InputError, naming file and row, for whatever cannot be read."""
    if settings.kind == "retrieval":
        return Retrieval(settings.name, _rankings(settings))
    splits = read_splits(settings)
    if settings.kind == "pairs":
        return Pairs(settings.name, {split: labelled_pairs(examples) for split, examples in splits.items()})
    return Classification(settings.name, {split: labelled(examples) for split, examples in splits.items()})


def task_files(settings: OwnTask) -> list[Path]:
    """Every file that the task is made of; a path that is neither a file nor a folder stands for itself."""
    given = [settings.path, settings.relevance]
    places = [one for place in given if place for one in (place.values() if isinstance(place, dict) else [place])]
    return [file for place in places for file in (text_files(place) if place.is_dir() else [place])]


def read_splits(settings: OwnTask) -> dict[str, list[Example]]:
    """The examples of each split: of its own file or folder, by the rows' split field, or drawn (`draw_splits`)."""
    if isinstance(settings.path, dict):
        return {split: _examples_of(place, settings) for split, place in settings.path.items()}
    if settings.path.is_dir():
        found = _class_folders(settings.path, settings)
        return _drawn(found[NO_SPLIT], settings) if NO_SPLIT in found else found
    rows = list(_examples(settings.path, settings))
    if not any(settings.split_field in row.fields for row, _ in rows):
        return _drawn([example for _, example in rows], settings)
    splits: dict[str, list[Example]] = {}
    for row, example in rows:
        splits.setdefault(split_of(row, settings.split_field), []).append(example)
    return splits


def draw_splits(examples: Sequence[Example], *, share: float, seed: int, where: str) -> dict[str, list[Example]]:
    """`share` of each class for test, as many for validation, the rest for train; examples keep their order.

    An example whose texts stand in the file twice goes where the first of them goes. where: what an InputError calls
    the file or data set.
    """
    rng = np.random.default_rng(seed)
    group = {texts: number for number, texts in enumerate(dict.fromkeys(example.texts for example in examples))}
    label = {group[example.texts]: example.label for example in reversed(examples)}
    split_of: dict[int, str] = {}
    for name in sorted(set(label.values())):
        members = rng.permutation([number for number in range(len(group)) if label[number] == name])
        held = max(1, round(share * len(members)))
        if len(members) <= 2 * held:
            raise InputError(
                f"{where}: class {name!r}: {len(members)} examples are too few to draw train, validation and test "
                "from; add some, leave the class out, or name the splits in the file"
            )
        for place, number in enumerate(members.tolist()):
            split_of[number] = "test" if place < held else "validation" if place < 2 * held else "train"
    splits: dict[str, list[Example]] = {split: [] for split in SPLITS}
    for example in examples:
        splits[split_of[group[example.texts]]].append(example)
    return splits


def _drawn(examples: Sequence[Example], settings: OwnTask) -> dict[str, list[Example]]:
    return draw_splits(examples, share=settings.share, seed=settings.seed, where=str(settings.path))


def _examples_of(place: Path, settings: OwnTask) -> list[Example]:
    """All of a file, or of a folder of classes."""
    if place.is_dir():
        return [example for examples in _class_folders(place, settings).values() for example in examples]
    return [example for _, example in _examples(place, settings)]


def _class_folders(folder: Path, settings: OwnTask) -> dict[str, list[Example]]:
    if settings.kind != "classification":
        raise InputError(f"{folder}: a folder of classes is no task of {settings.kind}; name a data file")
    return read_class_folders(folder)


def _examples(file: Path, settings: OwnTask) -> Iterator[tuple[Row, Example]]:
    fields = [settings.text_field, settings.second_field] if settings.kind == "pairs" else [settings.text_field]
    empty = True
    for row in read_rows(file):
        empty = False
        example = read_example(row, text_fields=fields, label_field=settings.label_field)
        yield row, refuse_blank(example, where=row.where)
    if empty:
        raise InputError(f"{file}: holds no example; add one with the fields {', '.join(fields)}")


def split_of(row: Row, field: str) -> str:
    """The split that a row names in `field`. Raises InputError for none."""
    split = row.fields.get(field)
    split = "validation" if split in VALIDATION else split
    if split not in SPLITS:
        raise InputError(f"{row.where}: field {field!r} is {split!r}, expected {', '.join(SPLITS)}; name the split")
    return split


def _rankings(settings: OwnTask) -> dict[str, Ranking]:
    """The whole pool in every split, each with its own queries: those of its file, or a drawn part of all."""
    assert isinstance(settings.path, Path)  # the profile's own check
    texts = _pool(settings.path, settings)
    if isinstance(settings.relevance, dict):
        links: dict[str, dict[str, list[str]]] = {
            split: _links(file, texts) for split, file in settings.relevance.items()
        }
    else:
        assert settings.relevance is not None  # the profile's own check
        links = _draw_queries(_links(settings.relevance, texts), share=settings.share, seed=settings.seed)
    pool = list(texts.values())
    row = {id: number for number, id in enumerate(texts)}
    return {
        split: Ranking(pool, [row[id] for id in found], [[row[id] for id in targets] for targets in found.values()])
        for split, found in links.items()
    }


def _pool(file: Path, settings: OwnTask) -> dict[str, str]:
    texts: dict[str, str] = {}
    for where, _, fields in read_rows(file):
        id = fields.get(settings.id_field)
        if not isinstance(id, str | int):
            raise InputError(f"{where}: field {settings.id_field!r} must be a string or an integer, found {id!r}")
        if str(id) in texts:
            raise InputError(f"{where}: an earlier row has the id {str(id)!r} too; rename one")
        text = text_of(fields, settings.text_field, where=where)
        texts[str(id)] = refuse_blank(Example((text,), ""), where=where).texts[0]
    return texts


def _links(file: Path, texts: dict[str, str]) -> dict[str, list[str]]:
    """The ids to be found for each id, each once. CSV and TSV may do without a line of names."""
    tabular = {".csv": ",", ".tsv": "\t"}.get(file_format(file) or "")
    rows = read_csv(file, columns=LINK, delimiter=tabular) if tabular else read_rows(file)
    links: dict[str, dict[str, None]] = {}
    for where, number, fields in rows:
        source, target = (str(fields.get(column)) for column in LINK)
        if tabular and number == 1 and (source, target) == LINK:
            continue
        for id in (source, target):
            if id not in texts:
                raise InputError(f"{where}: {id!r} is the id of no document; mend it, or delete the row")
        if source == target:
            raise InputError(f"{where}: {source!r} is to be found for itself; delete the row")
        links.setdefault(source, {})[target] = None
    if not links:
        raise InputError(f"{file}: holds no pair of ids; write one a row, source and target")
    return {source: list(targets) for source, targets in links.items()}


def _draw_queries(links: dict[str, list[str]], *, share: float, seed: int) -> dict[str, dict[str, list[str]]]:
    """`share` of the queries for validation, the rest for test: nothing is trained."""
    held = round(share * len(links))
    drawn = set(np.random.default_rng(seed).permutation(sorted(links))[:held].tolist())
    validation = {source: targets for source, targets in links.items() if source in drawn}
    test = {source: targets for source, targets in links.items() if source not in drawn}
    return {"validation": validation, "test": test} if validation else {"test": test}
