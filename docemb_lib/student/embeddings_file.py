"""Embeddings of documents in a Parquet file: written by `docemb embed`, read and searched here.

A row is a document, with or without passages, so that every reader of a table of embeddings
(pandas, BERTopic, embedding-atlas) finds one vector for each document. The passages of a document
are lists in further columns of its row; `frame.explode(PASSAGE_COLUMNS)` of pandas gives a row for
each. The metadata of the file name the student.

N: documents; D: width of an embedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from docemb_lib.base.errors import InputError, did_you_mean
from docemb_lib.base.pretrained import one_line

if TYPE_CHECKING:
    import pyarrow as pa

    from docemb_lib.student.passages import Passages

STUDENT = b"docemb.student"  # the key of the metadata: fingerprint of the student
ROWS = 1024  # documents of a row group: what is in memory at once, and what one document costs
SAMPLE = 1000  # documents whose pairs say how near a cosine is
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
    parquet.write_table(table, file, row_group_size=ROWS, write_page_checksum=True)


class EmbeddingsFile:
    """A Parquet file with the columns id and embedding, and possibly text and passages.

    Raises InputError for another file, and for one that is damaged. Embeddings are read a row group
    at a time.
    """

    def __init__(self, path: Path) -> None:
        from pyarrow.parquet import ParquetFile

        mend = "write it with `docemb embed MODEL INPUT -o FILE`, or correct its name"
        self.path = path
        self._reading = partial(one_line, str(path), "this is no whole file of embeddings", mend)
        with self._reading():
            self._file = ParquetFile(path, memory_map=True, page_checksum_verification=True)
            schema = self._file.schema_arrow
            schema.field("embedding")
            ids = self._file.read(["id"])["id"].to_pylist()
            if not 0 < len({*ids} - {None}) == len(ids):
                raise ValueError("an id is missing, or there twice")
        self.ids = list(map(str, ids))
        self.has_passages = "passage" in schema.names
        self._student = (schema.metadata or {}).get(STUDENT, b"missing").decode(errors="replace")

    def row_of(self, id: str) -> int:
        """Return the row of a document. Raises InputError for an unknown id."""
        if id not in self.ids:
            examples = ", ".join(map(repr, self.ids[:3]))
            problem = f"no document has the id {id!r}{did_you_mean(id, self.ids)}"
            raise InputError(f"{self.path}: {problem}; its ids are {examples}…")
        return self.ids.index(id)

    def check_student(self, fingerprint: str, name: str) -> None:
        """Raise InputError for embeddings of another student than `name`, or of none."""
        if self._student != fingerprint:
            raise InputError(
                f"{self.path}: the fingerprint of its student is {self._student}, and that of "
                f"{name} is {fingerprint}; embed the documents again with `docemb embed {name} "
                f"INPUT -o {self.path}`"
            )

    def document(self, row: int) -> dict[str, Any]:
        """Read the columns of one document, vectors as arrays, and the row group that holds it."""
        metadata = self._file.metadata
        sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        starts = np.cumsum([0, *sizes])
        group = int(np.searchsorted(starts, row, side="right")) - 1
        wanted = ["id", "embedding"]
        if self.has_passages:
            wanted += ["text", *PASSAGE_COLUMNS]
        with self._reading():
            table = self._file.read_row_group(group, wanted)
            (fields,) = table.slice(row - starts[group], 1).to_pylist()
            if None in fields.values():
                raise ValueError("a document lacks a value")
            for name in {"embedding", "passage"} & fields.keys():
                fields[name] = np.stack(fields[name]).astype(np.float32)
        return fields

    def pair_cosines(self) -> np.ndarray:
        """Return the cosines of all pairs of some `SAMPLE` documents, ascending: (pairs,).

        The documents are drawn at random, and the same ones each time.
        """
        rng = np.random.default_rng(0)
        drawn = []
        with self._reading():
            for batch in self._file.iter_batches(ROWS, columns=["embedding"]):
                X = _matrix(batch.column(0))  # (B, D)
                drawn.append(X[rng.random(len(X)) * len(self.ids) < SAMPLE])
        X = np.concatenate(drawn)
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12)
        return np.sort((X @ X.T)[np.triu_indices(len(X), k=1)])

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
        the meaning of a document in its cosine. Raises InputError where there are no passages.
        """
        if by_passages and not self.has_passages:
            mend = "write them with `docemb embed --passages 256`"
            raise InputError(f"{self.path}: the file holds no passages; {mend}")
        wanted = ["embedding", "passage"] if by_passages else ["embedding"]
        blocks = []
        with self._reading():
            for batch in self._file.iter_batches(ROWS, columns=wanted):
                X = _matrix(batch.column(0))  # (B, D)
                products = X @ query
                if by_passages:
                    of_passages = batch.column(1)
                    V = _matrix(of_passages.flatten())  # (passages of all B, width of a passage)
                    width = V.shape[1]
                    meaning = X[:, :width]
                    counts = of_passages.value_lengths().to_numpy()
                    if not counts.all():
                        raise ValueError("a document has no passage")
                    first = np.cumsum(counts) - counts  # passage of each document, (B,)
                    nearest = np.maximum.reduceat(passage_cosines(V, query), first)  # (B,)
                    # The halves keep the lengths that they have in the embeddings.
                    lengths = np.linalg.norm(meaning, axis=1)
                    lengths *= np.linalg.norm(query[:width])
                    products += nearest * lengths - meaning @ query[:width]
                blocks.append(products / np.maximum(np.linalg.norm(X, axis=1), 1e-12))
        cosines = np.concatenate(blocks) / max(float(np.linalg.norm(query)), 1e-12)
        order = np.argsort(-cosines, kind="stable")
        rows = [row for row in order[: count + 1].tolist() if row != without]
        return {row: float(cosines[row]) for row in rows[:count]}


def _matrix(lists: pa.ListArray) -> np.ndarray:
    """Lists of finite numbers, all of one length, as the rows of a float32 matrix."""
    values = lists.flatten().to_numpy(zero_copy_only=False)
    X = values.astype(np.float32, copy=False).reshape(len(lists), -1)
    lengths = lists.value_lengths().to_numpy()
    if not (np.isfinite(X).all() and (lengths == X.shape[1]).all()):
        raise ValueError("a vector has a number that is not finite, or more or fewer than others")
    return X


def passage_cosines(passages: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the cosines of passages, (P, width), with the columns of a query's meaning, (D,)."""
    direction = query[: passages.shape[1]]
    lengths = np.linalg.norm(passages, axis=1) * np.linalg.norm(direction)
    return passages @ direction / np.maximum(lengths, 1e-12)
