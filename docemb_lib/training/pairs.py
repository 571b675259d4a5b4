"""Training on pairs of texts without a teacher (SimDE).

A document gives a pair: two random halves of its sentences (SimDE), or the whole document twice
under dropout (SimCSE). Beside the contrast between pairs, the student predicts masked tokens. The
gradient cache computes the loss of a batch whose activations do not fit into memory together.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain, compress
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedTokenizerFast

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.rows import split_sentences
from docemb_lib.losses import ObjectiveOutput, PairObjective
from docemb_lib.losses.contextual import full_precision
from docemb_lib.losses.pairs import NO_LABEL
from docemb_lib.packed.packing import PackedBatch, pack, token_batches
from docemb_lib.settings.sections import NO_PAIRS
from docemb_lib.student import Student
from docemb_lib.student.student import Encoded
from docemb_lib.training.batches import (
    Tokens,
    Updates,
    consecutive_batches,
)
from docemb_lib.training.monitor import Means
from docemb_lib.training.run import History, train_objective
from docemb_lib.training.trainer import DistillationTrainer

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
    n_labels: int  # the number of tokens to predict in all parts

    @property
    def order(self) -> Tensor:
        """Indices that put the texts of all parts into their order, (2B,)."""
        places = chain.from_iterable(part.places for part in self.parts)
        return torch.tensor(list(places)).argsort()


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
        lengths = np.array([len(sentences[row]) for row in range(n)])  # with `END`
        self.n_sentences = np.array(
            [np.count_nonzero(np.asarray(sentences[row]) == END) for row in range(n)]
        )
        # The rows of `sentences`, by row of this object.
        self.rows = np.flatnonzero(self.n_sentences >= 2)
        kept = len(self)
        if kept < 2:
            raise InputError(
                f"documents: {n - kept} of {n} have fewer than two sentences, so fewer than two "
                "documents are left; give documents of several sentences"
            )
        if kept < n:
            message = "%d of %d documents have fewer than two sentences, and are left out"
            logger.warning(message, n - kept, n)
        self.ids = [ids[row] for row in self.rows.tolist()]
        self.lengths = (lengths - self.n_sentences)[self.rows]  # in tokens
        special = tokenizer("")["input_ids"]
        # Ids, masked ids and labels of the special tokens. The first opens a text, the rest end it.
        self._special = np.array([special, special, [NO_LABEL] * len(special)])
        self._room = max_tokens - len(special)
        n_cut = np.count_nonzero(self.lengths > self._room * (2 if pairs == "halves" else 1))
        if n_cut:
            message = "%d of %d documents are longer than the texts of a pair, and are cut"
            logger.warning(message, n_cut, kept)
        self._mask_id = tokenizer.mask_token_id
        self._vocabulary = len(tokenizer)

    def __len__(self) -> int:
        return len(self.rows)

    def digest(self) -> str:
        """SHA-256 of the pairs, the seed, the ids and the lengths."""
        names = json.dumps([self.pairs, self.seed, self.ids]).encode()
        return hashlib.sha256(names + self.lengths.astype(np.int64).tobytes()).hexdigest()

    def pack(
        self, rows: Sequence[int], *, epoch: int, budget: int, padded: Callable[[int], int] = int
    ) -> PairBatch:
        """The pairs of a batch in this epoch.

        Args:
            budget: tokens in a pass, with padding; a longer text has a pass of its own.
            padded: see `Student.padded`; the default is without padding.
        """
        first, second = zip(*(self._draw(row, epoch) for row in rows), strict=True)
        texts = [*first, *second]
        parts = []
        n_labels = 0
        for places in token_batches([padded(text.shape[1]) for text in texts], budget):
            ids, masked, labels = zip(*(texts[place] for place in places), strict=True)
            part = Part(places, pack(ids), pack(masked), torch.from_numpy(np.concatenate(labels)))
            parts.append(part)
            n_labels += int((part.labels != NO_LABEL).sum())
        return PairBatch(list(rows), parts, n_labels)

    def _draw(self, row: int, epoch: int) -> list[np.ndarray]:
        """Both texts of a pair, (3, T) each: ids with special tokens, masked ids, and labels."""
        rng = generator_of(self.ids[row], seed=self.seed, epoch=epoch)
        sentences = sentences_of(self.sentences[int(self.rows[row])])
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


def learn_from_pairs(
    model: PairObjective,
    batch: PairBatch,
    *,
    autocast: Callable[[], AbstractContextManager[object]],
    share: float,
    backward: Callable[[Tensor], object],
) -> ObjectiveOutput:
    """The losses of a batch and the embeddings of the first texts of its pairs.

    Accumulates the gradients of `share` times the loss.
    """
    parts = send_to_device(batch.parts, model.student.device, non_blocking=True)

    def embed(texts: PackedBatch) -> Tensor:
        with autocast():
            return full_precision(model.student(texts))

    contrast, embeddings = accumulate_gradients(
        embed,
        [part.texts for part in parts],
        batch.order,
        lambda embeddings: model.contrast(*embeddings.chunk(2)),  # (2B, D) to (B,)
        share=share,
        backward=backward,
    )
    losses = {"contrast": contrast.mean()}
    if model.head is not None and model.mlm_weight:
        losses["mlm"] = contrast.new_zeros(())
        words = model.student.model.get_input_embeddings().weight
        for part in parts:
            with autocast():
                summed = model.head.loss(model.student.hidden(part.masked), part.labels, words)
                mean = summed / max(batch.n_labels, 1)
            backward(mean * (model.mlm_weight * share))
            losses["mlm"] = losses["mlm"] + mean.detach()
    total = losses["contrast"] + model.mlm_weight * losses.get("mlm", 0)
    return ObjectiveOutput(total, losses, embeddings[: len(batch.rows)], None)


def train_on_pairs(
    objective: PairObjective,
    train: PairedDocuments,
    validation: PairedDocuments,
    **options: Any,
) -> History:
    """Train `objective` in place on pairs of `train`, with the options of `train_objective`.

    Raises InputError for several processes, and for pairs by dropout of a student without dropout.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError(
            "SimDE trains in one process; start it without torchrun and accelerate launch"
        )
    if train.pairs == "dropout" and not has_dropout(objective.student):
        raise InputError(NO_PAIRS)
    options["settings"].check_fills_a_batch(len(train), "simde.training")
    return train_objective(
        objective,
        train,
        validation,
        **options,
        trainer_class=PairTrainer,
        pass_documents=1,
    )


