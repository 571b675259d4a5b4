"""Documents that a student learns from without a teacher: a pair of texts of each, another one every epoch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from docemb_lib.errors import InputError
from docemb_lib.losses.masked_language import NO_LABEL
from docemb_lib.student.packing import PackedBatch, pack, token_batches
from docemb_lib.training.halves import END, draw_halves, generator_of, sentences_of
from docemb_lib.training.masking import mask_tokens
from docemb_lib.training.tokens import Tokens

logger = logging.getLogger(__name__)

PairKind = Literal["halves", "dropout"]  # two halves of a document (SimDE), or the document twice (SimCSE)


class Part(NamedTuple):
    """The texts of a batch that one forward pass holds, in order of `places`."""

    places: list[int]  # among the batch's texts: the B first ones of the pairs, then the B second ones
    texts: PackedBatch
    masked: PackedBatch  # the same with hidden tokens
    labels: Tensor  # (T,), see `mask_tokens`

    def to(self, device: torch.device) -> Part:
        labels = self.labels.to(device, non_blocking=True)
        return Part(self.places, self.texts.to(device), self.masked.to(device), labels)


class PairBatch(NamedTuple):
    """A batch of B pairs, each text compared with all others, in as many passes as memory asks for."""

    rows: list[int]  # of the B documents
    parts: list[Part]
    n_labels: int  # tokens to be guessed in all parts

    @property
    def order(self) -> Tensor:
        """Indices that put the texts of all parts, one part after the other, into their order, (2B,)."""
        return torch.tensor([place for part in self.parts for place in part.places]).argsort()

    @property
    def sizes(self) -> list[int]:
        """Tokens of every text."""
        return [size for part in self.parts for size in part.texts.sizes]


class PairedDocuments:
    """The documents of two sentences and more; how many have fewer, and are left out, is logged.

    pairs: "dropout" takes the same documents as "halves", so that a comparison is of the pairs alone.
    """

    def __init__(
        self,
        sentences: Tokens,
        *,
        ids: Sequence[str],
        tokenizer: Any,
        max_tokens: int,
        pairs: PairKind = "halves",
        seed: int = 0,
    ) -> None:
        """sentences: by row, from `encode_sentences`; ids: by row, unique; max_tokens: of a text, special tokens
        included. Raises InputError where no two documents are left."""
        self.n_sentences = np.array(
            [np.count_nonzero(np.asarray(sentences[row]) == END) for row in range(len(sentences))]
        )
        self.rows = np.flatnonzero(self.n_sentences >= 2)  # of `sentences`, by row of this
        self.skipped = len(sentences) - len(self.rows)
        if len(self.rows) < 2:
            raise InputError(
                f"documents: {self.skipped} of {len(sentences)} have fewer than two sentences, so there are not two to "
                "learn from; give documents of several sentences"
            )
        if self.skipped:
            logger.warning("%d of %d documents left out: of fewer than two sentences", self.skipped, len(sentences))
        if tokenizer.mask_token_id is None:
            raise InputError("tokenizer: has no mask token; a masked language model needs one")
        self.sentences, self.pairs, self.seed = sentences, pairs, seed
        self.ids = [ids[row] for row in self.rows.tolist()]
        self.lengths = np.array([len(sentences[row]) - self.n_sentences[row] for row in self.rows.tolist()])  # tokens
        self._before, self._after = _special_tokens(tokenizer)
        self._room = max_tokens - len(self._before) - len(self._after)
        self._mask_id, self._vocabulary = tokenizer.mask_token_id, len(tokenizer)

    def __len__(self) -> int:
        return len(self.rows)

    def pack(self, rows: Sequence[int], *, epoch: int, budget: int) -> PairBatch:
        """The pairs of a batch in this epoch. budget: tokens in a pass; a longer text has one of its own."""
        drawn = [self._draw(row, epoch) for row in rows]
        texts = [text for half in zip(*drawn, strict=True) for text in half]  # firsts, then seconds
        plan = token_batches([len(text.ids) for text in texts], budget)
        parts = [self._part([texts[place] for place in places], places) for places in plan]
        return PairBatch(list(rows), parts, sum(int((text.labels != NO_LABEL).sum()) for text in texts))

    def _part(self, texts: Sequence[_Text], places: list[int]) -> Part:
        return Part(
            places,
            pack([text.ids for text in texts]),
            pack([text.masked for text in texts]),
            torch.from_numpy(np.concatenate([text.labels for text in texts])),
        )

    def _draw(self, row: int, epoch: int) -> tuple[_Text, _Text]:
        rng = generator_of(self.ids[row], seed=self.seed, epoch=epoch)
        sentences = sentences_of(self.sentences[int(self.rows[row])])
        if self.pairs == "halves":
            goes_first = draw_halves(len(sentences), rng)
            halves = [
                [s for s, goes in zip(sentences, goes_first == side, strict=True) if goes] for side in (True, False)
            ]
        else:
            halves = [sentences, sentences]
        first, second = (self._text(np.concatenate(half)[: self._room], rng) for half in halves)
        return first, second

    def _text(self, ids: np.ndarray, rng: np.random.Generator) -> _Text:
        masked, labels = mask_tokens(ids, rng, mask_id=self._mask_id, vocabulary=self._vocabulary)
        nothing = [np.full(len(special), NO_LABEL) for special in (self._before, self._after)]
        return _Text(
            np.concatenate([self._before, ids, self._after]),
            np.concatenate([self._before, masked, self._after]),
            np.concatenate([nothing[0], labels, nothing[1]]),
        )


class _Text(NamedTuple):
    """With special tokens, (T,) each."""

    ids: np.ndarray
    masked: np.ndarray
    labels: np.ndarray


def _special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What a tokenizer puts before and after a text."""
    both = tokenizer("")["input_ids"]
    return both[:1], both[1:]
