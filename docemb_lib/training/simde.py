"""Gradients of a loss that compares all texts of a batch, with the activations of a few in memory (Gao et al. 2021).

Embed everything without a graph, take the loss and its gradient with regard to the embeddings, then embed a part again,
now with a graph, and hand it its share of that gradient. The second time must be like the first, dropout included.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from docemb_lib.errors import InputError
from docemb_lib.losses import ObjectiveOutput, PairObjective, group_sizes
from docemb_lib.settings import Training
from docemb_lib.student.packing import PackedBatch
from docemb_lib.training.batches import Collate, Micro, Updates
from docemb_lib.training.documents import TrainingDocuments
from docemb_lib.training.monitor import spread, validate
from docemb_lib.training.pairs import PairBatch, PairedDocuments
from docemb_lib.training.run import History, check_fills_a_batch, digest, run
from docemb_lib.training.trainer import UpdateTrainer

# ---- gradients of a loss


class Dice:
    """The random numbers that a forward pass on a device is about to draw, to be drawn again."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw as then; what is drawn afterwards is as if nothing had been drawn in here."""
        with torch.random.fork_rng([] if self.cuda is None else [self.device]):
            torch.set_rng_state(self.cpu)
            if self.cuda is not None:
                torch.cuda.set_rng_state(self.cuda, self.device)
            yield


class Compared(NamedTuple):
    losses: Tensor  # (B,)
    embeddings: Tensor  # (n, D) of all texts, in their order, without gradient


def compare_parts(
    embed: Callable[[PackedBatch], Tensor],
    parts: Sequence[PackedBatch],
    places: Sequence[Sequence[int]],
    losses_of: Callable[[Tensor], Tensor],
    *,
    share: float,
    backward: Callable[[Tensor], None],
) -> Compared:
    """Accumulate the gradients of `share` times the mean of `losses_of` all n texts' embeddings, part by part.

    embed: a part's texts to their embeddings, under autocast if there is to be any. places: of each part's texts among
    the n. A single part is embedded once, which gives the same.
    """
    order = torch.tensor([place for those in places for place in those]).argsort()
    if len(parts) == 1:
        embeddings = embed(parts[0])[order]
        losses = losses_of(embeddings)
        backward(losses.mean() * share)
        return Compared(losses.detach(), embeddings.detach())
    dice, embedded = [], []
    with torch.no_grad():
        for part in parts:
            dice.append(Dice(part.input_ids.device))
            embedded.append(embed(part))
    embeddings = torch.cat(embedded)[order].requires_grad_()
    losses = losses_of(embeddings)
    (gradient,) = torch.autograd.grad(losses.mean() * share, embeddings)
    for part, those, thrown in zip(parts, places, dice, strict=True):
        with thrown.again():
            again = embed(part)
        backward((again * gradient[those]).sum())
    return Compared(losses.detach(), embeddings.detach())


# ---- The validation loss of learning from pairs, by part.


@torch.no_grad()
def validate_pairs(
    objective: PairObjective, documents: PairedDocuments, *, batch_size: int, dtype: torch.dtype | None, budget: int
) -> dict[str, float]:
    """Means over `documents`: loss, `contrast`, `mlm`, and of the pairs' first texts, norm and spread (see `validate`).

    The pairs are those of epoch 0, so that the loss stays one function of the student. Batches are in the documents'
    order; a document that is left over joins the batch before. The loss is that of the pairs, without weight. dtype: of
    autocast, None without; budget: tokens in a pass.
    """
    device = next(objective.parameters()).device
    was_training = objective.training
    objective.eval()
    names = ["contrast", *(["mlm"] if objective.mlm_weight else [])]
    sums = torch.zeros(len(names) + 1, dtype=torch.float64, device=device)  # the last: of lengths of embeddings
    directions = torch.zeros(objective.student.dim, dtype=torch.float64, device=device)
    ends = np.cumsum(group_sizes(len(documents), batch_size)).tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        batch = documents.pack(range(start, end), epoch=0, budget=budget)
        embedded = []
        guessed = torch.zeros((), device=device)
        for part in (part.to(device) for part in batch.parts):
            with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                embedded.append(objective.embed(part.texts))
                if objective.mlm_weight:
                    guessed = guessed + objective.masked_loss(part.masked, part.labels) / max(batch.n_labels, 1)
        embeddings = torch.cat(embedded)[batch.order.to(device)]
        n = end - start
        means = [objective.contrast_losses(embeddings).mean(), *([guessed] if objective.mlm_weight else [])]
        first = embeddings[:n].double()
        sums += torch.stack([*(mean.double() * n for mean in means), first.norm(dim=1).sum()])
        directions = directions + F.normalize(first, dim=1).sum(0)
    objective.train(was_training)
    n = len(documents)
    *means_of_all, norm = (sums / n).tolist()
    found = dict(zip(names, means_of_all, strict=True))
    loss = found["contrast"] + objective.mlm_weight * found.get("mlm", 0.0)
    return {"loss": loss, **found, "norm": norm, "spread": spread(directions, n)}


