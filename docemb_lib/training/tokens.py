"""Documents as token ids in an Arrow file: tokenised once, memory-mapped while training, whatever their number."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from docemb_lib.errors import InputError
from docemb_lib.progress import progress
from docemb_lib.student.inference import chunks

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
