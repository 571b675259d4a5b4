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
from typing import TYPE_CHECKING, Any

import numpy as np

from docemb_lib.base.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

    from docemb_lib.student.passages import Passages

STUDENT = b"docemb.student"  # the key of the metadata: fingerprint of the student
ROWS = 1024  # documents of a row group: what is in memory at once, and what one document costs
PASSAGE_COLUMNS = ["passage", "passage_start", "passage_end", "passage_weight"]


def write_embeddings(
    file: Path,
    ids: Sequence[str],
    embeddings: np.ndarray,
    *,
    student: str,
    texts: Sequence[str] = (),
    passages: Sequence[Passages] | None = None,
) -> None:
    """Write N documents.

    embeddings: (N, D), which may be memory-mapped; student: its fingerprint; texts: those that
    `passages`, where they are given, are passages of.
    """
    import pyarrow as pa
    from pyarrow import parquet

    columns: dict[str, Sequence[Any]] = {"id": ids, "embedding": list(embeddings)}
    if passages is not None:
        of_documents = ([list(each.embeddings), *each.spans.T, each.weights] for each in passages)
        columns["text"] = texts
        columns |= zip(PASSAGE_COLUMNS, zip(*of_documents, strict=True), strict=True)
    table = pa.table(columns).replace_schema_metadata({STUDENT: student})
    parquet.write_table(table, file, row_group_size=ROWS)


class EmbeddingsFile:
    """A Parquet file with the columns id and embedding, and possibly text and passages.

    Raises InputError for another file. Embeddings are read a row group at a time.
    """

    def __init__(self, path: Path) -> None:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        mend = "write it with `docemb embed MODEL INPUT -o FILE`, or correct its name"
        self.path = path
        try:
            self._file = ParquetFile(path, memory_map=True)
        except (ArrowException, OSError) as error:
            raise InputError(f"{path}: this is no Parquet file ({error}); {mend}") from error
        columns = self._file.schema_arrow.names
        if not {"id", "embedding"} <= {*columns} or not self._file.metadata.num_rows:
            problem = "it holds no document with the columns 'id' and 'embedding'"
            raise InputError(f"{path}: {problem}; {mend}")
        self.has_passages = "passage" in columns

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
        stored_width = len(self.document(0)["embedding"])
        if (stored, stored_width) != (fingerprint, width):
            problem = (
                f"these embeddings have {stored_width} dimensions and the fingerprint {stored}, "
                f"and those of {name} have {width} and {fingerprint}"
            )
            mend = f"embed the documents again with `docemb embed {name} INPUT -o {self.path}`"
            raise InputError(f"{self.path}: {problem}; {mend}")

    def document(self, row: int) -> dict[str, Any]:
        """Read the columns of one document, vectors as arrays, and the row group that holds it."""
        metadata = self._file.metadata
        sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        starts = np.cumsum([0, *sizes])
        group = int(np.searchsorted(starts, row, side="right")) - 1
        wanted = ["id", "embedding"]
        if self.has_passages:
            wanted += ["text", *PASSAGE_COLUMNS]
        (fields,) = (
            self._file.read_row_group(group, wanted).slice(row - starts[group], 1).to_pylist()
        )
        for name in {"embedding", "passage"} & fields.keys():
            fields[name] = np.array(fields[name], dtype=np.float32)
        return fields

    def nearest(
        self,
        query: np.ndarray,
        count: int,
        *,
        without: int | None = None,
        by_passages: bool = False,
    ) -> dict[int, float]:
        """Return the `count` highest cosines by row, exactly and highest first.

        query: (D,); without: a row that is left out; by_passages: the nearest passage stands for
        the dense half of a document in its cosine. Raises InputError where there are no passages.
        """
        if by_passages and not self.has_passages:
            mend = "write them with `docemb embed --passages 256`"
            raise InputError(f"{self.path}: the file holds no passages; {mend}")
        wanted = ["embedding", "passage"] if by_passages else ["embedding"]
        blocks = []
        for batch in self._file.iter_batches(ROWS, columns=wanted):
            X = _matrix(batch.column(0))  # (B, D)
            products = X @ query
            if by_passages:
                of_passages = batch.column(1)
                V = _matrix(of_passages.flatten())  # (passages of all B, width of a passage)
                width = V.shape[1]
                dense = X[:, :width]
                counts = of_passages.value_lengths().to_numpy()
                first = np.cumsum(counts) - counts  # passage of each document, (B,)
                nearest = np.maximum.reduceat(passage_cosines(V, query), first)  # (B,)
                # The halves keep the lengths that they have in the embeddings.
                lengths = np.linalg.norm(dense, axis=1)
                lengths *= np.linalg.norm(query[:width])
                products += nearest * lengths - dense @ query[:width]
            blocks.append(products / np.maximum(np.linalg.norm(X, axis=1), 1e-12))
        cosines = np.concatenate(blocks) / max(float(np.linalg.norm(query)), 1e-12)
        order = np.argsort(-cosines, kind="stable")
        rows = [row for row in order[: count + 1].tolist() if row != without]
        return {row: float(cosines[row]) for row in rows[:count]}


def _matrix(lists: pa.ListArray) -> np.ndarray:
    """Lists of one length as the rows of a float32 matrix."""
    values = lists.flatten().to_numpy(zero_copy_only=False)
    return values.astype(np.float32, copy=False).reshape(len(lists), -1)


def passage_cosines(passages: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the cosines of passages, (P, width), with the dense columns of a query, (D,)."""
    direction = query[: passages.shape[1]]
    lengths = np.linalg.norm(passages, axis=1) * np.linalg.norm(direction)
    return passages @ direction / np.maximum(lengths, 1e-12)
