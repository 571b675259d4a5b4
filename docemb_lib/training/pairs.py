"""Training on pairs of texts without a teacher (SimDE).

A document gives a pair: two random halves of its sentences (SimDE), or the whole document twice
under dropout (SimCSE). Beside the contrast between pairs, the student predicts masked tokens. The
gradient cache computes the loss of a batch whose activations do not fit into memory together.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, compress
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedTokenizerFast

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.sentences import split_sentences
from docemb_lib.losses import ObjectiveOutput
from docemb_lib.losses.contextual import NO_LABEL, full_precision
from docemb_lib.packed.packing import PackedBatch, pack, token_batches
from docemb_lib.settings.sections import NO_PAIRS
from docemb_lib.student import Student
from docemb_lib.student.student import Encoded
from docemb_lib.training.batches import (
    Autocast,
    Backward,
    Cut,
    MicroBatch,
    Tokens,
    TrainingDocuments,
    consecutive_batches,
)

logger = logging.getLogger(__name__)
END = -1  # stands after each sentence among token ids
# The share of the tokens to predict (Devlin et al., 2019, Section 3.1). The SimDE paper gives none.
PREDICTED = 0.15
# Shares of the chosen tokens that become the mask token, and a random token; the rest stays.
MASKED = 0.8
REPLACED = 0.1


def encode_sentences(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], *, language: str = "en"
) -> Encoded:
    """Tokenise whole texts without special tokens; `END` follows every sentence that has tokens."""
    encodings = tokenizer(
        list(texts), add_special_tokens=False, truncation=False, verbose=False
    ).encodings
    sequences = []
    for text, encoding in zip(texts, encodings, strict=True):
        # A token belongs to the sentence of its last character: its first may be the space before.
        token_ends = np.array([end for _, end in encoding.offsets], dtype=np.int64)
        lengths = [len(sentence) for sentence in split_sentences(text, language=language)]
        sentence_ends = np.cumsum(lengths)  # in characters
        # The number of tokens up to the end of each sentence.
        n_tokens = np.unique(np.searchsorted(token_ends, sentence_ends, side="right"))
        ids = np.asarray(encoding.ids, dtype=np.int32)
        sequences.append(np.insert(ids, n_tokens[n_tokens > 0], END))
    return Encoded(sequences, 0)


def sentences_of(sequence: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """The token ids of each sentence of a sequence from `encode_sentences`."""
    tokens = np.asarray(sequence, dtype=np.int64)
    after = np.flatnonzero(tokens == END) + 1
    return [sentence[:-1] for sentence in np.split(tokens, after)[:-1]]


def draw_halves(n: int, rng: np.random.Generator) -> np.ndarray:
    """Which of n >= 2 sentences go to the first half, (n,) bool; no half is empty.

    Raises ValueError for fewer sentences.
    """
    if n < 2:
        raise ValueError(f"halves need 2 sentences, got {n}")
    while True:
        first = rng.random(n) < 0.5
        if first.any() and not first.all():
            return first


def generator_of(document: str, *, seed: int, epoch: int) -> np.random.Generator:
    """A generator for one document and epoch, whatever else is in its batch."""
    digest = np.frombuffer(hashlib.sha256(document.encode()).digest(), dtype=np.uint32)
    return np.random.default_rng([seed, epoch, *digest.tolist()])


def mask_tokens(
    ids: np.ndarray, rng: np.random.Generator, *, mask_id: int, vocabulary: int
) -> tuple[np.ndarray, np.ndarray]:
    """Choose tokens of `ids`, (T,), none of them special, and mask most of the chosen.

    Returns the masked ids and the labels, (T,) both. A label is the token where it is chosen, else
    `NO_LABEL`.
    """
    chosen = rng.random(len(ids)) < PREDICTED
    action = rng.random(len(ids))
    random_ids = rng.integers(vocabulary, size=len(ids))
    masked = np.where(action < MASKED + REPLACED, random_ids, ids)
    masked = np.where(action < MASKED, mask_id, masked)
    return np.where(chosen, masked, ids), np.where(chosen, ids, NO_LABEL)


class Part(NamedTuple):
    """The texts of a batch that one forward pass holds."""

    # The places of these texts among the 2B texts of the batch: the first texts of all pairs come
    # before the second ones.
    places: list[int]
    texts: PackedBatch
    masked: PackedBatch
    labels: Tensor  # (T,), see `mask_tokens`


class PairBatch(NamedTuple):
    """B pairs in as many parts as memory asks for; the loss compares each text with all others."""

    rows: list[int]  # the rows of the B documents
    parts: list[Part]
    share: float = 1.0  # of the update's batches

    @property
    def tokens(self) -> int:
        return sum(sum(part.texts.sizes) for part in self.parts)

    @property
    def order(self) -> Tensor:
        """Indices that put the texts of all parts into their order, (2B,)."""
        places = chain.from_iterable(part.places for part in self.parts)
        return torch.tensor(list(places)).argsort()

    def learn(
        self, model: Any, device: torch.device, autocast: Autocast, backward: Backward
    ) -> ObjectiveOutput:
        """Accumulate the gradients of `share` times the loss of the batch.

        The output has the embeddings of the first texts of the pairs.
        """
        parts = send_to_device(self.parts, device, non_blocking=True)

        def embed(texts: PackedBatch) -> Tensor:
            with autocast():
                return full_precision(model.student(texts))

        def losses_of(embeddings: Tensor) -> Tensor:
            return model.contrast(*embeddings.chunk(2))  # (2B, D) to (B,)

        contrast, embeddings = accumulate_gradients(
            embed,
            [part.texts for part in parts],
            self.order,
            losses_of,
            share=self.share,
            backward=backward,
        )
        losses = {"contrast": contrast.mean()}
        if model.mlm_weight:
            losses["mlm"] = contrast.new_zeros(())
            words = model.student.model.get_input_embeddings().weight
            predicted = sum(int((part.labels != NO_LABEL).sum()) for part in self.parts)
            for part in parts:
                with autocast():
                    summed = model.head.loss(model.student.hidden(part.masked), part.labels, words)
                    mean = summed / max(predicted, 1)
                backward(mean * (model.mlm_weight * self.share))
                losses["mlm"] = losses["mlm"] + mean.detach()
        total = losses["contrast"] + model.mlm_weight * losses.get("mlm", 0)
        return ObjectiveOutput(total, losses, embeddings[: len(self.rows)], None)


class PairedDocuments:
    """Pairs of the documents of two sentences and more.

    It logs how many documents are left out, and how many are cut.

    Args:
        sentences: a sequence of `encode_sentences` for each document.
        ids: a unique name for each document.
        max_tokens: the limit of a text, special tokens included.
        pairs: "halves" or "dropout". Both leave out the same documents, so that a comparison is of
            the pairs alone.
    """

    def __init__(
        self,
        sentences: Tokens,
        *,
        ids: Sequence[str],
        tokenizer: PreTrainedTokenizerFast,
        max_tokens: int,
        pairs: Literal["halves", "dropout"] = "halves",
        seed: int = 0,
    ) -> None:
        self.sentences = sentences
        self.pairs = pairs
        self.seed = seed
        n = len(sentences)
        counts = np.array([np.count_nonzero(np.asarray(sentences[row]) == END) for row in range(n)])
        # The rows of `sentences`, by row of this object.
        self.rows = np.flatnonzero(counts >= 2).tolist()
        kept = len(self)
        if kept < 2:
            raise InputError(
                f"documents: {n - kept} of {n} have fewer than two sentences, so fewer than two "
                "documents are left; give documents of several sentences"
            )
        if kept < n:
            message = "%d of %d documents have fewer than two sentences, and are left out"
            logger.warning(message, n - kept, n)
        self.ids: Sequence[str] = [ids[row] for row in self.rows]
        self.lengths = [len(sentences[row]) - int(counts[row]) for row in self.rows]  # in tokens
        special = tokenizer("")["input_ids"]
        # Ids, masked ids and labels of the special tokens. The first opens a text, the rest end it.
        self._special = np.array([special, special, [NO_LABEL] * len(special)])
        self._room = max_tokens - len(special)
        most = self._room * (2 if pairs == "halves" else 1)
        n_cut = sum(length > most for length in self.lengths)
        if n_cut:
            message = "%d of %d documents are longer than the texts of a pair, and are cut"
            logger.warning(message, n_cut, kept)
        self._mask_id = tokenizer.mask_token_id
        self._vocabulary = len(tokenizer)

    def __len__(self) -> int:
        return len(self.rows)

    def identity(self) -> list[object]:
        """Return the kind of pairs, the seed, the ids and the lengths."""
        return [self.pairs, self.seed, self.ids, self.lengths]

    def passes(self, rows: Sequence[int], cut: Cut, epoch: int = 0) -> Iterator[PairBatch]:
        """Yield the pairs of each batch of an update."""
        batches = consecutive_batches(rows, cut.batch_size)
        for batch in batches:
            packed = self.pack(batch, epoch=epoch, budget=cut.budget, padded=cut.padded)
            yield packed._replace(share=1 / len(batches))

    def pack(
        self, rows: Sequence[int], *, epoch: int, budget: int, padded: Callable[[int], int] = int
    ) -> PairBatch:
        """Draw the pairs of a batch in this epoch.

        budget: tokens of a part, with padding; a longer text is a part alone. padded: see
        `Student.padded`; the default is without padding.
        """
        first, second = zip(*(self._draw(row, epoch) for row in rows), strict=True)
        texts = [*first, *second]
        parts = []
        for places in token_batches([padded(text.shape[1]) for text in texts], budget):
            ids, masked, labels = zip(*(texts[place] for place in places), strict=True)
            of_part = torch.from_numpy(np.concatenate(labels))
            parts.append(Part(places, pack(ids), pack(masked), of_part))
        return PairBatch(list(rows), parts)

    def _draw(self, row: int, epoch: int) -> list[np.ndarray]:
        """Both texts of a pair, (3, T) each: ids with special tokens, masked ids, and labels."""
        rng = generator_of(self.ids[row], seed=self.seed, epoch=epoch)
        sentences = sentences_of(self.sentences[self.rows[row]])
        first = second = np.ones(len(sentences), dtype=bool)
        if self.pairs == "halves":
            first = draw_halves(len(sentences), rng)
            second = ~first
        return [self._mask(list(compress(sentences, half)), rng) for half in (first, second)]

    def _mask(self, sentences: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        ids = np.concatenate(sentences)[: self._room]
        masked, labels = mask_tokens(ids, rng, mask_id=self._mask_id, vocabulary=self._vocabulary)
        opening = self._special[:, :1]
        closing = self._special[:, 1:]
        return np.concatenate([opening, [ids, masked, labels], closing], axis=1)


def accumulate_gradients(
    embed: Callable[[PackedBatch], Tensor],
    parts: Sequence[PackedBatch],
    order: Tensor,
    losses_of: Callable[[Tensor], Tensor],
    *,
    share: float,
    backward: Callable[[Tensor], object],
) -> tuple[Tensor, Tensor]:
    """Accumulate the gradients of a loss over n texts, part by part.

    The loss is `share` times the mean of `losses_of` the embeddings of all texts. This is the
    gradient cache (Gao et al., 2021):

    1. Embed each part under checkpointing, which keeps no activations.
    2. Take the gradient g of the loss with regard to the embeddings e.
    3. Backpropagate sum(e * g) of each part: checkpointing repeats the forward pass of the part
       with the same dropout. By the chain rule this is the gradient of the whole batch.

    `order` are the indices that put the texts of all parts into their order, (n,). Returns the
    losses, (B,), and the embeddings of all texts in order, (n, D), without gradient.
    """
    if len(parts) == 1 or not torch.is_grad_enabled():
        embeddings = torch.cat([embed(part) for part in parts])[order]
        losses = losses_of(embeddings)
        backward(losses.mean() * share)
        return losses.detach(), embeddings.detach()
    embedded = [checkpoint(embed, part, use_reentrant=False) for part in parts]
    leaf = torch.cat(embedded).detach().requires_grad_()  # e, (n, D)
    embeddings = leaf[order]
    losses = losses_of(embeddings)
    (gradient,) = torch.autograd.grad(losses.mean() * share, leaf)  # g, (n, D)
    gradients = gradient.split([len(part) for part in embedded])
    for part, gradient_of_part in zip(embedded, gradients, strict=True):
        backward((part * gradient_of_part).sum())
    return losses.detach(), embeddings.detach()


def check_pairs(student: Student, train: PairedDocuments, processes: int) -> None:
    """Raise InputError for several processes, and for pairs by dropout without dropout."""
    if processes > 1:
        raise InputError(
            "SimDE trains in one process; start it without torchrun and accelerate launch"
        )
    if train.pairs == "dropout" and not has_dropout(student):
        raise InputError(NO_PAIRS)


def has_dropout(student: Student) -> bool:
    """Whether the configuration of the encoder has any dropout."""
    return any(
        "dropout" in name and isinstance(value, int | float) and value > 0
        for name, value in student.config.to_dict().items()
    )


Pass = MicroBatch | PairBatch  # a part of an update that is computed at once
Documents = TrainingDocuments | PairedDocuments
