"""Training on pairs of texts without a teacher (SimDE): pairs of halves, masked tokens, and the
gradient cache.

A document gives a pair: two random halves of its sentences (SimDE), or the whole document twice
under dropout (SimCSE).
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from docemb_lib.base.errors import InputError
from docemb_lib.corpus.rows import split_sentences
from docemb_lib.losses import ObjectiveOutput, PairObjective
from docemb_lib.losses.contextual import full_precision
from docemb_lib.losses.pairs import NO_LABEL
from docemb_lib.settings.sections import NO_PAIRS
from docemb_lib.student.packing import PackedBatch, pack, token_batches
from docemb_lib.student.student import Encoded
from docemb_lib.training.batches import (
    Collate,
    MicroBatch,
    Tokens,
    TrainingDocuments,
    Updates,
    consecutive_batches,
)
from docemb_lib.training.monitor import Means, validate
from docemb_lib.training.run import History, train_objective
from docemb_lib.training.trainer import DistillationTrainer

logger = logging.getLogger(__name__)
END = -1  # stands after each sentence among token ids
SHARE = (
    0.15  # of tokens to predict (Devlin et al., 2019, Section 3.1); the SimDE paper gives no rate
)
MASKED, REPLACED = (
    0.8,
    0.1,
)  # of these: shown as the mask token, shown as a random token; the rest is unchanged


def encode_sentences(tokenizer: Any, texts: Sequence[str], *, language: str = "en") -> Encoded:
    """Tokenise whole texts, without special tokens, and close every sentence that has tokens by
    `END`.
    """
    encodings = tokenizer(
        list(texts), add_special_tokens=False, truncation=False, verbose=False
    ).encodings
    sequences = []
    for text, encoding in zip(texts, encodings, strict=True):
        # A token belongs to the sentence of its last character: its first may be the space before.
        token_ends = np.array([end for _, end in encoding.offsets], dtype=np.int64)
        ends = np.cumsum(
            [len(sentence) for sentence in split_sentences(text, language=language)]
        )  # in characters
        after = np.unique(np.searchsorted(token_ends, ends, side="right"))  # tokens up to each end
        sequences.append(np.insert(np.asarray(encoding.ids, dtype=np.int32), after[after > 0], END))
    return Encoded(sequences, 0)


def sentences_of(sequence: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    tokens = np.asarray(sequence, dtype=np.int64)
    return [sentence[:-1] for sentence in np.split(tokens, np.flatnonzero(tokens == END) + 1)[:-1]]


def draw_halves(n: int, rng: np.random.Generator) -> np.ndarray:
    """Which of n >= 2 sentences go to the first half, (n,) bool; no half is empty.

    Raises ValueError for fewer.
    """
    if n < 2:
        raise ValueError(f"halves need 2 sentences, got {n}")
    while True:
        first = rng.random(n) < 0.5
        if first.any() and not first.all():
            return first


def generator_of(document: str, *, seed: int, epoch: int) -> np.random.Generator:
    digest = np.frombuffer(hashlib.sha256(document.encode()).digest(), dtype=np.uint32)
    return np.random.default_rng([seed, epoch, *digest.tolist()])


def mask_tokens(
    ids: np.ndarray, rng: np.random.Generator, *, mask_id: int, vocabulary: int
) -> tuple[np.ndarray, np.ndarray]:
    """Choose tokens of `ids`, (T,), none of them special, and mask most of the chosen.

    Returns the masked ids and the labels, (T,) both; a label is the token where it is chosen, else
    `NO_LABEL`."""
    chosen = rng.random(len(ids)) < SHARE
    action = rng.random(len(ids))
    random_ids = rng.integers(vocabulary, size=len(ids))
    shown = np.where(
        action < MASKED, mask_id, np.where(action < MASKED + REPLACED, random_ids, ids)
    )
    return np.where(chosen, shown, ids), np.where(chosen, ids, NO_LABEL)


class Part(NamedTuple):  # the texts of a batch that one forward pass holds
    places: list[
        int
    ]  # among the batch's texts: the first texts of all B pairs, then the second ones
    texts: PackedBatch
    masked: PackedBatch
    labels: Tensor  # (T,), see `mask_tokens`


class PairBatch(NamedTuple):
    """A batch of B pairs in as many parts as memory asks for; the loss compares each text with all
    others.
    """

    rows: list[int]  # of the B documents
    parts: list[Part]
    n_labels: int  # tokens to predict in all parts

    @property
    def order(self) -> Tensor:  # indices that put the texts of all parts into their order, (2B,)
        return torch.tensor([place for part in self.parts for place in part.places]).argsort()


class PairedDocuments:
    """Pairs of the documents of two sentences and more; logs how many documents are left out, and
    how many are cut.

    sentences: by row, from `encode_sentences`; ids: by row, unique; max_tokens: of a text, special
    tokens included; pairs: "halves" or "dropout", which leave out the same documents, so that a
    comparison is of the pairs alone.
    """

    def __init__(
        self,
        sentences: Tokens,
        *,
        ids: Sequence[str],
        tokenizer: Any,
        max_tokens: int,
        pairs: Literal["halves", "dropout"] = "halves",
        seed: int = 0,
    ) -> None:
        n = len(sentences)
        self.n_sentences = np.array(
            [np.count_nonzero(np.asarray(sentences[row]) == END) for row in range(n)]
        )
        self.rows = np.flatnonzero(self.n_sentences >= 2)  # of `sentences`, by row of this object
        if (kept := len(self.rows)) < 2:
            few = f"{n - kept} of {n} have fewer than two sentences, so fewer than two documents are left"
            raise InputError(f"documents: {few}; give documents of several sentences")
        if kept < n:
            message = "%d of %d documents have fewer than two sentences, and are left out"
            logger.warning(message, n - kept, n)
        self.sentences, self.pairs, self.seed = sentences, pairs, seed
        self.ids = [ids[row] for row in self.rows.tolist()]
        self.lengths = np.array(
            [len(sentences[row]) - self.n_sentences[row] for row in self.rows.tolist()]
        )  # tokens
        special = tokenizer("")["input_ids"]
        self._before, self._after = (
            np.array([ids, ids, [NO_LABEL] * len(ids)]) for ids in (special[:1], special[1:])
        )
        self._room = max_tokens - len(special)
        n_cut = np.count_nonzero(self.lengths > self._room * (2 if pairs == "halves" else 1))
        if n_cut:
            logger.warning(
                "%d of %d documents are longer than the texts of a pair, and are cut", n_cut, kept
            )
        self._mask_id, self._vocabulary = tokenizer.mask_token_id, len(tokenizer)

    def __len__(self) -> int:
        return len(self.rows)

    def digest(self) -> str:
        names = json.dumps([self.pairs, self.seed, self.ids]).encode()
        return hashlib.sha256(names + self.lengths.astype(np.int64).tobytes()).hexdigest()

    def pack(
        self, rows: Sequence[int], *, epoch: int, budget: int, padded: Callable[[int], int] = int
    ) -> PairBatch:
        """The pairs of a batch in this epoch. budget: tokens in a pass, with padding; a longer text
        has a pass of its own; padded: see `Student.padded`, by default without padding."""
        first, second = zip(*(self._draw(row, epoch) for row in rows), strict=True)
        texts = [*first, *second]
        parts = []
        for places in token_batches([padded(text.shape[1]) for text in texts], budget):
            ids, masked, labels = zip(*(texts[place] for place in places), strict=True)
            parts.append(
                Part(places, pack(ids), pack(masked), torch.from_numpy(np.concatenate(labels)))
            )
        return PairBatch(
            list(rows), parts, n_labels=sum(int((part.labels != NO_LABEL).sum()) for part in parts)
        )

    def _draw(self, row: int, epoch: int) -> list[np.ndarray]:
        """Ids with special tokens, masked ids and labels of both texts of a pair, (3, T) each."""
        rng = generator_of(self.ids[row], seed=self.seed, epoch=epoch)
        sentences = sentences_of(self.sentences[int(self.rows[row])])
        sides = [np.ones(len(sentences), dtype=bool)] * 2
        if self.pairs == "halves":
            in_first = draw_halves(len(sentences), rng)
            sides = [in_first, ~in_first]
        texts = []
        for side in sides:
            ids = np.concatenate([s for s, chosen in zip(sentences, side, strict=True) if chosen])[
                : self._room
            ]
            masked, labels = mask_tokens(
                ids, rng, mask_id=self._mask_id, vocabulary=self._vocabulary
            )
            texts.append(np.concatenate([self._before, [ids, masked, labels], self._after], axis=1))
        return texts


def accumulate_gradients(
    embed: Callable[[PackedBatch], Tensor],
    parts: Sequence[PackedBatch],
    order: Tensor,
    losses_of: Callable[[Tensor], Tensor],
    *,
    share: float,
    backward: Callable[[Tensor], object],
) -> tuple[Tensor, Tensor]:
    """Accumulate the gradients of `share` times the mean of `losses_of` the embeddings of all n
    texts, part by part.

    The gradient cache (Gao et al., 2021): 1. Embed each part under checkpointing, which keeps no
    activations. 2. Take the gradient g of the loss with regard to the embeddings e. 3.
    Backpropagate sum(e * g) of each part: checkpointing repeats its forward pass with the same
    dropout. By the chain rule this is the gradient of the whole batch.

    embed: from the texts of a part to embeddings; order: indices that put the texts of all parts
    into their order, (n,). Returns the losses, (B,), and the embeddings of all texts in order, (n,
    D), without gradient.
    """
    if len(parts) == 1 or not torch.is_grad_enabled():
        embeddings = torch.cat([embed(part) for part in parts])[order]
        losses = losses_of(embeddings)
        backward(losses.mean() * share)
    else:
        embedded = [checkpoint(embed, part, use_reentrant=False) for part in parts]
        leaf = torch.cat(embedded).detach().requires_grad_()
        embeddings = leaf[order]
        losses = losses_of(embeddings)
        (gradient,) = torch.autograd.grad(losses.mean() * share, leaf)
        for part, own in zip(
            embedded, gradient.split([len(part) for part in embedded]), strict=True
        ):
            backward((part * own).sum())
    return losses.detach(), embeddings.detach()


def learn_from_pairs(
    model: PairObjective,
    batch: PairBatch,
    *,
    device: torch.device,
    autocast: Callable[[], Any],
    share: float,
    backward: Callable[[Tensor], object],
) -> ObjectiveOutput:
    """The losses of a batch and the embeddings of its first texts; accumulates the gradients of
    `share` of the loss.
    """
    parts, weight = send_to_device(batch.parts, device, non_blocking=True), model.weight * share

    def embed(texts: Any) -> Tensor:
        with autocast():
            return full_precision(model.student(texts))

    texts = [part.texts for part in parts]
    contrast, embeddings = accumulate_gradients(
        embed,
        texts,
        batch.order,
        lambda both: model.contrast(*both.chunk(2)),
        share=weight,
        backward=backward,
    )
    losses = {"contrast": contrast.mean()}
    if model.head is not None and model.mlm_weight:
        losses["mlm"], words = (
            contrast.new_zeros(()),
            model.student.model.get_input_embeddings().weight,
        )
        for part in parts:
            with autocast():
                mean = model.head.loss(model.student.hidden(part.masked), part.labels, words) / max(
                    batch.n_labels, 1
                )
            backward(mean * (model.mlm_weight * weight))
            losses["mlm"] = losses["mlm"] + mean.detach()
    total = model.weight * (losses["contrast"] + model.mlm_weight * losses.get("mlm", 0))
    return ObjectiveOutput(total, losses, embeddings[: len(batch.rows)], None)


def train_on_pairs(
    objective: PairObjective,
    train: PairedDocuments,
    validation: PairedDocuments,
    *,
    taught: Sequence[TrainingDocuments] = (),
    **options: Any,
) -> History:
    """Train `objective` in place on pairs of `train`, with the options of `train_objective`.

    taught: where it distils, the same documents of training and of validation with teacher
    embeddings.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        mend = "start it without torchrun and accelerate launch"
        raise InputError(f"SimDE trains in one process; {mend}")
    if train.pairs == "dropout" and not has_dropout(objective.student):
        raise InputError(NO_PAIRS)
    return train_objective(
        objective,
        train,
        validation,
        *taught,
        **options,
        trainer_class=PairTrainer,
        pass_documents=None if taught else 1,
        taught=taught,
    )


