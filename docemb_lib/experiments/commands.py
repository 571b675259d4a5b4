"""Train one student without a notebook, alone or in several processes: the `docemb train` command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from docemb_lib.corpus.sources import local_documents
from docemb_lib.errors import InputError
from docemb_lib.experiments.check import check
from docemb_lib.experiments.runkey import slug_of
from docemb_lib.experiments.students import Stages
from docemb_lib.hardware import devices_at_hand
from docemb_lib.settings.profile import Profile
from docemb_lib.training.distributed import is_first, together
from docemb_lib.workspace import Workspace

# ---- train one student without a notebook


NOTEBOOK = "06_evaluation"  # whose parameters a student has, and which finds it trained


class Trained(NamedTuple):
    folder: str  # as people are told it
    before: float  # mean validation loss
    after: float


def distil(profile: str | Path, parameters: dict[str, Any]) -> Trained | None:
    """The student of a profile with these parameters, trained if it is not there yet; None in all processes but the
    first. Raises InputError for values that do not fit, before anything starts."""
    resolved = Profile.load(profile).for_notebook(NOTEBOOK, **parameters)
    stages = Stages(resolved, Workspace())
    check(stages, NOTEBOOK)
    with together():
        student = stages.trained_student()
    if not is_first():
        return None
    _, validation = stages.history(student)
    link = stages.workspace.link("students", slug_of(NOTEBOOK, resolved), student.path)
    losses = validation["loss"]
    return Trained(stages.workspace.shown(link), float(losses.iloc[0]), float(losses.iloc[-1]))


def parse_parameters(given: list[str]) -> dict[str, Any]:
    """`NAME=VALUE` each, values as in YAML, and None as papermill reads it. Raises InputError for anything else."""
    parameters: dict[str, Any] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise InputError(f"-p {text}: write NAME=VALUE, as in -p lam=0.5")
        try:
            parsed = None if value.strip() == "None" else yaml.safe_load(value)
        except yaml.YAMLError:
            parsed = value
        parameters[name.strip()] = value if isinstance(parsed, list | dict) else parsed  # "-" is a projection
    return parameters


# ---- documents in


BLOCK = 10_000  # rows of embeddings handled at a time


def embed_documents(
    model: str, source: Path, out: Path, *, text_field: str = "text", id_field: str = "id"
) -> tuple[int, int]:
    """Embed the documents of `source` into `out` and return their number and their dimensions.

    `.parquet`: columns id and embedding (a list of float32); `.npy`: the embeddings alone, in the order of the
    documents. Everything is checked before the model is loaded; `out` appears whole or not at all.
    """
    if out.suffix not in {".parquet", ".npy"}:
        raise InputError(f"-o {out}: write .parquet (ids and embeddings) or .npy (embeddings alone)")
    if not out.parent.is_dir():
        raise InputError(f"-o {out}: the folder {out.parent} does not exist; create it first")
    documents = local_documents(source, text_field=text_field, id_field=id_field)

    from docemb_lib.student import Student

    student = Student.load(model)
    texts = (document.text for document in documents)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.npy")  # embeddings go there as they come
    try:
        embeddings = student.embed(texts, out=temporary, devices=devices_at_hand())
        if out.suffix == ".npy":
            temporary.replace(out)
        else:
            _write_parquet(out, [document.id for document in documents], embeddings)
    finally:
        temporary.unlink(missing_ok=True)
    return len(documents), student.dim


def _write_parquet(path: Path, ids: list[str], embeddings: np.ndarray) -> None:
    """Columns id and embedding (a fixed-size list of float32), a block of rows at a time; whole or not at all."""
    import pyarrow as pa
    from pyarrow import parquet

    width = embeddings.shape[1]
    schema = pa.schema([("id", pa.string()), ("embedding", pa.list_(pa.float32(), width))])
    temporary = path.with_name(f".{path.name}.{os.getpid()}.parquet")
    try:
        with parquet.ParquetWriter(temporary, schema) as writer:
            for start in range(0, len(ids), BLOCK):
                rows = np.ascontiguousarray(embeddings[start : start + BLOCK]).reshape(-1)
                column = pa.FixedSizeListArray.from_arrays(pa.array(rows), width)
                writer.write_table(pa.table([pa.array(ids[start : start + BLOCK]), column], schema=schema))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
