"""Documents in, embeddings out, with any trained student: the `docemb embed` command."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from docemb_lib.corpus.sources import local_documents
from docemb_lib.errors import InputError


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

    embeddings = Student.load(model).embed([document.text for document in documents])
    temporary = out.with_name(f".{out.name}.{os.getpid()}{out.suffix}")
    try:
        _write(temporary, [document.id for document in documents], embeddings)
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)
    return embeddings.shape


def _write(path: Path, ids: list[str], embeddings: np.ndarray) -> None:
    if path.suffix == ".npy":
        np.save(path, embeddings)
        return
    import pyarrow as pa
    from pyarrow import parquet

    column = pa.FixedSizeListArray.from_arrays(pa.array(embeddings.reshape(-1)), embeddings.shape[1])
    parquet.write_table(pa.table({"id": ids, "embedding": column}), path)