# ---- simDE


class Taught(NamedTuple):
    """Training and validation documents beside their teachers' embeddings, where pairs are not all that is learnt
    from: by the rows of the files that the pairs are drawn from."""

    train: TrainingDocuments
    validation: TrainingDocuments


def train_on_pairs(
    objective: PairObjective,
    train: PairedDocuments,
    validation: PairedDocuments,
    *,
    taught: Taught | None = None,
    settings: Training,
    seed: int,
    folder: Path,
    validations: int = 3,
    title: str = "student",
) -> History:
    """Train `objective` in place on pairs of `train`, and on `taught` where it has a distillation part.

    As `train_objective`, but in one process. Raises InputError where there are more, for fewer documents than one batch
    and for pairs by dropout of a student without any.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InputError("SimDE trains in one process; start it without torchrun or accelerate")
    if (objective.distillation is None) != (taught is None):
        raise InputError("taught: documents with teachers belong to an objective with distillation, and to no other")
    check_fills_a_batch(len(train), settings)
    if train.pairs == "dropout" and not any(_dropouts(objective.student)):
        raise InputError("pairs: dropout makes no pairs of a student without dropout; set simde.dropout to 0.1")
    return run(
        PairTrainer,
        objective,
        student=objective.student,
        parts=objective.parts,
        train=train,
        validation=validation,
        documents={
            "pairs": [_digest(train), _digest(validation)],
            "taught": None if taught is None else [digest(documents) for documents in taught],
        },
        settings=settings,
        seed=seed,
        folder=folder,
        validations=validations,
        title=title,
        together=1 if taught is None else settings.batch_size,
        taught=taught,
    )


class Step(NamedTuple):
    """An update: its batches of pairs, and the same documents as teachers know them."""

    pairs: list[PairBatch]
    micros: list[Micro]


class PairTrainer(UpdateTrainer):
    """Of a `PairObjective`, in one process."""

    model: PairObjective
    train_dataset: PairedDocuments
    eval_dataset: PairedDocuments

    def __init__(self, *, taught: Taught | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.taught = taught

    def collate(self, updates: Updates) -> Callable[[list[int]], Step]:
        size, documents = self.settings.batch_size, self.train_dataset
        teach = None if self.taught is None else Collate(self.taught.train, batch_size=size, budget=self.budget)

        def step(rows: list[int]) -> Step:
            batches = [rows[start : start + size] for start in range(0, len(rows), size)]
            return Step(
                [documents.pack(batch, epoch=updates.epoch, budget=self.budget) for batch in batches],
                [] if teach is None else teach(documents.rows[rows].tolist()),
            )

        return step

    def training_step(self, model: Any, inputs: Step, num_items_in_batch: Any = None) -> Tensor:
        """The gradients of one update. Returns its loss."""
        model.train()
        outputs = [self._learn_from_pairs(batch, share=1 / len(inputs.pairs)) for batch in inputs.pairs]
        embeddings = torch.cat([output.embeddings for output in outputs])
        parts = {name: torch.stack([o.parts[name] for o in outputs]).mean() for name in outputs[0].parts}
        losses = [output.loss / len(outputs) for output in outputs]
        for micro in inputs.micros:
            output = self._learn_from_teachers(micro)
            losses.append(output.loss)
            for name, part in output.parts.items():
                parts[name] = parts.get(name, 0) + part * micro.share
        total = torch.stack(losses)
        self.check_finite([b.rows for b in inputs.pairs] + [self._pair_rows(m) for m in inputs.micros], total)
        sizes = [size for batch in inputs.pairs for size in batch.sizes] * (2 if self.model.mlm_weight else 1)
        sizes += [size for micro in inputs.micros for size in micro.batch.sizes]
        self.monitor.add(
            ObjectiveOutput(total.sum(), parts, embeddings, None),
            documents=len(embeddings),
            tokens=sum(sizes),
            flops=self.flops(sizes),
        )
        return total.sum()

    def _learn_from_pairs(self, batch: PairBatch, *, share: float) -> ObjectiveOutput:
        """share: of the update's documents. Returns the losses of the batch and the embeddings of its first texts."""
        model, weight = self.model, self.model.weight * share
        parts = [part.to(self.args.device) for part in batch.parts]

        def embed(texts: Any) -> Tensor:
            with self.compute_loss_context_manager():
                return model.embed(texts)

        compared = compare_parts(
            embed,
            [part.texts for part in parts],
            [part.places for part in parts],
            model.contrast_losses,
            share=weight,
            backward=self.accelerator.backward,
        )
        losses = {"contrast": compared.losses.mean()}
        if model.mlm_weight:
            guessed = compared.losses.new_zeros(())
            for part in parts:
                with self.compute_loss_context_manager():
                    mean = model.masked_loss(part.masked, part.labels) / max(batch.n_labels, 1)
                self.accelerator.backward(mean * (model.mlm_weight * weight))
                guessed = guessed + mean.detach()
            losses["mlm"] = guessed
        total = model.weight * (losses["contrast"] + model.mlm_weight * losses.get("mlm", 0))
        return ObjectiveOutput(total, losses, compared.embeddings[: len(batch.rows)], None)

    def _learn_from_teachers(self, micro: Micro) -> ObjectiveOutput:
        """Returns its output with the loss that it counts for."""
        micro = micro.to(self.args.device)
        distillation: Any = self.model.distillation
        with self.compute_loss_context_manager():
            output: ObjectiveOutput = distillation(micro.batch, **micro.known._asdict())
        loss = output.loss * micro.share
        self.accelerator.backward(loss)
        return output._replace(loss=loss.detach())

    def _pair_rows(self, micro: Micro) -> list[int]:
        """The documents of a pass as `train_dataset` counts them."""
        return [int(row) for row in self.train_dataset.rows.searchsorted(micro.rows)]

    def validation_means(self) -> dict[str, float]:
        options: dict[str, Any] = {
            "batch_size": self.settings.batch_size,
            "dtype": self.autocast_dtype,
            "budget": self.budget,
        }
        means = validate_pairs(self.model, self.eval_dataset, **options)
        if self.taught is None or self.model.distillation is None:
            return {**means, "loss": self.model.weight * means["loss"]}
        taught = validate(self.model.distillation, self.taught.validation, **options)
        return {**taught, **means, "loss": taught["loss"] + self.model.weight * means["loss"]}


def _digest(documents: PairedDocuments) -> str:
    """What tells these documents from others: their names and lengths, and how pairs are made of them."""
    made = [documents.pairs, documents.seed, documents.ids]
    digest = hashlib.sha256(json.dumps(made).encode())
    digest.update(documents.lengths.astype(np.int64).tobytes())
    return digest.hexdigest()


def _dropouts(student: Any) -> Iterator[bool]:
    """Whether dropout of each kind that the encoder knows is switched on."""
    for name, value in student.config.to_dict().items():
        if "dropout" in name and isinstance(value, int | float):
            yield value > 0
