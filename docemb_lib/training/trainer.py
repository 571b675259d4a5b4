"""Distillation as one `transformers.Trainer` run: the objective is the model, so a checkpoint holds the student, the
projections, the running statistics of SoftCCA, the optimiser and the place in the shuffled documents.

A run killed anywhere continues from its last whole checkpoint and ends in bit-identical weights. The Trainer writes
checkpoints in place; a marker, written last, tells a whole one from the rest.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PrinterCallback, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from docemb_lib.errors import InputError
from docemb_lib.hardware import fast_bf16
from docemb_lib.losses import Objective
from docemb_lib.progress import progress
from docemb_lib.settings import Training
from docemb_lib.student.packing import PackedBatch
from docemb_lib.training.batches import Shuffled, TrainingDocuments, collate

logger = logging.getLogger(__name__)

CHECKPOINTS = "checkpoints"
WHOLE = "whole"  # the marker inside a finished checkpoint
PARTS = ("loss", "structural", "contextual")


class History(NamedTuple):
    """What a training run logged; every row is flat and has the update as `step`."""

    train: list[dict[str, float]]  # loss, structural, contextual, grad_norm, learning_rate
    validation: list[dict[str, float]]  # loss, structural, contextual, norm, spread


def train_objective(
    objective: Objective,
    train: TrainingDocuments,
    validation: TrainingDocuments,
    *,
    settings: Training,
    seed: int,
    folder: Path,
    validations: int = 3,
) -> History:
    """Train `objective` in place on `train`, resuming from the last whole checkpoint in `folder/checkpoints`.

    The validation loss is measured before the first update, after the last, and at even steps between
    (`validations` in all, at least two). The checkpoints stay: whoever has saved the result removes them.
    Raises InputError where there are fewer documents than one batch.
    """
    if len(train) < settings.batch_size:
        raise InputError(
            f"documents: {len(train)} training documents do not fill one batch; at least training.batch_size = "
            f"{settings.batch_size} are needed"
        )
    updates = count_updates(len(train), settings)
    checkpoints = folder / CHECKPOINTS
    last = last_whole_checkpoint(checkpoints)
    trainer = DistillationTrainer(
        model=objective,
        args=_arguments(
            settings, seed=seed, updates=updates, folder=checkpoints, validations=validations, resumed=last is not None
        ),
        train_dataset=train,
        eval_dataset=validation,
        data_collator=collate,
        callbacks=[Bar(updates), MarkWhole()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=last)
    rows = trainer.state.log_history
    return History(
        train=[row for row in rows if "learning_rate" in row],
        validation=[
            {name.removeprefix("eval_"): value for name, value in row.items()} for row in rows if "eval_loss" in row
        ],
    )


def count_updates(documents: int, settings: Training) -> int:
    """Optimiser updates of a run: whole batches only, `accumulation` of them an update, the rest in a last one."""
    batches = documents // settings.batch_size
    return settings.epochs * math.ceil(batches / settings.accumulation)


def last_whole_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint that was written to its end, or None."""
    whole = [path.parent for path in folder.glob(f"checkpoint-*/{WHOLE}")]
    return str(max(whole, key=lambda path: int(path.name.split("-")[1]))) if whole else None


def remove_checkpoints(folder: Path) -> None:
    """Remove what `train_objective` left in `folder`, once its result is saved."""
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def uses_bf16(settings: Training) -> bool:
    """Whether training runs under bf16 autocast: as set, or where the processor is fast at it."""
    return fast_bf16() if settings.bf16 is None else settings.bf16


