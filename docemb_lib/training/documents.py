"""Documents as token ids in an Arrow file: tokenised once, memory-mapped while training, whatever their number."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from tqdm import tqdm

from docemb_lib.errors import InputError
from docemb_lib.losses import Objective
from docemb_lib.progress import progress
from docemb_lib.student.inference import chunks
from docemb_lib.student.packing import PackedBatch, pack

# ---- documents as token ids in an Arrow file


logger = logging.getLogger(__name__)
SCHEMA = pa.schema([("input_ids", pa.large_list(pa.int32()))])


class Tokens(Protocol):
    """Token ids of documents by row; a list of lists is one too."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Sequence[int] | np.ndarray: ...


class Encoded(Protocol):
    @property
    def sequences(self) -> Sequence[Sequence[int] | np.ndarray]: ...

    @property
    def truncated(self) -> int: ...


def write_tokens(
    path: Path, texts: Iterable[str], encode: Callable[[list[str]], Encoded], *, total: int, max_tokens: int
) -> None:
    """Tokenise `texts` into the Arrow file `path`, a chunk at a time.

    encode: texts to their token ids, cut at `max_tokens`, and to how many were cut, which the file remembers.
    """
    truncated = 0
    bar: tqdm[None]
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, SCHEMA) as writer,
        progress(desc="tokenising", total=total, unit="documents") as bar,
    ):
        for chunk in chunks(texts):
            encoded = encode(chunk)
            truncated += encoded.truncated
            writer.write_batch(pa.record_batch([pa.array(encoded.sequences, SCHEMA.field(0).type)], schema=SCHEMA))
            bar.update(len(chunk))
        writer.write_batch(
            pa.record_batch([pa.array([], SCHEMA.field(0).type)], schema=SCHEMA),
            custom_metadata={"truncated": str(truncated), "max_tokens": str(max_tokens)},
        )


class TokenFile:
    """Token ids by row, int32, from a file that `write_tokens` wrote. How many documents were cut is logged."""

    def __init__(self, path: Path) -> None:
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
            blocks = [reader.get_batch(index).column(0) for index in range(reader.num_record_batches)]
            said = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1).custom_metadata
            self.truncated, self.max_tokens = int(said["truncated"]), int(said["max_tokens"])
        except (pa.ArrowInvalid, KeyError, TypeError, ValueError, OSError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{path}: not a whole file of tokens ({reason}); remove its folder") from None
        self._values = [block.values.to_numpy() for block in blocks]
        self._offsets = [block.offsets.to_numpy() for block in blocks]
        self._ends = np.cumsum([len(block) for block in blocks])
        if self.truncated:
            logger.warning("%d of %d documents cut at %d tokens", self.truncated, len(self), self.max_tokens)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, row: int) -> np.ndarray:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        block = int(np.searchsorted(self._ends, row, side="right"))
        within = row - (int(self._ends[block - 1]) if block else 0)
        offsets = self._offsets[block]
        return self._values[block][offsets[within] : offsets[within + 1]]


# ---- documents to train on


CHECKED = 65_536  # rows of teacher embeddings looked at a time


class Known(NamedTuple):
    """What is known of the B documents of a pass, named as `Objective.forward` takes it."""

    teachers: dict[str, Tensor]  # by name: (B, T)
    n_structural_tokens: Tensor  # (B,)
    negatives: dict[str, Tensor]  # by name: (G, K, T), of further documents for each of the pass' batches

    def to(self, device: torch.device) -> Known:
        def there(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}

        lengths = self.n_structural_tokens.to(device, non_blocking=True)
        return Known(there(self.teachers), lengths, there(self.negatives))


