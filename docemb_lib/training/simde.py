"""SimDE: a student learns from pairs of texts made of one document, without a teacher, or beside its teachers.

The run is that of distillation: the same updates, checkpoints, precision and monitoring. Negatives are those of a batch
of `batch_size` documents, however few of its texts fit into one pass.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from docemb_lib.errors import InputError
from docemb_lib.losses import ObjectiveOutput, PairObjective
from docemb_lib.settings import Training
from docemb_lib.training.batches import Collate, Micro, Updates
from docemb_lib.training.distillation import digest
from docemb_lib.training.documents import TrainingDocuments
from docemb_lib.training.gradient_cache import compare_parts
from docemb_lib.training.pair_validation import validate_pairs
from docemb_lib.training.pairs import PairBatch, PairedDocuments
from docemb_lib.training.running import History, check_fills_a_batch, run
from docemb_lib.training.trainer import UpdateTrainer
from docemb_lib.training.validation import validate


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