def has_dropout(student: Student) -> bool:
    """Whether the configuration of the encoder has any dropout."""
    return any(
        "dropout" in name and isinstance(value, int | float) and value > 0
        for name, value in student.config.to_dict().items()
    )


class PairTrainer(DistillationTrainer):
    """Trains a `PairObjective`, in one process."""

    model: PairObjective
    train_dataset: PairedDocuments

    def collate(self, updates: Updates) -> Callable[[list[int]], list[PairBatch]]:
        size = self.settings.batch_size
        documents = self.train_dataset
        padded = self.model.student.padded

        def update(rows: list[int]) -> list[PairBatch]:
            return [
                documents.pack(batch, epoch=updates.epoch, budget=self.budget, padded=padded)
                for batch in consecutive_batches(rows, size)
            ]

        return update

    def training_step(
        self, model: nn.Module, inputs: Any, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Accumulate the gradients of one update: the mean over its batches of pairs."""
        model.train()
        batches: list[PairBatch] = inputs
        outputs = [
            learn_from_pairs(
                self.model,
                batch,
                autocast=self.compute_loss_context_manager,
                share=1 / len(batches),
                backward=self.accelerator.backward,
            )
            for batch in batches
        ]
        losses = [output.loss / len(outputs) for output in outputs]
        rows = [batch.rows for batch in batches]
        tokens = sum(sum(part.texts.sizes) for batch in batches for part in batch.parts)
        tokens *= 2 if self.model.mlm_weight else 1  # MLM reads each text a second time
        parts = {}
        for name in outputs[0].parts:
            parts[name] = torch.stack([output.parts[name] for output in outputs]).mean()
        each = torch.stack(losses)
        self.check_finite(rows, each)
        embeddings = torch.cat([output.embeddings for output in outputs])
        self.monitor.add(ObjectiveOutput(each.sum(), parts, embeddings, None), tokens=tokens)
        return each.sum()

    def validation_means(self) -> dict[str, float]:
        return validate_pairs(self.model, self.eval_dataset, **self.validation_options)


@torch.no_grad()
def validate_pairs(
    objective: PairObjective,
    documents: PairedDocuments,
    *,
    batch_size: int,
    dtype: torch.dtype | None,
    budget: int,
) -> dict[str, float]:
    """Means over `documents`: `loss`, `contrast`, `mlm`, `norm` and `spread`.

    `norm` and `spread` are of the first texts. The pairs are those of epoch 0, which keeps the loss
    one function of the student. Batches are those of `validate`.
    """
    device = objective.student.device
    was_training = objective.training
    objective.eval()
    names = ["contrast", "mlm"] if objective.mlm_weight else ["contrast"]
    means = Means(names, dim=objective.student.dim, device=device)
    padded = objective.student.padded
    for rows in consecutive_batches(range(len(documents)), batch_size):
        output = learn_from_pairs(
            objective,
            documents.pack(rows, epoch=0, budget=budget, padded=padded),
            autocast=partial(torch.autocast, device.type, dtype=dtype, enabled=dtype is not None),
            share=1,
            backward=lambda loss: None,
        )
        means.add([output.parts[name] for name in names], output.embeddings)
    objective.train(was_training)
    values = means.values()
    return {"loss": values["contrast"] + objective.mlm_weight * values.get("mlm", 0.0), **values}