class TrainingDocuments:
    """The first N documents of a corpus split beside the teacher embeddings of the same rows."""

    def __init__(
        self,
        tokens: Tokens,
        n_structural_tokens: Sequence[int] | np.ndarray,
        *,
        teachers: Mapping[str, np.ndarray],  # by name: (N', T) with N' >= N, row i is document i
        ids: Sequence[str] | None = None,
    ) -> None:
        """ids: what documents are called in an error; None: their row. Raises InputError for a teacher's embeddings
        that are not finite, ValueError for fewer rows than documents."""
        N = len(tokens)
        if len(n_structural_tokens) != N:
            raise ValueError(f"{len(n_structural_tokens)} lengths for {N} documents")
        self.tokens, self.n_structural_tokens = tokens, np.asarray(n_structural_tokens)
        self.ids = [f"row {row}" for row in range(N)] if ids is None else ids
        self.teachers = dict(teachers)
        for name, rows in self.teachers.items():
            if len(rows) < N:
                raise ValueError(f"{name} embeddings hold {len(rows)} rows for {N} documents")
            self._check_finite(name, rows)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def lengths(self) -> np.ndarray:
        """By which documents are put in order: tokens of the structural teacher."""
        return self.n_structural_tokens

    def pack(self, batches: Sequence[Sequence[int]], bank: Bank | None = None) -> tuple[PackedBatch, Known]:
        """The documents of several batches end to end, and what is known of them."""
        rows = [row for batch in batches for row in batch]
        known = Known(
            {name: _tensor(embeddings, rows) for name, embeddings in self.teachers.items()},
            torch.from_numpy(self.n_structural_tokens[rows]),
            {} if bank is None else bank.draw(batches, of=self),
        )
        return pack([self.tokens[row] for row in rows]), known

    def _check_finite(self, name: str, rows: np.ndarray) -> None:
        for start in range(0, len(self), CHECKED):
            finite = np.isfinite(rows[start : min(start + CHECKED, len(self))]).all(axis=1)
            if not finite.all():
                first = self.ids[start + int(finite.argmin())]
                raise InputError(
                    f"{name} teacher: the embedding of document {first} is not finite; embed the corpus again"
                )


class Bank:
    """Further documents for each batch to be compared with: only their teachers' embeddings, the student reads none.

    They are training documents that the structural mask keeps, and none of the batch's own. What is drawn depends on
    the seed and on the batch's rows alone: not on the epoch, the pass or the process that asks, nor on what was drawn
    before. A resumed run draws the same, and a batch of validation documents has the same negatives every time it is
    validated, so that its loss stays one function of the student.
    """

    def __init__(self, documents: TrainingDocuments, objective: Objective, *, batch_size: int, seed: int) -> None:
        """Raises InputError for an objective that asks for more negatives than there are beside a batch."""
        keep = objective.weighting.keep(torch.from_numpy(documents.n_structural_tokens))
        self.documents, self.size, self.seed = documents, objective.negatives, seed
        self.rows = keep.numpy().nonzero()[0]
        self.names = [teaching.name for teaching in objective.teachings if teaching.takes_negatives]
        check_negatives(self.size, kept=len(self.rows), batch_size=batch_size)

    def draw(self, batches: Sequence[Sequence[int]], *, of: TrainingDocuments) -> dict[str, Tensor]:
        """Embeddings of `size` documents for each of G batches of the documents `of`, by teacher: (G, size, T)."""
        drawn = np.concatenate([self._draw(batch, own=batch if of is self.documents else ()) for batch in batches])
        return {
            name: _tensor(self.documents.teachers[name], drawn).unflatten(0, (len(batches), self.size))
            for name in self.names
        }

    def _draw(self, batch: Sequence[int], *, own: Sequence[int]) -> np.ndarray:
        rng = np.random.default_rng((self.seed, *batch))
        some = rng.choice(self.rows, size=self.size + len(own), replace=False)  # enough, whoever of the own is in it
        return np.sort(some[~np.isin(some, own)][: self.size])  # in the order in which they lie on disk


def check_negatives(size: int, *, kept: int, batch_size: int) -> None:
    """That `size` documents can be drawn beside any batch. kept: training documents that the mask keeps.

    Raises InputError where they cannot.
    """
    if size > kept - batch_size:
        raise InputError(
            f"negatives: {size} asked for, but beside a batch of {batch_size} only {max(kept - batch_size, 0)} of "
            f"{kept} training documents that max_structural_len keeps are left; ask for fewer, or raise documents or "
            "max_structural_len"
        )


def _tensor(embeddings: np.ndarray, rows: Sequence[int] | np.ndarray) -> Tensor:
    """(N, T), float32."""
    return torch.from_numpy(np.asarray(embeddings[rows], dtype=np.float32))
