"""What every teacher is: a frozen model that turns documents into embeddings."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

# Documents from which a teacher shows a progress bar; smaller calls are blocks of a longer loop.
BAR_FROM = 512


class Teacher(Protocol):
    """A frozen model that turns documents into embeddings."""

    @property
    def dim(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Equal for two teachers only if their embeddings are."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 (N, dim); a row depends on its own text alone."""
