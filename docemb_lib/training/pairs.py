"""Which tokens of a text are hidden for masked-language modelling (Devlin et al. 2019, Section 3.1)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from docemb_lib.corpus.sentences import split_sentences
from docemb_lib.errors import InputError
from docemb_lib.losses.pairs import NO_LABEL
from docemb_lib.student.packing import PackedBatch, pack, token_batches
from docemb_lib.training.documents import Tokens

# ---- which tokens of a text are hidden for masked-language modelling


SHARE = 0.15  # of tokens to be guessed; the SimDE paper gives no rate
HIDDEN, REPLACED = 0.8, 0.1  # of these: shown as the mask token, shown as any token; the rest as they are


class Masked(NamedTuple):
    """A text whose hidden tokens are to be guessed, (T,) both."""

    input_ids: np.ndarray
    labels: np.ndarray  # the token where it is to be guessed, else NO_LABEL


def mask_tokens(ids: np.ndarray, rng: np.random.Generator, *, mask_id: int, vocabulary: int) -> Masked:
    """Choose tokens of `ids`, (T,), none of them special, and hide most of the chosen. vocabulary: number of ids."""
    chosen = rng.random(len(ids)) < SHARE
    fate = rng.random(len(ids))
    anything = rng.integers(vocabulary, size=len(ids))
    shown = np.where(fate < HIDDEN, mask_id, np.where(fate < HIDDEN + REPLACED, anything, ids))
    return Masked(np.where(chosen, shown, ids), np.where(chosen, ids, NO_LABEL))


# ---- two texts from one document


END = -1  # stands after each sentence among token ids, and is none


class EncodedSentences(NamedTuple):
    """Token ids of each text without special tokens, every sentence closed by `END`."""

    sequences: list[np.ndarray]
    truncated: int  # texts of which both halves, cut at the encoder's limit, leave something out


def encode_sentences(
    tokenizer: Any, texts: Sequence[str], *, max_tokens: int, language: str = "en"
) -> EncodedSentences:
    """Tokenise whole texts, so that every token is the one it is in its text, and tell where sentences end.

    max_tokens: of one half, special tokens included. A sentence without tokens is left out.
    """
    if not texts:
        return EncodedSentences([], 0)
    encodings = tokenizer(list(texts), add_special_tokens=False, truncation=False, verbose=False).encodings
    room = 2 * (max_tokens - len(tokenizer("")["input_ids"]))
    sequences = [
        _close_sentences(encoding, split_sentences(text, language=language))
        for text, encoding in zip(texts, encodings, strict=True)
    ]
    return EncodedSentences(sequences, sum(len(encoding) > room for encoding in encodings))


def _close_sentences(encoding: Any, sentences: Iterable[str]) -> np.ndarray:
    """A token belongs to the sentence in which its last character stands: its first may be the space before."""
    ids = np.asarray(encoding.ids, dtype=np.int32)
    token_ends = np.array([end for _, end in encoding.offsets], dtype=np.int64)
    ends = np.cumsum([len(sentence) for sentence in sentences])  # in characters
    after = np.unique(np.searchsorted(token_ends, ends, side="right"))  # tokens up to each end
    return np.insert(ids, after[after > 0], END)


def sentences_of(sequence: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """The token ids of each sentence of a document that `encode_sentences` made."""
    tokens = np.asarray(sequence, dtype=np.int64)
    ends = np.flatnonzero(tokens == END)
    return [tokens[begin:end] for begin, end in zip(np.append(0, ends[:-1] + 1), ends, strict=False)]


def draw_halves(n: int, rng: np.random.Generator) -> np.ndarray:
    """Which of n sentences go to the first half, (n,) bool; drawn again while a half is empty.

    Raises ValueError for fewer than two sentences, which have no halves.
    """
    if n < 2:
        raise ValueError(f"a document of {n} sentences has no halves: leave it out")
    while True:
        first = rng.random(n) < 0.5
        if first.any() and not first.all():
            return first


def generator_of(document: str, *, seed: int, epoch: int) -> np.random.Generator:
    """Chance for one document in one epoch: the same whoever draws, in whatever order, however often."""
    digest = np.frombuffer(hashlib.sha256(document.encode()).digest(), dtype=np.uint32)
    return np.random.default_rng([seed, epoch, *digest.tolist()])


# ---- documents


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