def has_dropout(student: Any) -> bool:
    options = student.config.to_dict().items()
    return any(
        "dropout" in name and isinstance(value, int | float) and value > 0
        for name, value in options
    )


class PairTrainer(DistillationTrainer):
    """Trains a `PairObjective`, in one process."""

    model: PairObjective
    train_dataset: PairedDocuments

    def __init__(self, *, taught: Sequence[TrainingDocuments], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.taught = taught

    def collate(
        self, updates: Updates
    ) -> Callable[[list[int]], tuple[list[PairBatch], list[MicroBatch]]]:
        size, documents, padded = (
            self.settings.batch_size,
            self.train_dataset,
            self.model.student.padded,
        )
        teach = Collate(self.taught[0], size, self.budget, padded) if self.taught else None

        def update(rows: list[int]) -> tuple[list[PairBatch], list[MicroBatch]]:
            batches = consecutive_batches(rows, size)
            pairs = [
                documents.pack(batch, epoch=updates.epoch, budget=self.budget, padded=padded)
                for batch in batches
            ]
            return pairs, [] if teach is None else teach(documents.rows[rows].tolist())

        return update

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        model.train()
        batches, micro_batches = inputs
        learn = partial(
            learn_from_pairs,
            self.model,
            device=self.args.device,
            autocast=self.compute_loss_context_manager,
            share=1 / len(batches),
            backward=self.accelerator.backward,
        )
        outputs = [learn(batch) for batch in batches]
        parts = {
            name: torch.stack([o.parts[name] for o in outputs]).mean() for name in outputs[0].parts
        }
        losses = [output.loss / len(outputs) for output in outputs]
        rows = [batch.rows for batch in batches]
        tokens = sum(sum(part.texts.sizes) for batch in batches for part in batch.parts)
        tokens *= 2 if self.model.mlm_weight else 1  # MLM reads each text a second time
        for micro in micro_batches:
            output, loss = self.learn(self.model.distillation, micro, scale=micro.share)
            losses.append(loss)
            rows.append(self.train_dataset.rows.searchsorted(micro.rows).tolist())
            tokens += micro.tokens
            for name, value in output.parts.items():
                parts[name] = parts.get(name, 0) + value * micro.share
        each, embeddings = torch.stack(losses), torch.cat([output.embeddings for output in outputs])
        self.check_finite(rows, each)
        output = ObjectiveOutput(each.sum(), parts, embeddings, None)
        self.monitor.add(output, documents=len(embeddings), tokens=tokens)
        return each.sum()

    def validation_means(self) -> dict[str, float]:
        means = validate_pairs(self.model, self.eval_dataset, **self.validation_options)
        if self.model.distillation is None:
            return {**means, "loss": self.model.weight * means["loss"]}
        taught = validate(self.model.distillation, self.taught[1], **self.validation_options)
        return {**taught, **means, "loss": taught["loss"] + self.model.weight * means["loss"]}


@torch.no_grad()
def validate_pairs(
    objective: PairObjective,
    documents: PairedDocuments,
    *,
    batch_size: int,
    dtype: torch.dtype | None,
    budget: int,
) -> dict[str, float]:
    """Means over `documents` of loss (without `weight`), `contrast`, `mlm`; `norm` and `spread` are
    of the first texts.

    Pairs are of epoch 0, which keeps the loss one function of the student. Batches as in
    `validate`."""
    device = next(objective.parameters()).device
    was_training = objective.training
    objective.eval()
    names = ["contrast", "mlm"] if objective.mlm_weight else ["contrast"]
    means = Means(names, dim=objective.student.dim, device=device)
    autocast = partial(torch.autocast, device.type, dtype=dtype, enabled=dtype is not None)
    learn = partial(
        learn_from_pairs,
        objective,
        device=device,
        autocast=autocast,
        share=1,
        backward=lambda loss: None,
    )
    for rows in consecutive_batches(range(len(documents)), batch_size):
        output = learn(
            documents.pack(rows, epoch=0, budget=budget, padded=objective.student.padded)
        )
        means.add([output.parts[name] for name in names], output.embeddings)
    objective.train(was_training)
    values = means.values()
    return {"loss": values["contrast"] + objective.mlm_weight * values.get("mlm", 0.0), **values}
