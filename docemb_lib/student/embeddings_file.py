"""Embeddings of documents in a Parquet file: written by `docemb embed`, read and searched here.

A row is a document, with or without passages, so that every reader of a table of embeddings
(pandas, BERTopic, embedding-atlas) finds one vector for each document. The passages of a document
are lists in further columns of its row; `frame.explode(PASSAGE_COLUMNS)` of pandas gives a row for
each. The metadata of the file name the student.

N: documents; D: width of an embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.rows import file_format

if TYPE_CHECKING:
    import pyarrow as pa

    from docemb_lib.corpus.document import Document
    from docemb_lib.student.passages import Passages

STUDENT = b"docemb.student"  # the key of the metadata: fingerprint of the student
ROWS = 1024  # documents of a row group: what is in memory at once, and what one document costs
PASSAGE_COLUMNS = ["passage", "passage_start", "passage_end", "passage_weight"]
COLUMNS = ["id", "embedding", "text", *PASSAGE_COLUMNS]


class Hit(NamedTuple):
    """A document that a search has found: its row and its cosine with the query."""

    row: int
    cosine: float


class StoredDocument(NamedTuple):
    """A document of a file; text and passages where the file has them."""

    id: str
    embedding: np.ndarray
    text: str | None
    passages: Passages | None


def write_embeddings(
    file: Path,
    ids: Sequence[str],
    embeddings: np.ndarray,
    *,
    student: str,
    texts: Sequence[str] | None = None,
    passages: Sequence[Passages] | None = None,
    fields: pa.Table | None = None,
) -> None:
    """Write N documents.

    Args:
        embeddings: (N, D), which may be memory-mapped.
        student: its fingerprint.
        texts: N texts.
        passages: those of each text.
        fields: further columns, see `fields_of`.
    """
    import pyarrow as pa
    from pyarrow import parquet

    types = {
        "id": pa.string(),
        "embedding": pa.list_(pa.float32()),
    }
    if texts is not None:
        types["text"] = pa.string()
    if fields is not None:
        types |= {field.name: field.type for field in fields.schema}
    if passages is not None:
        vectors = pa.list_(pa.list_(pa.float32()))
        numbers = pa.list_(pa.int32())
        types["passage"] = vectors
        for name in PASSAGE_COLUMNS[1:]:
            types[name] = numbers
    schema = pa.schema(list(types.items()), metadata={STUDENT: student})
    with parquet.ParquetWriter(file, schema) as writer:
        for start in range(0, len(ids), ROWS):
            block = slice(start, start + ROWS)
            columns = [
                pa.array(ids[block], pa.string()),
                _lists(embeddings[block]),
            ]
            if texts is not None:
                columns.append(pa.array(texts[block], pa.string()))
            if fields is not None:
                columns += fields.slice(start, ROWS).columns
            if passages is not None:
                columns += _passage_columns(passages[block])
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def fields_of(documents: Sequence[Document], sources: Sequence[Path]) -> pa.Table:
    """The further fields of N documents, a column each; what a document lacks is null.

    Raises InputError for a field with the name of a column of embeddings, in any case of letters,
    and for values that have no type in common.

    Args:
        documents: of `local_documents` with `keep_fields`.
        sources: their files. Columns of Parquet files keep their types.
    """
    import pyarrow as pa
    from pyarrow import parquet

    of_files = [parquet.read_schema(path) for path in sources if file_format(path) == ".parquet"]
    types = {field.name: field.type for schema in of_files for field in schema}
    rows = [document.fields or {} for document in documents]
    arrays = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        mend = "rename it, or leave out --keep-fields"
        if name.casefold() in COLUMNS:
            problem = f"the written file has a column {name.casefold()!r} of its own"
            raise InputError(f"--keep-fields: the field {name!r}: {problem}; {mend}")
        values = [row.get(name) for row in rows]
        kind = types.get(name)
        if isinstance(kind, pa.BaseExtensionType):  # the values of such a column are plain ones
            kind = None
        try:
            arrays[name] = pa.array(values, kind)
            schema = pa.schema({name: arrays[name].type})
            parquet.write_metadata(schema, pa.BufferOutputStream())
        except (pa.ArrowException, ArithmeticError, TypeError, ValueError) as error:
            problem = f"its values have no type in common that a .parquet file can hold ({error})"
            mend = "make them all texts or all numbers, or leave out --keep-fields"
            raise InputError(f"--keep-fields: the field {name!r}: {problem}; {mend}") from error
    return pa.table(arrays)


def _lists(matrix: np.ndarray) -> pa.ListArray:
    """A list for each row of a matrix of numbers."""
    import pyarrow as pa

    rows, width = matrix.shape
    bounds = width * np.arange(rows + 1, dtype=np.int32)
    values = np.ascontiguousarray(matrix).ravel()
    return pa.ListArray.from_arrays(bounds, pa.array(values))


def _passage_columns(passages: Sequence[Passages]) -> list[pa.ListArray]:
    import pyarrow as pa

    counts = [len(each.weights) for each in passages]
    bounds = np.cumsum([0, *counts]).astype(np.int32)
    spans = np.concatenate([each.spans for each in passages])
    weights = np.concatenate([each.weights for each in passages])
    vectors = np.concatenate([each.embeddings for each in passages])
    values = [
        _lists(vectors),
        pa.array(spans[:, 0], pa.int32()),
        pa.array(spans[:, 1], pa.int32()),
        pa.array(weights, pa.int32()),
    ]
    return [pa.ListArray.from_arrays(bounds, column) for column in values]


class EmbeddingsFile:
    """A Parquet file with the columns id and embedding, and possibly text and passages.

    Raises InputError for another file. Embeddings are read a row group at a time.
    """

    def __init__(self, path: Path) -> None:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        if not path.is_file():
            mend = "write it with `docemb embed MODEL INPUT -o FILE`, or correct its name"
            raise InputError(f"{path}: there is no such file; {mend}")
        self.path = path
        try:
            self._file = ParquetFile(path, memory_map=True)
        except (ArrowException, OSError) as error:
            mend = "write it with `docemb embed`, or name another file"
            raise InputError(f"{path}: this is no Parquet file ({error}); {mend}") from error
        self.columns = self._file.schema_arrow.names
        missing = [name for name in ("id", "embedding") if name not in self.columns]
        if missing:
            mend = "write it with `docemb embed MODEL INPUT -o FILE`"
            raise InputError(f"{path}: there is no column {missing[0]!r}; {mend}")
        if not self._file.metadata.num_rows:
            raise InputError(f"{path}: the file holds no document; embed some")

    @cached_property
    def ids(self) -> list[str]:
        return list(map(str, self._file.read(["id"])["id"].to_pylist()))

    def row_of(self, id: str) -> int:
        """Return the row of a document. Raises InputError for an unknown id."""
        if id not in self.ids:
            examples = ", ".join(map(repr, self.ids[:3]))
            raise InputError(f"{self.path}: no document has the id {id!r}; its ids are {examples}…")
        return self.ids.index(id)

    def check_student(self, fingerprint: str, name: str, width: int) -> None:
        """Raise InputError for embeddings of another student than `name`, or of another width."""
        metadata = self._file.schema_arrow.metadata or {}
        stored = metadata.get(STUDENT, fingerprint.encode()).decode()
        stored_width = len(self.document(0).embedding)
        if stored == fingerprint and stored_width == width:
            return
        problem = f"its student has the fingerprint {stored}, and {name} has {fingerprint}"
        if stored_width != width:
            problem = (
                f"its embeddings have {stored_width} dimensions, and those of {name} have {width}"
            )
        mend = f"embed the documents again with `docemb embed {name} INPUT -o {self.path}`"
        raise InputError(f"{self.path}: {problem}; {mend}")

    def document(self, row: int) -> StoredDocument:
        """Read one document, and the row group that holds it."""
        from docemb_lib.student.passages import Passages

        group = 0
        before = 0  # documents of earlier row groups
        sizes = self._file.metadata.row_group
        while before + sizes(group).num_rows <= row:
            before += sizes(group).num_rows
            group += 1
        wanted = [name for name in COLUMNS if name in self.columns]
        table = self._file.read_row_group(group, wanted)
        (fields,) = table.slice(row - before, 1).to_pylist()
        passages = None
        if set(PASSAGE_COLUMNS) <= set(fields):
            vectors, starts, ends, weights = (np.array(fields[name]) for name in PASSAGE_COLUMNS)
            spans = np.stack([starts, ends], axis=1)
            passages = Passages(spans, weights, vectors.astype(np.float32))
        vector = np.array(fields["embedding"], dtype=np.float32)
        return StoredDocument(str(fields["id"]), vector, fields.get("text"), passages)

    def nearest(
        self,
        query: np.ndarray,
        count: int,
        *,
        without: int | None = None,
        by_passages: bool = False,
    ) -> list[Hit]:
        """Return the documents of the highest cosines, exactly; equal ones in the order of rows.

        query: (D,); without: a row that is left out; by_passages: the nearest passage stands for
        the dense half of a document in its cosine. Raises InputError where there are no passages.
        """
        if by_passages and "passage" not in self.columns:
            mend = "write them with `docemb embed --passages 256`"
            raise InputError(f"{self.path}: the file holds no passages; {mend}")
        wanted = ["embedding", "passage"] if by_passages else ["embedding"]
        blocks = []
        for batch in self._file.iter_batches(ROWS, columns=wanted):
            X = self._matrix(batch.column(0))  # (B, D)
            products = X @ query
            if by_passages:
                of_passages = batch.column(1)
                V = self._matrix(of_passages.flatten())  # (passages of all B, width of a passage)
                width = V.shape[1]
                dense = X[:, :width]
                counts = of_passages.value_lengths().to_numpy()
                first = np.cumsum(counts) - counts  # passage of each document, (B,)
                nearest = np.maximum.reduceat(_cosines(V, query), first)  # (B,)
                # The halves keep the lengths that they have in the embeddings.
                lengths = np.linalg.norm(dense, axis=1)
                lengths *= np.linalg.norm(query[:width])
                products += nearest * lengths - dense @ query[:width]
            blocks.append(products / np.maximum(np.linalg.norm(X, axis=1), 1e-12))
        cosines = np.concatenate(blocks) / max(float(np.linalg.norm(query)), 1e-12)
        order = np.argsort(-cosines, kind="stable")
        rows = [int(row) for row in order[: count + 1] if row != without]
        return [Hit(row, float(cosines[row])) for row in rows[:count]]

    def _matrix(self, lists: pa.ListArray) -> np.ndarray:
        """Lists of one length as the rows of a float32 matrix."""
        values = lists.flatten().to_numpy(zero_copy_only=False)
        if len(values) % len(lists):
            mend = "embed the documents again with one student"
            raise InputError(f"{self.path}: the embeddings have several widths; {mend}")
        return values.astype(np.float32, copy=False).reshape(len(lists), -1)


def _cosines(passages: np.ndarray, query: np.ndarray) -> np.ndarray:
    """The cosines of passages, (P, width), with the dense columns of a query, (D,)."""
    direction = query[: passages.shape[1]]
    lengths = np.linalg.norm(passages, axis=1) * np.linalg.norm(direction)
    return passages @ direction / np.maximum(lengths, 1e-12)


def best_passage(passages: Passages, query: np.ndarray) -> int:
    """Return the passage of the highest cosine with the dense columns of a query, (D,)."""
    return int(np.argmax(_cosines(passages.embeddings, query)))