@torch.no_grad()
def validate(objective: Objective, documents: TrainingDocuments, *, batch_size: int, bf16: bool) -> dict[str, float]:
    """Mean loss over `documents` by part, and two signs of collapse.

    `norm`: mean length of the student's embeddings; `spread`: mean cosine distance between two of them, 0 when all
    documents have become one point. A last short batch joins the one before, since losses need two documents.
    """
    device = next(objective.parameters()).device
    was_training = objective.training
    objective.eval()
    starts = list(range(0, len(documents), batch_size))
    if len(starts) > 1 and len(documents) - starts[-1] < batch_size:
        starts.pop()
    sums, count, embeddings = dict.fromkeys(PARTS, 0.0), 0, []
    for start, end in zip(starts, [*starts[1:], len(documents)], strict=True):
        batch = collate([documents[row] for row in range(start, end)])
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bf16):
            output = _run(objective, {name: tensor.to(device) for name, tensor in batch.items()})
        for part in PARTS:
            value = getattr(output, part)
            sums[part] += 0.0 if value is None else float(value) * (end - start)
        count += end - start
        embeddings.append(output.embeddings.float())
    objective.train(was_training)
    y = torch.cat(embeddings)  # (N, D)
    unit = nn.functional.normalize(y, dim=1)
    n = len(y)
    similarity = (unit.sum(0).square().sum() - n) / (n * (n - 1)) if n > 1 else torch.ones(())
    means = {part: total / count for part, total in sums.items()}
    return {**means, "norm": y.norm(dim=1).mean().item(), "spread": 1 - similarity.item()}


class DistillationTrainer(Trainer):
    """The stock Trainer, told how our batches look, how they are ordered and how they are validated."""

    control: TrainerControl

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.logged_parts: dict[str, list[float]] = {"structural": [], "contextual": []}

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any
    ) -> Tensor | tuple[Tensor, Any]:
        output = _run(model, inputs)
        for part, values in self.logged_parts.items():
            value = getattr(output, part)
            if value is not None:
                values.append(value.detach().item())
        return (output.loss, output) if return_outputs else output.loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "learning_rate" in logs:
            for part, values in self.logged_parts.items():
                if values:
                    logs[part] = sum(values) / len(values)
                    values.clear()
        super().log(logs, start_time)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Validation loss by part in place of the Trainer's padded prediction loop."""
        means = validate(
            self.model, self.eval_dataset, batch_size=self.args.per_device_eval_batch_size, bf16=self.args.bf16
        )
        metrics = {f"eval_{name}": value for name, value in means.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _get_train_sampler(self, train_dataset: Any = None) -> Shuffled:
        return Shuffled(len(self.train_dataset), self.args.seed)


class Bar(TrainerCallback):
    """A progress bar over the updates; the last of them is always validated."""

    def __init__(self, updates: int) -> None:
        self.updates = updates
        self.bar: Any = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.bar = progress(desc="training the student", total=self.updates, unit="updates")
        self.bar.update(state.global_step)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.bar.update(1)
        control.should_evaluate |= state.global_step == state.max_steps

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.bar.close()


class MarkWhole(TrainerCallback):
    """Write the marker that makes a checkpoint count, after everything else of it."""

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        marker = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}" / WHOLE
        marker.write_text(json.dumps({"step": state.global_step}), encoding="utf-8")


def _run(model: nn.Module, inputs: dict[str, Tensor]) -> Any:
    batch = PackedBatch(**{name: inputs[name] for name in PackedBatch._fields})
    return model(
        batch,
        structural=inputs.get("structural"),
        contextual=inputs.get("contextual"),
        n_structural_tokens=inputs["n_structural_tokens"],
    )


def _arguments(
    settings: Training, *, seed: int, updates: int, folder: Path, validations: int, resumed: bool
) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder),
        seed=seed,
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.batch_size,
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        bf16=uses_bf16(settings),
        use_cpu=not torch.cuda.is_available(),
        dataloader_drop_last=True,
        remove_unused_columns=False,
        logging_steps=1,  # a resumed run then logs what an unbroken one logs
        eval_strategy="steps",
        eval_on_start=not resumed,  # a resumed run has that row already
        eval_steps=max(1, math.ceil(updates / max(1, validations - 1))),
        save_strategy="steps",
        save_steps=settings.save_every,
        save_total_limit=2,  # the older one is whole while the newer is being written
        report_to="none",
        disable_tqdm=True,
    )
