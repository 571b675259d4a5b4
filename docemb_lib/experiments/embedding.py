"""Documents in, embeddings out, with any trained student: the `docemb embed` command."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from docemb_lib.corpus.sources import local_documents
from docemb_lib.errors import InputError
from docemb_lib.hardware import devices_at_hand

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
