"""Several Paragraph Vectors as one contextual teacher (thesis, 4.5.1: "DM + DBOW")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.teachers.paragraph_vector import ParagraphVector


class Compound:
    """Trained Paragraph Vectors side by side, DM before DBOW whatever their order in `members`.

    Raises InputError for members trained on different texts; their preprocessing may differ.
    """

    def __init__(self, members: Sequence[ParagraphVector]) -> None:
        if len(members) < 2:
            raise InputError(f"Compound: got {len(members)} members, give two or more")
        first, *others = members
        for other in others:
            if other.fitted.texts != first.fitted.texts:
                raise InputError(
                    f"Compound: {first.label} was trained on texts {first.fitted.texts}, {other.label} on "
                    f"{other.fitted.texts}; train both on the same corpus"
                )
        self.members = sorted(members, key=lambda member: not member.dm)

    @property
    def label(self) -> str:
        """The members' labels, joined with `+`."""
        return "+".join(member.label for member in self.members)

    @property
    def dim(self) -> int:
        """The sum of the members' widths."""
        return sum(member.dim for member in self.members)

    @property
    def fingerprint(self) -> str:
        """Of all members, in order."""
        return "+".join(member.fingerprint for member in self.members)

    def embed(self, texts: Sequence[str], *, jobs: int | None = None) -> np.ndarray:
        """Float32 (N, dim): each member's embedding after the other's."""
        return np.concatenate([member.embed(texts, jobs=jobs) for member in self.members], axis=1)
